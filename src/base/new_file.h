// A file that appears under its name once it is complete and on the disk, in place of what had the name. Until then it
// has none where the file system can do that (O_TMPFILE), so that nothing is left behind even where the program is
// killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace qgen {

class NewFile {
 public:
  enum class Readers { kOwner, kAll };  // kAll: whom the umask lets

  // Makes room for `size` bytes, so that a full disk shows before the work. All functions throw a runtime Error that
  // names `target`, which need not exist.
  NewFile(std::filesystem::path target, Readers readers, uint64_t size = 0);
  // Removes what was not kept.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // From any thread.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  // A name by which this process can read it before it has its own.
  std::filesystem::path readable() const;
  // Brings it to the disk and gives it its name. kRefuse: where something has got the name by now that stays, and this
  // is an error.
  enum class Existing { kReplace, kRefuse };
  void keep(Existing existing = Existing::kReplace);

 private:
  void open(Readers readers);
  std::filesystem::path free_name() const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty while it has no name
  int descriptor_ = -1;
};

// All of `bytes` at `offset` of an open file; a runtime Error that names `target` as it says why.
void write_at(int descriptor, uint64_t offset, std::span<const std::byte> bytes, const std::filesystem::path& target);
[[noreturn]] void fail_writing(const std::filesystem::path& target, int error);  // a number of errno

// Whether a file's name is one that a NewFile has while it has not got its own.
bool is_temporary_name(std::string_view name);

// Throws a usage Error that begins with `option` where something has the name already, be it a dangling link.
void refuse_existing(std::string_view option, const std::filesystem::path& target);

// Whether a file that has the name already holds something else than what `read` takes without an Error; one that is
// empty holds nothing.
bool holds_other(const std::filesystem::path& target, const std::function<void(const std::filesystem::path&)>& read);

// A small file at once.
void write_new_file(const std::filesystem::path& target, std::string_view text, NewFile::Readers readers);

// Brings what was created, renamed and removed in a folder to the disk, where the file system can do that.
void sync_folder(const std::filesystem::path& folder);

}  // namespace qgen
