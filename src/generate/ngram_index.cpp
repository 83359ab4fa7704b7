#include "generate/ngram_index.h"

#include <algorithm>

namespace qgen {

size_t NgramIndex::slot(std::span<const TokenId> text, size_t end) const {
  const std::span<const TokenId> ngram = text.subspan(end - length_, length_);
  // FNV-1a over tokens, then the finalizer of MurmurHash3, so that the low bits depend on all of them.
  uint64_t hash = 14695981039346656037u;
  for (const TokenId token : ngram) hash = (hash ^ uint32_t(token)) * 1099511628211u;
  hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCD;
  hash ^= hash >> 33;
  const size_t mask = ends_.size() - 1;
  for (size_t i = size_t(hash) & mask;; i = (i + 1) & mask) {
    if (ends_[i] == 0 || std::equal(ngram.begin(), ngram.end(), text.begin() + ptrdiff_t(ends_[i] - length_))) return i;
  }
}

void NgramIndex::grow(std::span<const TokenId> text) {
  const std::vector<uint32_t> before = std::move(ends_);
  ends_.assign(std::max<size_t>(64, 2 * before.size()), 0);
  for (const uint32_t end : before) {
    if (end != 0) ends_[slot(text, end)] = end;
  }
}

void NgramIndex::add(std::span<const TokenId> text) {
  if (text.size() < length_) return;
  if (2 * (used_ + 1) > ends_.size()) grow(text);
  uint32_t& end = ends_[slot(text, text.size())];
  used_ += end == 0;
  end = uint32_t(text.size());
}

size_t NgramIndex::find(std::span<const TokenId> text) const {
  if (text.size() < length_ || ends_.empty()) return 0;
  return ends_[slot(text, text.size())];
}

}  // namespace qgen
