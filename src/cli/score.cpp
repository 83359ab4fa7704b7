// The log-probability of each token of a text under the model, and its perplexity: how others check us.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "cli/input_text.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "engine/sequence.h"
#include "generate/generation.h"
#include "generate/loader.h"
#include "generate/sampler.h"

namespace qgen::cli {
namespace {

struct ScoreOptions {
  ModelOptions model;
  InputOptions text;
  std::vector<std::string> words;
  std::string input;    // "": standard input if something is there; "-": standard input; else a file
  std::string tokens;   // "1,2,3"
  std::string logits;   // a file to write
  std::string against;  // another model, to compare the scores with
  int64_t window = 0;   // 0: all of it at once, or the context where a text is longer
  int64_t stride = 0;   // 0: the window
  bool json = false;
};

constexpr double kUnscored = INFINITY;  // the log-probability of a token that nothing comes before

// How far a model's scores are from those of another, over all tokens that have a score.
struct Divergence {
  double kl = 0, largest_kl = 0;  // D(other || model), in nats: the sum and the largest of a token
  double nll = 0;                 // of the text under the other model, the sum
  size_t same_choice = 0;         // tokens for which both find the same one likeliest
  size_t tokens = 0;

  // `model` and `other`: the scores of the token `next`.
  void add(std::span<const float> model, std::span<const float> other, TokenId next) {
    const double model_sum = log_sum_exp(model), other_sum = log_sum_exp(other);
    double sum = 0;
    for (size_t i = 0; i < model.size(); ++i) {
      const double other_logprob = double(other[i]) - other_sum;
      sum += std::exp(other_logprob) * (other_logprob - (double(model[i]) - model_sum));
    }
    kl += sum;
    largest_kl = std::max(largest_kl, sum);
    nll -= double(other[next]) - other_sum;
    same_choice += std::max_element(model.begin(), model.end()) - model.begin() ==
                   std::max_element(other.begin(), other.end()) - other.begin();
    ++tokens;
  }
};

// The scores of every token, window by window: each window starts with an empty cache, and a token's score comes
// from the first window that holds it and something before it. Where there is another model its scores are compared.
class Scorer {
 public:
  Scorer(const LoadedModel& model, const LoadedModel* other, const std::vector<TokenId>& ids,
         std::ofstream* logits_file)
      : model_(model), other_(other), ids_(ids), logits_file_(logits_file), logprobs_(ids.size(), kUnscored) {}

  // False if a signal stopped it.
  bool run(size_t window, size_t stride) {
    const RunControl control = terminal_control(false);
    const PrefillWatch watch(*model_.engine, int64_t(std::min(window, ids_.size())), control);
    Sequence sequence(*model_.engine, int64_t(window));
    std::optional<Sequence> other;
    if (other_ != nullptr) other.emplace(*other_->engine, int64_t(window));
    // Two models go side by side, so that the scores of a few tokens are kept at a time.
    constexpr size_t kSideBySide = 64;
    const size_t step = other ? kSideBySide : window;
    for (size_t begin = 0, done = 0; done < ids_.size(); begin += stride) {
      const size_t end = std::min(begin + window, ids_.size());
      sequence.rewind(0);
      if (other) other->rewind(0);
      for (size_t first = begin; first < end; first += step) {
        const std::span<const TokenId> tokens(ids_.data() + first, std::min(step, end - first));
        std::vector<float> others;
        if (other) {
          other->run(tokens, [&](int64_t, std::span<const float> logits) {
            others.insert(others.end(), logits.begin(), logits.end());
          });
        }
        const auto result = sequence.run(tokens, [&](int64_t t, std::span<const float> logits) {
          const size_t at = first + size_t(t);
          take(at, done, end, logits);
          if (other && at + 1 < end && at + 1 >= done)
            divergence_.add(logits, std::span(others).subspan(size_t(t) * logits.size(), logits.size()), ids_[at + 1]);
        });
        if (result.empty()) return false;
      }
      done = end;
    }
    return true;
  }
  const std::vector<double>& logprobs() const { return logprobs_; }
  const Divergence& divergence() const { return divergence_; }

 private:
  // The scores after token `at`; windows before this one have done `done` tokens.
  void take(size_t at, size_t done, size_t end, std::span<const float> logits) {
    if (logits_file_ != nullptr && at >= done) {
      logits_file_->write(reinterpret_cast<const char*>(logits.data()), std::streamsize(logits.size_bytes()));
    }
    for (const float value : logits) {
      if (!std::isfinite(value)) {
        fail(ErrorKind::kRuntime, fmt::format("{}: the scores after token {} are not finite numbers", model_.name, at));
      }
    }
    if (at + 1 < end && at + 1 >= done) logprobs_[at + 1] = double(logits[ids_[at + 1]]) - log_sum_exp(logits);
  }

  const LoadedModel& model_;
  const LoadedModel* other_;
  const std::vector<TokenId>& ids_;
  std::ofstream* logits_file_;
  std::vector<double> logprobs_;
  Divergence divergence_;
};

// The other model, with the same engine; it must have the same tokens.
LoadedModel load_other(const ScoreOptions& options, const LoadedModel& model, int64_t window) {
  ModelOptions other = options.model;
  other.model = options.against;
  other.quantize.clear();
  other.quantize_head = false;
  auto plan = open_plan(other);
  if (plan->model.vocab != model.plan->model.vocab) {
    fail(ErrorKind::kUsage, fmt::format("--against {}: another vocabulary (expected {} tokens, found {})",
                                        options.against, model.plan->model.vocab, plan->model.vocab));
  }
  return load_model(std::move(plan), other, window, terminal_control(false).progress, true);
}

std::string divergence_text(const LoadedModel& other, const Divergence& divergence) {
  const double tokens = double(std::max<size_t>(divergence.tokens, 1));
  return fmt::format(
      "against {}: perplexity {:.6f}, KL divergence {:.6f} in the mean and {:.6f} at most, same choice for {:.2f} %\n",
      other.name, std::exp(divergence.nll / tokens), divergence.kl / tokens, divergence.largest_kl,
      100 * double(divergence.same_choice) / tokens);
}

std::string divergence_json(const LoadedModel& other, const Divergence& divergence) {
  const double tokens = double(std::max<size_t>(divergence.tokens, 1));
  return fmt::format(
      R"(,"against":{{"model":{},"perplexity":{:.9g},"mean_kl":{:.9g},"largest_kl":{:.9g},"same_choice":{:.9g}}})",
      json_quote(other.name), std::exp(divergence.nll / tokens), divergence.kl / tokens, divergence.largest_kl,
      double(divergence.same_choice) / tokens);
}

std::string table(const std::vector<TokenId>& ids, const std::vector<double>& logprobs, const Tokenizer* tokenizer,
                  double perplexity, size_t scored) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    out +=
        fmt::format("{}\t{}\t{}\t{}\n", i, ids[i], logprobs[i] == kUnscored ? "-" : fmt::format("{:.6f}", logprobs[i]),
                    json_quote(tokenizer != nullptr ? tokenizer->piece_of(ids[i]) : ""));
  }
  return out +
         fmt::format("perplexity {} over {} tokens\n", scored == 0 ? "-" : fmt::format("{:.6f}", perplexity), scored);
}

int score(const ScoreOptions& options) {
  require_model(options.model);
  auto plan = open_plan(options.model);
  const ModelFiles files = plan->checkpoint.files();
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<TokenId> ids;
  if (!options.tokens.empty()) {
    if (!options.input.empty()) fail(ErrorKind::kUsage, "score: --tokens and a text", "give one of them");
    ids = parse_token_ids(options.tokens, "--tokens", plan->model.vocab);
    if (Tokenizer::exists(files)) tokenizer = load_tokenizer(files);
  } else {
    tokenizer = load_tokenizer(files);
    const std::string text = read_text(options.input, "score", options.text);
    EncodeOptions encode;
    encode.parse_special_tokens = false;
    ids = tokenizer->encode(text, encode).ids;
    check_vocabulary(ids, *plan);
  }
  if (ids.empty()) fail(ErrorKind::kUsage, "score: no tokens");

  const int64_t native = plan->model.context;
  int64_t window = int64_t(ids.size());
  if (options.window > 0) {
    window = std::min(window, options.window);
  } else if (options.tokens.empty()) {
    window = std::min(window, options.model.context > 0 ? options.model.context : native);
  }
  const int64_t stride = options.stride > 0 ? options.stride : window;
  if (stride > window && window < int64_t(ids.size())) {
    fail(ErrorKind::kUsage, fmt::format("--stride {}: tokens between the windows would get no score (expected at most "
                                        "the window, {})",
                                        stride, window));
  }
  std::ofstream file;
  refuse_dash(options.logits, "--logits");
  if (!options.logits.empty()) {
    file.open(options.logits, std::ios::binary);
    if (!file) fail(ErrorKind::kRuntime, fmt::format("--logits {}: cannot write", options.logits));
  }

  const LoadedModel model = load_model(std::move(plan), options.model, window, terminal_control(false).progress, true);
  warn(nan_warning(model));
  if (window > native) {
    write_stderr(fmt::format("qgen: warning: {}: {} tokens go beyond the context it was made for ({})\n", model.name,
                             window, native));
  }
  std::optional<LoadedModel> other;
  if (!options.against.empty()) other = load_other(options, model, window);
  start_answer();
  Scorer scorer(model, other ? &*other : nullptr, ids, file.is_open() ? &file : nullptr);
  if (!scorer.run(size_t(window), size_t(stride))) throw Exit{128 + noted_signal()};
  end_answer();
  if (file.is_open() && !file.flush())
    fail(ErrorKind::kRuntime, fmt::format("--logits {}: cannot write", options.logits));

  double total = 0;
  size_t scored = 0;
  for (const double logprob : scorer.logprobs()) {
    if (logprob == kUnscored) continue;
    total += logprob;
    ++scored;
  }
  const double mean_nll = scored == 0 ? 0 : -total / double(scored);
  if (!options.json) {
    print_stdout(table(ids, scorer.logprobs(), tokenizer.get(), std::exp(mean_nll), scored));
    if (other) print_stdout(divergence_text(*other, scorer.divergence()));
    return 0;
  }
  std::string out = fmt::format(R"({{"schema":1,"model":{},"window":{},"stride":{},"tokens":[)", json_quote(model.name),
                                window, stride);
  for (size_t i = 0; i < ids.size(); ++i) {
    const double logprob = scorer.logprobs()[i];
    out += fmt::format(R"({}{{"id":{},"piece":{},"logprob":{}}})", i == 0 ? "" : ",", ids[i],
                       json_quote(tokenizer ? tokenizer->piece_of(ids[i]) : ""),
                       logprob == kUnscored ? "null" : fmt::format("{:.9g}", logprob));
  }
  print_stdout(out + fmt::format("],\"scored\":{},\"mean_nll\":{:.9g},\"perplexity\":{}{}}}\n", scored, mean_nll,
                                 scored == 0 ? "null" : fmt::format("{:.9g}", std::exp(mean_nll)),
                                 other ? divergence_json(*other, scorer.divergence()) : ""));
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<ScoreOptions>();
  std::vector<Option> options = {
      {"words", &o->words, "[MODEL] [FILE|-]", "the model, where no option names it; a text, or - for standard input"},
      {"--tokens", &o->tokens, "IDS", "score these token ids, as they are: 1,2,3", {.unless = "words"}},
      {"--window",
       &o->window,
       "N",
       "how many tokens to run together; each window starts afresh [all, or the context where a text is longer]",
       {.lowest = 2, .highest = double(int64_t{1} << 31)}},
      {"--stride",
       &o->stride,
       "N",
       "how many tokens from one window to the next; with fewer than a window every token has something before it [the "
       "window]",
       {.lowest = 1, .highest = double(int64_t{1} << 31)}},
      {"--logits", &o->logits, "FILE", "write the scores to this file as raw float32, (tokens, vocabulary)"},
      {"--against", &o->against, "MODEL",
       "compare the scores with another model's, of the same vocabulary: its perplexity, and the Kullback-Leibler "
       "divergence from it"},
      {"--json", &o->json, "", "print one JSON object"},
      invalid_utf8_option(o->text)};
  add_model_options(options, o->model);
  return {options, [o] {
            o->input = take_words(o->words, o->model, "score");
            return score(*o);
          }};
}

constexpr Example kExamples[] = {
    {"qgen score -m ./model text.txt", "a line a token, the perplexity last"},
    {"qgen score -m ./model --window 512 --stride 256 --json < text.txt", "in windows"},
    {"qgen score -m ./model-FP8 --against ./model text.txt", "what quantizing cost: perplexities, KL divergence"},
    {"qgen score -m ./model --tokens 1,2,3 --logits out.f32", "raw scores: row t is what follows token t"}};

}  // namespace

const Command kScoreCommand = {"score", "log-probability of each token of a text, and perplexity", kExamples, bind};

}  // namespace qgen::cli
