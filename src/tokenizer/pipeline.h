// A tokenizer put together from its stages: added tokens, normalizers, pre-tokenizers, model,
// post-processors and decoders.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoders.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/post_processors.h"
#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace qgen::tokenizer {

using Model = std::variant<Bpe, Unigram, WordPiece>;

struct Stages {
  explicit Stages(Model the_model) : model(std::move(the_model)) {}
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  Model model;
  AddedTokens added;
  std::vector<PostProcessor> post_processors;
  std::vector<Decoder> decoders;

  const Vocabulary& vocabulary() const;
  // A piece as the normalizers leave it, for added tokens that are looked for in normalized text. A model Error where
  // that is much longer.
  std::string normalized(std::string_view content) const;
};

class Pipeline : public Tokenizer {
 public:
  explicit Pipeline(Stages stages);
  ~Pipeline() override;

  Encoding encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode(const Prompt& prompt) const override;
  void guard(std::string_view chat_template) override { stages_.added.guard(chat_template); }
  std::vector<TokenOffset> guarded_in(std::string_view text) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override;
  std::unique_ptr<DecodeRun> start_decoding(bool skip_special_tokens) const override;
  size_t vocabulary_size() const override;
  std::optional<TokenId> id_of(std::string_view piece) const override;
  std::string piece_of(TokenId id) const override;
  bool is_special(TokenId id) const override;

 private:
  class Run;
  struct Scratch;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_scratch(std::unique_ptr<Scratch> scratch) const;

  // `trusted` are the ranges of `text` that may hold all added tokens, ascending.
  Encoding encode_text(std::string_view text, const std::vector<Span>& trusted) const;
  Encoding encode_parts(std::string_view text, const std::vector<Span>& trusted) const;
  // `room`: bytes that all parts together may still grow to.
  void encode_part(std::string_view text, const Part& part, const std::vector<Span>& trusted, size_t& room,
                   Scratch& scratch, Encoding& out) const;
  std::string_view spelling(TokenId id) const;  // empty if there is no such token

  Stages stages_;
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_scratch_;
};

}  // namespace qgen::tokenizer
