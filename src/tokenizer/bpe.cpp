// Merging: few symbols by looking for the best pair again and again, many with a heap over a linked list.
// Short words are remembered, since text repeats them.
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {
namespace {

constexpr size_t kFewSymbols = 40;
constexpr uint32_t kNoSymbol = UINT32_MAX;

}  // namespace

// A piece of the word. An id below zero is the complement of one that takes no part in merges.
struct BpeScratch::Symbol {
  TokenId id;
  uint32_t length;  // in bytes of the word; 0 once it has gone into its left neighbour
  uint32_t previous;
  uint32_t next;
};

// A pair that might be merged: the symbol at `at` and the one after it.
struct BpeScratch::Candidate {
  uint32_t rank;
  uint32_t at;
  TokenId id;
  // std's heaps have the greatest on top.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

// Short words and their tokens, in one block of memory that is emptied when it is full.
class BpeScratch::Cache {
 public:
  static constexpr size_t kMaxWord = 64;

  Cache() : slots_(kSlots) { bytes_.reserve(kBytes); }

  bool find(std::string_view word, uint64_t hash, std::vector<Token>& out) const {
    for (size_t slot = hash & (kSlots - 1); slots_[slot].length != 0; slot = (slot + 1) & (kSlots - 1)) {
      const Slot& there = slots_[slot];
      if (there.tag != uint32_t(hash >> 32) || there.length != word.size()) continue;
      const char* record = bytes_.data() + there.begin;
      const size_t tokens_bytes = there.tokens * sizeof(Token);
      if (std::memcmp(record + tokens_bytes, word.data(), word.size()) != 0) continue;
      const size_t old = out.size();
      out.resize(old + there.tokens);
      if (tokens_bytes != 0) std::memcpy(out.data() + old, record, tokens_bytes);
      return true;
    }
    return false;
  }

  void add(std::string_view word, uint64_t hash, const Token* tokens, size_t count) {
    if (count > UINT8_MAX) return;
    const size_t size = (count * sizeof(Token) + word.size() + 7) / 8 * 8;
    if (count_ >= kSlots / 2 || bytes_.size() + size > kBytes) {
      std::fill(slots_.begin(), slots_.end(), Slot());
      bytes_.clear();
      count_ = 0;
    }
    size_t slot = hash & (kSlots - 1);
    while (slots_[slot].length != 0) slot = (slot + 1) & (kSlots - 1);
    slots_[slot] = {uint32_t(hash >> 32), uint32_t(bytes_.size()), uint8_t(word.size()), uint8_t(count)};
    bytes_.resize(bytes_.size() + size);
    char* record = bytes_.data() + slots_[slot].begin;
    if (count != 0) std::memcpy(record, tokens, count * sizeof(Token));
    std::memcpy(record + count * sizeof(Token), word.data(), word.size());
    ++count_;
  }

 private:
  static constexpr size_t kSlots = 1 << 16;
  static constexpr size_t kBytes = 4 << 20;
  struct Slot {
    uint32_t tag = 0;
    uint32_t begin = 0;
    uint8_t length = 0;  // 0: free
    uint8_t tokens = 0;
  };
  std::vector<Slot> slots_;
  std::vector<char> bytes_;
  size_t count_ = 0;
};

BpeScratch::BpeScratch() : cache_(std::make_unique<Cache>()) {}
BpeScratch::~BpeScratch() = default;

void MergeTable::reserve(size_t merges) { rehash(std::bit_ceil(merges + merges / 2 + 16)); }

void MergeTable::rehash(size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  mask_ = slots - 1;
  for (const Slot& there : old) {
    if (there.key == kFree) continue;
    size_t slot = hash(there.key) & mask_;
    while (slots_[slot].key != kFree) slot = (slot + 1) & mask_;
    slots_[slot] = there;
  }
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  if (slots_.size() < count_ + count_ / 2 + 2) rehash(std::bit_ceil(count_ * 2 + 16));
  const uint64_t key = key_of(left, right);
  size_t slot = hash(key) & mask_;
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask_;
  count_ += slots_[slot].key == kFree;
  slots_[slot] = {key, merge};
}

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options, Vocabulary pseudo)
    : vocabulary_(std::move(vocabulary)),
      pseudo_(std::move(pseudo)),
      merges_(std::move(merges)),
      options_(std::move(options)) {
  if (options_.unknown) unknown_ = vocabulary_.find(*options_.unknown);
  for (const std::string& piece : options_.frozen) frozen_.add(piece, vocabulary_.find(piece));
  frozen_.complete();
  const auto mark = [](const std::vector<TokenId>& ids, std::vector<bool>& marks) {
    for (const TokenId id : ids) {
      if (size_t(id) >= marks.size()) marks.resize(size_t(id) + 1);
      marks[id] = true;
    }
  };
  mark(options_.unused, unused_);
  mark(options_.unreachable, unreachable_);
  for (int b = 0; b < 256; ++b) fallback_bytes_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
}

bool Bpe::can_read_bytes() const {
  return options_.continuing_prefix.empty() && options_.end_suffix.empty() && !options_.byte_fallback &&
         options_.frozen.empty() && pseudo_.size() == 0;
}

void Bpe::read_bytes() {
  reads_bytes_ = true;
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    append_utf8(piece, char_of_byte(uint8_t(b)));
    byte_symbols_[b] = vocabulary_.find(piece);
  }
}

void Bpe::forbid(const std::vector<TokenId>& ids) {
  forbidden_.assign(vocabulary_.id_limit(), false);
  for (const TokenId id : ids) {
    if (!vocabulary_.has(id)) continue;
    forbidden_[id] = true;
    guards_ = guards_ || options_.ignore_merges || count_chars(vocabulary_.piece(id)) <= 1 ||
              !options_.continuing_prefix.empty() || !options_.end_suffix.empty();
  }
  merges_.for_each([&](const MergeTable::Merge& merge) { guards_ = guards_ || is_forbidden(merge.id); });
}

MergeTable::Merge Bpe::merge_of(TokenId left, TokenId right, bool guarded) const {
  const MergeTable::Merge merge = merges_.find(left, right);
  if (guarded && merge.id >= 0 && is_forbidden(merge.id)) return {};
  return merge;
}

void Bpe::tokenize(std::string_view word, Trust trust, BpeScratch& scratch, std::vector<Token>& out) const {
  if (word.empty()) return;
  const bool guarded = guards_ && trust == Trust::kUntrusted;
  const bool cached = !guarded && word.size() <= BpeScratch::Cache::kMaxWord;
  const uint64_t hash = cached ? hash_bytes(word) : 0;
  if (cached && scratch.cache_->find(word, hash, out)) return;
  const size_t old = out.size();
  if (options_.ignore_merges) {
    std::string_view spelled = word;
    if (reads_bytes_) {
      scratch.spelled_.clear();
      append_byte_level(scratch.spelled_, word);
      spelled = scratch.spelled_;
    }
    const TokenId id = vocabulary_.find(spelled);
    if (id >= 0 && !(guarded && is_forbidden(id))) out.push_back({id, 0, uint32_t(word.size())});
  }
  if (out.size() == old) {
    start(word, guarded, scratch);
    if (scratch.symbols_.size() <= kFewSymbols) {
      merge_few(scratch, guarded);
    } else {
      merge_many(scratch, guarded);
    }
    finish(word, scratch, out);
  }
  if (cached) scratch.cache_->add(word, hash, out.data() + old, out.size() - old);
}

bool Bpe::fall_back_to_bytes(std::string_view piece, BpeScratch& scratch) const {
  for (const char c : piece) {
    if (fallback_bytes_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : piece) scratch.symbols_.push_back({fallback_bytes_[static_cast<uint8_t>(c)], 1, 0, 0});
  return true;
}

// The symbol of one character. Unknown ones wait in `pending_unknown` (bytes) as they do in `tokenizers`,
// where byte tokens overtake them.
void Bpe::start_char(std::string_view piece, uint32_t length, bool guarded, uint32_t& pending_unknown,
                     BpeScratch& scratch) const {
  const auto add_unknown = [&] {
    if (pending_unknown != 0) scratch.symbols_.push_back({unknown_, pending_unknown, 0, 0});
    pending_unknown = 0;
  };
  TokenId id = vocabulary_.find(piece);
  if (id >= 0 && guarded && is_forbidden(id)) id = -1;
  if (size_t(id) < unreachable_.size() && unreachable_[id]) id = -1;
  if (id < 0 && pseudo_.size() != 0) id = pseudo_.find(piece);
  if (id >= 0) {
    add_unknown();
    scratch.symbols_.push_back({id, length, 0, 0});
    return;
  }
  if (options_.byte_fallback && fall_back_to_bytes(piece, scratch)) return;
  if (!options_.unknown) return;
  if (unknown_ < 0) {
    fail(ErrorKind::kModel,
         fmt::format("tokenizer: the unknown token '{}' is not in the vocabulary", *options_.unknown));
  }
  if (!options_.fuse_unknown) add_unknown();
  pending_unknown += length;
}

void Bpe::start(std::string_view word, bool guarded, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  if (!scratch.splits_.empty()) scratch.splits_.clear();
  uint32_t pending_unknown = 0;
  if (reads_bytes_) {
    for (const char c : word) {
      const TokenId id = byte_symbols_[static_cast<uint8_t>(c)];
      if (id >= 0 && pending_unknown == 0 && !guarded) {
        symbols.push_back({id, 1, 0, 0});
      } else {
        std::string piece;
        append_utf8(piece, char_of_byte(static_cast<uint8_t>(c)));
        start_char(piece, 1, guarded, pending_unknown, scratch);
      }
    }
  } else {
    TokenMatches frozen(frozen_, word);
    for (size_t at = 0; at < word.size();) {
      if (const uint32_t match = frozen.at(at); match != TokenFinder::kNone) {
        const TokenId id = frozen_.id(match);
        const uint32_t length = frozen_.length(match);
        if (!(guarded && is_forbidden(id))) {
          if (pending_unknown != 0) symbols.push_back({unknown_, pending_unknown, 0, 0});
          pending_unknown = 0;
          symbols.push_back({~id, length, 0, 0});
          at += length;
          continue;
        }
      }
      const uint32_t length = char_at(word.substr(at)).length;
      const std::string_view piece = word.substr(at, length);
      const bool prefixed = at != 0 && !options_.continuing_prefix.empty();
      const bool suffixed = at + length == word.size() && !options_.end_suffix.empty();
      if (prefixed || suffixed) {
        std::string whole = prefixed ? options_.continuing_prefix : std::string();
        whole += piece;
        if (suffixed) whole += options_.end_suffix;
        start_char(whole, length, guarded, pending_unknown, scratch);
      } else {
        start_char(piece, length, guarded, pending_unknown, scratch);
      }
      at += length;
    }
  }
  if (pending_unknown != 0) symbols.push_back({unknown_, pending_unknown, 0, 0});
}

void Bpe::note_merge(TokenId left, TokenId right, TokenId merged, BpeScratch& scratch) const {
  if (is_unused(merged)) scratch.splits_[merged] = {left, right};
}

void Bpe::merge_few(BpeScratch& scratch, bool guarded) const {
  auto& symbols = scratch.symbols_;
  MergeTable::Merge merges[kFewSymbols + 2];
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(symbols[i].id, symbols[i + 1].id, guarded);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].id < 0) break;
    note_merge(symbols[best].id, symbols[best + 1].id, merges[best].id, scratch);
    symbols[best].id = merges[best].id;
    symbols[best].length += symbols[best + 1].length;
    std::move(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(merges + best + 2, merges + std::max(count, best + 3) - 1, merges + best + 1);
    --count;
    if (best + 1 < count) merges[best] = merge_of(symbols[best].id, symbols[best + 1].id, guarded);
    if (best > 0) merges[best - 1] = merge_of(symbols[best - 1].id, symbols[best].id, guarded);
  }
  symbols.resize(count);
}

void Bpe::merge_many(BpeScratch& scratch, bool guarded) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  const uint32_t count = uint32_t(symbols.size());
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i].previous = i == 0 ? kNoSymbol : i - 1;
    symbols[i].next = i + 1 == count ? kNoSymbol : i + 1;
  }
  for (uint32_t i = 0; i + 1 < count; ++i) {
    const auto merge = merge_of(symbols[i].id, symbols[i + 1].id, guarded);
    if (merge.id >= 0) heap.push_back({merge.rank, i, merge.id});
  }
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](uint32_t left, uint32_t right) {
    const auto merge = merge_of(symbols[left].id, symbols[right].id, guarded);
    if (merge.id < 0) return;
    heap.push_back({merge.rank, left, merge.id});
    std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.at];
    if (left.length == 0 || left.next == kNoSymbol) continue;
    Symbol& right = symbols[left.next];
    if (merge_of(left.id, right.id, guarded).id != best.id) continue;
    note_merge(left.id, right.id, best.id, scratch);
    left.id = best.id;
    left.length += right.length;
    left.next = right.next;
    right.length = 0;
    if (left.next != kNoSymbol) symbols[left.next].previous = best.at;
    if (left.previous != kNoSymbol) push(left.previous, best.at);
    if (left.next != kNoSymbol) push(best.at, left.next);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

void Bpe::finish(std::string_view word, BpeScratch& scratch, std::vector<Token>& out) const {
  uint32_t begin = 0;
  const uint32_t size = uint32_t(word.size());
  const bool plain = pseudo_.size() == 0 && unused_.empty();
  const size_t first = out.size();
  for (const Symbol& symbol : scratch.symbols_) {
    if (plain) {
      const TokenId id = symbol.id < 0 ? ~symbol.id : symbol.id;
      out.push_back({id, std::min(begin, size), std::min(begin + symbol.length, size)});
    } else {
      resegment(symbol, begin, first, scratch, out);
    }
    begin += symbol.length;
  }
}

// SentencePiece's last step: unused pieces fall apart into what they were merged from, and characters that
// are no pieces become bytes or (neighbours together) the unknown piece.
void Bpe::resegment(Symbol symbol, uint32_t begin, size_t first, BpeScratch& scratch, std::vector<Token>& out) const {
  std::vector<TokenId> stack{symbol.id};
  while (!stack.empty()) {
    TokenId id = stack.back();
    stack.pop_back();
    if (id >= 0 && is_unused(id)) {
      const auto split = scratch.splits_.find(id);
      if (split != scratch.splits_.end()) {
        stack.push_back(split->second.second);
        stack.push_back(split->second.first);
        continue;
      }
    }
    const bool undivided = id == symbol.id;
    if (id < 0) id = ~id;
    const std::string_view character = pseudo_.piece(id);
    if (!character.empty()) {
      bool whole = options_.byte_fallback;
      for (const char c : character) whole = whole && fallback_bytes_[static_cast<uint8_t>(c)] >= 0;
      if (whole) {
        for (const char c : character) {
          out.push_back({fallback_bytes_[static_cast<uint8_t>(c)], begin, begin + 1});
          ++begin;
        }
        continue;
      }
      id = unknown_;
    }
    // The spelling of a byte's token is longer than the byte.
    const uint32_t length = undivided            ? symbol.length
                            : !character.empty() ? uint32_t(character.size())
                                                 : uint32_t(vocabulary_.piece(id).size());
    if (id >= 0 && id == unknown_ && out.size() > first && out.back().id == unknown_) {
      out.back().end = begin + length;
    } else if (id >= 0) {
      out.push_back({id, begin, begin + length});
    }
    begin += length;
  }
}

}  // namespace qgen::tokenizer
