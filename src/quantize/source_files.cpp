#include "quantize/source_files.h"

#include <chrono>
#include <optional>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;

std::optional<std::pair<uint64_t, uint64_t>> identity(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return std::pair(uint64_t(status.st_dev), uint64_t(status.st_ino));
}

std::string state_json(const fs::path& file) {
  std::error_code error;
  const uint64_t size = fs::file_size(file, error);
  if (error) return "null";
  const auto time = fs::last_write_time(file, error).time_since_epoch();
  return fmt::format(R"({{"size": {}, "changed": {}}})", size,
                     std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

SourceFiles::SourceFiles(const Source& source, const fs::path& statistics) {
  const auto note = [&](const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(path, error);
    const std::string name = error ? path.string() : real.string();
    states_.try_emplace(name, state_json(name));
  };
  const auto add = [&](const fs::path& path) {
    if (const auto found = identity(path)) files_.insert(*found);
  };
  for (const fs::path& part : source.location.gguf_files) {  // one may hold keys alone
    add(part);
    note(part);
  }
  for (const char* name : {"config.json", "params.json"}) {
    const fs::path config = source.location.folder / name;
    if (source.location.gguf_files.empty() && is_there(config)) note(config);
  }
  if (!statistics.empty()) note(statistics);
  // GGUF files beside the others may be results of earlier runs.
  std::error_code error;
  for (fs::directory_iterator entry(source.checkpoint.location().folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".gguf") add(entry->path());
  }
  std::string before;
  for (const Checkpoint* tensors : {&source.checkpoint, &source.parts}) {
    for (const TensorView& tensor : tensors->tensors()) {
      if (tensor.file != before) {
        add(tensor.file);
        note(tensor.file);
      }
      before = tensor.file;
    }
  }
}

bool SourceFiles::contains(const fs::path& path) const {
  const auto found = identity(path);
  return found && files_.contains(*found);
}

void SourceFiles::check_unchanged() const {
  for (const auto& [file, state] : states_) {
    if (state_json(file) == state) continue;
    fail(ErrorKind::kModel, fmt::format("{}: changed while it was read", file),
         "begin again once it no longer changes (--force)");
  }
}

void SourceFiles::refuse(const fs::path& target) const {
  if (contains(target)) {
    fail(ErrorKind::kUsage,
         fmt::format("--out: {} is a file of the model itself, which is never written", target.string()),
         "another name");
  }
}

}  // namespace qgen::quantize
