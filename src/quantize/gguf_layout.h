// A checkpoint as a GGUF file: the keys and tensors that llama.cpp's converter writes for its architecture
// (conversion/base.py, llama.py, gemma.py and others).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_writer.h"
#include "quantize/recipe.h"
#include "quantize/source.h"

namespace qgen::quantize {

// What a tensor of the file holds: matrices one below the other (of a stack of experts), or a vector.
struct GgufContent {
  std::vector<const SourceMatrix*> matrices;
  // Where row n, and column k, of a matrix goes; empty: they stay.
  std::vector<int64_t> rows, cols;
  std::vector<float> vector;

  int64_t row_of(int64_t n) const { return rows.empty() ? n : rows[size_t(n)]; }
};

struct GgufLayout {
  GgufKeys keys;
  std::vector<GgufTensorShape> shapes;
  std::vector<GgufContent> contents;    // of each
  std::deque<SourceMatrix> parts;       // of matrices that are several tensors there
  std::map<std::string, int64_t> left;  // how many tensors are in no GGUF file, by the reason
};

// `reasons`: for each matrix of the source why it is not quantized, or "". A model Error where llama.cpp has no such
// architecture, or its files cannot say what config.json says.
GgufLayout lay_out_gguf(const Source& source, std::span<const std::string_view> reasons);

}  // namespace qgen::quantize
