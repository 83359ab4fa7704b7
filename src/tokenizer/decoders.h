// The last stage: the spellings of tokens to text. A chain of decoders runs token by token, so that decoding
// a growing sequence gives the same text as decoding it at once: both run the same code. What cannot be
// known yet (half a character, bytes that may turn out to be broken) waits inside the chain.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "tokenizer/normalizers.h"

namespace qgen::tokenizer {

struct DecodeByteLevel {};
struct DecodeByteFallback {};
struct DecodeMetaspace {
  std::string replacement;
  bool drops_first = true;  // what was prepended to the first word
};
struct DecodeFuse {};
struct DecodeStrip {
  std::string content;
  size_t start = 0;
  size_t stop = 0;
};
struct DecodeReplace {
  Pattern pattern;
  std::string content;
};
struct DecodeWordPiece {
  std::string prefix;
  bool cleanup = true;
};
struct DecodeBpe {
  std::string suffix;
};
// Without a decoder: tokens with spaces between them.
struct DecodeJoin {};

using Decoder = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeMetaspace, DecodeFuse, DecodeStrip,
                             DecodeReplace, DecodeWordPiece, DecodeBpe, DecodeJoin>;

// The "decoder" of tokenizer.json, sequences flattened.
std::vector<Decoder> read_decoders(const Json& json);

// One run of a chain. Decoders outlive it.
class DecodeChain {
 public:
  explicit DecodeChain(const std::vector<Decoder>& decoders);
  ~DecodeChain();
  DecodeChain(const DecodeChain&) = delete;
  DecodeChain& operator=(const DecodeChain&) = delete;

  // The text that is certain once `token` has come, or once no more will come. Throws a model Error where the decoders
  // make very much text of few tokens.
  void push(std::string_view token, std::string& out);
  void finish(std::string& out);

  class Budget;
  class Stage;

 private:
  std::unique_ptr<Budget> budget_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace qgen::tokenizer
