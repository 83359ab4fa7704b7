// The safetensors container: an 8-byte header length, a JSON header, then the data.
// Checks all that the reference implementation checks, and duplicate or odd names besides.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor.h"

namespace qgen {

struct Safetensors {
  std::vector<TensorView> tensors;              // in the order of their data
  std::map<std::string, std::string> metadata;  // __metadata__
};

// Parses a whole mapped file; the views point into `file_bytes`, or into what `blank` gives where the data is not
// complete. `file_name` is for messages. Throws a model Error that names the file and, where there is one, the tensor.
Safetensors parse_safetensors(std::span<const std::byte> file_bytes, const std::string& file_name,
                              const BlankData& blank = {});

}  // namespace qgen
