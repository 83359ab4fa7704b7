// A conversation: messages from a terminal or, one a line, from a pipe; answers on standard output.
#include <csignal>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "cli/answer_writer.h"
#include "cli/chat_commands.h"
#include "cli/command_line.h"
#include "cli/echo.h"
#include "cli/exit_codes.h"
#include "cli/message_reader.h"
#include "cli/notes.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  ReportOptions report;
  ReasoningOptions reasoning;
  InputOptions text;
  std::optional<std::string> system, resume;
  int64_t prompt_lookup = 0;
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  std::vector<std::string> stops;
  SamplingFlags sampling;
  TypedOptions typed;
};

Conversation first_conversation(const ChatOptions& options) {
  Conversation conversation;
  if (options.resume) conversation = read_talk(*options.resume, options.text);
  if (options.system) conversation.set_system(valid_text(*options.system, "--system", options.text));
  return conversation;
}

void greet(const TextModel& model, const ChatOptions& options, const Conversation& conversation) {
  std::string resumed;
  if (options.resume) resumed = fmt::format(" · {} messages resumed", conversation.messages.size());
  write_stderr(fmt::format("{} · {} · context {}{} · /help lists commands\n", one_line(model.name()),
                           model.plan().method(), model.loaded().context, resumed),
               Style::kDim);
}

GenerationSettings settings_of(const Chat& chat, const ChatOptions& options) {
  GenerationSettings settings;
  settings.sampling = chat.model.sampling(chat.sampling);
  settings.stops = options.stops;
  settings.max_tokens = options.max_tokens;
  settings.prompt_lookup = options.prompt_lookup;
  settings.control = terminal_control(options.report.quiet);
  return settings;
}

// One question and its answer, streamed.
Report converse(Chat& chat, const ChatOptions& options, const Ask& ask) {
  AnswerWriter writer(options.reasoning.show);
  GenerationSettings settings = settings_of(chat, options);
  settings.split_reasoning = writer.splits();
  Report report;
  report.model = &chat.model.loaded();
  report.sampling = settings.sampling;
  report.chat_template = true;
  report.drafts = options.prompt_lookup > 0 || options.model.drafts();
  report.thinking_hidden = settings.split_reasoning && writer.hides_thinking();
  if (chat.last_report) report.read_bandwidth = chat.last_report->read_bandwidth;
  bool answered = false;
  const TextSink sink = [&](const ReasoningPiece& piece) {
    answered = answered || (!piece.thinking && piece.text.find_first_not_of(" \t\r\n") != piece.text.npos);
    writer.write(piece);
  };
  const EchoOff echo_off;
  try {
    report.generation = ask.again ? chat.session.retry(settings, sink) : chat.session.ask(ask.question, settings, sink);
  } catch (const Error&) {
    if (writer.begun()) writer.end_line();
    throw;
  }
  report.cut_short = cut_short(report.generation, answered);
  writer.end_line();
  return report;
}

void answer(Chat& chat, const ChatOptions& options, const Ask& ask) {
  if (chat.interactive) {
    forget_interrupt();  // a Ctrl-C between turns
  } else {
    start_answer();
  }
  Report report = converse(chat, options, ask);
  const Generation& generation = report.generation;
  const bool unanswered = generation.stop == "interrupted" && generation.tokens.empty();
  if (chat.interactive && stdout_is_terminal() && !unanswered) write_stdout("\n");
  if (!chat.interactive) end_answer();

  Warnings warnings(options.report);
  warnings.add(cut_short_warning(report.cut_short, generation, chat.model.loaded()));
  report.warnings = warnings.all();
  chat.cut_short = chat.cut_short || !report.cut_short.empty();
  ReportOptions report_options = options.report;
  report_options.quiet = true;  // only what was asked for
  report_options.verbose = options.report.verbose && !options.report.stats.empty();
  print_report(report_options, report, chat.model.tokenizer());
  if (unanswered && chat.interactive && !options.report.quiet)
    write_stderr("stopped before an answer began: the question is not kept\n", Style::kDim);
  chat.last_report = std::move(report);
  if (noted_signal() != 0 && (!chat.interactive || noted_signal() != SIGINT)) throw Exit{128 + noted_signal()};
}

void take(Chat& chat, const ChatOptions& options, const TypedMessage& message) {
  std::string text = message.text;
  const bool literal = message.quoted || text.find('\n') != text.npos;
  if (text.find_first_not_of(" \t\n") == text.npos) return;
  if (!literal && text.starts_with('/') && !text.starts_with("//")) {
    chat.next.reset();
    run_chat_command(chat, text);
    if (chat.next) answer(chat, options, *chat.next);
    return;
  }
  if (!literal && text.starts_with("//")) text.erase(0, 1);
  answer(chat, options, {text});
}

int chat(const ChatOptions& options) {
  require_model(options.model);
  check_report_file(options.report);
  Conversation conversation = first_conversation(options);
  TextModel model(options.model, false);
  if (!model.has_template()) {
    fail(ErrorKind::kModel, fmt::format("{}: no chat template", model.name()),
         fmt::format("`qgen -m {} -p TEXT --raw` continues a text", options.model.model));
  }
  Warnings warnings(options.report);
  note_repeated(options.typed, {"model", "system", "resume"}, warnings);
  note_reasoning(options.reasoning, options.typed, false, model, warnings);
  note_sampling(options.typed, options.sampling, model.sampling(options.sampling), warnings);
  const TemplateVariables variables = options.reasoning.variables();
  load(model, tokens_of_next_turn(model, conversation, variables), options.report.quiet, warnings);
  note_context(options.model, model, warnings);
  note_stops(options.stops, warnings);

  std::vector<std::string> words;
  for (const ChatCommand& command : chat_commands()) words.push_back(fmt::format("/{}", command.name));
  MessageReader reader(std::move(words), options.text);
  Chat state{model,        ChatSession(model, variables), options.sampling, options.report,
             options.text, reader.interactive()};
  if (state.interactive && !options.report.quiet) greet(model, options, conversation);
  state.session.replace(std::move(conversation));
  if (state.interactive) start_answer(true);  // from here on, Ctrl-C ends no more than an answer or a line
  while (!state.ended) {
    const auto message = reader.next();
    if (!message) break;
    try {
      with_memory_for("the conversation", 0, [&] { take(state, options, *message); });
    } catch (const Error& error) {
      if (!state.interactive) throw;
      report_error(error);
    }
  }
  return state.cut_short && !state.interactive ? kExitCutShort : 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<ChatOptions>();
  std::vector<Option> options;
  add_model_options(options, o->model);
  const std::initializer_list<Option> own = {
      model_word(o->model),
      {"-s,--system", &o->system, "TEXT", "the system message"},
      {"--resume", &o->resume, "FILE",
       "go on with a conversation that /save or --save wrote, or with a list of messages in JSON"},
      max_tokens_option(o->max_tokens),
      stop_option(o->stops),
      think_option(o->reasoning),
      template_arguments_option(o->reasoning),
      reasoning_option(o->reasoning),
      prompt_lookup_option(o->prompt_lookup),
      draft_option(o->model),
      invalid_utf8_option(o->text)};
  options.insert(options.end(), own);
  add_sampling_options(options, o->sampling);
  add_report_options(options, o->report);
  return {options, [o] { return chat(*o); }, &o->typed};
}

constexpr Example kExamples[] = {{"qgen chat -m ./model", "/help lists what can be typed"},
                                 {"qgen chat -m ./model -s \"Be brief.\"", "with a system message"},
                                 {"qgen chat -m ./model --resume talk.json", "goes on with what /save wrote"},
                                 {"qgen chat -m ./model < questions > answers", "every line is a message"}};

}  // namespace

const Command kChatCommand = {"chat", "a conversation", kExamples, bind};

}  // namespace qgen::cli
