// A file that appears under its name once it is complete and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace qgen {

class NewFile {
 public:
  // Creates PATH.partial (or empties one that was left behind) with room for `size` bytes, so that a full disk shows
  // before the work. All functions throw a runtime Error that names the path.
  NewFile(std::filesystem::path path, uint64_t size);
  // Removes what was not kept.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // From any thread.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  // Brings it to the disk and gives it its name, replacing what had it.
  void keep();

 private:
  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
};

// A small file at once.
void write_new_file(const std::filesystem::path& path, std::string_view text);

}  // namespace qgen
