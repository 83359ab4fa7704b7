#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "quantize/recipe.h"

namespace qgen::cli {
namespace {

[[noreturn]] void fail_value(std::string_view subject, std::string_view value, const std::string& expected) {
  fail(ErrorKind::kUsage, fmt::format("{}: '{}' is not allowed (expected {})", subject, value, expected));
}

// A finite number in decimal notation, and nothing after it.
template <typename T>
bool parse_number(std::string_view text, T& out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(out);
  return true;
}

// "a number from 0 to 1", "a whole number, at least 0"
std::string number_text(const Option::Details& details, bool whole, std::string_view value) {
  std::string out = whole ? "a whole number" : "a number";
  constexpr double kUnbounded = 1e9;  // limits that only catch nonsense
  const bool low = details.lowest > -kUnbounded, high = details.highest < kUnbounded;
  if (double number = 0; !high && parse_number(value, number) && number > details.highest)
    return fmt::format("{} up to {:.0f}", out, details.highest);
  if (low && high) return fmt::format("{} from {:.0f} to {:.0f}", out, details.lowest, details.highest);
  if (low) return fmt::format("{}, at least {:.0f}", out, details.lowest);
  return out;
}

template <typename T>
T read_number(const Option& option, std::string_view value, std::string_view subject) {
  T out{};
  if (!parse_number(value, out) || double(out) < option.details.lowest || double(out) > option.details.highest)
    fail_value(subject, value, number_text(option.details, std::is_integral_v<T>, value));
  return out;
}

bool read_flag(std::string_view value, std::string_view subject) {
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (value == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "no", "off", ""}) {
    if (value == no) return false;
  }
  fail_value(subject, value, "1 or 0");
}

// The value for each kind of target.
struct Reader {
  const Option& option;
  std::string_view value, subject;

  void operator()(bool* target) const { *target = read_flag(value, subject); }
  void operator()(std::string* target) const { *target = value; }
  void operator()(std::optional<std::string>* target) const { *target = std::string(value); }
  void operator()(std::vector<std::string>* target) const { target->emplace_back(value); }
  template <typename T>
  void operator()(std::optional<T>* target) const {
    *target = read_number<T>(option, value, subject);
  }
  template <typename T>
  void operator()(T* target) const {
    *target = read_number<T>(option, value, subject);
  }
};

}  // namespace

std::string_view Option::long_name() const {
  const size_t dashes = names.find("--");
  return dashes == names.npos ? names : names.substr(dashes + 2);
}

std::string_view Option::short_name() const {
  return names.size() > 2 && names[0] == '-' && names[1] != '-' ? names.substr(1, 1) : std::string_view();
}

std::string Option::environment_name() const {
  std::string out = "QGEN_";
  for (const char c : long_name()) out += c == '-' ? '_' : char(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

std::vector<std::string_view> Option::choices() const {
  std::vector<std::string_view> out;
  std::string_view rest = details.choices;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    out.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return out;
}

void assign(const Option& option, std::string_view value, std::string_view subject) {
  const auto choices = option.choices();
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end())
    fail_value(subject, value, fmt::format("{}", fmt::join(choices, ", ")));
  // As where a script's variable is not set.
  if (value.empty() && option.value.starts_with("FILE"))
    fail(ErrorKind::kUsage, fmt::format("{}: empty (expected the name of a file)", subject));
  std::visit(Reader{option, value, subject}, option.target);
}

Option model_option(ModelOptions& target) {
  return {"-m,--model", &target.model, "MODEL",
          "the model: a folder, a .safetensors or .gguf file, or org/name[@revision][:Q8_0] in the Hugging Face cache"};
}

Option trust_tensors_option(ModelOptions& target) {
  return {"--trust-tensors", &target.trust_tensors, "",
          "read weights as their tensors look, where the quantization method is not known or says otherwise"};
}

Option model_word(ModelOptions& target) {
  return {"model-word", &target.model, "[MODEL]", "the model, as --model names it", {.same_as = "model"}};
}

std::string take_words(std::vector<std::string> words, ModelOptions& target, std::string_view command) {
  if (target.model.empty() && !words.empty()) {
    target.model = words.front();
    words.erase(words.begin());
  }
  if (words.size() > 1) {
    fail(ErrorKind::kUsage, fmt::format("{}: unknown argument", words[1]),
         fmt::format("`qgen {} --help` lists the options", command));
  }
  return words.empty() ? "" : words.front();
}

void add_model_options(std::vector<Option>& options, ModelOptions& target) {
  constexpr std::string_view kGroup = "Memory and device";
  options.insert(
      options.end(),
      {model_option(target),
       trust_tensors_option(target),
       {"-c,--context",
        &target.context,
        "N",
        "how many tokens prompt and answer may have together [what the model was made for, as far as it fits]",
        {.lowest = 1, .highest = double(int64_t{1} << 31), .group = kGroup}},
       {"--kv",
        &target.kv,
        "TYPE",
        "the type of the key-value cache: f16, bf16, f32, fp8 or int8 [f16]",
        {.choices = "f16,bf16,f32,fp8,int8", .group = kGroup}},
       {"--activations",
        &target.activations,
        "TYPE",
        "how precisely the inputs of linear layers and of attention are multiplied: f32, 16bit, or 8bit, which reads "
        "prompts faster and less exactly where weights are int8, on GPUs fp8 too [16bit]",
        {.choices = "f32,16bit,8bit", .group = kGroup}},
       {"--quantize",
        &target.quantize,
        "FORMAT",
        "quantize the linear layers of an unquantized model while loading it: fp8 (blocks of 128 x 128), fp8-channel, "
        "fp8-tensor, int8 (a scale a row, for GPT-2 a matrix), int8-tensor, mxfp8, or q8_0 (a scale for every 32)",
        {.choices = quantize::format_choices(), .group = kGroup}},
       {"--quantize-head", &target.quantize_head, "", "quantize the output head as well", {.group = kGroup}},
       {"--device",
        &target.device,
        "NAME",
        "where to compute: auto, cuda, cuda:N, cpu, cpu:INSTRUCTION-SET or reference [auto]",
        {.group = kGroup}},
       {"--threads",
        &target.threads,
        "N",
        "how many threads compute; 0 means one for each physical core [0]",
        {.lowest = 0, .highest = 1024, .group = kGroup}}});
}

void require_model(const ModelOptions& options) {
  if (options.model.empty()) {
    fail(ErrorKind::kUsage, "no model",
         "--model DIR, or the environment variable QGEN_MODEL; `qgen --help` has examples");
  }
}

Option max_tokens_option(int64_t& max_tokens) {
  return {"-n,--max-tokens",
          &max_tokens,
          "N",
          "end an answer after this many tokens [when the model ends it, or the context is full]",
          {.lowest = 0, .highest = double(int64_t{1} << 31)}};
}

Option prompt_lookup_option(int64_t& most) {
  return {"--prompt-lookup",
          &most,
          "N",
          "guess up to N tokens (at most 32) at once from earlier text, which is faster where answers repeat it; 0 "
          "turns it off [0]",
          {.lowest = 0, .highest = 32}};
}

Option draft_option(ModelOptions& target) {
  return {"--draft",
          &target.draft,
          "KIND",
          "guess tokens ahead, which is faster: mtp, with the layer that some models have for it (multi-token "
          "prediction), or off [off]",
          {.choices = "mtp,off"}};
}

Option parallel_option(std::string& lines, std::string_view help) { return {"--parallel", &lines, "N|auto", help}; }

int64_t read_number_or_word(const NumberOrWord& kind, const std::string& value) {
  if (value == kind.word) return kind.meaning;
  int64_t number = 0;
  if (parse_number(value, number) && number >= kind.lowest && number <= kind.highest) return number;
  const Option::Details range{.lowest = double(kind.lowest), .highest = double(kind.highest)};
  fail_value(kind.option, value, fmt::format("{}, or {}", kind.word, number_text(range, true, value)));
}

int64_t read_parallel(const std::string& lines) {
  return read_number_or_word({"--parallel", "auto", 0, 1, kMostLines}, lines);
}

Option stop_option(std::vector<std::string>& stops) {
  return {"--stop", &stops, "TEXT", "end an answer before this text"};
}

void add_sampling_options(std::vector<Option>& options, SamplingFlags& target) {
  constexpr std::string_view kGroup = "Sampling (flags win over the model's own)";
  constexpr double kMost = 1e9;  // as resolve_sampling()
  const auto range = [&](double lowest, double highest) {
    return Option::Details{.lowest = lowest, .highest = highest, .group = kGroup};
  };
  options.insert(
      options.end(),
      {{"--temp", &target.temperature, "T", "the temperature; 0 always takes the likeliest token", range(0, kMost)},
       {"--top-k", &target.top_k, "K", "draw only from the K likeliest tokens; 0 means all", range(0, kMost)},
       {"--top-p", &target.top_p, "P", "draw only from the likeliest tokens that have probability P together",
        range(0, 1)},
       {"--min-p", &target.min_p, "P", "draw only from tokens at least P times as likely as the likeliest",
        range(0, 1)},
       {"--typical-p", &target.typical_p, "P",
        "draw only from the most typical tokens that have probability P together (locally typical sampling)",
        range(0, 1)},
       {"--repeat-penalty", &target.repetition_penalty, "X", "divide the scores of tokens seen before by X",
        range(0, kMost)},
       {"--presence-penalty", &target.presence_penalty, "X", "subtract X from the scores of tokens generated before",
        range(-kMost, kMost)},
       {"--frequency-penalty", &target.frequency_penalty, "X",
        "subtract X from a token's score for each time it was generated before", range(-kMost, kMost)},
       {"--seed",
        &target.seed,
        "N",
        "the seed of the random choices [a random one, which the report names]",
        {.group = kGroup}}});
}

void add_report_options(std::vector<Option>& options, ReportOptions& target) {
  constexpr std::string_view kGroup = "Report (on standard error)";
  options.insert(
      options.end(),
      {{"--stats",
        &target.stats,
        "FORM",
        "print the whole report, as text or json [text; without the option: one line, on a terminal]",
        {.choices = "text,json", .alone = "text", .group = kGroup}},
       {"--stats-file", &target.stats_file, "FILE", "write the whole report to this file, as JSON", {.group = kGroup}},
       {"-q,--quiet", &target.quiet, "", "print nothing on standard error unless the run fails", {.group = kGroup}},
       {"-v,--verbose",
        &target.verbose,
        "",
        "print the whole report, with where each setting comes from and what was ignored in the files",
        {.group = kGroup}}});
}

namespace {

constexpr std::string_view kKwargs = "--chat-template-kwargs";
// What templates call whether a model thinks, and how hard.
constexpr std::string_view kThinks[] = {"enable_thinking", "thinking"};
constexpr std::string_view kEffort = "reasoning_effort";

}  // namespace

void check_template_arguments(const Json& arguments) {
  if (!arguments.is_object()) arguments.fail("expected an object, the variables of the chat template by name");
  for (const auto& [name, value] : arguments.members()) {
    if (name == "messages" || name == "add_generation_prompt") value.fail("not a variable that can be set");
  }
}

TemplateVariables ReasoningOptions::variables() const {
  TemplateVariables out;
  if (think != "auto") {
    for (const std::string_view name : kThinks) out.emplace_back(name, think == "off" ? "false" : "true");
    if (think != "off" && think != "on") out.emplace_back(kEffort, json_quote(think));
  }
  if (arguments.empty()) return out;
  const auto document = JsonDocument::parse(arguments, std::string(kKwargs), ErrorKind::kUsage);
  check_template_arguments(document->root());
  for (const auto& [name, value] : document->root().members()) out.emplace_back(name, json_text(value));
  return out;
}

std::string ReasoningOptions::deaf_think(const std::function<bool(std::string_view)>& reads) const {
  if (think == "auto" || std::ranges::any_of(kThinks, reads)) return {};
  const bool effort = think != "on" && think != "off";
  if (effort && reads(kEffort)) return {};
  for (const std::string_view other :
       {kEffort, std::string_view("thinking_budget"), std::string_view("thinking_mode")}) {
    if (reads(other))
      return fmt::format("the model's chat template has {} instead: {} '{{\"{}\": …}}'", other, kKwargs, other);
  }
  return "the model's chat template knows no enable_thinking";
}

std::string ReasoningOptions::deaf_arguments(const std::function<bool(std::string_view)>& reads) const {
  ReasoningOptions alone;
  alone.arguments = arguments;
  std::vector<std::string> unread;
  for (const auto& [name, value] : alone.variables()) {
    if (!reads(name)) unread.push_back(name);
  }
  return unread.empty() ? "" : fmt::format("the model's chat template reads no {}", fmt::join(unread, ", no "));
}

Option think_option(ReasoningOptions& target) {
  return {"--think",
          &target.think,
          "MODE",
          "whether a reasoning model thinks before it answers: on, off, low, medium or high where its template knows "
          "how hard, or auto, as the template has it [auto]",
          {.choices = "on,off,auto,low,medium,high"}};
}

Option template_arguments_option(ReasoningOptions& target) {
  return {"--chat-template-kwargs", &target.arguments, "JSON",
          "further variables of the chat template, an object: '{\"reasoning_effort\": \"high\"}'"};
}

Option reasoning_option(ReasoningOptions& target) {
  return {"--reasoning",
          &target.show,
          "MODE",
          "what becomes of a model's thinking: show, hide, or auto (dim on a terminal, dropped from a pipe) [auto]",
          {.choices = "show,hide,auto"}};
}

}  // namespace qgen::cli
