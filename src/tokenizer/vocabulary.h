// The pieces of a vocabulary: spelling to id and back, and a trie over spellings. Built once at load with
// few allocations; several spellings may share an id, the last one wins where an id is spelled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace qgen::tokenizer {

uint64_t hash_bytes(std::string_view text);

class Vocabulary {
 public:
  // Room for `pieces` spellings with `bytes` bytes in all; more may follow.
  void reserve(size_t pieces, size_t bytes);
  // A spelling that is there already gets the new id.
  void add(std::string_view piece, TokenId id);

  TokenId find(std::string_view piece) const;  // -1 if there is none
  std::string_view piece(TokenId id) const;    // empty if there is none
  bool has(TokenId id) const { return id >= 0 && size_t(id) < by_id_.size() && by_id_[id] != kNone; }
  // Calls f(spelling, id) for every spelling.
  template <typename F>
  void for_each(F&& f) const {
    for (const Entry& entry : entries_) f(text_of(entry), entry.id);
  }
  size_t size() const { return entries_.size(); }
  size_t id_limit() const { return by_id_.size(); }  // all ids are below

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint32_t begin;
    uint32_t length;
    TokenId id;
  };
  struct Slot {
    uint32_t tag = 0;
    uint32_t entry = kNone;
  };
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.begin, entry.length);
  }
  void rehash(size_t slots);

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  std::vector<uint32_t> by_id_;
};

// A trie over byte strings, each with a value. Walk: node = step(node, byte) from kRoot until it is kDead.
class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kDead = UINT32_MAX;

  ByteTrie();
  void add(std::string_view text, int32_t value);
  uint32_t step(uint32_t node, uint8_t byte) const;
  int32_t value(uint32_t node) const { return values_[node]; }  // -1 if no string ends here
  bool empty() const { return values_.size() == 1; }
  bool can_start(uint8_t byte) const { return first_[byte] != kDead; }

 private:
  struct Edge {
    uint64_t key = UINT64_MAX;  // node << 8 | byte
    uint32_t child = kDead;
  };
  void rehash(size_t slots);

  std::vector<uint32_t> first_;  // children of the root
  std::vector<Edge> edges_;      // all others: open addressing, a power of two
  std::vector<int32_t> values_;  // one per node
  size_t edge_count_ = 0;
};

}  // namespace qgen::tokenizer
