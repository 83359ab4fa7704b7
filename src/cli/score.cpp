// The log-probability of each token of a text under the model, and its perplexity: how others check us.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "cli/input_text.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/generation.h"
#include "generate/loader.h"
#include "generate/scoring.h"
#include "quantize/failed_mark.h"

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

[[noreturn]] void fail_logits(const std::string& path) {
  const int error = errno;
  fail(ErrorKind::kRuntime,
       fmt::format("--logits {}: cannot write: {}", path, std::strerror(error == 0 ? EIO : error)));
}

std::string divergence_text(const LoadedModel& other, const Divergence& divergence) {
  return fmt::format(
      "against {}: perplexity {:.6f}, KL divergence {:.6f} in the mean and {:.6f} at most, same choice for {:.2f} %\n",
      one_line(other.name), divergence.perplexity(), divergence.mean_kl(), divergence.largest_kl,
      100 * divergence.same_share());
}

std::string divergence_json(const LoadedModel& other, const Divergence& divergence) {
  return fmt::format(
      R"(,"against":{{"model":{},"perplexity":{:.9g},"mean_kl":{:.9g},"largest_kl":{:.9g},"same_choice":{:.9g}}})",
      json_quote(other.name), divergence.perplexity(), divergence.mean_kl(), divergence.largest_kl,
      divergence.same_share());
}

std::string table(const std::vector<TokenId>& ids, const TextScores& scores, const Tokenizer* tokenizer) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double logprob = scores.logprobs[i];
    out += fmt::format("{}\t{}\t{}\t{}\n", i, ids[i], logprob == kUnscored ? "-" : fmt::format("{:.6f}", logprob),
                       json_quote(tokenizer != nullptr ? tokenizer->piece_of(ids[i]) : ""));
  }
  return out + fmt::format("perplexity {} over {} tokens\n",
                           scores.scored == 0 ? "-" : fmt::format("{:.6f}", scores.perplexity()), scores.scored);
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
    if (plan->checkpoint.is_file_of_model(options.logits)) {
      fail(ErrorKind::kUsage, fmt::format("--logits {}: it is a file of the model itself", options.logits),
           "another name");
    }
    std::error_code missing;
    if (std::filesystem::equivalent(options.logits, options.input, missing))
      fail(ErrorKind::kUsage, fmt::format("--logits {}: it is the text", options.logits), "another name");
    file.open(options.logits, std::ios::binary);
    if (!file) fail_logits(options.logits);
  }

  const LoadedModel model = load_model(std::move(plan), options.model, window, terminal_control(false).progress, true);
  warn(nan_warning(model));
  warn(quantize::failed_warning(model.plan->checkpoint.location()));
  if (window > native) {
    warn(fmt::format("{}: {} tokens go beyond the context it was made for ({})", model.name, window, native));
  }
  std::optional<LoadedModel> other;
  if (!options.against.empty()) {
    other = load_beside(model, options.model, options.against, "--against", window, terminal_control(false).progress);
  }
  start_answer();
  TokenScores each;
  if (file.is_open()) {
    each = [&](size_t, std::span<const float> scores) {
      file.write(reinterpret_cast<const char*>(scores.data()), std::streamsize(scores.size_bytes()));
      if (!file) fail_logits(options.logits);
    };
  }
  const auto scores = score_text(model, other ? &*other : nullptr, ids, {size_t(window), size_t(stride)},
                                 terminal_control(false), each);
  if (!scores) throw Exit{128 + noted_signal()};
  end_answer();
  if (file.is_open() && !file.flush()) fail_logits(options.logits);

  if (!options.json) {
    print_stdout(table(ids, *scores, tokenizer.get()));
    if (other) print_stdout(divergence_text(*other, scores->divergence));
    return 0;
  }
  std::string out = fmt::format(R"({{"schema":1,"model":{},"window":{},"stride":{},"tokens":[)", json_quote(model.name),
                                window, stride);
  for (size_t i = 0; i < ids.size(); ++i) {
    const double logprob = scores->logprobs[i];
    out += fmt::format(R"({}{{"id":{},"piece":{},"logprob":{}}})", i == 0 ? "" : ",", ids[i],
                       json_quote(tokenizer ? tokenizer->piece_of(ids[i]) : ""),
                       logprob == kUnscored ? "null" : fmt::format("{:.9g}", logprob));
  }
  const auto mean = [&](double value) { return scores->scored == 0 ? "null" : fmt::format("{:.9g}", value); };
  print_stdout(out + fmt::format("],\"scored\":{},\"mean_nll\":{},\"perplexity\":{}{}}}\n", scores->scored,
                                 mean(scores->mean_nll), mean(scores->perplexity()),
                                 other ? divergence_json(*other, scores->divergence) : ""));
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<ScoreOptions>();
  std::vector<Option> options = {
      {"words", &o->words, "[MODEL] [FILE|-]",
       "the model, where no option names it; a text, or - for standard input: as it is, but for a byte order mark and "
       "one newline at its end"},
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
