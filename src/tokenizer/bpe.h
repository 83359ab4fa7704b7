// Byte-pair encoding, as `tokenizers` (and, from scores, SentencePiece) does it: the pair of lowest rank is
// merged first, the leftmost of equals before the others. O(n log n) in the length of a word.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/token_finder.h"
#include "tokenizer/vocabulary.h"

namespace qgen::tokenizer {

// (left, right) -> rank and merged id.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = UINT32_MAX;  // none
    TokenId id = -1;
  };
  void reserve(size_t merges);
  void add(TokenId left, TokenId right, Merge merge);  // the last of equal pairs wins
  Merge find(TokenId left, TokenId right) const {
    if (slots_.empty()) return {};
    const uint64_t key = key_of(left, right);
    for (size_t slot = hash(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kFree) return {};
    }
  }
  template <typename F>
  void for_each(F&& f) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kFree) f(slot.merge);
    }
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;  // no pair of ids, which are not negative
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key_of(TokenId left, TokenId right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
  static uint64_t hash(uint64_t key) {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15;
    return key >> 20 ^ key >> 42;
  }
  void rehash(size_t slots);

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t count_ = 0;
};

struct BpeOptions {
  std::optional<std::string> unknown;  // the piece for characters that are not in the vocabulary
  std::string continuing_prefix;
  std::string end_suffix;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a piece is that piece, whatever the merges say
  // SentencePiece: pieces that stand for themselves and are never merged on.
  std::vector<std::string> frozen;
  // SentencePiece: pieces that merging may pass through but not end at.
  std::vector<TokenId> unused;
  // SentencePiece: pieces that characters of the text cannot be (control pieces, bytes).
  std::vector<TokenId> unreachable;
};

// Working memory of one thread: reused from word to word, and the words it has seen last.
class BpeScratch {
 public:
  BpeScratch();
  ~BpeScratch();
  BpeScratch(const BpeScratch&) = delete;
  BpeScratch& operator=(const BpeScratch&) = delete;

 private:
  friend class Bpe;
  struct Symbol;
  struct Candidate;
  class Cache;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::unordered_map<TokenId, std::pair<TokenId, TokenId>> splits_;  // how unused pieces came about
  std::string spelled_;
  std::unique_ptr<Cache> cache_;
};

class Bpe {
 public:
  // `pseudo` holds characters that merges start from although they are no pieces; its ids lie above those of
  // `vocabulary`.
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options, Vocabulary pseudo = {});

  // Whether words may come as raw bytes that the vocabulary spells in the byte-level alphabet; if so,
  // read_bytes() makes them.
  bool can_read_bytes() const;
  void read_bytes();

  // Ids that no untrusted word may become (other than as the unknown piece).
  void forbid(const std::vector<TokenId>& ids);

  void tokenize(std::string_view word, Trust trust, BpeScratch& scratch, std::vector<Token>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  using Symbol = BpeScratch::Symbol;
  using Candidate = BpeScratch::Candidate;

  void start(std::string_view word, bool guarded, BpeScratch& scratch) const;
  void start_char(std::string_view piece, uint32_t length, bool guarded, uint32_t& pending_unknown,
                  BpeScratch& scratch) const;
  bool fall_back_to_bytes(std::string_view piece, BpeScratch& scratch) const;
  void merge_few(BpeScratch& scratch, bool guarded) const;
  void merge_many(BpeScratch& scratch, bool guarded) const;
  void finish(std::string_view word, BpeScratch& scratch, std::vector<Token>& out) const;
  void resegment(Symbol symbol, uint32_t begin, size_t first, BpeScratch& scratch, std::vector<Token>& out) const;
  MergeTable::Merge merge_of(TokenId left, TokenId right, bool guarded) const;
  bool is_forbidden(TokenId id) const { return size_t(id) < forbidden_.size() && forbidden_[id]; }
  bool is_unused(TokenId id) const { return size_t(id) < unused_.size() && unused_[id]; }
  void note_merge(TokenId left, TokenId right, TokenId merged, BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  Vocabulary pseudo_;
  MergeTable merges_;
  BpeOptions options_;
  TokenFinder frozen_;
  std::vector<bool> unused_;
  std::vector<bool> unreachable_;
  std::vector<bool> forbidden_;
  bool guards_ = false;  // some forbidden id can come out of a word
  bool reads_bytes_ = false;
  TokenId unknown_ = -1;
  std::array<TokenId, 256> byte_symbols_{};    // reads_bytes_: the piece of each byte
  std::array<TokenId, 256> fallback_bytes_{};  // <0x00> to <0xFF>, -1 where there is none
};

}  // namespace qgen::tokenizer
