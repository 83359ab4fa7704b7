#include "cli/chat_commands.h"

#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "cli/command_line.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

// Prints the result of a command.
void tell(std::string_view text) { write_stderr(fmt::format("{}\n", text), Style::kDim); }

// Prints a confirmation, at an interactive terminal only.
void confirm(const Chat& chat, std::string_view text) {
  if (chat.interactive && !chat.report_options.quiet) tell(text);
}

// A shell is not there to do this.
std::string with_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return home != nullptr && path.starts_with("~/") ? home + path.substr(1) : path;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

void help(Chat&, const std::string&) {
  std::string out;
  for (const ChatCommand& command : chat_commands()) {
    if (command.summary.empty()) continue;
    const std::string left = fmt::format("/{} {}", command.name, command.argument);
    out += fmt::format("{:<20}{}\n", left, command.summary);
  }
  tell(out +
       "A line that ends in \\ continues on the next; \"\"\" begins and ends a message of many lines.\n"
       "Ctrl-C stops an answer or gives up a line, Ctrl-D ends. //x sends a message that begins with /x.");
}

void system(Chat& chat, const std::string& text) {
  if (text.empty()) {
    const auto& current = chat.session.conversation().system;
    tell(current ? *current : "no system message");
    return;
  }
  chat.session.set_system(text == "\"\"" ? std::nullopt : std::optional(text));
  confirm(chat, text == "\"\"" ? "there is no system message now" : "the system message is set");
}

void temperature(Chat& chat, const std::string& value) {
  if (!value.empty()) {
    SamplingFlags flags = chat.sampling;
    assign({"--temp", &flags.temperature, "T", ""}, value, "/temp");
    chat.model.sampling(flags);  // refuses what is out of range
    chat.sampling = std::move(flags);
  }
  const auto setting = chat.model.sampling(chat.sampling).temperature;
  const std::string text = fmt::format("temperature {} ({})", setting.value, origin_name(setting.origin));
  value.empty() ? tell(text) : confirm(chat, text);
}

void seed(Chat& chat, const std::string& value) {
  if (value == "random") {
    chat.sampling.seed.reset();
  } else if (!value.empty()) {
    assign({"--seed", &chat.sampling.seed, "N", ""}, value, "/seed");
  }
  std::string text = "a random seed for each answer";
  if (chat.sampling.seed) text = fmt::format("seed {} for every answer", *chat.sampling.seed);
  if (chat.model.sampling(chat.sampling).greedy()) {
    text += "; no use while answers are greedy (/temp 0)";
  } else if (value.empty() && !chat.sampling.seed && chat.last_report)
    text += fmt::format(", the last was {}", chat.last_report->sampling.seed.value);
  value.empty() ? tell(text) : confirm(chat, text);
}

void retry(Chat& chat, const std::string&) {
  const SamplingSettings sampling = chat.model.sampling(chat.sampling);
  if (sampling.greedy()) {
    confirm(chat, "greedy answers are always the same; /temp 0.7 draws another one");
  } else if (sampling.seed.origin == Origin::kFlag && chat.last_report &&
             chat.last_report->sampling.seed.value == sampling.seed.value) {
    confirm(chat, "the same seed gives the same answer; /seed random draws another one");
  }
  chat.next = {"", true};
}

// A file's name, which may stand in double quotes, and what follows it.
std::pair<std::string, std::string> name_and_rest(const std::string& text) {
  const bool quoted = text.starts_with('"') && text.find('"', 1) != text.npos;
  const size_t end = quoted ? text.find('"', 1) + 1 : std::min(text.find_first_of(" \t"), text.size());
  return {quoted ? text.substr(1, end - 2) : text.substr(0, end), std::string(trimmed(text.substr(end)))};
}

void file(Chat& chat, const std::string& argument) {
  const auto [name, question] = name_and_rest(argument);
  const std::string path = with_home(name);
  std::string text = prompt_text(read_file(path, kMaxTextBytes, ErrorKind::kUsage), path, chat.text);
  if (!question.empty()) text += "\n\n" + question;
  if (text.find_first_not_of(" \t\r\n") == text.npos) fail(ErrorKind::kUsage, fmt::format("/file: {}: empty", path));
  chat.next = {std::move(text), false};
}

void tokens(Chat& chat, const std::string& text) {
  if (text.empty()) {
    tell(fmt::format("{} of {} tokens in the context", chat.session.tokens_in_context(), chat.model.loaded().context));
  } else {
    EncodeOptions plain;
    plain.add_special_tokens = plain.parse_special_tokens = false;
    tell(counted(int64_t(chat.model.tokenizer().encode(text, plain).ids.size()), "token"));
  }
}

void stats(Chat& chat, const std::string&) {
  if (chat.last_report) {
    ReportOptions options;
    options.stats = "text";
    options.verbose = chat.report_options.verbose;
    print_report(options, *chat.last_report, chat.model.tokenizer());
  }
  tell(fmt::format("  chat    {}, {} of {} tokens in the context, {} computed",
                   counted(chat.session.conversation().turns(), "turn"), chat.session.tokens_in_context(),
                   chat.model.loaded().context, chat.session.computed_tokens()));
}

void undo(Chat& chat, const std::string&) {
  if (!chat.session.undo()) fail(ErrorKind::kUsage, "/undo: there is no question yet");
  confirm(chat,
          fmt::format("took back the last question, {} left", counted(chat.session.conversation().turns(), "turn")));
}

void save(Chat& chat, const std::string& file) {
  save_conversation(with_home(file), chat.session.conversation(), chat.model.name());
  confirm(chat, fmt::format("{} saved", counted(int64_t(chat.session.conversation().messages.size()), "message")));
}

void load(Chat& chat, const std::string& file) {
  chat.session.replace(read_talk(with_home(file), chat.text));
  confirm(chat, fmt::format("{} loaded", counted(int64_t(chat.session.conversation().messages.size()), "message")));
}

void clear(Chat& chat, const std::string&) {
  chat.session.clear();
  confirm(chat, chat.session.conversation().system ? "a new conversation, with the same system message"
                                                   : "a new conversation");
}

void end(Chat& chat, const std::string&) { chat.ended = true; }

constexpr ChatCommand kChatCommands[] = {
    {"help", "", "print this list", help},
    {"system", "[TEXT]", "show the system message, or set it; \"\" for none", system},
    {"temp", "[T]", "show the temperature, or set it", temperature},
    {"seed", "[N|random]", "show the seed of the random choices, or set it", seed},
    {"file", "FILE [TEXT]", "send what is in a file, and a text after it", file},
    {"retry", "", "answer the last question again", retry},
    {"undo", "", "take back the last question and its answer", undo},
    {"tokens", "[TEXT]", "how full the context is, or how many tokens a text has", tokens},
    {"stats", "", "speed and memory of the last answer", stats},
    {"save", "FILE", "write the conversation to a file", save},
    {"load", "FILE", "go on with a conversation from a file", load},
    {"clear", "", "start over; the system message stays", clear},
    {"exit", "", "end the conversation (Ctrl-D, /quit and /bye do too)", end},
    {"quit", "", "", end},
    {"bye", "", "", end},
};

}  // namespace

std::span<const ChatCommand> chat_commands() { return kChatCommands; }

void run_chat_command(Chat& chat, std::string_view line) {
  line.remove_prefix(1);
  const std::string_view name = line.substr(0, line.find_first_of(" \t"));
  const std::string argument(trimmed(line.substr(name.size())));
  std::vector<std::string> names;
  for (const ChatCommand& command : chat_commands()) {
    names.emplace_back(command.name);
    if (command.name != name) continue;
    if (command.argument.empty() && !argument.empty())
      fail(ErrorKind::kUsage, fmt::format("/{}: takes nothing (found '{}')", name, argument));
    if (argument.empty() && !command.argument.empty() && !command.argument.starts_with('['))
      fail(ErrorKind::kUsage, fmt::format("/{}: needs a value (expected /{} {})", name, name, command.argument));
    command.run(chat, argument);
    return;
  }
  const std::string meant = closest_word(name, names);
  fail(ErrorKind::kUsage, fmt::format("/{}: no such command", name),
       meant.empty() ? fmt::format("/help lists the commands; //{} sends it as a message", name)
                     : fmt::format("did you mean /{}? (//{} sends it as a message)", meant, name));
}

}  // namespace qgen::cli
