// Files: memory maps for weights, whole reads for small text files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace qgen {

// A read-only memory map of a whole file. Movable; the bytes stay where they are.
class FileMap {
 public:
  // Throws a model Error if the file cannot be opened, is not a regular file, or cannot be mapped.
  explicit FileMap(const std::filesystem::path& path);
  ~FileMap();
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file as a string; throws a model Error that names the file. Files above `limit_bytes` are
// rejected before they are read.
std::string read_file(const std::filesystem::path& path, size_t limit_bytes = size_t{1} << 30);

}  // namespace qgen
