// From argv to a running command: which options were given, by whom, and how the program ends.
#include "cli/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/edit_distance.h"
#include "base/error.h"
#include "base/memory.h"
#include "cli/environment.h"
#include "cli/habits.h"
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
      if (!option.is_word()) parsed->allow_extra_args(false);
      if (option.is_word() && !option.is_repeatable()) parsed->expected(1);
      if (!option.is_repeatable()) parsed->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      given.push_back(parsed);
    }
  }

  // How often the option of this long name was typed.
  size_t typed(std::string_view long_name) const {
    for (size_t i = 0; i < bound.options.size(); ++i) {
      if (bound.options[i].long_name() == long_name) return given[i]->count();
    }
    return 0;
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
  if (option.is_word() && !option.is_repeatable() && values.size() > 1)
    fail(ErrorKind::kUsage, fmt::format("{}: unknown argument", values[1]),
         fmt::format("{} is given already: {}", option.details.same_as, values.front()));
  if (!option.is_repeatable() && !values.empty()) values = {values.back()};
  for (const std::string& value : values) assign(option, value, subject);
}

// A flag wins over the environment; one that was given before the command's name counts for the command. Returns what
// came from the environment.
std::vector<FromEnvironment> assign_all(const Parser& command, const Parser& root) {
  std::vector<FromEnvironment> out;
  TypedOptions typed;
  for (size_t i = 0; i < command.bound.options.size(); ++i) {
    const Option& option = command.bound.options[i];
    const CLI::Option* const before = root.find(option.names);
    if (command.given[i]->count() > 0) {
      if (typed.contains(option.details.same_as)) {
        fail(ErrorKind::kUsage, fmt::format("{}: unknown argument, --{} is given already",
                                            command.given[i]->results().front(), option.details.same_as));
      }
      assign_typed(option, *command.given[i]);
      typed[std::string(option.long_name())] = command.given[i]->count();
    } else if (before != nullptr && before->count() > 0) {
      assign_typed(option, *before);
      typed[std::string(option.long_name())] = before->count();
    } else if (option.has_environment_twin()) {
      const std::string name = option.environment_name();
      const char* const value = std::getenv(name.c_str());
      if (value == nullptr || *value == '\0' || command.typed(option.details.unless) > 0) continue;
      assign(option, value, name);
      out.push_back({fmt::format("--{}", option.long_name()), name, value});
    }
  }
  if (command.bound.typed != nullptr) *command.bound.typed = std::move(typed);
  if (&command == &root) return out;
  for (size_t i = 0; i < root.bound.options.size(); ++i) {
    if (root.given[i]->count() > 0 && command.find(root.bound.options[i].names) == nullptr) {
      if (root.bound.options[i].is_word()) {
        fail(ErrorKind::kUsage,
             fmt::format("{}: unknown argument before {}", root.given[i]->results().front(), command.command->name),
             fmt::format("a prompt that is called as a command: -p {}", command.command->name));
      }
      fail(ErrorKind::kUsage,
           fmt::format("--{}: not an option of {}", root.bound.options[i].long_name(), command.command->name));
    }
  }
  return out;
}

// The option that is called so: "--name" or "-n".
const Option* find_option(const Parser& parser, std::string_view name) {
  for (const Option& option : parser.bound.options) {
    if (!option.is_word() && (name.starts_with("--") ? name.substr(2) == option.long_name()
                                                     : name.size() == 2 && name.substr(1) == option.short_name()))
      return &option;
  }
  return nullptr;
}

std::string command_name(const Parser& parser) {
  return parser.command->name.empty() ? "`qgen`" : fmt::format("`qgen {}`", parser.command->name);
}

// What an unknown option was probably meant to be, or "".
std::string suggestion(const Parser& parser, const std::deque<Parser>& parsers, const std::string& word) {
  if (!word.starts_with('-')) return {};
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> others;
  for (const Parser& other : parsers) {
    if (find_option(other, name) != nullptr) others.push_back(command_name(other));
  }
  if (!others.empty())
    return fmt::format("{} is an option of {}, not of {}", name, fmt::join(others, ", "), command_name(parser));
  std::vector<std::string> candidates;
  for (const Option& option : parser.bound.options) {
    if (!option.is_word()) candidates.push_back(fmt::format("--{}", option.long_name()));
  }
  const size_t letters = name.size() - std::min(name.size(), name.find_first_not_of('-'));
  const std::string meant = closest_word(name, candidates, letters <= 3 ? 1 : std::max<size_t>(2, letters / 3));
  return meant.empty() ? "" : fmt::format("did you mean {}?", meant);
}

std::string help_hint(const Parser& parser, const Parser& root) {
  return fmt::format("`qgen{}{} --help` lists the options", &parser == &root ? "" : " ", parser.command->name);
}

[[noreturn]] void fail_parse(const Parser& parser, const std::deque<Parser>& parsers, const CLI::ParseError& error) {
  const Parser& root = parsers.front();
  std::string message = error.what();
  std::string hint = help_hint(parser, root);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const Parser& asked = parser.app->remaining().empty() ? root : parser;
    std::vector<std::string> extras = asked.app->remaining();
    std::erase(extras, "--");
    if (!extras.empty()) {
      const std::string& word = extras.front();
      message = fmt::format("{}: unknown {}", word, word.starts_with('-') ? "option" : "argument");
      if (std::string meant = suggestion(asked, parsers, word); !meant.empty()) hint = std::move(meant);
    }
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    message = message.substr(0, message.find(':')) + ": needs a value";
  }
  fail(ErrorKind::kUsage, message, hint);
}

// The words of the command line, under our names, last one first as CLI11 wants them. `--name=` gives the empty text;
// CLI11 would take the next word. An option whose value may be missing has it behind "=" only.
std::vector<std::string> reversed_words(int argc, char** argv, const std::deque<Parser>& parsers) {
  const auto find = [&](std::string_view name) -> const Option* {
    for (const Parser& parser : parsers) {
      if (const Option* const option = find_option(parser, name)) return option;
    }
    return nullptr;
  };
  const KnownOptions known = {[&](std::string_view name) { return find(name) != nullptr; },
                              [&](std::string_view name) {
                                const Option* option = find(name);
                                return option != nullptr && !option->is_flag() && option->details.alone.empty();
                              }};
  std::vector<std::string> words = translate_habits({argv + 1, argv + argc}, known);
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    std::string& word = words[i];
    if (known.takes_value(word)) {
      ++i;
      continue;
    }
    const std::string name = word.substr(0, word.ends_with('=') ? word.size() - 1 : word.npos);
    const Option* const option = name.starts_with("--") ? find(name) : nullptr;
    if (option != nullptr && !option->details.alone.empty()) word = fmt::format("{}={}", name, option->details.alone);
  }
  std::vector<std::string> out;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    if (word->size() > 3 && word->starts_with("--") && word->find('=') == word->size() - 1) {
      out.emplace_back();
      word->pop_back();
    }
    out.push_back(std::move(*word));
  }
  return out;
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
    app.parse(reversed_words(argc, argv, parsers));
  } catch (const CLI::ParseError& error) {
    if (!asked(used(), kHelpNames) && !asked(root, kHelpNames)) fail_parse(used(), parsers, error);
  }
  const Parser& command = used();
  if (asked(command, kHelpNames) || asked(root, kHelpNames)) {
    write_stdout(help_text(*command.command, command.bound.options, help_width()));
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
  note_variables(variables);
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

std::string closest_word(std::string_view word, const std::vector<std::string>& candidates, size_t most) {
  std::string best;
  size_t distance = (most > 0 ? most : std::max<size_t>(2, word.size() / 3)) + 1;
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
  bound.options.push_back({"--color",
                           &global.color,
                           "WHEN",
                           "when to use color: auto (on a terminal), always or never [auto]",
                           {.choices = "auto,always,never"}});
  bound.options.push_back({kVersionNames, &global.version, "", "print the version and end", {.typed_only = true}});
  bound.options.push_back({kHelpNames, &global.help, "", "print this help and end", {.typed_only = true}});
  return bound;
}

int run(int argc, char** argv) {
  share_heap_if_limited();
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
