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

// From as few of the scores as settle it.
TokenId choose(Sampler& sampler, const Scores& scores) {
  if (const Sampler::Wanted wanted = sampler.wanted(); wanted.count > 0) {
    if (const auto token = sampler.choose_among(scores.top(wanted.count, wanted.temperature))) return *token;
  }
  return sampler.choose(scores);
}

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

}  // namespace

double Generation::tokens_per_second() const {
  return tokens.size() > 1 && output_seconds > 0 ? double(tokens.size() - 1) / output_seconds : 0;
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

Generation generate(Session& session, const TextModel& model, const ModelInput& input,
                    const GenerationSettings& settings, const TextSink& sink) {
  Generation out;
  out.prompt_tokens = int64_t(input.ids.size());
  Sampler sampler(settings.sampling);
  sampler.see_prompt(input.ids);
  TextRelease text(model, input, settings, sink);

  const auto start = Clock::now();
  const int64_t computed_before = session.computed_tokens();
  Scores logits;
  {
    const PrefillWatch watch(model.engine(), out.prompt_tokens, settings.control);
    logits = session.sync(input.ids);
  }
  out.prompt_seconds = seconds_since(start);
  out.computed_tokens = session.computed_tokens() - computed_before;
  Speculation speculation(session, settings.prompt_lookup);
  const int64_t longest = longest_with_draft(model.plan().model.rope, model.loaded().context);
  const int64_t limit = settings.max_tokens < 0 ? INT64_MAX : settings.max_tokens;
  auto first_token = Clock::now();
  for (;;) {
    if (logits.empty() || (settings.control.stopped && settings.control.stopped())) {
      out.stop = "interrupted";
      break;
    }
    check_finite(logits, model.plan());
    if (int64_t(out.tokens.size()) >= limit) {
      out.stop = "max-tokens";
      break;
    }
    const TokenId token = choose(sampler, logits);
    if (settings.logprobs > 0) {
      out.logprobs.push_back({{token, double(logits.all()[size_t(token)]) - log_sum_exp(logits)},
                              top_logprobs(logits, size_t(settings.logprobs))});
    }
    if (out.tokens.empty()) {
      out.first_token_seconds = seconds_since(start);
      first_token = Clock::now();
    }
    if (model.is_end(token)) {
      out.stop = "end";
      break;
    }
    out.tokens.push_back(token);
    sampler.see_generated(token);
    text.push(token);
    out.thinking_tokens += text.thinking();
    out.output_seconds = seconds_since(first_token);
    out.output_calls = speculation.calls();
    if (text.stopped()) {
      out.stop = "stop-string";
      out.stop_string = text.match();
      break;
    }
    if (int64_t(session.tokens().size()) >= model.loaded().context) {
      out.stop = "context";
      break;
    }
    const int64_t wanted = limit - int64_t(out.tokens.size());
    // The last of them will be chosen and not run, and this one needs its place as well.
    const int64_t room = std::min(wanted, longest - int64_t(session.tokens().size())) - 1;
    if (wanted > 0) logits = speculation.append(token, room);
  }
  out.drafted_tokens = speculation.drafted();
  out.accepted_tokens = speculation.accepted();
  if (!logits.empty()) out.logits_hash = hash_logits(logits);
  text.finish();
  return out;
}

}  // namespace qgen
