#include "generate/generation.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "generate/speculation.h"
#include "generate/stop.h"

namespace qgen {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_finite(const Scores& scores, const Plan& plan) {
  if (scores.finite()) return;
  fail(ErrorKind::kRuntime, "the model's scores are not finite numbers",
       plan.nan_codes() > 0
           ? fmt::format("{} fp8 codes of the weights are NaN: the checkpoint is damaged", plan.nan_codes())
           : "damaged weights, or activations beyond the range of 32-bit floats");
}

}  // namespace

// From tokens to the text that may be shown.
class TextRelease {
 public:
  TextRelease(const TextModel& model, const ModelInput& input, const GenerationSettings& settings, const TextSink& sink)
      : decoder_(model.tokenizer()),
        stops_(settings.stops),
        splitter_(input.thinking),
        split_(settings.split_reasoning),
        sink_(sink) {
    // A continuation begins in the middle of a text: its first space is a space.
    if (!input.chat_template) {
      StreamDecoder prompt(model.tokenizer());
      for (const TokenId id : input.ids) {
        decoder_.next(id);
        prompt.next(id);
      }
      held_prompt_ = prompt.finish();
    }
  }

  void push(TokenId token) { take(decoder_.next(token)); }
  void finish() {
    if (!stops_.stopped()) {
      take(decoder_.finish());
      release(stops_.finish());
    }
    if (split_) {
      for (const ReasoningPiece& piece : splitter_.finish()) put(piece);
    }
  }
  bool stopped() const { return stops_.stopped(); }
  const std::string& match() const { return stops_.match(); }
  bool thinking() const { return thinking_; }

 private:
  void take(std::string text) {
    if (!held_prompt_.empty() && !text.empty()) {
      if (text.starts_with(held_prompt_)) text.erase(0, held_prompt_.size());
      held_prompt_.clear();
    }
    release(stops_.push(text));
  }
  void release(std::string_view text) {
    if (!split_) {
      put({std::string(text), false});
      return;
    }
    for (const ReasoningPiece& piece : splitter_.push(text)) put(piece);
  }
  void put(const ReasoningPiece& piece) {
    if (piece.text.empty()) return;
    thinking_ = piece.thinking;
    sink_(piece);
  }

  StreamDecoder decoder_;
  std::string held_prompt_;  // the end of the prompt where the decoder holds it back, to come with the first text
  StopMatcher stops_;
  ReasoningSplitter splitter_;
  bool split_;
  bool thinking_ = false;
  const TextSink& sink_;
};

double Generation::tokens_per_second() const {
  return tokens.size() > 1 && output_seconds > 0 ? double(tokens.size() - 1) / output_seconds : 0;
}

TokenId choose(Sampler& sampler, const Scores& scores) {
  if (const Sampler::Wanted wanted = sampler.wanted(); wanted.count > 0) {
    if (const auto token = sampler.choose_among(scores.top(wanted.count, wanted.temperature))) return *token;
  }
  return sampler.choose(scores);
}

uint32_t hash_logits(std::span<const float> logits) {
  uint32_t hash = 2166136261u;
  for (const float value : logits) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i, bits >>= 8) hash = (hash ^ (bits & 0xFF)) * 16777619u;
  }
  return hash;
}

PrefillWatch::PrefillWatch(Engine& engine, int64_t tokens, const RunControl& control)
    : engine_(engine), control_(control) {
  engine.set_observer([this, tokens](double done) {
    if (control_.progress)
      control_.progress([&] { return fmt::format("reading the prompt: {:.0f} of {} tokens", done, tokens); });
    return !(control_.stopped && control_.stopped());
  });
}

PrefillWatch::~PrefillWatch() {
  engine_.set_observer({});
  if (control_.progress) control_.progress({});
}

void check_fits(const ModelInput& input, const TextModel& model) {
  if (int64_t(input.ids.size()) <= model.loaded().context) return;
  fail(ErrorKind::kUsage,
       fmt::format("{}: the prompt does not fit in the context (expected at most {} tokens, found {})", model.name(),
                   model.loaded().context, input.ids.size()));
}

AnswerBuilder::AnswerBuilder(const TextModel& model, const ModelInput& input, const GenerationSettings& settings,
                             TextSink sink)
    : model_(model),
      settings_(settings),
      sink_(std::move(sink)),
      limit_(settings.max_tokens < 0 ? INT64_MAX : settings.max_tokens),
      sampler_(settings.sampling),
      text_(std::make_unique<TextRelease>(model, input, settings, sink_)),
      start_(Clock::now()) {
  out_.prompt_tokens = int64_t(input.ids.size());
  sampler_.see_prompt(input.ids);
}
AnswerBuilder::~AnswerBuilder() = default;

void AnswerBuilder::prompt_done(int64_t computed) {
  out_.prompt_seconds = seconds_since(start_);
  out_.computed_tokens = computed;
  first_token_ = Clock::now();
}

std::optional<TokenId> AnswerBuilder::next(const Scores& scores, int64_t length) {
  if (scores.empty() || (settings_.control.stopped && settings_.control.stopped())) return end("interrupted", scores);
  check_finite(scores, model_.plan());
  if (wanted() <= 0) return end("max-tokens", scores);
  const TokenId token = choose(sampler_, scores);
  if (settings_.logprobs > 0) {
    out_.logprobs.push_back({{token, double(scores.all()[size_t(token)]) - log_sum_exp(scores)},
                             top_logprobs(scores, size_t(settings_.logprobs))});
  }
  if (out_.tokens.empty()) {
    out_.first_token_seconds = seconds_since(start_);
    first_token_ = Clock::now();
  }
  if (model_.is_end(token)) return end("end", scores);
  out_.tokens.push_back(token);
  sampler_.see_generated(token);
  text_->push(token);
  out_.thinking_tokens += text_->thinking();
  out_.output_seconds = seconds_since(first_token_);
  if (text_->stopped()) {
    out_.stop_string = text_->match();
    return end("stop-string", scores);
  }
  // Where no further token is wanted, this one is not run.
  if (wanted() <= 0) return end("max-tokens", scores);
  if (length >= model_.loaded().context) return end("context", scores);
  return token;
}

std::vector<TokenChoice> AnswerBuilder::choices() const {
  // For logprobs every token's scores are copied to the host whole: nothing is to be found or begun on the device.
  if (settings_.logprobs > 0) return {};
  return sampler_.upcoming(size_t(std::clamp<int64_t>(wanted(), 0, 2)));
}

std::optional<TokenId> AnswerBuilder::end(const char* stop, const Scores& scores) {
  out_.stop = stop;
  if (!scores.empty()) out_.logits_hash = hash_logits(scores);
  return {};
}

Generation AnswerBuilder::finish() {
  text_->finish();
  return std::move(out_);
}

Generation generate(Session& session, const TextModel& model, const ModelInput& input,
                    const GenerationSettings& settings, const TextSink& sink) {
  AnswerBuilder answer(model, input, settings, sink);
  const int64_t computed_before = session.computed_tokens();
  Scores scores;
  {
    const PrefillWatch watch(model.engine(), int64_t(input.ids.size()), settings.control);
    scores = session.sync(input.ids);
  }
  answer.prompt_done(session.computed_tokens() - computed_before);
  Speculation speculation(session, settings.prompt_lookup, model.plan().draft.has_value());
  const int64_t longest = model.plan().longest_with_draft(model.loaded().context);
  for (;;) {
    const size_t before = answer.generation().tokens.size();
    const auto token = answer.next(scores, int64_t(session.tokens().size()));
    if (answer.generation().tokens.size() > before) answer.generation().output_calls = speculation.calls();
    if (!token) break;
    // The last token of a draft will be chosen and not run, and this one needs its place as well.
    const int64_t room = std::min(answer.wanted(), longest - int64_t(session.tokens().size())) - 1;
    scores = speculation.append(*token, room, answer.choices());
  }
  answer.generation().drafted_tokens = speculation.drafted();
  answer.generation().accepted_tokens = speculation.accepted();
  answer.generation().guessed_tokens = speculation.guessed();
  return answer.finish();
}

}  // namespace qgen
