// The command line: which options there are, which command runs, and how it ends.
#include <algorithm>
#include <filesystem>
#include <new>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "model/families.h"
#include "quant/formats.h"

namespace qgen::cli {
namespace {

constexpr const char* kExamples = R"(qgen: runs 8-bit language models from a shell

  qgen -m Qwen/Qwen3-8B-FP8 -p "Name three rivers."        one answer, streamed
  git diff | qgen -m ./model -p "Write a commit message."   standard input, a blank line, the prompt
  qgen -m ./model -f question.txt --temp 0 > answer.txt     text only; the report goes to the terminal
  qgen score -m ./model text.txt                            log-probabilities and perplexity
  qgen tokens -m ./model --chat <<< "Hi"                    what the model really reads
)";

struct Options {
  AnswerOptions answer;
  ScoreOptions score;
  TokensOptions tokens;
};

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("-m,--model", options.model,
                 "a folder, a .safetensors file, or org/name[@revision] in the Hugging Face cache")
      ->envname("QGEN_MODEL")
      ->type_name("DIR|FILE|ORG/NAME");
  app.add_option("--device", options.device, "auto, cpu, cpu:INSTRUCTION-SET or reference")
      ->envname("QGEN_DEVICE")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "0: all cores")
      ->envname("QGEN_THREADS")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("-c,--context", options.context,
                 "tokens of prompt and answer together [what the model was made for, as far as it fits]")
      ->envname("QGEN_CONTEXT")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  app.add_option("--kv", options.kv, "key-value cache in f16, bf16 or f32")->envname("QGEN_KV")->capture_default_str();
}

void add_answer_options(CLI::App& app, AnswerOptions& options) {
  add_model_options(app, options.model);
  app.add_option("-p,--prompt", options.prompt, "the prompt; - reads standard input")->envname("QGEN_PROMPT");
  app.add_option("-f,--file", options.file, "a file with the prompt, or with what comes before it")
      ->envname("QGEN_FILE");
  app.add_flag("--no-stdin", options.no_stdin, "leave standard input alone (in loops)")->envname("QGEN_NO_STDIN");
  app.add_option("-s,--system", options.system, "the system message")->envname("QGEN_SYSTEM");
  app.add_flag("--raw", options.raw, "continue the prompt as it is, without the chat template")->envname("QGEN_RAW");
  app.add_option("--think", options.think, "let a reasoning model think: on, off or auto")
      ->envname("QGEN_THINK")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  app.add_option("--reasoning", options.reasoning,
                 "what it thinks: show, hide or auto (dim on a terminal, dropped from a pipe)")
      ->envname("QGEN_REASONING")
      ->check(CLI::IsMember({"show", "hide", "auto"}))
      ->capture_default_str();
  app.add_option("-n,--max-tokens", options.max_tokens, "stop after so many tokens")
      ->envname("QGEN_MAX_TOKENS")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  app.add_option("--stop", options.stops, "stop before this text (repeatable)")
      ->envname("QGEN_STOP")
      ->allow_extra_args(false);

  SamplingFlags& sampling = options.sampling;
  const char* const group = "Sampling (a flag wins over generation_config.json)";
  app.add_option("-t,--temp", sampling.temperature, "temperature; 0 always takes the likeliest token")
      ->envname("QGEN_TEMP")
      ->group(group);
  app.add_option("--top-k", sampling.top_k, "only the K likeliest tokens")->envname("QGEN_TOP_K")->group(group);
  app.add_option("--top-p", sampling.top_p, "only the likeliest tokens with probability P together")
      ->envname("QGEN_TOP_P")
      ->group(group);
  app.add_option("--min-p", sampling.min_p, "only tokens at least P times as likely as the best")
      ->envname("QGEN_MIN_P")
      ->group(group);
  app.add_option("--typical-p", sampling.typical_p, "locally typical sampling")
      ->envname("QGEN_TYPICAL_P")
      ->group(group);
  app.add_option("--repeat-penalty", sampling.repetition_penalty, "divides the scores of tokens seen before")
      ->envname("QGEN_REPEAT_PENALTY")
      ->group(group);
  app.add_option("--presence-penalty", sampling.presence_penalty, "lowers the scores of tokens generated before")
      ->envname("QGEN_PRESENCE_PENALTY")
      ->group(group);
  app.add_option("--frequency-penalty", sampling.frequency_penalty, "the same, for each time")
      ->envname("QGEN_FREQUENCY_PENALTY")
      ->group(group);
  app.add_option("--logit-bias", options.logit_bias, "ID=BIAS, added to a token's score (repeatable)")
      ->envname("QGEN_LOGIT_BIAS")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--seed", sampling.seed, "of the random choices [random, in the report]")
      ->envname("QGEN_SEED")
      ->group(group);

  ReportOptions& report = options.report;
  const char* const report_group = "Report (on standard error)";
  app.add_option("--stats", report.stats, "print the report: text or json [on a terminal: text]")
      ->envname("QGEN_STATS")
      ->check(CLI::IsMember({"text", "json"}))
      ->expected(0, 1)
      ->default_str("text")
      ->group(report_group);
  app.add_option("--stats-file", report.stats_file, "write the report to a file, as JSON")
      ->envname("QGEN_STATS_FILE")
      ->group(report_group);
  app.add_option("--logprobs", options.logprobs, "the N likeliest tokens at each step, in the JSON report")
      ->envname("QGEN_LOGPROBS")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->group(report_group);
  app.add_flag("-q,--quiet", report.quiet, "nothing on standard error unless it fails")
      ->envname("QGEN_QUIET")
      ->group(report_group);
  app.add_flag("-v,--verbose", report.verbose, "where settings come from, and what was ignored in the files")
      ->envname("QGEN_VERBOSE")
      ->group(report_group);
  app.add_option("--color", report.color, "auto, always or never")
      ->envname("QGEN_COLOR")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str()
      ->group(report_group);
}

void add_score_options(CLI::App& app, ScoreOptions& options) {
  add_model_options(app, options.model);
  app.add_option("input", options.input, "a file, or - for standard input")->type_name("FILE|-");
  app.add_option("--tokens", options.tokens, "token ids, taken as they are: 1,2,3")->envname("QGEN_TOKENS");
  app.add_option("--logits", options.logits, "write the scores as raw float32, (tokens, vocabulary)")
      ->type_name("FILE");
  app.add_flag("--json", options.json, "one JSON object")->envname("QGEN_JSON");
}

void add_tokens_options(CLI::App& app, TokensOptions& options) {
  app.add_option("-m,--model", options.model, "a folder, or org/name[@revision] in the Hugging Face cache")
      ->envname("QGEN_MODEL")
      ->type_name("DIR|ORG/NAME");
  app.add_option("input", options.input, "a file, or - for standard input")->type_name("FILE|-");
  app.add_flag("--decode", options.decode, "from ids to text")->envname("QGEN_DECODE");
  app.add_flag("--chat", options.chat, "through the chat template, the text being the user's message")
      ->envname("QGEN_CHAT");
  app.add_option("--messages", options.messages, "a conversation: [{\"role\": …, \"content\": …}, …]")
      ->type_name("FILE.json");
  app.add_option("-s,--system", options.system, "the system message, for --chat and --messages")
      ->envname("QGEN_SYSTEM");
  app.add_option("--think", options.think, "as for the main job")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  app.add_flag("--render", options.render, "the rendered prompt instead of its ids")->envname("QGEN_RENDER");
  app.add_flag("--json", options.json, "one JSON object with ids, pieces and offsets")->envname("QGEN_JSON");
}

// Families and methods, from the tables themselves.
std::string supported() {
  std::string out = "Families:\n";
  for (const Family& family : families()) out += fmt::format("  {:<10} {}\n", family.name, family.examples);
  out += "Devices:\n";
  for (const EngineRow& engine : engines()) out += fmt::format("  {:<10} {}\n", engine.name, engine.summary);
  out += "Methods:\n";
  for (const Format& format : formats()) out += fmt::format("  {:<20} {}\n", format.name, format.summary);
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
std::string suggestion(const CLI::App& app, std::string word) {
  word = word.substr(0, word.find('='));
  std::string best;
  size_t distance = std::max<size_t>(2, word.size() / 3) + 1;
  const auto consider = [&](const std::string& candidate) {
    const size_t d = edit_distance(word, candidate);
    if (d < distance) {
      distance = d;
      best = candidate;
    }
  };
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) consider("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands({})) consider(command->get_name());
  return best;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  for (const CLI::App* used : app.get_subcommands()) command = used;
  std::string message = error.what();
  std::string hint =
      fmt::format("`{} --help` lists the options", command == &app ? "qgen" : "qgen " + command->get_name());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = command->remaining().empty() ? app.remaining() : command->remaining();
    if (!extras.empty()) {
      message = fmt::format("{}: unknown {}", extras.front(),
                            extras.front().starts_with("-") ? "option" : "command or argument");
      if (const std::string meant = suggestion(*command, extras.front()); !meant.empty())
        hint = fmt::format("did you mean {}?", meant);
    }
  }
  write_stderr(fmt::format("qgen: {}\nhint: {}\n", message, hint));
  return static_cast<int>(ErrorKind::kUsage);
}

int report_error(const Error& error) {
  write_stderr(fmt::format("qgen: {}\n", error.message()));
  if (!error.hint().empty()) write_stderr(fmt::format("hint: {}\n", error.hint()));
  return static_cast<int>(error.kind());
}

void require_model(const std::string& model) {
  if (model.empty())
    fail(ErrorKind::kUsage, "no model",
         "--model DIR, or the environment variable QGEN_MODEL; `qgen --help` has examples");
}

int parse_and_run(int argc, char** argv) {
  Options options;
  CLI::App app(kExamples, "qgen");
  app.set_version_flag("-V,--version", "qgen " QGEN_VERSION, "print the version");
  app.set_help_flag("-h,--help", "print this help");
  app.footer(supported());
  app.get_formatter()->column_width(30);
  app.require_subcommand(0, 1);
  add_answer_options(app, options.answer);
  CLI::App* score_command = app.add_subcommand("score", "log-probability of each token of a text, and perplexity");
  add_score_options(*score_command, options.score);
  CLI::App* tokens_command = app.add_subcommand("tokens", "text to token ids and back");
  add_tokens_options(*tokens_command, options.tokens);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = &app;
    for (const CLI::App* used : app.get_subcommands()) command = used;
    write_stdout(command->help());
    return 0;
  } catch (const CLI::CallForVersion&) {
    write_stdout("qgen " QGEN_VERSION "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  // `--stats` alone means text.
  if (app.count("--stats") > 0 && options.answer.report.stats.empty()) options.answer.report.stats = "text";

  if (score_command->parsed()) {
    require_model(options.score.model.model);
    return score(options.score);
  }
  if (tokens_command->parsed()) {
    require_model(options.tokens.model);
    return tokens(options.tokens);
  }
  require_model(options.answer.model.model);
  return answer(options.answer);
}

}  // namespace

int run(int argc, char** argv) {
  install_signal_handlers();
  try {
    return parse_and_run(argc, argv);
  } catch (const Exit& exit) {
    return exit.code;
  } catch (const Error& error) {
    return report_error(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report_error(
        Error(ErrorKind::kModel, fmt::format("{}: {}", error.path1().string(), error.code().message()), ""));
  } catch (const std::bad_alloc&) {
    write_stderr("qgen: out of memory\nhint: a smaller --context needs less\n");
    return static_cast<int>(ErrorKind::kMemory);
  } catch (const std::exception& error) {
    write_stderr(fmt::format("qgen: {}\n", error.what()));
    return static_cast<int>(ErrorKind::kRuntime);
  }
}

}  // namespace qgen::cli
