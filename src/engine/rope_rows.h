// The rotations of the tokens of a call: cos and sin for every rope of a plan. With dynamic scaling they depend on the
// length of the sequence when a token comes in, and keys keep the rotation they were stored with (as transformers does
// with a cache).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/rope.h"

namespace qgen {

// What a sequence remembers for each rope: the longest it has been, which sets a dynamic base; 0: the base is unscaled.
using RopeLengths = std::vector<int64_t>;

class RopeRows {
 public:
  // Reads the factors of ropes that have some; a model Error where they are not positive numbers. `context`: tokens
  // that a sequence may have, which choose between short and long factors.
  RopeRows(std::span<const Rope> ropes, int64_t context);

  size_t count() const { return ropes_.size(); }
  int64_t half(size_t rope) const { return ropes_[rope].dim / 2; }

  // Before the tokens of a call, which make a sequence `length` long.
  void start(RopeLengths& lengths, int64_t length) const;

  // Whether a sequence that begins with the tokens of this one, and grows to at most `length`, may have had another
  // base for them, or come to have one.
  bool may_change(const RopeLengths& lengths, int64_t length) const;

  // The rows of a batch: begin it, add the tokens first .. first + count - 1 of a sequence, in the order of the batch.
  void clear();
  void add(const RopeLengths& lengths, int64_t first, int64_t count);
  // Of all tokens of the batch, (tokens, dim / 2), times the attention factor.
  std::span<const double> cos(size_t rope) const { return rows_[rope].cos; }
  std::span<const double> sin(size_t rope) const { return rows_[rope].sin; }

 private:
  struct Rows {
    std::vector<double> frequencies;  // for an unscaled length
    std::vector<double> cos, sin;
  };
  std::vector<Rope> ropes_;
  std::vector<Rows> rows_;
};

}  // namespace qgen
