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
#include "model/description.h"
#include "quantize/recipe.h"
#include "quantize/source.h"

namespace qgen::quantize {

// What a tensor of the file holds: matrices one below the other (of a stack of experts), or a vector.
struct GgufContent {
  std::vector<const SourceMatrix*> matrices;
  // (rows), (cols) of one matrix: row n goes to rows[n], column k to cols[k]; empty: they stay.
  std::vector<int64_t> rows, cols;
  std::vector<float> vector;

  int64_t row_of(int64_t n) const { return rows.empty() ? n : rows[size_t(n)]; }
};

struct GgufLayout {
  GgufKeys keys;
  std::vector<GgufTensorShape> shapes;
  std::vector<GgufContent> contents;                          // of each
  std::deque<SourceMatrix> parts;                             // of matrices that are several tensors there
  std::map<const SourceMatrix*, const SourceMatrix*> wholes;  // of parts that have all columns of their matrix
  std::map<std::string, int64_t> left;                        // how many tensors are in no GGUF file, by the reason
};

// Where value head `head` of a recurrence lies: there head h has key head h % key_heads, so that those of one key head
// lie apart, in a Hugging Face checkpoint side by side.
inline int64_t gguf_value_head(int64_t head, int64_t heads, int64_t key_heads) {
  const int64_t of_key = heads / key_heads;
  return head % of_key * key_heads + head / of_key;
}

// first, first + 1, ...
std::vector<int64_t> rows_from(int64_t first, int64_t count);

// adjacent_row() of each row of a matrix of heads.
std::vector<int64_t> adjacent_rows(int64_t rows, int64_t head_rows);

// A GGUF file has a convolution's weights without their dimension of one, and -exp(a_log).
inline bool is_convolution(Role role) {
  return role == Role::kDeltaConv || role == Role::kMambaConv || role == Role::kConv;
}
inline bool is_decay(Role role) { return role == Role::kDeltaALog || role == Role::kMambaALog; }

// Where the rows of kDeltaQkv, or of kDeltaZ, lie in the one matrix of a delta net that is stored key head by key head:
// queries, keys, values and gates of a key head together.
std::vector<int64_t> rows_in_key_heads(const DeltaSpec& delta, Role role);

// Where the rows, and the columns, of a recurrence's part go; empty: they stay.
std::vector<int64_t> gguf_rows_of(const DeltaSpec& delta, Role role);
std::vector<int64_t> gguf_cols_of(const DeltaSpec& delta, Role role);

// `reasons`: for each matrix of the source why it is not quantized, or "". A model Error where llama.cpp has no such
// architecture, or its files cannot say what config.json says.
GgufLayout lay_out_gguf(const Source& source, std::span<const std::string_view> reasons);

}  // namespace qgen::quantize
