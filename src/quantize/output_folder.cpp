#include "quantize/output_folder.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/new_file.h"
#include "quantize/checksum.h"
#include "quantize/failed_mark.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;

// Size and time of the last change of a file that is read.
std::string state_json(const fs::path& file) {
  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  const auto time = fs::last_write_time(file, error).time_since_epoch();
  return fmt::format(R"({{"size": {}, "changed": {}}})", size,
                     std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

// What the new folder must have been made from, and how, for a run to go on in it: the mark up to the list of files
// that are done.
std::string job_text(const JobOptions& options, const Source& source) {
  const Recipe& recipe = options.recipe;
  std::string files;
  std::string_view before;
  for (const TensorView& tensor : source.checkpoint.tensors()) {
    if (tensor.file == before) continue;
    before = tensor.file;
    files += fmt::format("{}\n    {}: {}", files.empty() ? "" : ",", json_quote(tensor.file), state_json(tensor.file));
  }
  const auto list = [](const std::vector<std::string>& items) {
    std::vector<std::string> quoted;
    for (const std::string& item : items) quoted.push_back(json_quote(item));
    return json_list(quoted);
  };
  const std::string statistics =
      options.statistics.empty()
          ? "null"
          : fmt::format("{{{}: {}}}", json_quote(options.statistics.string()), state_json(options.statistics));
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
  }},
  "done": {{)",
      json_quote(format_name(recipe.format)), json_quote(recipe.mode_text()), recipe.block, recipe.compat,
      list(options.selection.keep), list(options.selection.only), statistics, options.smoothing.value_or(-1), files);
}

// The names that known tools give to files about a quantization, which is not that of the new files.
bool is_quantization_file(const std::string& name) {
  const std::set<std::string> names = {"hf_quant_config.json", "quantize_config.json", "quant_config.json",
                                       "quantization_config.json", "quanto_qmap.json"};
  return names.contains(name) || (name.starts_with("quant_model_description") && name.ends_with(".json"));
}

bool is_side_file(const fs::path& path) {
  constexpr uint64_t kLargest = 256 << 20;
  const std::set<std::string> weights = {".safetensors", ".bin",     ".pt", ".pth",  ".gguf",
                                         ".onnx",        ".msgpack", ".h5", ".ckpt", ".ot"};
  const std::string name = path.filename().string();
  std::error_code error;
  return !name.starts_with('.') && name != "config.json" && name != kIncompleteMark && name != kFailedMark &&
         !name.ends_with(".index.json") && !is_quantization_file(name) && !weights.contains(path.extension()) &&
         fs::is_regular_file(path, error) && fs::file_size(path, error) <= kLargest;
}

// Those of a folder and of the sub-folder of templates, by their names in it.
std::vector<std::string> side_files(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::path part : {"", "additional_chat_templates"}) {
    if (!fs::is_directory(folder / part, error)) continue;
    for (const auto& entry : fs::directory_iterator(folder / part)) {
      if (is_side_file(entry.path())) out.push_back((part / entry.path().filename()).string());
    }
  }
  return out;
}

}  // namespace

OutputFolder::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

OutputFolder::OutputFolder(const JobOptions& options, const Source& source, std::span<const Shard> shards)
    : source_files_(source),
      source_(source.checkpoint.location().folder),
      folder_(options.out),
      mark_(folder_ / kIncompleteMark),
      job_(job_text(options, source)) {
  std::error_code error;
  if (fs::equivalent(folder_, source_, error))
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
    fail(ErrorKind::kUsage, fmt::format("--resume: {} is not an unfinished checkpoint", folder_.string()));
  refuse_source_files(shards);
  fs::create_directories(folder_, error);
  if (error) fail(ErrorKind::kRuntime, fmt::format("--out {}: {}", folder_.string(), error.message()));
  lock();
  if (marked && !options.resume && !options.force && !read_file(mark_).empty()) {
    fail(ErrorKind::kUsage, fmt::format("--out {}: holds an unfinished checkpoint", folder_.string()),
         "--resume goes on with it, --force begins again");
  }
  if (options.resume) go_on();
  refuse_others(shards);
  write_mark();
}

void OutputFolder::refuse_source_files(std::span<const Shard> shards) const {
  std::vector<std::string> names = side_files(source_);
  for (const Shard& shard : shards) names.push_back(shard.file);
  for (const std::string_view name : {std::string_view("config.json"), std::string_view("model.safetensors.index.json"),
                                      kIncompleteMark, kFailedMark})
    names.emplace_back(name);
  for (const std::string& name : names) source_files_.refuse(folder_ / name);
}

void OutputFolder::lock() {
  lock_.number = ::open(mark_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock_.number < 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", mark_.string(), std::strerror(errno)));
  if (::flock(lock_.number, LOCK_EX | LOCK_NB) != 0)
    fail(ErrorKind::kRuntime, fmt::format("--out {}: another run writes into this folder", folder_.string()));
}

void OutputFolder::go_on() {
  const std::string mark = read_file(mark_);
  if (mark.empty()) {
    fail(ErrorKind::kUsage, fmt::format("--resume: {} is empty, nothing was written", mark_.string()),
         "the same command without --resume begins again");
  }
  if (!mark.starts_with(job_)) {
    fail(ErrorKind::kUsage,
         fmt::format("--resume: {} was begun from another model or with other options", folder_.string()),
         fmt::format("{} says which; --force begins again", mark_.string()));
  }
  try {
    const auto document = JsonDocument::parse(mark, mark_.string());
    for (const auto& [file, checksum] : document->root().at("done").members())
      done_[std::string(file)] = checksum.as_string();
  } catch (const Error&) {  // cut off while it was written: nothing is known to be done
    done_.clear();
  }
}

// Weight files of another model would be read together with ours.
void OutputFolder::refuse_others(std::span<const Shard> shards) const {
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

// In place, since the lock is on this file. What stays the same comes first, so that it is never cut off.
void OutputFolder::write_mark() {
  std::string text = job_;
  std::string_view separator;
  for (const auto& [file, checksum] : done_) {
    text += fmt::format("{}\n    {}: {}", separator, json_quote(file), json_quote(checksum));
    separator = ",";
  }
  text += "\n  }\n}\n";
  if (::pwrite(lock_.number, text.data(), text.size(), 0) != ssize_t(text.size()) ||
      ::ftruncate(lock_.number, off_t(text.size())) != 0 || ::fsync(lock_.number) != 0) {
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", mark_.string(), std::strerror(errno)));
  }
}

fs::path OutputFolder::path_of(const std::string& file) const {
  fs::path path = folder_ / file;
  source_files_.refuse(path);
  return path;
}

bool OutputFolder::holds(const Shard& shard) const {
  const auto noted = done_.find(shard.file);
  const fs::path path = folder_ / shard.file;
  std::error_code error;
  return noted != done_.end() && fs::is_regular_file(path, error) && file_checksum(path) == noted->second;
}

void OutputFolder::note(const Shard& shard) {
  done_[shard.file] = file_checksum(folder_ / shard.file);
  write_mark();
}

void OutputFolder::write(const std::string& file, std::string_view text) const {
  write_new_file(path_of(file), text, NewFile::Readers::kAll);
}

void OutputFolder::copy_side_files() const {
  for (const std::string& name : side_files(source_)) {
    const fs::path parent = (folder_ / name).parent_path();
    std::error_code error;
    fs::create_directories(parent, error);
    if (error) fail(ErrorKind::kRuntime, fmt::format("{}: {}", parent.string(), error.message()));
    write(name, read_file(source_ / name));
  }
}

void OutputFolder::finish() {
  if (::unlink(mark_.c_str()) != 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot remove: {}", mark_.string(), std::strerror(errno)));
  sync_folder(folder_);
}

}  // namespace qgen::quantize
