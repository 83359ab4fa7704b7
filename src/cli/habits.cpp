#include "cli/habits.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

struct Habit {
  std::string_view word;
  std::string_view ours;       // the option that means the same; empty where there is none
  std::string_view hint = {};  // then what to do
};

constexpr std::string_view kDevices = "the whole model goes to one device: --device cuda, cuda:N or cpu";
constexpr std::string_view kOneAnswer = "qgen gives one answer and ends; `qgen chat` is a conversation";
constexpr std::string_view kNoServer = "qgen is not a server; --batch - answers JSON lines as they come";
constexpr std::string_view kMapped = "files are always mapped and never copied: nothing to choose";

constexpr Habit kHabits[] = {
    {"--temperature", "--temp"},
    {"--n-predict", "--max-tokens"},
    {"--predict", "--max-tokens"},
    {"--num-predict", "--max-tokens"},
    {"--max-new-tokens", "--max-tokens"},
    {"--max-completion-tokens", "--max-tokens"},
    {"--ctx-size", "--context"},
    {"--context-size", "--context"},
    {"--context-length", "--context"},
    {"--num-ctx", "--context"},
    {"--max-model-len", "--context"},
    {"--repetition-penalty", "--repeat-penalty"},
    {"--typical", "--typical-p"},
    {"--system-prompt", "--system"},
    {"-sys", "--system"},
    {"--prompt-file", "--file"},
    {"--reverse-prompt", "--stop"},
    {"--model-path", "--model"},
    {"--hf-repo", "--model"},
    {"-hf", "--model"},
    {"-ngl", "", kDevices},
    {"--gpu-layers", "", kDevices},
    {"--n-gpu-layers", "", kDevices},
    {"--tensor-split", "", kDevices},
    {"-ts", "", kDevices},
    {"--tensor-parallel-size", "", kDevices},
    {"-tp", "", kDevices},
    {"-cnv", "", kOneAnswer},
    {"--conversation", "", kOneAnswer},
    {"--interactive", "", kOneAnswer},
    {"-i", "", kOneAnswer},
    {"-st", "", kOneAnswer},
    {"--single-turn", "", kOneAnswer},
    {"-no-cnv", "", "--raw continues the prompt without the chat template"},
    {"--no-conversation", "", "--raw continues the prompt without the chat template"},
    {"--no-display-prompt", "", "the prompt is never part of the output"},
    {"--log-disable", "", "-q silences standard error; standard output holds the answer alone"},
    {"-fa", "", "attention never writes its scores to memory here: nothing to choose"},
    {"--flash-attn", "", "attention never writes its scores to memory here: nothing to choose"},
    {"-ctk", "", "--kv is the type of the whole key-value cache"},
    {"-ctv", "", "--kv is the type of the whole key-value cache"},
    {"--cache-type-k", "", "--kv is the type of the whole key-value cache"},
    {"--cache-type-v", "", "--kv is the type of the whole key-value cache"},
    {"--kv-cache-dtype", "", "--kv is the type of the whole key-value cache"},
    {"--threads-batch", "", "--threads holds for prompts and answers"},
    {"-tb", "", "--threads holds for prompts and answers"},
    {"--batch-size", "", "prompts are read in one go; --batch FILE answers many of them"},
    {"-ub", "", "prompts are read in one go; --batch FILE answers many of them"},
    {"--mlock", "", kMapped},
    {"--no-mmap", "", kMapped},
    {"--jinja", "", "the model's own chat template is always used; --raw goes without"},
    {"--chat-template", "", "the model's own chat template is used; `qgen tokens --chat --render` shows what it makes"},
    {"--json-schema", "", "qgen cannot hold a model to a form; --json wraps the answer into one JSON object"},
    {"--grammar", "", "qgen cannot hold a model to a form; --json wraps the answer into one JSON object"},
    {"--format", "", "--json wraps the answer into one JSON object"},
    {"--host", "", kNoServer},
    {"--port", "", kNoServer},
    {"--dtype", "", "weights are used as the files have them"},
    {"--trust-remote-code", "", "qgen runs no code of models"},
    {"--list-devices", "", "`qgen models` lists engines and devices"},
    {"--verbose-prompt", "", "`qgen tokens --chat --render` shows the prompt as the model gets it"},
    {"--no-think", "", "--think off"},
    {"--nothink", "", "--think off"},
    {"--hidethinking", "", "--reasoning hide"},
};

struct ForeignCommand {
  std::string_view word, hint;
};
constexpr ForeignCommand kForeignCommands[] = {
    {"list", "`qgen models` lists what can be run and what is in the Hugging Face cache"},
    {"ls", "`qgen models` lists what can be run and what is in the Hugging Face cache"},
    {"ps", "`qgen models` lists what can be run and what is in the Hugging Face cache"},
    {"show", "`qgen inspect -m MODEL` shows what a model is made of"},
    {"info", "`qgen inspect -m MODEL` shows what a model is made of"},
    {"pull", "`hf download ORG/NAME` fetches a model; qgen never uses the network"},
    {"download", "`hf download ORG/NAME` fetches a model; qgen never uses the network"},
    {"serve", kNoServer},
    {"server", kNoServer},
    {"complete", "`qgen -m MODEL --raw -p TEXT` continues a text"},
    {"generate", "`qgen -m MODEL -p TEXT` gives one answer"},
    {"perplexity", "`qgen score -m MODEL FILE` ends with the perplexity"},
    {"tokenize", "`qgen tokens -m MODEL FILE` prints ids"},
};

const Habit* find_habit(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kHabits), std::end(kHabits), [&](const Habit& h) { return h.word == name; });
  return found == std::end(kHabits) ? nullptr : found;
}

// "-t 8" of llama.cpp are threads, "-t 0.7" is the temperature elsewhere.
bool is_ambiguous_t(std::string_view name) { return name == "-t" || (name.size() > 2 && name.starts_with("-t")); }

// An option under our name, where it has another one elsewhere.
std::string translated_option(const std::string& word, const KnownOptions& known) {
  const size_t equals = std::min(word.find('='), word.size());
  const std::string name = word.substr(0, equals);
  if (const Habit* habit = find_habit(name)) {
    if (habit->ours.empty())
      fail(ErrorKind::kUsage, fmt::format("{}: not an option of qgen", name), std::string(habit->hint));
    return std::string(habit->ours) + word.substr(equals);
  }
  if (is_ambiguous_t(name)) {
    fail(ErrorKind::kUsage, "-t: the temperature in some programs, the number of threads in others",
         "--temp T, or --threads N");
  }
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  if (dashed != name && (find_habit(dashed) != nullptr || known.exists(dashed)))
    return translated_option(dashed + word.substr(equals), known);
  return word;
}

constexpr std::string_view kAsksForAnAnswer[] = {"-p", "--prompt", "-f", "--file", "--batch"};

}  // namespace

std::vector<std::string> translate_habits(std::vector<std::string> words, const KnownOptions& known) {
  std::vector<std::string> out;
  std::vector<size_t> plain;  // where words that are neither options nor their values are
  bool has_model = false, has_task = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      out.insert(out.end(), words.begin() + ptrdiff_t(i), words.end());
      has_task = true;
      break;
    }
    if (words[i].size() < 2 || words[i].front() != '-') {
      plain.push_back(out.size());
      out.push_back(words[i]);
      continue;
    }
    if (words[i].size() > 2 && words[i][1] != '-' && words[i][2] == '=' && known.takes_value(words[i].substr(0, 2))) {
      // "-n=3" as "-n 3"
      words.insert(words.begin() + ptrdiff_t(i) + 1, words[i].substr(3));
      words[i].resize(2);
    }
    out.push_back(translated_option(words[i], known));
    const std::string name = out.back().substr(0, out.back().find('='));
    has_model = has_model || name == "-m" || name == "--model";
    has_task = has_task ||
               std::find(std::begin(kAsksForAnAnswer), std::end(kAsksForAnAnswer), name) != std::end(kAsksForAnAnswer);
    if (known.takes_value(out.back()) && i + 1 < words.size()) out.push_back(words[++i]);
  }
  if (plain.empty()) return out;
  const auto first = out.begin() + ptrdiff_t(plain.front());
  if (*first == "help") {
    out.erase(first);
    out.emplace_back("--help");
  } else if (*first == "version") {
    *first = "--version";
  } else if (*first == "run") {
    if (!has_model && plain.size() < 2) fail(ErrorKind::kUsage, "run: no model", "qgen run MODEL [PROMPT]");
    if (!has_model) out.insert(out.begin() + ptrdiff_t(plain[1]), "--model");
    out.erase(out.begin() + ptrdiff_t(plain.front()));
    // Where nothing is asked, a conversation is meant.
    const size_t used = has_model ? 1 : 2;
    if (!has_task && plain.size() == used && stdin_is_terminal()) out.insert(out.begin(), "chat");
  }
  return out;
}

std::string_view foreign_command_hint(std::string_view word) {
  for (const ForeignCommand& command : kForeignCommands) {
    if (command.word == word) return command.hint;
  }
  return {};
}

}  // namespace qgen::cli
