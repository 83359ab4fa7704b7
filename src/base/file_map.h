// Files: memory maps for weights, whole reads for small text files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"

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

// Bytes of all files that are mapped now, and of blank memory in the place of some.
size_t mapped_file_bytes();
void count_mapped(ptrdiff_t bytes);

// Has the system read a part of a map from disk now, in one go: for parts whose bytes are wanted soon and out of order.
void read_ahead(std::span<const std::byte> mapped);

// Releases the resident pages of a part of a map; reading it again brings them back.
void release_pages(std::span<const std::byte> mapped);

// Whether something has this name: a link to nothing counts, which opening it then says. A model Error where that
// cannot be found out.
bool is_there(const std::filesystem::path& path);

// All that can be read from a file; throws an Error that names it, also above `limit_bytes`. Files of a user (any
// kind but kModel) may be pipes.
std::string read_file(const std::filesystem::path& path, size_t limit_bytes = size_t{1} << 30,
                      ErrorKind kind = ErrorKind::kModel);

}  // namespace qgen
