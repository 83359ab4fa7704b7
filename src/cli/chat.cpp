// A conversation: messages from a terminal or, one a line, from a pipe; answers on standard output.
#include <csignal>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "cli/answer_writer.h"
#include "cli/chat_commands.h"
#include "cli/command_line.h"
#include "cli/message_reader.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  ReportOptions report;
  ReasoningOptions reasoning;
  std::optional<std::string> system, resume;
  int64_t prompt_lookup = 0;
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  std::vector<std::string> stops;
  SamplingFlags sampling;
};

Conversation first_conversation(const ChatOptions& options) {
  Conversation conversation;
  if (options.resume) conversation = read_conversation(*options.resume);
  if (options.system) conversation.system = *options.system;
  return conversation;
}

void greet(const TextModel& model, const ChatOptions& options, const Conversation& conversation) {
  std::string resumed;
  if (options.resume) resumed = fmt::format(" · {} messages resumed", conversation.messages.size());
  write_stderr(fmt::format("{} · {} · context {}{} · /help lists commands\n", model.name(), model.plan().method(),
                           model.loaded().context, resumed),
               Style::kDim);
}

// One question and its answer.
void answer(Chat& chat, const ChatOptions& options, const std::string& question) {
  AnswerWriter writer(options.reasoning.show);
  GenerationSettings settings;
  settings.sampling = chat.model.sampling(chat.sampling);
  settings.stops = options.stops;
  settings.max_tokens = options.max_tokens;
  settings.prompt_lookup = options.prompt_lookup;
  settings.split_reasoning = writer.splits();
  settings.control = terminal_control(options.report.quiet);

  if (chat.interactive) {
    forget_interrupt();  // a Ctrl-C between turns
  } else {
    start_answer();
  }
  Report report{&chat.model.loaded(), settings.sampling, true, options.prompt_lookup > 0, {}};
  if (chat.last_report) report.read_bandwidth = chat.last_report->read_bandwidth;
  try {
    report.generation = chat.session.ask(question, settings, [&](const ReasoningPiece& piece) { writer.write(piece); });
  } catch (const Error&) {
    if (writer.begun()) writer.end_line();
    throw;
  }
  const Generation& generation = report.generation;
  const bool unanswered = generation.stop == "interrupted" && generation.tokens.empty();
  writer.end_line();
  if (chat.interactive && stdout_is_terminal() && !unanswered) write_stdout("\n");
  if (!chat.interactive) end_answer();

  report.thinking_hidden = settings.split_reasoning && writer.hides_thinking();
  ReportOptions report_options = options.report;
  report_options.quiet = true;  // only what was asked for
  report_options.verbose = options.report.verbose && !options.report.stats.empty();
  print_report(report_options, report, chat.model.tokenizer());
  warn_if_full(generation, chat.model, options.report.quiet || !options.report.stats.empty());
  if (unanswered && chat.interactive && !options.report.quiet)
    write_stderr("stopped before an answer began: the question is not kept\n", Style::kDim);
  chat.last_report = std::move(report);
  if (noted_signal() != 0 && (!chat.interactive || noted_signal() == SIGTERM)) throw Exit{128 + noted_signal()};
}

void take(Chat& chat, const ChatOptions& options, const TypedMessage& message) {
  std::string text = message.text;
  const bool literal = message.quoted || text.find('\n') != text.npos;
  if (text.find_first_not_of(" \t\n") == text.npos) return;
  if (!literal && text.starts_with('/') && !text.starts_with("//")) {
    run_chat_command(chat, text);
    return;
  }
  if (!literal && text.starts_with("//")) text.erase(0, 1);
  answer(chat, options, text);
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
  model.sampling(options.sampling);
  const auto thinking = options.reasoning.enable_thinking();
  load(model, tokens_of_next_turn(model, conversation, thinking), options.report.quiet);

  std::vector<std::string> words;
  for (const ChatCommand& command : chat_commands()) words.push_back(fmt::format("/{}", command.name));
  MessageReader reader(std::move(words));
  Chat state{model, ChatSession(model, thinking), options.sampling, options.report, {}, reader.interactive(), false};
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
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<ChatOptions>();
  std::vector<Option> options = {
      {"-s,--system", &o->system, "TEXT", "the system message"},
      {"--resume", &o->resume, "FILE", "go on with a conversation that /save wrote, or a list of messages in JSON"},
      max_tokens_option(o->max_tokens),
      stop_option(o->stops),
      think_option(o->reasoning),
      reasoning_option(o->reasoning)};
  add_model_options(options, o->model);
  options.push_back(prompt_lookup_option(o->prompt_lookup));
  add_sampling_options(options, o->sampling);
  add_report_options(options, o->report);
  return {options, [o] { return chat(*o); }};
}

}  // namespace

const Command kChatCommand = {
    "chat", "a conversation",
    R"(  qgen chat -m ./model                                     /help lists what can be typed
  qgen chat -m ./model --system "Answer in one line."      with a system message
  qgen chat -m ./model --resume talk.json                  goes on with what /save wrote
  qgen chat -m ./model < questions.txt > answers.txt       every line is a message
)",
    bind};

}  // namespace qgen::cli
