// Matrices that transformers has as one and a GGUF file in parts: gate and up, the projections of a delta net, the
// halves of latent attention.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quantize/source.h"

namespace qgen::quantize {

struct JoinedMatrix {
  std::string name;  // its module in Hugging Face's files
  struct Part {
    std::string module;          // in Source::parts
    int64_t rows = 0, cols = 0;  // as it is stored
    int64_t count = 0;           // of matrices in a stack; 0: one that is no stack
    bool transposed = false;     // its columns are rows here
  };
  std::vector<Part> parts;
  int64_t cols = 0;
  // Of each row: the part's matrix, where those of a stack count one by one, and the row in it.
  std::vector<std::pair<int32_t, int64_t>> rows;
};

// Adds them to source.matrices. Their values are put together when they are read. A model Error where a part is not as
// it is said to be.
void add_joined(Source& source, std::vector<JoinedMatrix> joined);

}  // namespace qgen::quantize
