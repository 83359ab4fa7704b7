// SentencePiece's precompiled character map: a double-array trie from UTF-8 strings to replacements. Any
// bytes may be given; a map that points outside of itself matches nothing there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::tokenizer {

class Charsmap {
 public:
  Charsmap() = default;  // maps nothing
  // Throws a model Error that begins with `subject` if the sizes in `blob` do not fit.
  Charsmap(std::string_view blob, std::string_view subject);

  struct Hit {
    size_t length = 0;  // bytes matched
    std::string_view replacement;
  };
  // The shortest or longest entry that `text` begins with.
  std::optional<Hit> shortest(std::string_view text) const { return find(text, false); }
  std::optional<Hit> longest(std::string_view text) const { return find(text, true); }
  bool empty() const { return units_.empty(); }

 private:
  std::optional<Hit> find(std::string_view text, bool longest) const;
  std::vector<uint32_t> units_;
  std::string strings_;  // replacements, each ended by NUL
};

// Standard base64 with padding; nothing if `text` is not that.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace qgen::tokenizer
