// The log-probability of each token of a text under the model, and its perplexity: how others check us.
#include <cmath>
#include <fstream>
#include <memory>

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
  std::string input;   // "": standard input if something is there; "-": standard input; else a file
  std::string tokens;  // "1,2,3"
  std::string logits;  // a file to write
  int64_t window = 0;  // 0: all of it at once, or the context where a text is longer
  int64_t stride = 0;  // 0: the window
  bool json = false;
};

constexpr double kUnscored = INFINITY;  // the log-probability of a token that nothing comes before

// The scores of every token, window by window: each window starts with an empty cache, and a token's score comes
// from the first window that holds it and something before it.
class Scorer {
 public:
  Scorer(const LoadedModel& model, const std::vector<TokenId>& ids, std::ofstream* logits_file)
      : model_(model), ids_(ids), logits_file_(logits_file), logprobs_(ids.size(), kUnscored) {}

  // False if a signal stopped it.
  bool run(size_t window, size_t stride) {
    const RunControl control = terminal_control(false);
    const PrefillWatch watch(*model_.engine, int64_t(std::min(window, ids_.size())), control);
    Sequence sequence(*model_.engine, int64_t(window));
    for (size_t begin = 0, done = 0; done < ids_.size(); begin += stride) {
      const size_t end = std::min(begin + window, ids_.size());
      sequence.rewind(0);
      const auto result =
          sequence.run({ids_.data() + begin, end - begin},
                       [&](int64_t t, std::span<const float> logits) { take(begin + size_t(t), done, end, logits); });
      if (result.empty()) return false;
      done = end;
    }
    return true;
  }
  const std::vector<double>& logprobs() const { return logprobs_; }

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
  const std::vector<TokenId>& ids_;
  std::ofstream* logits_file_;
  std::vector<double> logprobs_;
};

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
  start_answer();
  Scorer scorer(model, ids, file.is_open() ? &file : nullptr);
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
  print_stdout(out + fmt::format("],\"scored\":{},\"mean_nll\":{:.9g},\"perplexity\":{}}}\n", scored, mean_nll,
                                 scored == 0 ? "null" : fmt::format("{:.9g}", std::exp(mean_nll))));
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
    {"qgen score -m ./model --tokens 1,2,3 --logits out.f32", "raw scores: row t is what follows token t"}};

}  // namespace

const Command kScoreCommand = {"score", "log-probability of each token of a text, and perplexity", kExamples, bind};

}  // namespace qgen::cli
