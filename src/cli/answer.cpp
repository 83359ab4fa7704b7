// The main job: one prompt in, one answer out, streamed or as one JSON object; a conversation may go before it and
// after.
#include "cli/answer.h"

#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/answer_writer.h"
#include "cli/command_line.h"
#include "cli/echo.h"
#include "cli/exit_codes.h"
#include "cli/habits.h"
#include "cli/notes.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/answer_message.h"
#include "generate/conversation.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

// A lone word is the prompt, unless it looks like a command that was mistyped.
void take_prompt_word(AnswerOptions& options) {
  if (options.words.empty()) return;
  const std::string& word = options.words.front();
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (!command.name.empty()) names.emplace_back(command.name);
  }
  if (const std::string meant = closest_word(word, names, word.size() < 5 ? 1 : 2); !meant.empty()) {
    fail(ErrorKind::kUsage, fmt::format("{}: unknown command", word),
         fmt::format("did you mean {}? As a prompt: -p {}", meant, word));
  }
  if (options.model.model.empty()) {
    const std::string_view foreign = foreign_command_hint(word);
    if (!foreign.empty()) fail(ErrorKind::kUsage, fmt::format("{}: unknown command", word), std::string(foreign));
    if (options.words.size() == 2)
      fail(ErrorKind::kUsage, "no model", fmt::format("qgen -m {} \"{}\"", word, options.words[1]));
    std::error_code ignored;
    fail(ErrorKind::kUsage, "no model",
         std::filesystem::exists(word, ignored) ? fmt::format("qgen -m {0} \"PROMPT\", or qgen chat {0}", word)
                                                : fmt::format("qgen -m MODEL \"{}\"", word));
  }
  if (options.words.size() > 1) {
    fail(ErrorKind::kUsage, fmt::format("{}: unknown argument", options.words[1]),
         "a prompt of several words stands in quotes");
  }
  if (options.typed.contains("batch"))
    fail(ErrorKind::kUsage, fmt::format("{}: unknown argument", word),
         "--batch: write prompts as lines: {\"prompt\": \"…\"}");
  if (options.typed.contains("prompt"))
    fail(ErrorKind::kUsage, fmt::format("{}: unknown argument, --prompt is given already", word),
         "a prompt of several words stands in quotes");
  options.prompt = word;
}

// What variables of the environment say about conversations is for models that have them; what is typed is an error
// there.
void drop_untyped(AnswerOptions& options) {
  if (!options.typed.contains("system")) options.system.reset();
  if (!options.typed.contains("resume")) options.resume.reset();
  if (!options.typed.contains("save")) options.save.reset();
}

// The conversation or text that the model continues.
struct Question {
  ModelInput input;
  Conversation conversation;  // with the prompt as the last message, if the model has a template
};

// Whether the model is to speak next.
bool ends_with_question(const Conversation& conversation) {
  if (conversation.messages.empty()) return false;
  const std::string& role = conversation.messages.back().role;
  return role == "user" || role == "tool";
}

// `text`: the prompt; nothing where the conversation ends with a question.
Question prepare(const AnswerOptions& options, const TextModel& model, Conversation before,
                 std::optional<std::string> text) {
  Question out;
  if (!model.has_template()) {
    for (const auto& [name, given] :
         {std::pair("--system", options.system.has_value()), std::pair("--resume", options.resume.has_value()),
          std::pair("--save", options.save.has_value())}) {
      if (!given) continue;
      fail(ErrorKind::kUsage,
           fmt::format("{}: {}", name,
                       options.raw ? "--raw takes the prompt as it is" : "the model has no chat template"),
           "write what was said into the prompt");
    }
    out.input = model.continue_text(*text);
    return out;
  }
  out.conversation = std::move(before);
  if (options.system) out.conversation.set_system(valid_text(*options.system, "--system", options.text));
  if (text) out.conversation.messages.push_back({"user", *std::move(text), {}});
  out.input = model.render(out.conversation.all(), options.reasoning.variables());
  return out;
}

GenerationSettings settings_of(const AnswerOptions& options, const TextModel& model) {
  SamplingFlags flags = options.sampling;
  flags.logit_bias = model.logit_bias(options.logit_bias);
  GenerationSettings settings;
  settings.sampling = model.sampling(flags);
  settings.stops = options.stops;
  settings.max_tokens = options.max_tokens;
  settings.logprobs = options.logprobs;
  settings.prompt_lookup = options.prompt_lookup;
  settings.control = terminal_control(options.report.quiet);
  return settings;
}

void note_all(const AnswerOptions& options, const TextModel& model, const SamplingSettings& sampling,
              Warnings& warnings) {
  note_repeated(options.typed, {"model", "prompt", "file", "system", "resume", "save"}, warnings);
  note_reasoning(options.reasoning, options.typed, options.raw, model, warnings);
  note_sampling(options.typed, options.sampling, sampling, warnings);
  if (options.typed.contains("no-stdin") && (options.prompt == "-" || options.file == "-"))
    warnings.add(fmt::format("--no-stdin: no effect, --{} - reads it", options.prompt == "-" ? "prompt" : "file"));
  if (options.typed.contains("logprobs") && options.report.stats != "json" && options.report.stats_file.empty() &&
      !options.json) {
    warnings.add(
        fmt::format("--logprobs {}: no effect without --json, --stats=json or --stats-file", options.logprobs));
  }
}

// {"schema":1,"text":…} and a newline.
std::string answer_json(const Report& report, const std::string& text, const std::string& reasoning,
                        const Tokenizer& tokenizer) {
  const Generation& g = report.generation;
  std::string out = fmt::format(
      R"({{"schema":1,"model":{},"text":{},"reasoning":{},"stop":{},"stop_string":{},"cut_short":{},)"
      R"("usage":{{"prompt_tokens":{},"output_tokens":{},"thinking_tokens":{}}},)"
      R"("timings":{{"load_seconds":{:.6f},"prompt_seconds":{:.6f},"first_token_seconds":{},"output_seconds":{:.6f},)"
      R"("tokens_per_second":{:.3f}}},"seed":{},"logits_hash":{},"warnings":{})",
      json_quote(report.model->name), json_quote(text), text_or_null(reasoning), json_quote(g.stop),
      text_or_null(g.stop_string), text_or_null(report.cut_short), g.prompt_tokens, g.tokens.size(), g.thinking_tokens,
      report.model->load_seconds, g.prompt_seconds,
      g.tokens.empty() ? "null" : fmt::format("{:.6f}", g.first_token_seconds), g.output_seconds, g.tokens_per_second(),
      report.sampling.seed.value, g.logits_hash == 0 ? "null" : fmt::format("\"{:08x}\"", g.logits_hash),
      texts_json(report.warnings));
  if (!g.logprobs.empty()) out += fmt::format(",\"logprobs\":{}", logprobs_json(g, tokenizer));
  return out + "}\n";
}

int answer(AnswerOptions& options) {
  if (options.typed.empty() && options.model.model.empty() && options.words.empty() && stderr_is_terminal()) {
    write_stderr(short_help());
    return static_cast<int>(ErrorKind::kUsage);
  }
  take_prompt_word(options);
  require_model(options.model);
  if (!options.batch.empty()) return answer_batch(options);
  for (const char* const name : {"done", "parallel", "unordered"}) {
    if (options.typed.contains(name)) fail(ErrorKind::kUsage, fmt::format("--{}: goes with --batch only", name));
  }
  check_report_file(options.report);
  Conversation before;
  const auto read_before = [&] {
    if (options.resume) before = read_talk(*options.resume, options.text);
    if (options.save) check_conversation_file(*options.save);
  };
  if (options.typed.contains("resume") || options.typed.contains("save")) read_before();
  Warnings warnings(options.report);
  TextModel model(options.model, options.raw);
  if (!model.has_template()) drop_untyped(options);
  if (!options.typed.contains("resume") && !options.typed.contains("save")) read_before();
  AnswerWriter writer(options.reasoning.show);
  GenerationSettings settings = settings_of(options, model);
  settings.split_reasoning = model.has_template() && writer.splits();
  note_all(options, model, settings.sampling, warnings);
  auto text_of_prompt = gather_prompt({options.prompt, options.file, options.no_stdin, !ends_with_question(before)},
                                      options.text, warnings);
  Question question = prepare(options, model, std::move(before), std::move(text_of_prompt));
  load(model, int64_t(question.input.ids.size()), options.report.quiet, warnings);
  note_context(options.model, model, warnings);
  note_stops(options.stops, warnings);

  start_answer();
  Session session(model.engine(), model.loaded().context);
  Report report;
  report.model = &model.loaded();
  report.sampling = settings.sampling;
  report.chat_template = question.input.chat_template;
  report.drafts = options.prompt_lookup > 0 || options.model.drafts();
  AnswerMessage message(question.input.thinking, settings.split_reasoning);
  std::string text, reasoning;
  bool answered = false;
  {
    const EchoOff echo_off;
    report.generation = generate(session, model, question.input, settings, [&](const ReasoningPiece& piece) {
      answered = answered || (!piece.thinking && piece.text.find_first_not_of(" \t\r\n") != piece.text.npos);
      if (options.save) message.add(piece);
      if (options.json) {
        (piece.thinking ? reasoning : text) += piece.text;
      } else {
        writer.write(piece);
      }
    });
    if (!options.json) writer.finish();
  }
  end_answer();
  report.cut_short = cut_short(report.generation, answered);
  warnings.add(cut_short_warning(report.cut_short, report.generation, model.loaded()));
  report.warnings = warnings.all();
  report.thinking_hidden = settings.split_reasoning && writer.hides_thinking();
  if (options.json) {
    if (options.reasoning.show == "hide") reasoning.clear();
    print_stdout(answer_json(report, text, reasoning, model.tokenizer()));
  }
  if (options.save && !report.generation.tokens.empty()) {
    question.conversation.messages.push_back(message.finish());
    save_conversation(*options.save, question.conversation, model.name());
  }
  print_report(options.report, report, model.tokenizer());
  if (noted_signal() != 0) return 128 + noted_signal();
  return report.cut_short.empty() ? 0 : kExitCutShort;
}

Command::Bound bind() {
  const auto o = std::make_shared<AnswerOptions>();
  std::vector<Option> options;
  add_model_options(options, o->model);
  const std::initializer_list<Option> own = {
      {"words", &o->words, "[PROMPT]", "the prompt, as --prompt has it, in quotes"},
      {"-p,--prompt", &o->prompt, "TEXT", "the prompt; - reads it from standard input", {.unless = "batch"}},
      {"-f,--file", &o->file, "FILE|-", "a file with the prompt, or with what goes before it", {.unless = "batch"}},
      {"--no-stdin", &o->no_stdin, "", "leave standard input alone (in loops that read from it)"},
      {"-s,--system", &o->system, "TEXT", "the system message", {.unless = "raw"}},
      {"--raw", &o->raw, "", "continue the prompt as it is, without the chat template", {.unless = "system"}},
      {"--resume",
       &o->resume,
       "FILE",
       "go on with a conversation that --save or /save wrote, or with a list of messages in JSON; where it ends with a "
       "question, no prompt is needed",
       {.unless = "raw"}},
      {"--save", &o->save, "FILE", "write the conversation with the answer to this file", {.unless = "raw"}},
      max_tokens_option(o->max_tokens),
      stop_option(o->stops),
      {"--json", &o->json, "", "print one JSON object with text, reasoning, stop reason, usage and timings"},
      think_option(o->reasoning),
      template_arguments_option(o->reasoning),
      reasoning_option(o->reasoning),
      prompt_lookup_option(o->prompt_lookup),
      draft_option(o->model),
      invalid_utf8_option(o->text)};
  options.insert(options.end(), own);
  constexpr std::string_view kBatch = "Many prompts";
  options.push_back({"--batch",
                     &o->batch,
                     "FILE|-",
                     "answer JSON lines with prompts or messages, with a JSON line for each",
                     {.group = kBatch, .unless = "prompt"}});
  options.push_back({"--done",
                     &o->done,
                     "FILE",
                     "leave out the lines that are answered in this file, an earlier run's output",
                     {.group = kBatch, .unless = "prompt"}});
  options.push_back(parallel_option(o->parallel, "how many lines to answer together, which is faster [auto]"));
  options.back().details.group = kBatch;
  options.push_back({"--unordered",
                     &o->unordered,
                     "",
                     "write answers as they come, not in the order of the lines",
                     {.group = kBatch}});
  add_sampling_options(options, o->sampling);
  options.push_back({"--logit-bias",
                     &o->logit_bias,
                     "ID=BIAS",
                     "add BIAS to the score of this token",
                     {.group = options.back().details.group}});
  add_report_options(options, o->report);
  options.push_back({"--logprobs",
                     &o->logprobs,
                     "N",
                     "report the N likeliest tokens at each step, in JSON",
                     {.lowest = 0, .highest = 1 << 20, .group = options.back().details.group}});
  return {options, [o] { return answer(*o); }, &o->typed};
}

constexpr Example kExamples[] = {
    {"qgen -m Qwen/Qwen3-8B-FP8 \"Name three rivers.\"", "one answer, streamed"},
    {"git diff | qgen -m ./model -p \"Sum it up.\"", "a pipe, then the prompt"},
    {"qgen -m ./model -f question.txt > answer.txt", "text only"},
    {"qgen -m ./model --batch in.jsonl > out.jsonl", "many prompts, loaded once"},
    {"qgen chat -m ./model", "a conversation"},
    {"qgen plan ./model", "will it fit, how fast"},
};

}  // namespace

const Command kAnswerCommand = {"", "runs 8-bit language models from a shell", kExamples, bind};

}  // namespace qgen::cli
