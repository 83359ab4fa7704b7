#include "quantize/gguf_job.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/numbers.h"
#include "model/open.h"
#include "model/planner.h"
#include "quantize/compare_models.h"
#include "quantize/failed_mark.h"
#include "quantize/gguf_compare.h"
#include "quantize/gguf_layout.h"
#include "quantize/matrix_quantizer.h"
#include "quantize/preparation.h"
#include "quantize/quantized_source.h"
#include "quantize/repacked.h"
#include "quantize/source_files.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Rows of a matrix that become bytes of a tensor.
struct Task {
  size_t tensor;
  const SourceMatrix* matrix;
  int64_t row_in_tensor;  // of the matrix' row 0
  int64_t first, count;
};

// Matrices batch by batch; what a batch needs goes away with it.
class Writer {
 public:
  Writer(const GgufLayout& layout, const fs::path& path, const Recipe& recipe, const ColumnWeights& weights)
      : layout_(layout), recipe_(recipe), weights_(weights), file_(path, layout.keys, layout.shapes) {
    std::set<const TensorView*> counted;
    for (size_t i = 0; i < layout.shapes.size(); ++i) {
      int64_t row = 0;
      for (const SourceMatrix* matrix : layout.contents[i].matrices) {
        matrices_.push_back(matrix);
        places_[matrix] = {i, row};
        row += matrix->rows;
        quantized_ += layout.shapes[i].type == Dtype::kQ8_0;
        decoded_bytes_ += rows_bytes(*matrix, matrix->rows);
        stored_bytes_ += quantize::stored_bytes(*matrix, counted);
      }
      const auto& vector = layout.contents[i].vector;
      if (!vector.empty()) file_.write(i, 0, std::as_bytes(std::span(vector)));
    }
  }

  int64_t quantized() const { return quantized_; }
  uint64_t bytes() const { return file_.size(); }
  uint64_t stored_bytes() const { return stored_bytes_; }    // of the source's files
  uint64_t decoded_bytes() const { return decoded_bytes_; }  // of its matrices, in the types of unquantized ones

  // The file before keep(); before write() without the values of matrices.
  fs::path readable() const { return file_.readable(); }

  // `told`: now and then how many bytes of the source are done, on the calling thread; it may throw.
  void write(const std::function<void(uint64_t bytes)>& told) {
    std::atomic<uint64_t> done{0};
    for (const auto batch : in_batches(matrices_)) {
      const Repacked repacked(batch);
      std::vector<Task> tasks;
      for (const SourceMatrix* matrix : batch) {
        const int64_t rows = strip_rows(*matrix);
        const Place& place = places_.at(matrix);
        for (int64_t first = 0; first < matrix->rows; first += rows)
          tasks.push_back({place.tensor, matrix, place.row, first, std::min(rows, matrix->rows - first)});
      }
      on_all_cores(
          tasks.size(),
          [&](size_t index) {
            run(tasks[index]);
            done += rows_bytes(*tasks[index].matrix, tasks[index].count);
          },
          [&] { told(done); });
    }
  }

  // Gives the file its name. `replace`: in place of one that has it, else that is an error.
  void keep(bool replace) { file_.keep(replace ? NewFile::Existing::kReplace : NewFile::Existing::kRefuse); }

 private:
  struct Place {
    size_t tensor;
    int64_t row;  // of the matrix' row 0
  };

  static uint64_t rows_bytes(const SourceMatrix& matrix, int64_t rows) {
    return uint64_t(rows * matrix.cols) * uint64_t(dtype_bits(matrix.type) / 8);
  }

  void run(const Task& task) {
    const GgufTensorShape& shape = layout_.shapes[task.tensor];
    const std::vector<std::byte> rows = shape.type == Dtype::kQ8_0 ? blocks(task) : floats(task, shape.type);
    // Those of another type may be too large for F16.
    if (!all_finite(rows, shape.type)) fail_values(*task.matrix, shape.type);
    const size_t row_bytes = rows.size() / size_t(task.count);
    const GgufContent& content = layout_.contents[task.tensor];
    if (content.rows.empty()) {
      file_.write(task.tensor, uint64_t(task.row_in_tensor + task.first) * row_bytes, rows);
    } else {
      for (int64_t n = 0; n < task.count; ++n) {
        file_.write(task.tensor, uint64_t(content.row_of(task.first + n)) * row_bytes,
                    std::span(rows).subspan(size_t(n) * row_bytes, row_bytes));
      }
    }
    release_rows(*task.matrix, task.first, task.count);
  }

  // Q8_0: the scale of each 32 columns in front of their codes.
  std::vector<std::byte> blocks(const Task& task) const {
    const GgufContent& content = layout_.contents[task.tensor];
    const int64_t cols = task.matrix->cols, groups = cols / kQ8_0BlockElements;
    const auto whole = layout_.wholes.find(task.matrix);
    const auto own = weights_.find(whole == layout_.wholes.end() ? task.matrix : whole->second);
    const MatrixQuantizer quantizer(*task.matrix, recipe_, own == weights_.end() ? nullptr : own->second.data(),
                                    MatrixQuantizer::Scales::kOfStrips);
    std::vector<std::byte> codes(size_t(task.count * cols));
    std::vector<float> scales(size_t(task.count * groups));
    quantizer.strip(task.first, task.count, codes, scales);
    // A scale that is cut off would cut off what it scales.
    if (std::ranges::any_of(scales, [](float scale) { return scale >= kLargestF16; }))
      fail_values(*task.matrix, Dtype::kQ8_0);
    std::vector<std::byte> out(size_t(task.count * groups * kQ8_0BlockBytes));
    for (int64_t i = 0; i < task.count * groups; ++i) {
      const uint16_t scale = float_to_f16(scales[size_t(i)]);
      const int64_t column = i % groups * kQ8_0BlockElements;
      const int64_t to = content.cols.empty() ? column : content.cols[size_t(column)];
      std::byte* const block = out.data() + (i / groups * groups + to / kQ8_0BlockElements) * kQ8_0BlockBytes;
      std::memcpy(block, &scale, sizeof scale);
      std::memcpy(block + sizeof scale, codes.data() + i * kQ8_0BlockElements, size_t(kQ8_0BlockElements));
    }
    return out;
  }

  std::vector<std::byte> floats(const Task& task, Dtype type) const {
    const std::vector<int64_t>& order = layout_.contents[task.tensor].cols;
    RowReader reader(*task.matrix);
    const std::span<const float> values = reader.tile(task.first, task.count, 0, task.matrix->cols);
    if (order.empty()) return stored_floats(values, type);
    std::vector<float> moved(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t column = i % order.size();
      moved[i - column + size_t(order[column])] = values[i];
    }
    return stored_floats(moved, type);
  }

  const GgufLayout& layout_;
  const Recipe& recipe_;
  const ColumnWeights& weights_;
  GgufWriter file_;
  std::vector<const SourceMatrix*> matrices_;
  std::map<const SourceMatrix*, Place> places_;
  int64_t quantized_ = 0;
  uint64_t stored_bytes_ = 0, decoded_bytes_ = 0;
};

void check_target(const JobOptions& options) {
  std::error_code error;
  if (fs::is_directory(options.out, error)) {
    fail(ErrorKind::kUsage, fmt::format("--out {}: a folder (expected a file)", options.out.string()),
         fmt::format("--out {}", (options.out / "model-Q8_0.gguf").string()));
  }
  if (!options.force) refuse_existing("--out", options.out);
}

// The file to be written must have the plan of the original.
void check_same_steps(const fs::path& written, const Plan& original) {
  std::string difference =
      different_step([&] { return make_plan(open_checkpoint(locate_model(written.string()), true)); }, original);
  if (difference.empty()) return;
  // The file has no name yet that would say anything.
  for (const std::string& name : {written.string(), written.filename().string()}) {
    if (difference.starts_with(name + ": ")) difference.erase(0, name.size() + 2);
  }
  fail(ErrorKind::kModel,
       fmt::format("{}: llama.cpp's format cannot say how this model computes ({})",
                   original.checkpoint.location().name, difference),
       "other formats keep config.json: --to fp8-channel, --to int8");
}

}  // namespace

JobReport run_gguf_job(const JobOptions& options, const JobControl& control) {
  const auto start = Clock::now();
  check_target(options);
  Preparation prepared(options);
  const Source& source = prepared.source();
  const fs::path mark = failed_mark_beside(options.out);
  const SourceFiles source_files(source, options.statistics);
  for (const fs::path& target : {options.out, mark}) source_files.refuse(target);
  // First of all, since it refuses what a run would refuse.
  const auto original = source.quantized ? plan_of(source) : plan_of_files(source);
  const GgufLayout layout = lay_out_gguf(source, prepared.reasons());
  JobReport report = prepared.take_report();
  for (const auto& [reason, count] : layout.left) report.kept[reason] += count;
  const auto check_stopped = [&] {
    if (control.stopped && control.stopped()) fail(ErrorKind::kRuntime, "stopped", "nothing was written");
  };

  ShardReport shard;
  shard.file = options.out.filename().string();
  shard.index = shard.count = 1;
  Writer writer(layout, options.out, options.recipe, prepared.weights());
  shard.quantized = writer.quantized();
  shard.copied = std::ranges::count_if(layout.shapes, [](const auto& shape) { return shape.type != Dtype::kQ8_0; });
  shard.bytes_read = report.bytes_read = writer.stored_bytes();
  shard.bytes_written = report.bytes_written = writer.bytes();
  check_same_steps(writer.readable(), *original);
  try {
    writer.write([&](uint64_t done) {
      check_stopped();
      if (control.progress) control.progress(shard, done, writer.decoded_bytes());
    });
  } catch (const Error&) {
    source_files.check_unchanged();  // the cause, where they are not
    throw;
  }
  shard.seconds = std::chrono::duration<double>(Clock::now() - start).count();

  const auto verifying = Clock::now();
  shard.comparisons = compare_gguf(layout, writer.readable(), options.verified, [&](size_t done, size_t all) {
    check_stopped();
    if (control.comparing) control.comparing(shard, done, all);
  });
  shard.verify_seconds = std::chrono::duration<double>(Clock::now() - verifying).count();
  source_files.check_unchanged();
  report.shards.push_back(std::move(shard));
  // A file that fails is never without its mark.
  if (report.failed()) mark_failed(mark, report.shards);
  writer.keep(options.force);
  if (!report.failed()) mark_failed(mark, report.shards);
  if (control.shard_done) control.shard_done(report.shards.back());
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace qgen::quantize
