#include "quantize/job.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "checkpoint/safetensors.h"
#include "quant/binder.h"
#include "quantize/failed_mark.h"
#include "quantize/gguf_job.h"
#include "quantize/layout.h"
#include "quantize/output_folder.h"
#include "quantize/preparation.h"
#include "quantize/repacked.h"
#include "quantize/shard_writer.h"
#include "quantize/source.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kGoesOn = "the same command with --resume goes on";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Some matrices of a shard, spread over it, as they are read back. `told`: before each, of so many.
std::vector<Comparison> verify(const Shard& shard, const fs::path& path, const std::string& config,
                               const JobOptions& options, const std::function<void(size_t done, size_t all)>& told) {
  std::vector<const SourceMatrix*> matrices;
  for (const OutputTensor& tensor : shard.tensors) {
    if (tensor.part == OutputTensor::Part::kCodes) matrices.push_back(tensor.matrix);
  }
  const auto all = int64_t(matrices.size());
  const int64_t count = options.verified < 0 ? all : std::min(options.verified, all);
  if (count == 0) return {};
  const FileMap file(path);
  const Checkpoint checkpoint = Checkpoint::assemble(
      {path.string(), path.parent_path()}, ModelFiles(path.parent_path()), JsonDocument::parse(config, "config.json"),
      parse_safetensors(file.bytes(), path.string()).tensors);
  Binder binder(checkpoint);
  std::vector<Comparison> out;
  for (int64_t i = 0; i < count; ++i) {
    const SourceMatrix* const matrix = matrices[spread(i, count, all)];
    told(size_t(i), size_t(count));
    const Repacked repacked(std::span(&matrix, 1));
    const Weight weight = binder.matrix(matrix->name, matrix->rows, matrix->cols);
    out.push_back({matrix->name, matrix->rows, matrix->cols, compare(*matrix, weight, options.recipe.compat)});
    release_pages(weight.data);
  }
  return out;
}

class Job {
 public:
  Job(const JobOptions& options, const JobControl& control)
      : options_(options),
        control_(control),
        prepared_(options),
        shards_(lay_out(prepared_.source(), prepared_.reasons(), options.recipe)),
        config_(config_json(prepared_.source(), prepared_.reasons(), options.recipe)) {}

  JobReport run() {
    const auto start = Clock::now();
    JobReport report = prepared_.take_report();
    OutputFolder folder(options_, prepared_.source(), shards_);
    try {
      write(folder, report);
    } catch (const Error& error) {
      folder.source_files().check_unchanged();  // the cause, where they are not
      if (error.kind() != ErrorKind::kRuntime) throw;
      fail(error.kind(), error.message(),
           fmt::format("{}{}", error.hint(), error.hint().empty() ? kGoesOn : fmt::format(", then {}", kGoesOn)));
    }
    for (const ShardReport& shard : report.shards) {
      report.bytes_read += shard.bytes_read;
      report.bytes_written += shard.bytes_written;
    }
    report.seconds = seconds_since(start);
    return report;
  }

 private:
  void write(OutputFolder& folder, JobReport& report) {
    for (size_t i = 0; i < shards_.size(); ++i) {
      report.shards.push_back(run_shard(i, folder));
      if (control_.shard_done) control_.shard_done(report.shards.back());
    }
    folder.copy_side_files();
    if (shards_.size() > 1) folder.write("model.safetensors.index.json", index_json(shards_));
    folder.write("config.json", config_);
    mark_failed(folder.path_of(std::string(kFailedMark)), report.shards);
    folder.finish();
  }

  void check_stopped() const {
    if (control_.stopped && control_.stopped()) fail(ErrorKind::kRuntime, "stopped");
  }

  ShardReport run_shard(size_t index, OutputFolder& folder) {
    const Shard& shard = shards_[index];
    const fs::path path = folder.path_of(shard.file);
    ShardReport report;
    report.file = shard.file;
    report.index = index + 1;
    report.count = shards_.size();
    for (const OutputTensor& tensor : shard.tensors) {
      report.quantized += tensor.part == OutputTensor::Part::kCodes;
      report.copied += tensor.part == OutputTensor::Part::kCopy || tensor.part == OutputTensor::Part::kDecoded;
      report.bytes_written += tensor.shape.bytes();
      if (tensor.copied != nullptr) report.bytes_read += tensor.copied->bytes.size();
      if (tensor.matrix != nullptr) report.bytes_read += stored_bytes(*tensor.matrix, counted_);
    }
    const uint64_t decoded = source_bytes(shard);
    const auto start = Clock::now();
    report.found = options_.resume && folder.holds(shard);
    if (!report.found) {
      write_shard(shard, path, options_.recipe, prepared_.weights(), [&](uint64_t done) {
        check_stopped();
        if (control_.progress) control_.progress(report, done, decoded);
      });
      folder.note(shard);
    }
    report.seconds = seconds_since(start);
    const auto verifying = Clock::now();
    report.comparisons = verify(shard, path, config_, options_, [&](size_t done, size_t all) {
      check_stopped();
      if (control_.comparing) control_.comparing(report, done, all);
    });
    report.verify_seconds = seconds_since(verifying);
    return report;
  }

  const JobOptions& options_;
  const JobControl& control_;
  Preparation prepared_;
  std::vector<Shard> shards_;
  std::set<const TensorView*> counted_;  // of matrices, in bytes_read
  std::string config_;
};

}  // namespace

bool JobReport::failed() const {
  for (const ShardReport& shard : shards) {
    for (const Comparison& comparison : shard.comparisons) {
      if (comparison.likeness.verdict() == Verdict::kFail) return true;
    }
  }
  return false;
}

JobReport run_job(const JobOptions& options, const JobControl& control) {
  return options.recipe.is_gguf() ? run_gguf_job(options, control) : Job(options, control).run();
}

}  // namespace qgen::quantize
