// The table of options, as plain data: the parser, the help, the completion scripts and the man page all walk it.
// Every option has an environment twin: --max-tokens is QGEN_MAX_TOKENS.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chat/template.h"
#include "generate/loader.h"
#include "generate/sampling_settings.h"

namespace qgen::cli {

// Where the value of an option goes.
using OptionTarget =
    std::variant<bool*, int*, int64_t*, std::optional<int64_t>*, std::optional<uint64_t>*, std::optional<double>*,
                 std::string*, std::optional<std::string>*, std::vector<std::string>*>;

struct Option {
  std::string_view names;  // "-m,--model"; a name without dashes stands for a word without one
  OptionTarget target;
  std::string_view value;  // what help calls the value: "TEXT", "FILE", a word "[MODEL]"; empty for a flag
  std::string_view help;
  struct Details {
    std::string_view choices = {};  // "on,off,auto": nothing else is allowed
    double lowest = -std::numeric_limits<double>::infinity();
    double highest = std::numeric_limits<double>::infinity();
    std::string_view alone = {};    // the value meant when the option is given without one
    std::string_view group = {};    // a heading in the help
    std::string_view unless = {};   // the environment twin is left alone where this option, its opposite, is typed
    bool typed_only = false;        // no environment twin: it asks for something else than a run
    std::string_view same_as = {};  // of a word: the option that it stands for; only one of them may be typed
  } details = {};

  std::string_view long_name() const;   // "model"
  std::string_view short_name() const;  // "m", or empty
  bool is_flag() const { return std::holds_alternative<bool*>(target); }
  bool is_word() const { return !names.starts_with('-'); }
  bool is_repeatable() const { return std::holds_alternative<std::vector<std::string>*>(target); }
  bool has_environment_twin() const { return !is_word() && !details.typed_only; }
  std::string environment_name() const;  // "QGEN_MAX_TOKENS"
  std::vector<std::string_view> choices() const;
};

// Reads one value into the option's target. `subject` is who gave it: "--top-p" or "QGEN_TOP_P". A usage Error if
// it is not what the option takes.
void assign(const Option& option, std::string_view value, std::string_view subject);

// How often options were typed, by their long names; the environment does not count.
using TypedOptions = std::map<std::string, size_t, std::less<>>;

struct Example {
  std::string_view command;
  std::string_view purpose = {};
};

// A command of the program: one row of the table, one file of this folder.
struct Command {
  std::string_view name;     // "score"; empty for the main job
  std::string_view summary;  // one line
  std::span<const Example> examples;
  struct Bound {
    std::vector<Option> options;
    std::function<int()> run;       // returns the exit code
    TypedOptions* typed = nullptr;  // set before it runs, if it wants to know
  };
  Bound (*bind)();  // options with targets of their own, and what runs once they are set
};
std::span<const Command> commands();
extern const Command kAnswerCommand;
extern const Command kBenchCommand;
extern const Command kChatCommand;
extern const Command kCompletionCommand;
extern const Command kInspectCommand;
extern const Command kManualCommand;
extern const Command kModelsCommand;
extern const Command kPlanCommand;
extern const Command kQuantizeCommand;
extern const Command kScoreCommand;
extern const Command kTokensCommand;
extern const Command kVerifyCommand;
extern const Command kCalibrateCommand;

// Options that several commands share.

Option model_option(ModelOptions& target);                                   // which model
void add_model_options(std::vector<Option>& options, ModelOptions& target);  // which model, and how it runs
// Whether weights of a quant_method that is not known are read all the same.
Option trust_tensors_option(ModelOptions& target);
// The model as a word; after model_option() in the list.
Option model_word(ModelOptions& target);
// For commands whose words are a text, and before it the model where no option names it. A usage Error if there are
// more. Returns the text's name, "" for none.
std::string take_words(std::vector<std::string> words, ModelOptions& target, std::string_view command);
// A usage Error if no model was named.
void require_model(const ModelOptions& options);

// Limits of an answer. -1 for `max_tokens`: until the model or the context ends it.
Option max_tokens_option(int64_t& max_tokens);
// Speculation with drafts from the text itself.
Option prompt_lookup_option(int64_t& most);
// Speculation with the model's own layer for it.
Option draft_option(ModelOptions& target);
// A value that is a word, `meaning` then, or a whole number in a range. A usage Error that begins with `option` on
// anything else.
struct NumberOrWord {
  std::string_view option, word;
  int64_t meaning = 0, lowest = 0;
  int64_t highest = std::numeric_limits<int64_t>::max();
};
int64_t read_number_or_word(const NumberOrWord& kind, const std::string& value);
// How many lines are answered, or planned for, at a time: a number, or "auto", which read_parallel() returns as 0.
constexpr int64_t kMostLines = 1024;
Option parallel_option(std::string& lines, std::string_view help);
int64_t read_parallel(const std::string& lines);
Option stop_option(std::vector<std::string>& stops);

void add_sampling_options(std::vector<Option>& options, SamplingFlags& target);

// Options of the report on standard error.
struct ReportOptions {
  std::string stats;  // "": one line, on a terminal; "text"; "json"
  std::string stats_file;
  bool quiet = false;
  bool verbose = false;
};
void add_report_options(std::vector<Option>& options, ReportOptions& target);

// Steers reasoning models.
struct ReasoningOptions {
  std::string think = "auto";
  std::string show = "auto";
  std::string arguments;  // JSON: further variables of the chat template
  // What the template gets. Throws a usage Error where the arguments are no object of such variables.
  TemplateVariables variables() const;
  // Why this has no effect on a template, which knows of a variable whether it `reads` it; "" where it has one.
  std::string deaf_think(const std::function<bool(std::string_view variable)>& reads) const;
  std::string deaf_arguments(const std::function<bool(std::string_view variable)>& reads) const;
};
void check_template_arguments(const Json& arguments);
Option think_option(ReasoningOptions& target);
Option template_arguments_option(ReasoningOptions& target);
Option reasoning_option(ReasoningOptions& target);

// The whole program: parses, runs, reports errors.
int run(int argc, char** argv);

}  // namespace qgen::cli
