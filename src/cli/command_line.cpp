// From argv to a running command: which options were given, by whom, and how the program ends.
#include "cli/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <new>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/streams.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

// One command's options beside what CLI11 parsed for them, as it was typed.
struct Parser {
  const Command* command;
  Command::Bound bound;
  CLI::App* app = nullptr;
  std::vector<CLI::Option*> given;  // one per option
  std::deque<std::vector<std::string>> texts;

  void attach(CLI::App& target) {
    app = &target;
    app->set_help_flag();  // the help is our own
    for (const Option& option : bound.options) {
      const std::string names(option.names);
      if (option.is_flag()) {
        given.push_back(app->add_flag(names));
        continue;
      }
      CLI::Option* parsed = app->add_option(names, texts.emplace_back());
      parsed->allow_extra_args(false);
      if (!option.details.alone.empty()) parsed->expected(0, 1);
      if (!option.is_repeatable()) parsed->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      given.push_back(parsed);
    }
  }

  // Whether the option of this long name was typed.
  bool typed(std::string_view long_name) const {
    for (size_t i = 0; i < bound.options.size(); ++i) {
      if (bound.options[i].long_name() == long_name) return given[i]->count() > 0;
    }
    return false;
  }

  const CLI::Option* find(std::string_view names) const {
    for (size_t i = 0; i < bound.options.size(); ++i) {
      if (bound.options[i].names == names) return given[i];
    }
    return nullptr;
  }
};

// Sets an option from what was typed for it.
void assign_typed(const Option& option, const CLI::Option& typed) {
  const std::string subject(option.is_word() ? option.names : std::string("--").append(option.long_name()));
  std::vector<std::string> values = typed.results();
  if (!option.details.alone.empty() && (values.empty() || values.back().empty() || values.back() == "{}"))
    values = {std::string(option.details.alone)};
  if (!option.is_repeatable() && !values.empty()) values = {values.back()};
  for (const std::string& value : values) assign(option, value, subject);
}

// A flag wins over the environment; one that was given before the command's name counts for the command. Returns what
// came from the environment.
std::vector<FromEnvironment> assign_all(const Parser& command, const Parser& root) {
  std::vector<FromEnvironment> out;
  for (size_t i = 0; i < command.bound.options.size(); ++i) {
    const Option& option = command.bound.options[i];
    const CLI::Option* const before = root.find(option.names);
    if (command.given[i]->count() > 0) {
      assign_typed(option, *command.given[i]);
    } else if (before != nullptr && before->count() > 0) {
      assign_typed(option, *before);
    } else if (option.has_environment_twin()) {
      const std::string name = option.environment_name();
      const char* const value = std::getenv(name.c_str());
      if (value == nullptr || *value == '\0' || command.typed(option.details.unless)) continue;
      assign(option, value, name);
      out.push_back({fmt::format("--{}", option.long_name()), name, value});
    }
  }
  if (&command == &root) return out;
  for (size_t i = 0; i < root.bound.options.size(); ++i) {
    if (root.given[i]->count() > 0 && command.find(root.bound.options[i].names) == nullptr) {
      fail(ErrorKind::kUsage,
           fmt::format("--{}: not an option of {}", root.bound.options[i].long_name(), command.command->name));
    }
  }
  return out;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({diagonal + (a[i] != b[j]), above + 1, row[j] + 1});
      diagonal = above;
    }
  }
  return row.back();
}

// The option or command that an unknown word was probably meant to be, or "".
std::string suggestion(const Parser& parser, bool with_commands, std::string word) {
  std::vector<std::string> candidates;
  if (word.starts_with('-')) {
    for (const Option& option : parser.bound.options) {
      if (!option.is_word()) candidates.push_back(fmt::format("--{}", option.long_name()));
    }
  } else if (with_commands) {
    for (const Command& command : commands()) {
      if (!command.name.empty()) candidates.emplace_back(command.name);
    }
  }
  return closest_word(word.substr(0, word.find('=')), candidates);
}

std::string help_hint(const Parser& parser, const Parser& root) {
  return fmt::format("`qgen{}{} --help` lists the options", &parser == &root ? "" : " ", parser.command->name);
}

[[noreturn]] void fail_parse(const Parser& parser, const Parser& root, const CLI::ParseError& error) {
  const bool is_root = &parser == &root;
  std::string message = error.what();
  std::string hint = help_hint(parser, root);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::vector<std::string> extras = parser.app->remaining().empty() ? root.app->remaining() : parser.app->remaining();
    std::erase(extras, "--");
    if (!extras.empty()) {
      const std::string& word = extras.front();
      message = fmt::format("{}: unknown {}", word,
                            word.starts_with('-') ? "option"
                            : is_root             ? "command or argument"
                                                  : "argument");
      if (const std::string meant = suggestion(parser, is_root, word); !meant.empty())
        hint = fmt::format("did you mean {}?", meant);
    }
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    message = message.substr(0, message.find(':')) + ": needs a value";
  }
  fail(ErrorKind::kUsage, message, hint);
}

// The words of the command line, last one first as CLI11 wants them. `--name=` gives the empty text; CLI11 would
// take the next word.
std::vector<std::string> reversed_words(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    std::string word = argv[i];
    if (word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1) {
      words.emplace_back();
      word.pop_back();
    }
    words.push_back(std::move(word));
  }
  return words;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app;
  app.require_subcommand(0, 1);
  std::deque<Parser> parsers;
  GlobalOptions global;
  for (const Command& command : commands()) {
    Parser& parser = parsers.emplace_back(Parser{&command, bind_command(command, global), nullptr, {}, {}});
    parser.attach(command.name.empty() ? app : *app.add_subcommand(std::string(command.name), ""));
  }
  const Parser& root = parsers.front();
  const auto used = [&]() -> const Parser& {
    for (const Parser& parser : parsers) {
      if (parser.app != &app && parser.app->parsed()) return parser;
    }
    return root;
  };
  const auto asked = [&](const Parser& parser, std::string_view names) { return parser.find(names)->count() > 0; };
  try {
    app.parse(reversed_words(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (!asked(used(), kHelpNames) && !asked(root, kHelpNames)) fail_parse(used(), root, error);
  }
  const Parser& command = used();
  if (asked(command, kHelpNames) || asked(root, kHelpNames)) {
    write_stdout(help_text(*command.command, command.bound.options));
    return 0;
  }
  if (asked(command, kVersionNames) || asked(root, kVersionNames)) {
    write_stdout("qgen " QGEN_VERSION "\n");
    return 0;
  }
  std::vector<FromEnvironment> variables;
  try {
    variables = assign_all(command, root);
  } catch (const Error& error) {
    fail(error.kind(), error.message(), help_hint(command, root));
  }
  set_color(global.color);
  try {
    return command.bound.run();
  } catch (const Error& error) {
    fail(error.kind(), name_variables(error.message(), variables), error.hint());
  }
}

}  // namespace

void report_error(const Error& error) {
  write_stderr(fmt::format("qgen: {}\n", one_message(error.message())));
  if (!error.hint().empty()) write_stderr(fmt::format("hint: {}\n", one_message(error.hint())));
}

std::string closest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = edit_distance(word, candidate);
    if (d < distance) {
      distance = d;
      best = candidate;
    }
  }
  return best;
}

Command::Bound bind_command(const Command& command, GlobalOptions& global) {
  Command::Bound bound = command.bind();
  bound.options.push_back(
      {"--color", &global.color, "WHEN", "auto, always or never [auto]", {.choices = "auto,always,never"}});
  bound.options.push_back({kVersionNames, &global.version, "", "print the version", {.typed_only = true}});
  bound.options.push_back({kHelpNames, &global.help, "", "print this help", {.typed_only = true}});
  return bound;
}

int run(int argc, char** argv) {
  claim_standard_streams();
  install_signal_handlers();
  try {
    return parse_and_run(argc, argv);
  } catch (const Exit& exit) {
    return exit.code;
  } catch (const Error& error) {
    report_error(error);
    return static_cast<int>(error.kind());
  } catch (const std::filesystem::filesystem_error& error) {
    report_error(Error(ErrorKind::kModel, fmt::format("{}: {}", error.path1().string(), error.code().message()), ""));
    return static_cast<int>(ErrorKind::kModel);
  } catch (const std::bad_alloc&) {
    report_error(Error(ErrorKind::kMemory, "out of memory", ""));
    return static_cast<int>(ErrorKind::kMemory);
  } catch (const std::exception& error) {
    report_error(Error(ErrorKind::kRuntime, error.what(), ""));
    return static_cast<int>(ErrorKind::kRuntime);
  }
}

}  // namespace qgen::cli
