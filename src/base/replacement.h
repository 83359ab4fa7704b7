// A file that takes the place of another once it is complete. Until then it has no name where the file system can do
// that (O_TMPFILE), so that nothing is left behind even where the program is killed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qgen {

class Replacement {
 public:
  // `target` need not exist; a runtime Error that names it if a file cannot be made beside it, and wherever writing
  // fails. The new file is for its owner only.
  explicit Replacement(std::filesystem::path target);
  ~Replacement();
  Replacement(const Replacement&) = delete;

  void write(std::string_view text);
  // Puts the file in its place, whole and on the disk.
  void keep();

 private:
  std::filesystem::path free_name() const;
  [[noreturn]] void fail_write() const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty while it has no name
  int descriptor_ = -1;
};

}  // namespace qgen
