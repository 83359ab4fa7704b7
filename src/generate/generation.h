// One answer: the prompt through the engine, then token by token until something ends it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/reasoning.h"
#include "generate/sampler.h"
#include "generate/session.h"
#include "generate/text_model.h"

namespace qgen {

struct GenerationSettings {
  SamplingSettings sampling;
  std::vector<std::string> stops;
  int64_t max_tokens = -1;       // -1: until the model ends or the context is full
  int64_t logprobs = 0;          // the so many likeliest tokens of each step are kept
  int64_t prompt_lookup = 0;     // tokens that a draft from the text itself has at most; 0: no drafts
  bool split_reasoning = false;  // thinking apart from the answer, its tags dropped
  RunControl control;
};

struct LogprobEntry {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

struct Generation {
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // of the prompt: those the cache did not hold already
  double prompt_seconds = 0;
  double first_token_seconds = 0;  // from the start; 0 without a token
  std::vector<TokenId> tokens;     // what was generated, without the end token
  double output_seconds = 0;       // of the tokens after the first
  int64_t output_calls = 0;        // of the engine, for these tokens
  int64_t thinking_tokens = 0;
  int64_t drafted_tokens = 0;   // run before it was known whether they come
  int64_t accepted_tokens = 0;  // of those: that came
  int64_t guessed_tokens = 0;   // of those: by the model's draft head
  std::string stop;             // "end", "max-tokens", "stop-string", "context", "interrupted"
  std::string stop_string;      // the one that was met
  uint32_t logits_hash = 0;
  std::vector<LogprobEntry> logprobs;

  double tokens_per_second() const;
};

// Takes text as soon as it is certain: whole characters that are no part of a stop string.
using TextSink = std::function<void(const ReasoningPiece& piece)>;

// One answer in the making: tokens are chosen from scores, and text is released as soon as it is certain. The caller
// runs the prompt on an engine, and then each token that next() returns.
class TextRelease;
class AnswerBuilder {
 public:
  AnswerBuilder(const TextModel& model, const ModelInput& input, const GenerationSettings& settings, TextSink sink);
  ~AnswerBuilder();

  // The prompt has been run, `computed` tokens of it.
  void prompt_done(int64_t computed);
  // From the scores that follow a sequence of `length` tokens: the token to run next; nothing where the answer has
  // ended. Throws a runtime Error where scores are not finite.
  std::optional<TokenId> next(const Scores& scores, int64_t length);
  // How next() will choose the next two tokens, as far as an engine can foresee it: for Work::choices.
  std::vector<TokenChoice> choices() const;
  // Tokens that may still come.
  int64_t wanted() const { return limit_ - int64_t(out_.tokens.size()); }
  Generation& generation() { return out_; }
  // Releases what was held back.
  Generation finish();

 private:
  std::optional<TokenId> end(const char* stop, const Scores& scores);

  const TextModel& model_;
  const GenerationSettings settings_;
  const TextSink sink_;
  const int64_t limit_;
  Sampler sampler_;
  std::unique_ptr<TextRelease> text_;
  Generation out_;
  std::chrono::steady_clock::time_point start_, first_token_;
};

// The sampler's choice, from as few of the scores as settle it.
TokenId choose(Sampler& sampler, const Scores& scores);

// Runs what is new in input.ids, then generates. settings.control may stop it. The prompt must fit
// in the context. Throws a runtime Error where scores are not finite.
Generation generate(Session& session, const TextModel& model, const ModelInput& input,
                    const GenerationSettings& settings, const TextSink& sink);

// A usage Error with both numbers if the prompt does not leave room for one token.
void check_fits(const ModelInput& input, const TextModel& model);

// FNV-1a over the bits of the scores.
uint32_t hash_logits(std::span<const float> logits);

// Shows how far the prefill of `tokens` is, and stops it where the control says so; ends with the object.
class PrefillWatch {
 public:
  PrefillWatch(Engine& engine, int64_t tokens, const RunControl& control);
  ~PrefillWatch();
  PrefillWatch(const PrefillWatch&) = delete;

 private:
  Engine& engine_;
  const RunControl& control_;
};

}  // namespace qgen
