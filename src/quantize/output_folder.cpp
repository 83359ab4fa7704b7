#include "quantize/output_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
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

// What the new folder must have been made from, and how, for a run to go on in it: the mark up to the list of files
// that are done.
std::string job_text(const JobOptions& options, const SourceFiles& source) {
  const Recipe& recipe = options.recipe;
  std::string files;
  for (const auto& [file, state] : source.states())
    files += fmt::format("{}\n    {}: {}", files.empty() ? "" : ",", json_quote(file), state);
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
  "smoothing": {},
  "files": {{{}
  }},
  "done": {{)",
      json_quote(format_name(recipe.format)), json_quote(recipe.mode_text()), recipe.block, recipe.compat,
      list(options.selection.keep), list(options.selection.only), options.smoothing.value_or(-1), files);
}

// The names that known tools give to files about a quantization, which is not that of the new files.
bool is_quantization_file(const std::string& name) {
  const std::set<std::string> names = {"hf_quant_config.json", "quantize_config.json", "quant_config.json",
                                       "quantization_config.json", "quanto_qmap.json"};
  return names.contains(name) || (name.starts_with("quant_model_description") && name.ends_with(".json"));
}

bool is_side_name(const fs::path& path) {
  const std::set<std::string> weights = {".safetensors", ".bin",     ".pt", ".pth",  ".gguf",
                                         ".onnx",        ".msgpack", ".h5", ".ckpt", ".ot"};
  const std::string name = path.filename().string();
  return !name.starts_with('.') && name != "config.json" && name != "params.json" && name != kIncompleteMark &&
         name != kFailedMark && !name.ends_with(".index.json") && !is_quantization_file(name) &&
         !weights.contains(path.extension());
}

bool is_side_file(const fs::path& path) {
  constexpr uint64_t kLargest = 256 << 20;
  std::error_code error;
  return is_side_name(path) && fs::is_regular_file(path, error) && fs::file_size(path, error) <= kLargest;
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

void OutputFolder::Descriptor::close() {
  if (number >= 0) ::close(number);
  number = -1;
}

OutputFolder::OutputFolder(const JobOptions& options, const Source& source, std::span<const Shard> shards)
    : source_files_(source, options.statistics),
      source_(source.checkpoint.location().folder),
      converted_(source.location.gguf_files.empty() ? nullptr : &source.checkpoint.files()),
      folder_(options.out),
      mark_(folder_ / kIncompleteMark),
      job_(job_text(options, source_files_)) {
  std::error_code error;
  if (fs::equivalent(folder_, source_, error))
    fail(ErrorKind::kUsage, fmt::format("--out {}: the folder of the model itself", folder_.string()));
  const bool existed = fs::exists(fs::symlink_status(folder_, error));
  if (existed && !fs::is_directory(folder_, error))
    fail(ErrorKind::kUsage, fmt::format("--out {}: not a folder", folder_.string()));
  const bool marked = existed && is_there(mark_);
  if (!marked || options.resume) check_state(options, marked);
  refuse_source_files(shards);
  fs::create_directories(folder_, error);
  if (error) fail(ErrorKind::kRuntime, fmt::format("--out {}: {}", folder_.string(), error.message()));
  const bool created = lock();
  try {
    // Another run may have begun or ended since.
    check_state(options, !created);
    if (options.resume) go_on();
    refuse_others(shards);
    remove_temporary_files();
    write_mark();
  } catch (...) {
    if (created) ::unlink(mark_.c_str());  // a folder that is refused stays as it was
    throw;
  }
}

// `marked`: whether the mark is there that says the folder is not complete.
void OutputFolder::check_state(const JobOptions& options, bool marked) const {
  std::error_code error;
  if (options.resume && !marked)
    fail(ErrorKind::kUsage, fmt::format("--resume: {} is not an unfinished checkpoint", folder_.string()));
  if (options.force || options.resume) return;
  if (marked && !is_cut_off(read_file(mark_))) {
    fail(ErrorKind::kUsage, fmt::format("--out {}: holds an unfinished checkpoint", folder_.string()),
         "--resume goes on with it, --force begins again");
  }
  if (marked || !fs::is_directory(folder_, error)) return;
  const bool others = std::ranges::any_of(fs::directory_iterator(folder_),
                                          [&](const fs::directory_entry& entry) { return entry.path() != mark_; });
  if (others) {
    fail(ErrorKind::kUsage, fmt::format("--out {}: the folder is not empty", folder_.string()),
         "another folder, or --force to replace files of the same names");
  }
}

void OutputFolder::refuse_source_files(std::span<const Shard> shards) const {
  std::vector<std::string> names = side_files(source_);
  for (const Shard& shard : shards) names.push_back(shard.file);
  for (const std::string_view name : {std::string_view("config.json"), std::string_view("model.safetensors.index.json"),
                                      kIncompleteMark, kFailedMark})
    names.emplace_back(name);
  for (const std::string& name : names) source_files_.refuse(folder_ / name);
}

// Whether the disk was full when this mark was written, before anything else.
bool OutputFolder::is_cut_off(std::string_view mark) const {
  return mark.size() < job_.size() && job_.starts_with(mark);
}

// On the mark, which is made where there is none: then it gives true. A run that ends removes the mark it holds, so
// that the file behind the name may have become another one meanwhile.
bool OutputFolder::lock() {
  for (;;) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    lock_.close();
    lock_.number = ::open(mark_.c_str(), flags | O_CREAT | O_EXCL, 0666);
    const bool created = lock_.number >= 0;
    if (!created && errno == EEXIST) {
      lock_.number = ::open(mark_.c_str(), flags);
      if (lock_.number < 0 && errno == ENOENT) continue;
    }
    if (lock_.number < 0) fail_writing(mark_, errno);
    if (::flock(lock_.number, LOCK_EX | LOCK_NB) != 0)
      fail(ErrorKind::kRuntime, fmt::format("--out {}: another run writes into this folder", folder_.string()));
    struct stat held = {}, named = {};
    if (::fstat(lock_.number, &held) == 0 && ::stat(mark_.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
        held.st_ino == named.st_ino)
      return created;
  }
}

// What NewFile left of runs that were killed.
void OutputFolder::remove_temporary_files() const {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (is_temporary_name(entry.path().filename().string())) found.push_back(entry.path());
  }
  std::error_code ignored;
  for (const fs::path& path : found) fs::remove(path, ignored);
}

void OutputFolder::go_on() {
  const std::string mark = read_file(mark_);
  if (is_cut_off(mark)) {
    fail(ErrorKind::kUsage, fmt::format("--resume: {} is not complete, nothing was written", mark_.string()),
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
  write_at(lock_.number, 0, std::as_bytes(std::span(text)), mark_);
  if (::ftruncate(lock_.number, off_t(text.size())) != 0 || ::fsync(lock_.number) != 0) fail_writing(mark_, errno);
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
  if (converted_ != nullptr) {
    for (const std::string& name : converted_->names()) {
      if (is_side_name(name)) write(name, converted_->read(name));
    }
    return;
  }
  for (const std::string& name : side_files(source_)) {
    const fs::path parent = (folder_ / name).parent_path();
    std::error_code error;
    fs::create_directories(parent, error);
    if (error) fail(ErrorKind::kRuntime, fmt::format("{}: {}", parent.string(), error.message()));
    write(name, read_file(source_ / name));
  }
}

void OutputFolder::finish() {
  source_files_.check_unchanged();
  if (::unlink(mark_.c_str()) != 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot remove: {}", mark_.string(), std::strerror(errno)));
  sync_folder(folder_);
}

}  // namespace qgen::quantize
