// Open-addressing tables for pieces and for the edges of a trie.
#include "tokenizer/vocabulary.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace qgen::tokenizer {
namespace {

// The multiplication mix of splitmix64's finalizer.
uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ x >> 31;
}

}  // namespace

uint64_t hash_bytes(std::string_view text) {
  uint64_t hash = text.size() * 0x9E3779B97F4A7C15;
  const char* at = text.data();
  size_t left = text.size();
  while (left >= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = std::rotl(hash ^ mix(word), 23) * 0x9E3779B97F4A7C15;
    at += 8;
    left -= 8;
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= uint64_t(static_cast<unsigned char>(at[i])) << (8 * i);
  return mix(hash ^ tail);
}

void Vocabulary::reserve(size_t pieces, size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(pieces);
  by_id_.reserve(pieces + 64);
  rehash(std::bit_ceil(pieces * 2 + 16));
}

void Vocabulary::rehash(size_t slots) {
  slots_.assign(slots, {});
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const uint64_t hash = hash_bytes(text_of(entries_[i]));
    size_t slot = hash & (slots - 1);
    while (slots_[slot].entry != kNone) slot = (slot + 1) & (slots - 1);
    slots_[slot] = {uint32_t(hash >> 32), i};
  }
}

void Vocabulary::add(std::string_view piece, TokenId id) {
  if (slots_.size() < entries_.size() * 2 + 2) rehash(std::bit_ceil(entries_.size() * 3 + 16));
  if (bytes_.size() + piece.size() > UINT32_MAX) fail(ErrorKind::kModel, "vocabulary: more than 4 GiB of pieces");
  const uint64_t hash = hash_bytes(piece);
  size_t slot = hash & (slots_.size() - 1);
  uint32_t entry = kNone;
  while (slots_[slot].entry != kNone) {
    const Slot& there = slots_[slot];
    if (there.tag == uint32_t(hash >> 32) && text_of(entries_[there.entry]) == piece) {
      entry = there.entry;
      break;
    }
    slot = (slot + 1) & (slots_.size() - 1);
  }
  if (entry == kNone) {
    entry = uint32_t(entries_.size());
    entries_.push_back({uint32_t(bytes_.size()), uint32_t(piece.size()), id});
    bytes_ += piece;
    slots_[slot] = {uint32_t(hash >> 32), entry};
  } else {
    const TokenId old = entries_[entry].id;
    if (by_id_[old] == entry) by_id_[old] = kNone;
    entries_[entry].id = id;
  }
  if (size_t(id) >= by_id_.size()) by_id_.resize(size_t(id) + 1, kNone);
  by_id_[id] = entry;
}

TokenId Vocabulary::find(std::string_view piece) const {
  if (slots_.empty()) return -1;
  const uint64_t hash = hash_bytes(piece);
  size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].entry != kNone) {
    const Slot& there = slots_[slot];
    if (there.tag == uint32_t(hash >> 32) && text_of(entries_[there.entry]) == piece) return entries_[there.entry].id;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return -1;
}

std::string_view Vocabulary::piece(TokenId id) const {
  return has(id) ? text_of(entries_[by_id_[id]]) : std::string_view();
}

ByteTrie::ByteTrie() : first_(256, kDead), values_(1, -1) {}

void ByteTrie::rehash(size_t slots) {
  std::vector<Edge> old(slots);
  old.swap(edges_);
  for (const Edge& edge : old) {
    if (edge.child == kDead) continue;
    size_t slot = mix(edge.key) & (slots - 1);
    while (edges_[slot].child != kDead) slot = (slot + 1) & (slots - 1);
    edges_[slot] = edge;
  }
}

void ByteTrie::add(std::string_view text, int32_t value) {
  uint32_t node = kRoot;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t next = step(node, byte);
    if (next == kDead) {
      next = uint32_t(values_.size());
      values_.push_back(-1);
      if (node == kRoot) {
        first_[byte] = next;
      } else {
        if (edges_.size() < edge_count_ * 2 + 2) rehash(std::bit_ceil(edge_count_ * 3 + 64));
        const uint64_t key = uint64_t(node) << 8 | byte;
        size_t slot = mix(key) & (edges_.size() - 1);
        while (edges_[slot].child != kDead) slot = (slot + 1) & (edges_.size() - 1);
        edges_[slot] = {key, next};
        ++edge_count_;
      }
    }
    node = next;
  }
  values_[node] = value;
}

uint32_t ByteTrie::step(uint32_t node, uint8_t byte) const {
  if (node == kRoot) return first_[byte];
  if (edges_.empty()) return kDead;
  const uint64_t key = uint64_t(node) << 8 | byte;
  size_t slot = mix(key) & (edges_.size() - 1);
  while (edges_[slot].child != kDead) {
    if (edges_[slot].key == key) return edges_[slot].child;
    slot = (slot + 1) & (edges_.size() - 1);
  }
  return kDead;
}

}  // namespace qgen::tokenizer
