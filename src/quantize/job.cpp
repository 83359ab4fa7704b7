#include "quantize/job.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/new_file.h"
#include "checkpoint/safetensors.h"
#include "quant/binder.h"
#include "quantize/gguf_job.h"
#include "quantize/layout.h"
#include "quantize/preparation.h"
#include "quantize/shard_writer.h"
#include "quantize/source.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What the new folder must have been made from, and how, for a run to go on in it.
std::string job_text(const JobOptions& options, const Source& source) {
  const Recipe& recipe = options.recipe;
  std::string files;
  std::string_view before;
  for (const TensorView& tensor : source.checkpoint.tensors()) {
    if (tensor.file == before) continue;
    before = tensor.file;
    std::error_code error;
    files += fmt::format("{}\n    {}: {}", files.empty() ? "" : ",", json_quote(tensor.file),
                         fs::file_size(tensor.file, error));
  }
  const auto list = [](const std::vector<std::string>& items) {
    std::vector<std::string> quoted;
    for (const std::string& item : items) quoted.push_back(json_quote(item));
    return json_list(quoted);
  };
  return fmt::format(
      R"({{
  "note": "This checkpoint is not complete. `qgen quantize --resume` goes on.",
  "format": {},
  "mode": {},
  "block": {},
  "compat": {},
  "keep": {},
  "only": {},
  "statistics": {},
  "smoothing": {},
  "files": {{{}
  }}
}}
)",
      json_quote(format_name(recipe.format)), json_quote(recipe.mode_text()), recipe.block, recipe.compat,
      list(options.selection.keep), list(options.selection.only), json_quote(options.statistics.string()),
      options.smoothing.value_or(-1), files);
}

// The folder that is written: locked against other runs, and marked as incomplete until finish().
class OutputFolder {
 public:
  OutputFolder(const JobOptions& options, const Source& source, std::span<const Shard> shards)
      : folder_(options.out), mark_(folder_ / kIncompleteMark) {
    std::error_code error;
    if (fs::equivalent(folder_, source.checkpoint.location().folder, error))
      fail(ErrorKind::kUsage, fmt::format("--out {}: the folder of the model itself", folder_.string()));
    const bool existed = fs::exists(fs::symlink_status(folder_, error));
    if (existed && !fs::is_directory(folder_, error))
      fail(ErrorKind::kUsage, fmt::format("--out {}: not a folder", folder_.string()));
    const bool marked = existed && is_there(mark_);
    if (existed && !marked && !options.force && !fs::is_empty(folder_, error)) {
      fail(ErrorKind::kUsage, fmt::format("--out {}: the folder is not empty", folder_.string()),
           "another folder, or --force to replace files of the same names");
    }
    if (options.resume && !marked)
      fail(ErrorKind::kUsage, fmt::format("--resume: {} is no unfinished checkpoint", folder_.string()));
    fs::create_directories(folder_, error);
    if (error) fail(ErrorKind::kRuntime, fmt::format("--out {}: {}", folder_.string(), error.message()));
    lock();
    const std::string text = job_text(options, source);
    if (marked && !options.resume && !options.force && !read_file(mark_).empty()) {
      fail(ErrorKind::kUsage, fmt::format("--out {}: holds an unfinished checkpoint", folder_.string()),
           "--resume goes on with it, --force begins again");
    }
    if (const std::string mark = options.resume ? read_file(mark_) : text; mark.empty()) {
      fail(ErrorKind::kUsage, fmt::format("--resume: {} is empty, nothing was written", mark_.string()),
           "the same command without --resume begins again");
    } else if (mark != text) {
      fail(ErrorKind::kUsage,
           fmt::format("--resume: {} was begun from another model or with other options", folder_.string()),
           fmt::format("{} says which; --force begins again", mark_.string()));
    }
    refuse_others(shards);
    if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, text.data(), text.size(), 0) != ssize_t(text.size()) ||
        ::fsync(lock_) != 0) {
      fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", mark_.string(), std::strerror(errno)));
    }
  }
  ~OutputFolder() {
    if (lock_ >= 0) ::close(lock_);
  }
  OutputFolder(const OutputFolder&) = delete;

  fs::path path_of(const std::string& file) const { return folder_ / file; }
  void write(const std::string& file, std::string_view text) const {
    write_new_file(path_of(file), text, NewFile::Readers::kAll);
  }
  void finish() {
    if (::unlink(mark_.c_str()) != 0)
      fail(ErrorKind::kRuntime, fmt::format("{}: cannot remove: {}", mark_.string(), std::strerror(errno)));
    sync_folder(folder_);
  }

 private:
  void lock() {
    lock_ = ::open(mark_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock_ < 0) fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", mark_.string(), std::strerror(errno)));
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0)
      fail(ErrorKind::kRuntime, fmt::format("--out {}: another run writes into this folder", folder_.string()));
  }

  // Weight files of another model would be read together with ours.
  void refuse_others(std::span<const Shard> shards) const {
    std::set<std::string> ours;
    for (const Shard& shard : shards) ours.insert(shard.file);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (entry.path().extension() == ".safetensors" && !ours.contains(name)) {
        fail(ErrorKind::kUsage, fmt::format("--out {}: holds {}, of another checkpoint", folder_.string(), name),
             "another folder, or remove it");
      }
    }
  }

  fs::path folder_, mark_;
  int lock_ = -1;
};

// Whether a file holds what the shard will: the same header and all of its data.
bool is_complete(const Shard& shard, const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::vector<TensorShape> shapes;
  uint64_t bytes = 0;
  for (const OutputTensor& tensor : shard.tensors) {
    shapes.push_back(tensor.shape);
    bytes += tensor.shape.bytes();
  }
  const std::string header = safetensors_header(shapes);
  const FileMap file(path);
  if (file.bytes().size() != header.size() + bytes) return false;
  return std::memcmp(file.bytes().data(), header.data(), header.size()) == 0;
}

// Some matrices of a shard, spread over it, as they are read back.
std::vector<Comparison> verify(const Shard& shard, const fs::path& path, const std::string& config,
                               const JobOptions& options) {
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
    const SourceMatrix& matrix = *matrices[size_t((2 * i + 1) * all / (2 * count))];
    const Weight weight = binder.matrix(matrix.name, matrix.rows, matrix.cols);
    out.push_back({matrix.name, matrix.rows, matrix.cols, compare(matrix, weight, options.recipe.compat)});
    release_pages(weight.data);
  }
  return out;
}

// Tokenizer, chat template, generation settings and the like: every small file that holds no weights.
void copy_side_files(const fs::path& from, const OutputFolder& to) {
  constexpr uint64_t kLargest = 256 << 20;
  const std::set<std::string> kinds = {".safetensors", ".bin",     ".pt", ".pth",  ".gguf",
                                       ".onnx",        ".msgpack", ".h5", ".ckpt", ".ot"};
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    std::error_code error;
    if (name.starts_with('.') || name == "config.json" || name == kIncompleteMark || name.ends_with(".index.json") ||
        name == "hf_quant_config.json" || name.starts_with("quant") || kinds.contains(entry.path().extension()) ||
        !fs::is_regular_file(entry.path(), error) || fs::file_size(entry.path(), error) > kLargest) {
      continue;
    }
    to.write(name, read_file(entry.path()));
  }
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
    const Source& source = prepared_.source();
    JobReport report = prepared_.take_report();
    OutputFolder folder(options_, source, shards_);
    for (size_t i = 0; i < shards_.size(); ++i) {
      report.shards.push_back(run_shard(i, folder));
      if (control_.shard_done) control_.shard_done(report.shards.back());
    }
    copy_side_files(source.checkpoint.location().folder, folder);
    if (shards_.size() > 1) folder.write("model.safetensors.index.json", index_json(shards_));
    folder.write("config.json", config_);
    folder.finish();
    for (const ShardReport& shard : report.shards) {
      report.bytes_read += shard.bytes_read;
      report.bytes_written += shard.bytes_written;
    }
    report.seconds = seconds_since(start);
    return report;
  }

 private:
  ShardReport run_shard(size_t index, const OutputFolder& folder) {
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
    }
    report.bytes_read = source_bytes(shard);
    report.found = options_.resume && is_complete(shard, path);
    const auto start = Clock::now();
    std::optional<Repacked> repacked;
    if (!report.found || options_.verified != 0) repacked.emplace(shard);
    if (!report.found) {
      write_shard(shard, path, options_.recipe, prepared_.weights(), [&](uint64_t done) {
        if (control_.stopped && control_.stopped())
          fail(ErrorKind::kRuntime, "stopped", "the same command with --resume goes on");
        if (control_.progress) control_.progress(report, done, report.bytes_read);
      });
    }
    report.seconds = seconds_since(start);
    const auto verifying = Clock::now();
    report.comparisons = verify(shard, path, config_, options_);
    report.verify_seconds = seconds_since(verifying);
    return report;
  }

  const JobOptions& options_;
  const JobControl& control_;
  Preparation prepared_;
  std::vector<Shard> shards_;
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
