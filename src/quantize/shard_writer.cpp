#include "quantize/shard_writer.h"

#include <algorithm>
#include <array>
#include <atomic>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/numbers.h"
#include "quantize/repacked.h"

namespace qgen::quantize {
namespace {

using Part = OutputTensor::Part;

constexpr int64_t kCopyBytes = 8 << 20;

int64_t element_bytes(Dtype type) { return dtype_bits(type) / 8; }

uint64_t matrix_bytes(const SourceMatrix& matrix) {
  return uint64_t(matrix.rows * matrix.cols) * uint64_t(element_bytes(matrix.type));
}

const float* weights_or_null(const ColumnWeights& weights, const SourceMatrix& matrix) {
  const auto found = weights.find(&matrix);
  return found == weights.end() ? nullptr : found->second.data();
}

// The values of rows in the matrix' own type.
std::vector<std::byte> decoded_rows(const SourceMatrix& matrix, int64_t first, int64_t rows) {
  RowReader reader(matrix);
  return stored_floats(reader.tile(first, rows, 0, matrix.cols), matrix.type);
}

// Limits of a layer's inputs, say, may be infinite where there are none.
// Not buffers, which may hold infinities.
bool is_weight(const TensorView& tensor) {
  constexpr std::array<std::string_view, 5> kEndings = {".weight", ".bias", ".A_log", ".D", ".dt_bias"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return tensor.name.ends_with(ending); });
}

struct Task {
  size_t tensor;
  int64_t first, count;  // rows, or bytes of a copy
};

void add_tasks(std::vector<Task>& out, size_t tensor, int64_t total, int64_t unit) {
  for (int64_t first = 0; first < total; first += unit) out.push_back({tensor, first, std::min(unit, total - first)});
}

// Copies first, then the matrices batch by batch; what a batch needs goes away with it.
class ShardWriter {
 public:
  ShardWriter(const Shard& shard, const std::filesystem::path& path, const Recipe& recipe, const ColumnWeights& weights,
              const std::function<void(uint64_t)>& told)
      : shard_(shard), recipe_(recipe), weights_(weights), told_(told), writer_(path, shapes_of(shard)) {}

  void run() {
    std::vector<Task> copies;
    std::vector<const SourceMatrix*> matrices;
    for (size_t i = 0; i < shard_.tensors.size(); ++i) {
      const OutputTensor& tensor = shard_.tensors[i];
      if (tensor.part == Part::kCopy) {
        add_tasks(copies, i, int64_t(tensor.copied->bytes.size()), kCopyBytes);
      } else if (tensor.part == Part::kScales) {
        scales_[tensor.matrix] = i;
      } else {
        values_[tensor.matrix] = i;
        matrices.push_back(tensor.matrix);
      }
    }
    on_all_cores(
        copies.size(), [&](size_t i) { copy(copies[i]); }, [&] { tell(); });
    for (const auto batch : in_batches(matrices)) write(batch);
    writer_.keep();
  }

 private:
  static std::vector<TensorShape> shapes_of(const Shard& shard) {
    std::vector<TensorShape> out;
    for (const OutputTensor& tensor : shard.tensors) out.push_back(tensor.shape);
    return out;
  }

  void tell() const {
    if (told_) told_(done_);
  }

  void copy(const Task& task) {
    const OutputTensor& tensor = shard_.tensors[task.tensor];
    const auto bytes = tensor.copied->bytes.subspan(size_t(task.first), size_t(task.count));
    // First of all the kernel reads them: of a file that was cut off it gives an error, not a signal.
    writer_.write(task.tensor, uint64_t(task.first), bytes);
    if (is_weight(*tensor.copied) && !all_finite(bytes, tensor.copied->dtype)) fail_values(*tensor.copied);
    if (tensor.mapped) release_pages(bytes);
    done_ += uint64_t(task.count);
  }

  void write(std::span<const SourceMatrix* const> matrices) {
    const Repacked repacked(matrices);
    std::map<const SourceMatrix*, MatrixQuantizer> quantizers;
    std::vector<Task> tasks;
    for (const SourceMatrix* matrix : matrices) {
      const size_t tensor = values_.at(matrix);
      if (shard_.tensors[tensor].part == Part::kCodes) {
        quantizers.try_emplace(matrix, *matrix, recipe_, weights_or_null(weights_, *matrix))
            .first->second.find_whole_scale(true);
      }
      add_tasks(tasks, tensor, matrix->rows, strip_rows(*matrix, recipe_));
      tell();
    }
    const auto work = [&](size_t i) { write_rows(tasks[i], quantizers); };
    on_all_cores(tasks.size(), work, [&] { tell(); });
    for (const auto& [matrix, quantizer] : quantizers) writer_.write(scales_.at(matrix), 0, quantizer.stored_scales());
  }

  void write_rows(const Task& task, std::map<const SourceMatrix*, MatrixQuantizer>& quantizers) {
    const OutputTensor& tensor = shard_.tensors[task.tensor];
    const SourceMatrix& matrix = *tensor.matrix;
    const int64_t row_bytes = matrix.cols * element_bytes(matrix.type);
    if (tensor.part == Part::kCodes) {
      std::vector<std::byte> codes(size_t(task.count * matrix.cols));
      quantizers.at(&matrix).strip(task.first, task.count, codes);
      writer_.write(task.tensor, uint64_t(task.first * matrix.cols), codes);
    } else if (!matrix.plain.empty() && matrix.multipliers == nullptr && !matrix.moved()) {
      write_floats(task, matrix, matrix.plain.subspan(size_t(task.first * row_bytes), size_t(task.count * row_bytes)));
    } else {
      write_floats(task, matrix, decoded_rows(matrix, task.first, task.count));
    }
    release_rows(matrix, task.first, task.count);
    done_ += uint64_t(task.count * row_bytes);
  }

  void write_floats(const Task& task, const SourceMatrix& matrix, std::span<const std::byte> rows) {
    writer_.write(task.tensor, uint64_t(task.first * matrix.cols * element_bytes(matrix.type)), rows);
    if (!all_finite(rows, matrix.type)) fail_values(matrix, matrix.type);
  }

  const Shard& shard_;
  const Recipe& recipe_;
  const ColumnWeights& weights_;
  const std::function<void(uint64_t)>& told_;
  SafetensorsWriter writer_;
  std::map<const SourceMatrix*, size_t> values_, scales_;  // their tensors
  std::atomic<uint64_t> done_{0};
};

}  // namespace

uint64_t source_bytes(const Shard& shard) {
  uint64_t total = 0;
  for (const OutputTensor& tensor : shard.tensors) {
    if (tensor.part == Part::kCopy) total += tensor.copied->bytes.size();
    if (tensor.part == Part::kCodes || tensor.part == Part::kDecoded) total += matrix_bytes(*tensor.matrix);
  }
  return total;
}

void write_shard(const Shard& shard, const std::filesystem::path& path, const Recipe& recipe,
                 const ColumnWeights& weights, const std::function<void(uint64_t)>& told) {
  ShardWriter(shard, path, recipe, weights, told).run();
}

Likeness compare(const SourceMatrix& matrix, const Weight& written, bool as_tool, const Places& places) {
  const int64_t rows = strip_rows(matrix);
  std::vector<LikenessSum> sums(size_t((matrix.rows + rows - 1) / rows));
  on_all_cores(sums.size(), [&](size_t strip) {
    RowReader reader(matrix);
    const int64_t first = int64_t(strip) * rows, count = std::min(rows, matrix.rows - first);
    const std::span<const float> reference = reader.tile(first, count, 0, matrix.cols);
    std::vector<float> values(size_t(matrix.cols)), moved(places.cols.size());
    for (int64_t r = 0; r < count; ++r) {
      decode_row(written, places.rows.empty() ? first + r : places.rows[size_t(first + r)], values);
      for (size_t k = 0; k < moved.size(); ++k) moved[k] = values[size_t(places.cols[k])];
      if (!moved.empty()) std::ranges::copy(moved, values.begin());
      if (as_tool && matrix.type == Dtype::kBf16) {
        for (float& value : values) value = bf16_to_float(float_to_bf16(value));
      }
      sums[strip].add(reference.data() + r * matrix.cols, values.data(), matrix.cols);
    }
    release_rows(matrix, first, count);
  });
  LikenessSum all;
  for (const LikenessSum& sum : sums) all.merge(sum);
  return all.result(as_tool);
}

}  // namespace qgen::quantize
