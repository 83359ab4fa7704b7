// The files of a GGUF model: whole, or in parts that belong together.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/blank_memory.h"
#include "base/file_map.h"
#include "checkpoint/gguf.h"

namespace qgen {

// All parts of one model, in order, mapped.
class GgufParts {
 public:
  // Maps the files; a model Error if they are not the parts of one model. `headers_only`: their data need not be
  // complete.
  static GgufParts open(const std::vector<std::filesystem::path>& paths, bool headers_only = false);
  // From files that are parsed already, whose bytes outlive the object.
  explicit GgufParts(std::vector<Gguf> parts);

  const Gguf& first() const { return parts_.front(); }  // has the keys of the model
  const std::vector<Gguf>& all() const { return parts_; }
  // Of a file whose data is not complete; "" where all are.
  const std::string& incomplete() const { return incomplete_; }

 private:
  std::vector<FileMap> maps_;
  std::vector<BlankMemory> blanks_;
  std::vector<Gguf> parts_;
  std::string incomplete_;
};

// Files of GGUF models in a folder, in parts or whole: one list per model, sorted; a model with missing parts too.
std::vector<std::vector<std::filesystem::path>> find_gguf_models(const std::filesystem::path& folder);
// Whether a file is called one of several parts, as in model-00002-of-00005.
bool is_one_of_several(const std::filesystem::path& file);
// All the parts of the model that `file` is or belongs to, by the name of the file; an error if one is missing.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file);

}  // namespace qgen
