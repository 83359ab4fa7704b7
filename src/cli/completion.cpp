// Completion scripts for bash, zsh and fish, made from the table of options.
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

// The kinds of values that can be completed after an option.
enum class Kind { kNothing, kChoices, kModel, kFile, kText };

Kind kind_of(const Option& option) {
  if (option.is_flag()) return Kind::kNothing;
  if (!option.details.choices.empty()) return Kind::kChoices;
  if (option.value.find("MODEL") != option.value.npos) return Kind::kModel;
  return option.value.find("FILE") != option.value.npos || option.value.find("DIR") != option.value.npos ? Kind::kFile
                                                                                                         : Kind::kText;
}

struct Row {
  const Command* command;
  std::vector<Option> options;
};

std::vector<Row> rows() {
  // Options point into what they would set; here only their names matter.
  static GlobalOptions unused;
  std::vector<Row> out;
  for (const Command& command : commands()) out.push_back({&command, bind_command(command, unused).options});
  return out;
}

std::string names_of(const Option& option) {
  const std::string long_name = fmt::format("--{}", option.long_name());
  return option.short_name().empty() ? long_name : fmt::format("-{} {}", option.short_name(), long_name);
}

std::string command_names() {
  std::string out;
  for (const Command& command : commands()) {
    if (!command.name.empty()) out += fmt::format("{}{}", out.empty() ? "" : " ", command.name);
  }
  return out;
}

// Text between single quotes of a shell.
std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_script() {
  std::string out = R"sh(# bash completion for qgen: eval "$(qgen completion bash)"
_qgen_models() {
  local cache=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub} folder name
  for folder in "$cache"/models--*; do
    [ -d "$folder" ] || continue
    name=${folder##*/models--}
    printf '%s\n' "${name/--//}"
  done
}
_qgen() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
)sh";
  out += fmt::format("      {}) command=${{COMP_WORDS[i]}}; break ;;\n", [] {
    std::string names = command_names();
    for (size_t at = 0; (at = names.find(' ', at)) != names.npos; at += 3) names.replace(at, 1, " | ");
    return names;
  }());
  out += "    esac\n  done\n  COMPREPLY=()\n  case $command,$previous in\n";
  for (const Row& row : rows()) {
    for (const Option& option : row.options) {
      if (option.is_word() || option.is_flag() || !option.details.alone.empty()) continue;
      std::string patterns = fmt::format("{},--{}", row.command->name, option.long_name());
      if (!option.short_name().empty()) patterns += fmt::format(" | {},-{}", row.command->name, option.short_name());
      switch (kind_of(option)) {
        case Kind::kChoices:
          out += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", patterns,
                             fmt::join(option.choices(), " "));
          break;
        case Kind::kModel:
          out += fmt::format(
              "    {}) compopt -o filenames; COMPREPLY=($(compgen -W \"$(_qgen_models)\" -- \"$word\") "
              "$(compgen -f -- \"$word\")); return ;;\n",
              patterns);
          break;
        case Kind::kFile:
          out += fmt::format("    {}) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
                             patterns);
          break;
        default: out += fmt::format("    {}) return ;;\n", patterns);
      }
    }
  }
  out += "  esac\n  local words=\n  case $command in\n";
  for (const Row& row : rows()) {
    std::string words = row.command->name.empty() ? command_names() : "";
    bool models = false, files = false;
    for (const Option& option : row.options) {
      if (!option.is_word()) {
        words += (words.empty() ? "" : " ") + names_of(option);
        continue;
      }
      models = models || kind_of(option) == Kind::kModel;
      files = files || models || kind_of(option) == Kind::kFile;
      words += fmt::format(" {}", fmt::join(option.choices(), " "));
    }
    std::string more;
    if (models) more += "; words+=\" $(_qgen_models)\"";
    if (files) more += "; compopt -o filenames; [[ $word == -* ]] || COMPREPLY=($(compgen -f -- \"$word\"))";
    out += fmt::format("    {}) words={}{} ;;\n", row.command->name.empty() ? "''" : row.command->name,
                       single_quoted(words), more);
  }
  out += "  esac\n  COMPREPLY+=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -F _qgen qgen\n";
  return out;
}

// One argument of zsh's _arguments: '(-m --model)'{-m,--model}'[what it is]:DIR:action'
std::string zsh_argument(const Option& option) {
  const auto escaped = [](std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '[' || c == ']' || c == ':' ? fmt::format("\\{}", c) : std::string(1, c);
    return out;
  };
  std::string action;
  switch (kind_of(option)) {
    case Kind::kNothing: break;
    case Kind::kChoices:
      action = fmt::format(":{}:({})", escaped(option.value), fmt::join(option.choices(), " "));
      break;
    case Kind::kModel: action = ":model:_qgen_models"; break;
    case Kind::kFile: action = fmt::format(":{}:_files", escaped(option.value)); break;
    case Kind::kText: action = fmt::format(":{}:", escaped(option.value)); break;
  }
  if (!option.details.alone.empty()) action = ":" + action;  // the value may be missing
  if (option.is_word()) return fmt::format("'{}{}'", option.is_repeatable() ? "*" : "", action);
  const std::string help = single_quoted(fmt::format("[{}]{}", escaped(option.help), action));
  const std::string star = option.is_repeatable() ? "*" : "";
  const std::string_view within = option.details.alone.empty() ? "" : "=-";  // the value is a part of the word
  if (option.short_name().empty()) return fmt::format("'{}--{}{}'{}", star, option.long_name(), within, help);
  return fmt::format("'({0}-{1} --{2})'{{-{1},--{2}}}{3}", star, option.short_name(), option.long_name(), help);
}

std::string zsh_script() {
  std::string out = R"sh(#compdef qgen
# zsh completion for qgen: qgen completion zsh > a folder of $fpath/_qgen, or eval "$(qgen completion zsh)"
_qgen_models() {
  local cache=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub}
  local -a names
  names=($cache/models--*(N:t))
  names=(${${names#models--}/--//})
  compadd -a names
  _files
}
_qgen() {
  local command= word
  for word in ${words[2,CURRENT-1]}; do
    case $word in
)sh";
  std::string pattern = command_names();
  for (size_t at = 0; (at = pattern.find(' ', at)) != pattern.npos; ++at) pattern[at] = '|';
  out += fmt::format("      ({})) command=$word; break ;;\n    esac\n  done\n  case $command in\n", pattern);
  for (const Row& row : rows()) {
    out += fmt::format("    {})\n      _arguments -S", row.command->name.empty() ? "''" : row.command->name);
    if (row.command->name.empty()) {
      std::string list;
      for (const Command& command : commands()) {
        if (command.name.empty()) continue;
        std::string summary;
        for (const char c : command.summary) summary += c == ':' || c == '\'' ? ' ' : c;
        list += fmt::format("{}\\:\"{}\" ", command.name, summary);
      }
      out += fmt::format(" \\\n        '1:command:(({}))'", list);
    } else {
      out += fmt::format(" \\\n        '1:command:({})'", row.command->name);
    }
    for (const Option& option : row.options) out += " \\\n        " + zsh_argument(option);
    out += "\n      ;;\n";
  }
  return out + "  esac\n}\n[ \"$funcstack[1]\" = _qgen ] && _qgen \"$@\" || compdef _qgen qgen\n";
}

std::string fish_script() {
  std::string out = R"sh(# fish completion for qgen: qgen completion fish | source
function __qgen_models
    set -l cache "$HF_HUB_CACHE"
    test -n "$cache"; or set cache (test -n "$HF_HOME"; and echo $HF_HOME; or echo ~/.cache/huggingface)/hub
    for folder in $cache/models--*
        string replace -r '.*/models--' '' $folder | string replace -- '--' '/'
    end
    __fish_complete_path
end
)sh";
  for (const Row& row : rows()) {
    const std::string_view name = row.command->name;
    const std::string when =
        single_quoted(name.empty() ? fmt::format("not __fish_seen_subcommand_from {}", command_names())
                                   : fmt::format("__fish_seen_subcommand_from {}", name));
    if (!name.empty()) {
      out += fmt::format("complete -c qgen -f -n {} -a {} -d {}\n",
                         single_quoted(fmt::format("not __fish_seen_subcommand_from {}", command_names())), name,
                         single_quoted(row.command->summary));
    }
    for (const Option& option : row.options) {
      std::string line = fmt::format("complete -c qgen -n {}", when);
      if (option.is_word()) {
        // Files are what fish offers by itself.
        if (kind_of(option) == Kind::kModel) out += line + " -a '(__qgen_models)'\n";
        if (option.details.choices.empty()) continue;
        out += line + fmt::format(" -f -a {}\n", single_quoted(fmt::format("{}", fmt::join(option.choices(), " "))));
        continue;
      }
      if (!option.short_name().empty()) line += fmt::format(" -s {}", option.short_name());
      line += fmt::format(" -l {} -d {}", option.long_name(), single_quoted(option.help));
      switch (kind_of(option)) {
        case Kind::kNothing: break;
        case Kind::kChoices:
          // A value that may be missing is a part of the word, which fish knows by there being no -x.
          line += fmt::format(" {} -a {}", option.details.alone.empty() ? "-x" : "-f",
                              single_quoted(fmt::format("{}", fmt::join(option.choices(), " "))));
          break;
        case Kind::kModel: line += " -x -a '(__qgen_models)'"; break;
        case Kind::kFile: line += " -r"; break;
        case Kind::kText: line += " -x"; break;
      }
      out += line + "\n";
    }
  }
  return out;
}

struct Shell {
  std::string name;
};

int completion(const Shell& shell) {
  if (shell.name.empty()) fail(ErrorKind::kUsage, "completion: for which shell?", "qgen completion bash, zsh or fish");
  write_stdout(shell.name == "bash" ? bash_script() : shell.name == "zsh" ? zsh_script() : fish_script());
  return 0;
}

Command::Bound bind() {
  const auto shell = std::make_shared<Shell>();
  return {{{"shell", &shell->name, "bash|zsh|fish", "the shell whose script to print", {.choices = "bash,zsh,fish"}}},
          [shell] { return completion(*shell); }};
}

constexpr Example kExamples[] = {{"eval \"$(qgen completion bash)\"", "in ~/.bashrc"},
                                 {"qgen completion zsh > ~/.zsh/completions/_qgen"},
                                 {"qgen completion fish > ~/.config/fish/completions/qgen.fish"}};

}  // namespace

const Command kCompletionCommand = {"completion", "a script that completes commands and options in a shell", kExamples,
                                    bind};

}  // namespace qgen::cli
