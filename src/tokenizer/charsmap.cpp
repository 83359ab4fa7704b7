// The units are those of the darts-clone library: label, leaf flag and offset in 32 bits.
#include "tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::tokenizer {
namespace {

// A damaged trie can run in circles. Published maps have keys of a few characters.
constexpr size_t kMostKeyBytes = 256;

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view subject) {
  if (blob.empty()) return;
  uint32_t trie_bytes = 0;
  if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
  if (blob.size() < 4 || trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0) {
    fail(ErrorKind::kModel, fmt::format("{}: the precompiled map is damaged (its trie takes {} of {} bytes)", subject,
                                        trie_bytes, blob.size()));
  }
  units_.resize(trie_bytes / 4);
  if (trie_bytes != 0) std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
  strings_ = blob.substr(4 + trie_bytes);
}

std::optional<Charsmap::Hit> Charsmap::find(std::string_view text, bool longest) const {
  if (units_.empty()) return {};
  const auto offset = [](uint32_t unit) { return size_t(unit >> 10) << ((unit & (1u << 9)) >> 6); };
  size_t node = offset(units_[0]);
  std::optional<Hit> hit;
  for (size_t i = 0; i < std::min(text.size(), kMostKeyBytes); ++i) {
    const uint32_t byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & ((1u << 31) | 0xFF)) != byte) break;
    node ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= units_.size()) break;
    const size_t begin = units_[node] & 0x7FFFFFFF;
    if (begin > strings_.size()) break;
    const size_t end = std::min(strings_.find('\0', begin), strings_.size());
    hit = Hit{i + 1, std::string_view(strings_).substr(begin, end - begin)};
    if (!longest) break;
  }
  return hit;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t value;
    if (c >= 'A' && c <= 'Z') {
      value = c - 'A';
    } else if (c >= 'a' && c <= 'z') {
      value = c - 'a' + 26;
    } else if (c >= '0' && c <= '9') {
      value = c - '0' + 52;
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else {
      return {};
    }
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += char(bits >> count & 0xFF);
    }
  }
  return out;
}

}  // namespace qgen::tokenizer
