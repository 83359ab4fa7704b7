// Text to token ids and back, exactly as the model's own tokenizer files say it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/model_files.h"
#include "base/prompt.h"
#include "base/token.h"

namespace qgen {

struct EncodeOptions {
  bool add_special_tokens = true;  // what the post-processor adds (a beginning-of-sequence token, say)
  // Whether special tokens spelled out in the text become their ids. Off, they are plain text.
  bool parse_special_tokens = true;
};

// One token of an encoded text: bytes [begin, end) of the input that it stands for. Tokens that the
// post-processor added cover nothing (begin == end).
struct TokenOffset {
  size_t begin = 0;
  size_t end = 0;
};

struct Encoding {
  std::vector<TokenId> ids;
  std::vector<TokenOffset> offsets;  // one per id
};

// One decoding of a growing sequence: the text that each token makes certain, and what is left at the end.
// Put together that is decode() of the whole sequence, and no piece ends inside a character. Its tokenizer
// outlives it.
class DecodeRun {
 public:
  virtual ~DecodeRun() = default;
  virtual void push(TokenId id, std::string& out) = 0;  // both append to `out`
  virtual void finish(std::string& out) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From tokenizer.json; else vocab.json + merges.txt; else tekken.json; else tokenizer.model (SentencePiece). Throws a
  // model Error that names the file, and the component if it is one we do not support.
  static std::unique_ptr<Tokenizer> load(const ModelFiles& files);
  // Whether load() would find anything there.
  static bool exists(const ModelFiles& files);

  // Any bytes may come in; invalid UTF-8 is read as U+FFFD (as `tokenizers` gets it from Python). Offsets
  // count bytes of the text after that replacement.
  virtual Encoding encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // A rendered chat prompt: special tokens only from trusted parts, nothing added by the post-processor.
  // Where no special token cuts the text, neighbouring parts are tokenized together.
  virtual std::vector<TokenId> encode(const Prompt& prompt) const = 0;

  // Added tokens that are no special ones are read in anyone's text, but for markup (<think>) and words that this chat
  // template mentions, which are read in trusted parts alone, as special ones are.
  virtual void guard(std::string_view chat_template) = 0;
  // Where a text spells such guarded tokens: what a model has written itself may have been them.
  virtual std::vector<TokenOffset> guarded_in(std::string_view text) const = 0;

  // The text of the ids, as `tokenizers` decodes them at once.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = true) const = 0;
  virtual std::unique_ptr<DecodeRun> start_decoding(bool skip_special_tokens = true) const = 0;

  virtual size_t vocabulary_size() const = 0;  // added tokens included
  virtual std::optional<TokenId> id_of(std::string_view piece) const = 0;
  virtual std::string piece_of(TokenId id) const = 0;  // as the vocabulary spells it; empty if there is none
  virtual bool is_special(TokenId id) const = 0;
};

// Decodes a growing sequence of tokens into text that can be shown piece by piece: what next() and finish()
// return, put together, is decode() of the whole sequence, and no piece ends inside a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  std::string next(TokenId id);
  std::string finish();

 private:
  std::unique_ptr<DecodeRun> run_;
};

}  // namespace qgen
