// The folder that `qgen quantize` writes: locked against other runs, and marked as incomplete until it is finished. The
// mark says what the checkpoint is made from and how, and of each file that is done its checksum.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "quantize/job.h"
#include "quantize/layout.h"
#include "quantize/source_files.h"

namespace qgen::quantize {

class OutputFolder {
 public:
  // A usage Error where the folder is not to be written: it holds something, belongs to another run or the model.
  OutputFolder(const JobOptions& options, const Source& source, std::span<const Shard> shards);
  OutputFolder(const OutputFolder&) = delete;

  // The place of a file; a usage Error where that is a file of the model.
  std::filesystem::path path_of(const std::string& file) const;
  // Whether a file of an earlier run is there as it was when it was done.
  bool holds(const Shard& shard) const;
  // Notes down that a file is done.
  void note(const Shard& shard);
  void write(const std::string& file, std::string_view text) const;
  // Tokenizer, chat templates, generation settings and the like: every small file of the model that holds no weights.
  void copy_side_files() const;
  // The folder is complete; a model Error where what was read has changed meanwhile.
  void finish();
  const SourceFiles& source_files() const { return source_files_; }

 private:
  // An open file, closed with the object.
  struct Descriptor {
    int number = -1;
    void close();
    ~Descriptor() { close(); }
  };

  // Before anything is written.
  void refuse_source_files(std::span<const Shard> shards) const;
  void check_state(const JobOptions& options, bool marked) const;
  bool is_cut_off(std::string_view mark) const;
  bool lock();
  void remove_temporary_files() const;
  void refuse_others(std::span<const Shard> shards) const;
  // Takes over what an unfinished run left, or says why not.
  void go_on();
  void write_mark();

  SourceFiles source_files_;
  std::filesystem::path source_;
  const ModelFiles* converted_;  // in place of the files of `source_`; null: none
  std::filesystem::path folder_, mark_;
  std::string job_;                          // the beginning of the mark
  std::map<std::string, std::string> done_;  // checksums of files
  Descriptor lock_;
};

}  // namespace qgen::quantize
