// The main job: one prompt in, one answer out, streamed.
#include <chrono>
#include <cmath>
#include <fstream>
#include <random>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"
#include "chat/reasoning.h"
#include "chat/template.h"
#include "cli/loader.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cpu/bodies.h"
#include "engine/session.h"
#include "sample/stop.h"

namespace qgen::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The prompt's text: from flags, a file, standard input, or the last two before the first.
std::string gather_prompt(const AnswerOptions& options) {
  std::string text;
  bool found = false;
  // Parts follow each other after a blank line.
  const auto add = [&](const std::string& part) {
    if (found && !text.empty() && !part.empty()) text += text.back() == '\n' ? "\n" : "\n\n";
    text += part;
    found = true;
  };
  if (options.file) add(read_file(*options.file, kMaxTextBytes, ErrorKind::kUsage));
  const bool dash = options.prompt == "-";
  const bool nothing_else = !options.prompt && !options.file;
  if (dash || (!options.no_stdin && (nothing_else ? !stdin_is_terminal() : stdin_is_pipe_or_file()))) {
    const std::string input = read_stdin();
    if (!input.empty() || dash || nothing_else) add(input);
  }
  if (options.prompt && !dash) add(*options.prompt);
  if (!found)
    fail(ErrorKind::kUsage, "no prompt",
         "--prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples");
  return text;
}

struct PreparedPrompt {
  std::vector<TokenId> ids;
  bool chat_template = false;
  bool thinking = false;  // the prompt ends inside an open <think> block
};

PreparedPrompt prepare_prompt(const AnswerOptions& options, std::string text, const std::filesystem::path& folder,
                              const Tokenizer& tokenizer) {
  PreparedPrompt out;
  std::optional<ChatTemplate> chat;
  if (!options.raw) chat = ChatTemplate::load(folder);
  if (!chat) {
    if (options.system) {
      fail(ErrorKind::kUsage, fmt::format("--system: {}", options.raw ? "--raw takes the prompt as it is"
                                                                      : "the model has no chat template"));
    }
    // What a user types never becomes a special token.
    EncodeOptions encode;
    encode.parse_special_tokens = false;
    out.ids = tokenizer.encode(text, encode).ids;
  } else {
    // The newline that ends a file or `echo` is no part of the message.
    if (!text.empty() && text.back() == '\n') text.pop_back();
    std::vector<Message> messages;
    if (options.system) messages.push_back({"system", *options.system, {}});
    messages.push_back({"user", std::move(text), {}});
    TemplateOptions template_options;
    if (options.think != "auto") template_options.enable_thinking = options.think == "on";
    std::tie(template_options.bos_token, template_options.eos_token) = ChatTemplate::special_tokens(folder);
    const Prompt prompt = chat->render(messages, template_options);
    out.ids = tokenizer.encode(prompt);
    out.chat_template = true;
    std::string trusted_end;
    if (!prompt.empty() && prompt.back().trusted) trusted_end = prompt.back().text;
    out.thinking = ends_in_thinking(trusted_end);
  }
  if (out.ids.empty())
    fail(ErrorKind::kUsage, "the prompt is empty", "this model needs at least one token to start from");
  return out;
}

std::vector<std::pair<TokenId, double>> parse_logit_bias(const std::vector<std::string>& entries, size_t vocabulary) {
  std::vector<std::pair<TokenId, double>> out;
  for (const std::string& entry : entries) {
    char* end = nullptr;
    const long id = std::strtol(entry.c_str(), &end, 10);
    char* value_end = nullptr;
    const double bias = *end == '=' ? std::strtod(end + 1, &value_end) : 0;
    if (end == entry.c_str() || value_end == nullptr || *value_end != '\0' || value_end == end + 1 || id < 0 ||
        size_t(id) >= vocabulary) {
      fail(ErrorKind::kUsage, fmt::format("--logit-bias {}: expected ID=BIAS with an id below {}", entry, vocabulary));
    }
    out.emplace_back(TokenId(id), bias);
  }
  return out;
}

// Streams text to standard output: thinking dimmed, shown or dropped, control characters kept from a terminal.
class AnswerWriter {
 public:
  AnswerWriter(const AnswerOptions& options, bool split, bool thinking)
      : terminal_(stdout_is_terminal()),
        show_thinking_(options.reasoning == "show" || (options.reasoning == "auto" && terminal_)),
        dim_(terminal_ && options.reasoning == "auto" && options.report.color != "never" &&
             (options.report.color == "always" || std::getenv("NO_COLOR") == nullptr)),
        split_(split && options.reasoning != "show"),
        splitter_(thinking) {}

  void write(std::string_view text) {
    if (split_) {
      for (const ReasoningPiece& piece : splitter_.push(text)) put(piece);
    } else {
      put({std::string(text), false});
    }
  }
  void finish() {
    if (split_) {
      for (const ReasoningPiece& piece : splitter_.finish()) put(piece);
    }
    if (terminal_ && !last_was_newline_) write_stdout("\n");
  }
  bool thinking() const { return was_thinking_; }
  bool hides_thinking() const { return split_ && !show_thinking_; }

 private:
  void put(const ReasoningPiece& piece) {
    if (piece.text.empty()) return;
    const bool answer_begins = was_thinking_ && !piece.thinking && show_thinking_;
    was_thinking_ = piece.thinking;
    if (piece.thinking && !show_thinking_) return;
    std::string text = terminal_ ? without_controls(piece.text) : piece.text;
    if (piece.thinking && dim_) text = "\x1b[2m" + text + "\x1b[0m";
    if (answer_begins) text = "\n\n" + text;
    if (text.empty()) return;
    last_was_newline_ = text.back() == '\n';
    write_stdout(text);
  }

  bool terminal_, show_thinking_, dim_, split_;
  bool last_was_newline_ = false;
  bool was_thinking_ = false;
  ReasoningSplitter splitter_;
};

void check_finite(std::span<const float> logits, const Plan& plan) {
  for (const float value : logits) {
    if (std::isfinite(value)) continue;
    fail(ErrorKind::kRuntime, "the model's scores are not finite numbers",
         plan.nan_codes() > 0
             ? fmt::format("{} fp8 codes of the weights are NaN: the checkpoint is damaged", plan.nan_codes())
             : "damaged weights, or activations beyond the range of 32-bit floats");
  }
}

// The speed of memory, measured on the weights themselves; not for models that fit into caches.
double measure_read_bandwidth(const Plan& plan, int threads) {
  constexpr size_t kSmallest = 64 << 20, kLargest = 1 << 30;
  const Weight* largest = &plan.weights.front();
  for (const Weight& weight : plan.weights) {
    if (weight.data.size() > largest->data.size()) largest = &weight;
  }
  // Tensors lie one after the other in a mapped file, so the bytes after the largest one are weights as well.
  const auto& tensors = plan.checkpoint.tensors();
  size_t bytes = largest->data.size();
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.data() == largest->data.data() + bytes) bytes += tensor.bytes.size();
  }
  if (bytes < kSmallest) return 0;
  cpu::ThreadPool pool(threads > 0 ? threads : available_cores());
  return cpu::read_bandwidth(pool, cpu::find_body(""), {largest->data.data(), std::min(bytes, kLargest)}, 2);
}

void print_report(const AnswerOptions& options, Report& report, const Tokenizer& tokenizer) {
  const ReportOptions& what = options.report;
  const bool wanted = !what.stats.empty() || ((stderr_is_terminal() || what.verbose) && !what.quiet);
  if (!wanted && what.stats_file.empty()) return;
  if (report.tokens_per_second() > 0) {
    report.read_bandwidth = measure_read_bandwidth(*report.model->plan, options.model.threads);
  }
  const std::string text = what.stats == "json" ? report_json(report, tokenizer) : report_text(report, what.verbose);
  if (!what.stats_file.empty()) {
    std::ofstream file(what.stats_file);
    file << report_json(report, tokenizer);
    if (!file.flush()) fail(ErrorKind::kRuntime, fmt::format("--stats-file {}: cannot write", what.stats_file));
  }
  if (wanted) write_stderr(text);
}

}  // namespace

int answer(const AnswerOptions& options) {
  auto plan = open_plan(options.model);
  const auto folder = plan->checkpoint.location().folder;
  const auto tokenizer = load_tokenizer(folder);
  const auto generation_config = read_generation_config(folder);
  SamplingFlags flags = options.sampling;
  flags.logit_bias = parse_logit_bias(options.logit_bias, size_t(plan->model.vocab));
  std::optional<Json> model_settings;
  if (generation_config) model_settings = generation_config->root();
  // Short enough to type again.
  const SamplingSettings sampling = resolve_sampling(flags, model_settings, std::random_device{}() % 10'000'000);

  const PreparedPrompt prompt = prepare_prompt(options, gather_prompt(options), folder, *tokenizer);
  check_vocabulary(prompt.ids, *plan);
  const std::vector<TokenId> ends = end_tokens(plan->model, generation_config.get(), folder, *tokenizer);
  const LoadedModel model = load_model(std::move(plan), options.model, int64_t(prompt.ids.size()));
  if (!options.report.quiet) warn_about_weights(model);

  if (const std::string& path = options.report.stats_file; !path.empty() && !std::ofstream(path, std::ios::app)) {
    fail(ErrorKind::kRuntime, fmt::format("--stats-file {}: cannot write", path));
  }

  Report report;
  report.model = &model;
  report.sampling = sampling;
  report.chat_template = prompt.chat_template;
  report.prompt_tokens = int64_t(prompt.ids.size());
  Sampler sampler(sampling);
  sampler.see_prompt(prompt.ids);
  StreamDecoder decoder(*tokenizer);
  // A continuation begins in the middle of a text: its first space is a space.
  if (!prompt.chat_template) {
    for (const TokenId id : prompt.ids) decoder.next(id);
  }
  StopMatcher stops(options.stops);
  AnswerWriter writer(options, prompt.chat_template, prompt.thinking);

  Session session(*model.engine);
  const auto start = Clock::now();
  std::span<const float> logits = session.sync(prompt.ids);
  report.prompt_seconds = seconds_since(start);
  start_answer();
  const int64_t limit = options.max_tokens < 0 ? INT64_MAX : options.max_tokens;
  auto first_token = Clock::now();
  for (;;) {
    check_finite(logits, *model.plan);
    if (noted_signal() != 0) {
      report.stop = "interrupted";
      break;
    }
    if (report.output_tokens >= limit) {
      report.stop = "max-tokens";
      break;
    }
    const TokenId token = sampler.choose(logits);
    if (options.logprobs > 0) {
      report.logprobs.push_back(
          {{token, double(logits[token]) - log_sum_exp(logits)}, top_logprobs(logits, size_t(options.logprobs))});
    }
    if (report.output_tokens == 0) {
      report.first_token_seconds = seconds_since(start);
      first_token = Clock::now();
    }
    if (std::binary_search(ends.begin(), ends.end(), token)) {
      report.stop = "end";
      break;
    }
    ++report.output_tokens;
    sampler.see_generated(token);
    writer.write(stops.push(decoder.next(token)));
    report.thinking_tokens += writer.thinking();
    report.output_seconds = seconds_since(first_token);
    if (stops.stopped()) {
      report.stop = "stop-string";
      report.stop_string = stops.match();
      break;
    }
    if (int64_t(session.tokens().size()) >= model.context) {
      report.stop = "context";
      break;
    }
    if (report.output_tokens < limit) logits = session.append(token);
  }
  report.logits_hash = hash_logits(logits);
  if (!stops.stopped()) {
    writer.write(stops.push(decoder.finish()));
    writer.write(stops.finish());
  }
  writer.finish();
  end_answer();
  report.thinking_hidden = writer.hides_thinking();
  print_report(options, report, *tokenizer);
  return noted_signal() != 0 ? 128 + noted_signal() : 0;
}

}  // namespace qgen::cli
