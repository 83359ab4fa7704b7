#include "quantize/shard_writer.h"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/numbers.h"
#include "quant/weight_scan.h"

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

struct Task {
  size_t tensor;
  int64_t first, count;  // rows, or bytes of a copy
};

std::vector<Task> tasks_of(const Shard& shard, const Recipe& recipe) {
  std::vector<Task> out;
  const auto add = [&](size_t tensor, int64_t total, int64_t unit) {
    for (int64_t first = 0; first < total; first += unit) out.push_back({tensor, first, std::min(unit, total - first)});
  };
  for (size_t i = 0; i < shard.tensors.size(); ++i) {
    const OutputTensor& tensor = shard.tensors[i];
    if (tensor.part == Part::kCopy) {
      add(i, int64_t(tensor.copied->bytes.size()), kCopyBytes);
    } else if (tensor.part != Part::kScales) {
      add(i, tensor.matrix->rows, strip_rows(*tensor.matrix, recipe));
    }
  }
  return out;
}

}  // namespace

Repacked::Repacked(const Shard& shard) {
  for (const OutputTensor& tensor : shard.tensors) {
    if (tensor.part == Part::kScales || tensor.matrix == nullptr || tensor.matrix->weight == nullptr) continue;
    if (tensor.matrix->weight->repack != nullptr) weights_.push_back(tensor.matrix->weight.get());
  }
  repack_weights(weights_);
}

Repacked::~Repacked() {
  for (Weight* weight : weights_) {
    weight->owned = {};
    weight->data = {};
  }
}

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
  std::vector<TensorShape> shapes;
  for (const OutputTensor& tensor : shard.tensors) shapes.push_back(tensor.shape);
  SafetensorsWriter writer(path, shapes);
  std::map<const SourceMatrix*, MatrixQuantizer> quantizers;
  for (const OutputTensor& tensor : shard.tensors) {
    if (tensor.part != Part::kCodes) continue;
    quantizers.try_emplace(tensor.matrix, *tensor.matrix, recipe, weights_or_null(weights, *tensor.matrix))
        .first->second.find_whole_scale(true);
    if (told) told(0);
  }
  const std::vector<Task> tasks = tasks_of(shard, recipe);
  std::atomic<uint64_t> done{0};
  const auto work = [&](size_t index) {
    const Task& task = tasks[index];
    const OutputTensor& tensor = shard.tensors[task.tensor];
    if (tensor.part == Part::kCopy) {
      const auto bytes = tensor.copied->bytes.subspan(size_t(task.first), size_t(task.count));
      writer.write(task.tensor, uint64_t(task.first), bytes);
      if (tensor.mapped) release_pages(bytes);
      done += uint64_t(task.count);
      return;
    }
    const SourceMatrix& matrix = *tensor.matrix;
    if (tensor.part == Part::kCodes) {
      std::vector<std::byte> codes(size_t(task.count * matrix.cols));
      quantizers.at(&matrix).strip(task.first, task.count, codes);
      writer.write(task.tensor, uint64_t(task.first * matrix.cols), codes);
    } else if (!matrix.plain.empty() && matrix.multipliers == nullptr) {
      const int64_t row_bytes = matrix.cols * element_bytes(matrix.type);
      writer.write(task.tensor, uint64_t(task.first * row_bytes),
                   matrix.plain.subspan(size_t(task.first * row_bytes), size_t(task.count * row_bytes)));
    } else {
      writer.write(task.tensor, uint64_t(task.first * matrix.cols * element_bytes(matrix.type)),
                   decoded_rows(matrix, task.first, task.count));
    }
    release_rows(matrix, task.first, task.count);
    done += uint64_t(task.count * matrix.cols * element_bytes(matrix.type));
  };
  on_all_cores(tasks.size(), work, [&] {
    if (told) told(done);
  });
  for (size_t i = 0; i < shard.tensors.size(); ++i) {
    const OutputTensor& tensor = shard.tensors[i];
    if (tensor.part == Part::kScales) writer.write(i, 0, quantizers.at(tensor.matrix).stored_scales());
  }
  writer.keep();
}

Likeness compare(const SourceMatrix& matrix, const Weight& written, bool as_tool, std::span<const int64_t> places) {
  const int64_t rows = strip_rows(matrix);
  std::vector<LikenessSum> sums(size_t((matrix.rows + rows - 1) / rows));
  on_all_cores(sums.size(), [&](size_t strip) {
    RowReader reader(matrix);
    const int64_t first = int64_t(strip) * rows, count = std::min(rows, matrix.rows - first);
    const std::span<const float> reference = reader.tile(first, count, 0, matrix.cols);
    std::vector<float> values(size_t(matrix.cols));
    for (int64_t r = 0; r < count; ++r) {
      decode_row(written, places.empty() ? first + r : places[size_t(first + r)], values);
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
