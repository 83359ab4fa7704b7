// Where each run of n tokens was last seen in a text that only grows: one look, however long the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"

namespace qgen {

class NgramIndex {
 public:
  explicit NgramIndex(size_t length) : length_(length) {}

  size_t length() const { return length_; }
  // Notes the n-gram that ends `text`, if it has one. Calls are about one text, the same or longer each time.
  void add(std::span<const TokenId> text);
  // Where the n-gram that ends `text` was last noted: the position of the token after it. 0 if nowhere.
  size_t find(std::span<const TokenId> text) const;

 private:
  // The slot that holds the n-gram which ends at `end`, or the free one where it belongs.
  size_t slot(std::span<const TokenId> text, size_t end) const;
  void grow(std::span<const TokenId> text);

  size_t length_;
  size_t used_ = 0;
  std::vector<uint32_t> ends_;  // a hash table with linear probing, at most half full; 0 is a free slot
};

}  // namespace qgen
