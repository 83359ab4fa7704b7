// The main job: one prompt in, one answer out, streamed.
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "cli/answer.h"
#include "cli/answer_writer.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

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
  const bool dash = options.prompt == "-" || options.file == "-";
  if (options.file && options.file != "-") add(read_file(*options.file, kMaxTextBytes, ErrorKind::kUsage));
  const bool nothing_else = !options.prompt && !options.file;
  if (dash || (!options.no_stdin && (nothing_else ? !stdin_is_terminal() : stdin_is_pipe_or_file()))) {
    const std::string input = read_stdin();
    if (!input.empty() || dash || nothing_else) add(input);
  }
  if (options.prompt && options.prompt != "-") add(*options.prompt);
  if (!found) {
    fail(ErrorKind::kUsage, "no prompt",
         "--prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples");
  }
  return text;
}

ModelInput prepare(const AnswerOptions& options, const TextModel& model, std::string text) {
  if (!model.has_template()) {
    if (options.system) {
      fail(ErrorKind::kUsage,
           fmt::format("--system: {}",
                       options.raw ? "--raw takes the prompt as it is" : "the model has no chat template"),
           "write it into the prompt");
    }
    return model.continue_text(text);
  }
  // The newline that ends a file or `echo` is no part of the message.
  if (!text.empty() && text.back() == '\n') text.pop_back();
  std::vector<Message> messages;
  if (options.system) messages.push_back({"system", *options.system, {}});
  messages.push_back({"user", std::move(text), {}});
  return model.render(messages, options.reasoning.enable_thinking());
}

int answer(const AnswerOptions& options) {
  require_model(options.model);
  if (!options.batch.empty()) return answer_batch(options);
  check_report_file(options.report);
  TextModel model(options.model, options.raw);
  SamplingFlags flags = options.sampling;
  flags.logit_bias = model.logit_bias(options.logit_bias);
  AnswerWriter writer(options.reasoning.show);
  GenerationSettings settings;
  settings.sampling = model.sampling(flags);
  settings.stops = options.stops;
  settings.max_tokens = options.max_tokens;
  settings.logprobs = options.logprobs;
  settings.prompt_lookup = options.prompt_lookup;
  settings.split_reasoning = model.has_template() && writer.splits();
  settings.control = terminal_control(options.report.quiet);
  const ModelInput input = prepare(options, model, gather_prompt(options));
  load(model, int64_t(input.ids.size()), options.report.quiet);

  start_answer();
  Session session(model.engine());
  Report report{&model.loaded(), settings.sampling, input.chat_template, options.prompt_lookup > 0, {}};
  report.generation =
      generate(session, model, input, settings, [&](const ReasoningPiece& piece) { writer.write(piece); });
  writer.finish();
  end_answer();
  warn_if_full(report.generation, model, options.report.quiet || report_wanted(options.report));
  report.thinking_hidden = settings.split_reasoning && writer.hides_thinking();
  print_report(options.report, report, model.tokenizer());
  return noted_signal() != 0 ? 128 + noted_signal() : 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<AnswerOptions>();
  std::vector<Option> options = {
      {"-p,--prompt", &o->prompt, "TEXT", "the prompt; - reads standard input", {.unless = "batch"}},
      {"-f,--file", &o->file, "FILE|-", "a file with the prompt, or with what comes before it", {.unless = "batch"}},
      {"--no-stdin", &o->no_stdin, "", "leave standard input alone (in loops)"},
      {"-s,--system", &o->system, "TEXT", "the system message", {.unless = "raw"}},
      {"--raw", &o->raw, "", "continue the prompt as it is, without the chat template", {.unless = "system"}},
      max_tokens_option(o->max_tokens),
      stop_option(o->stops),
      {"--batch",
       &o->batch,
       "FILE|-",
       "answer JSON lines of prompts or messages, a JSON line each",
       {.unless = "prompt"}},
      think_option(o->reasoning),
      reasoning_option(o->reasoning)};
  add_model_options(options, o->model);
  options.push_back(prompt_lookup_option(o->prompt_lookup));
  add_sampling_options(options, o->sampling);
  options.push_back(
      {"--logit-bias", &o->logit_bias, "ID=BIAS", "added to a token's score", {.group = options.back().details.group}});
  add_report_options(options, o->report);
  options.push_back({"--logprobs",
                     &o->logprobs,
                     "N",
                     "the N likeliest tokens at each step, in the JSON report",
                     {.lowest = 0, .highest = 1 << 20, .group = options.back().details.group}});
  return {options, [o] { return answer(*o); }};
}

}  // namespace

const Command kAnswerCommand = {"", "runs 8-bit language models from a shell",
                                R"(  qgen -m Qwen/Qwen3-8B-FP8 -p "Name three rivers."        one answer, streamed
  git diff | qgen -m ./model -p "Write a commit message."  standard input, a blank line, the prompt
  qgen -m ./model -f question.txt --temp 0 > answer.txt    text only; the report goes to the terminal
  qgen -m ./model --batch prompts.jsonl > answers.jsonl    many prompts, the model loaded once
  qgen score -m ./model text.txt                           log-probabilities and perplexity
  qgen tokens -m ./model --chat <<< "Hi"                   what the model really reads
)",
                                bind};

}  // namespace qgen::cli
