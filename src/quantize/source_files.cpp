#include "quantize/source_files.h"

#include <optional>
#include <string>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;

std::optional<std::pair<uint64_t, uint64_t>> identity(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return std::pair(uint64_t(status.st_dev), uint64_t(status.st_ino));
}

}  // namespace

SourceFiles::SourceFiles(const Source& source) {
  const auto add = [&](const fs::path& path) {
    if (const auto found = identity(path)) files_.insert(*found);
  };
  // GGUF files beside the others may be results of earlier runs.
  std::error_code error;
  for (fs::directory_iterator entry(source.checkpoint.location().folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".gguf") add(entry->path());
  }
  std::string before;
  for (const TensorView& tensor : source.checkpoint.tensors()) {
    if (tensor.file != before) add(tensor.file);
    before = tensor.file;
  }
}

bool SourceFiles::contains(const fs::path& path) const {
  const auto found = identity(path);
  return found && files_.contains(*found);
}

void SourceFiles::refuse(const fs::path& target) const {
  if (contains(target)) {
    fail(ErrorKind::kUsage,
         fmt::format("--out: {} is a file of the model itself, which is never written", target.string()),
         "another name");
  }
}

}  // namespace qgen::quantize
