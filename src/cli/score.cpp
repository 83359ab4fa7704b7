// The log-probability of each token of a text under the model, and its perplexity: how others check us.
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "cli/loader.h"
#include "cli/terminal.h"
#include "sample/sampler.h"

namespace qgen::cli {

int score(const ScoreOptions& options) {
  auto plan = open_plan(options.model);
  const auto folder = plan->checkpoint.location().folder;
  const int64_t vocab = plan->model.vocab;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<TokenId> ids;
  if (!options.tokens.empty()) {
    if (!options.input.empty()) fail(ErrorKind::kUsage, "score: --tokens and a text", "give one of them");
    ids = parse_token_ids(options.tokens, "--tokens", vocab);
    if (Tokenizer::exists(folder)) tokenizer = load_tokenizer(folder);
  } else {
    if (options.input.empty() && stdin_is_terminal())
      fail(ErrorKind::kUsage, "score: no text", "name a file, or - for standard input, or --tokens 1,2,3");
    tokenizer = load_tokenizer(folder);
    const std::string text = options.input.empty() || options.input == "-"
                                 ? read_stdin()
                                 : read_file(options.input, kMaxTextBytes, ErrorKind::kUsage);
    EncodeOptions encode;
    encode.parse_special_tokens = false;
    ids = tokenizer->encode(text, encode).ids;
    check_vocabulary(ids, *plan);
  }
  if (ids.empty()) fail(ErrorKind::kUsage, "score: no tokens");
  std::ofstream file;
  if (!options.logits.empty()) {
    file.open(options.logits, std::ios::binary);
    if (!file) fail(ErrorKind::kRuntime, fmt::format("--logits {}: cannot write", options.logits));
  }

  const int64_t native = model_context(plan->model);
  const LoadedModel model = load_model(std::move(plan), options.model, int64_t(ids.size()), true);
  warn_about_weights(model);
  if (int64_t(ids.size()) > native) {
    write_stderr(fmt::format("qgen: warning: {}: {} tokens go beyond the context it was made for ({})\n", model.name,
                             ids.size(), native));
  }

  // logprobs[i] belongs to token i + 1: nothing comes before the first.
  std::vector<double> logprobs;
  start_answer();
  model.engine->prefill(ids, [&](int64_t t, std::span<const float> logits) {
    if (noted_signal() != 0) throw Exit{128 + noted_signal()};
    if (file.is_open()) file.write(reinterpret_cast<const char*>(logits.data()), std::streamsize(logits.size_bytes()));
    for (const float value : logits) {
      if (!std::isfinite(value))
        fail(ErrorKind::kRuntime, fmt::format("{}: the scores after token {} are not finite numbers", model.name, t));
    }
    if (size_t(t) + 1 < ids.size()) logprobs.push_back(double(logits[ids[size_t(t) + 1]]) - log_sum_exp(logits));
  });
  end_answer();
  if (file.is_open() && !file.flush())
    fail(ErrorKind::kRuntime, fmt::format("--logits {}: cannot write", options.logits));

  double total = 0;
  for (const double logprob : logprobs) total += logprob;
  const double mean_nll = logprobs.empty() ? 0 : -total / double(logprobs.size());
  const auto piece = [&](TokenId id) { return json_quote(tokenizer ? tokenizer->piece_of(id) : ""); };
  std::string out;
  if (options.json) {
    out = fmt::format(R"({{"schema":1,"model":{},"tokens":[)", json_quote(model.name));
    for (size_t i = 0; i < ids.size(); ++i) {
      out += fmt::format(R"({}{{"id":{},"piece":{},"logprob":{}}})", i == 0 ? "" : ",", ids[i], piece(ids[i]),
                         i == 0 ? "null" : fmt::format("{:.9g}", logprobs[i - 1]));
    }
    out += fmt::format(R"(],"scored":{},"mean_nll":{:.9g},"perplexity":{}}})", logprobs.size(), mean_nll,
                       logprobs.empty() ? "null" : fmt::format("{:.9g}", std::exp(mean_nll)));
    out += "\n";
  } else {
    for (size_t i = 0; i < ids.size(); ++i) {
      out += fmt::format("{}\t{}\t{}\t{}\n", i, ids[i], i == 0 ? "-" : fmt::format("{:.6f}", logprobs[i - 1]),
                         piece(ids[i]));
    }
    out += fmt::format("perplexity {} over {} tokens\n",
                       logprobs.empty() ? "-" : fmt::format("{:.6f}", std::exp(mean_nll)), logprobs.size());
  }
  write_stdout(out);
  return 0;
}

}  // namespace qgen::cli
