// What the linear layers of a model see in a text, for `qgen quantize --input-stats`.
#include <chrono>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/new_file.h"
#include "cli/input_text.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/calibration.h"
#include "quantize/failed_mark.h"
#include "quantize/statistics.h"

namespace qgen::cli {
namespace {

struct CalibrateOptions {
  ModelOptions model;
  InputOptions text;
  std::string input, out;
  int64_t window = 512;
  int64_t limit = 0;  // tokens; 0: all
  bool force = false;
  bool quiet = false;
};

int calibrate_model(const CalibrateOptions& options) {
  require_model(options.model);
  if (options.out.empty()) fail(ErrorKind::kUsage, "calibrate: no file to write", "--out FILE");
  refuse_dash(options.out, "--out");
  if (!options.force) refuse_existing("--out", options.out);
  if (holds_other(options.out, quantize::InputStatistics::read)) {  // which --force does not replace either
    fail(ErrorKind::kUsage, fmt::format("--out {}: it holds something else than statistics", options.out),
         "a new file");
  }
  auto plan = open_plan(options.model);
  const auto tokenizer = load_tokenizer(plan->checkpoint.files());
  const std::string text = read_text(options.input, "calibrate", options.text);
  std::vector<TokenId> ids;
  if (!text.empty()) ids = tokenizer->encode(text).ids;  // with the token that begins a text, which is no text
  check_vocabulary(ids, *plan);
  if (options.limit > 0) ids.resize(std::min(ids.size(), size_t(options.limit)));
  if (ids.empty()) fail(ErrorKind::kUsage, "calibrate: no text", "--text FILE, or a text on standard input");
  warn(quantize::failed_warning(plan->checkpoint.location()));
  const int64_t window = std::min({options.window, int64_t(ids.size()), plan->model.context});

  const RunControl control = terminal_control(options.quiet);
  LoadedModel model = load_model(std::move(plan), options.model, window, control.progress);
  start_answer();
  const auto start = std::chrono::steady_clock::now();
  const Calibration seen = calibrate(model, ids, window, control);
  if (seen.tokens < int64_t(ids.size())) throw Exit{128 + noted_signal()};
  write_new_file(options.out, seen.statistics.json(), NewFile::Readers::kAll);
  end_answer();
  if (!options.quiet) {
    print_table(fmt::format("{}: the inputs of {} matrices of {} over {} tokens, in {:.1f} s\n", one_line(options.out),
                            seen.statistics.size(), one_line(model.name), seen.tokens,
                            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  }
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<CalibrateOptions>();
  std::vector<Option> options = {
      model_word(o->model),
      {"--text", &o->input, "FILE",
       "a text such as the model will read, - for standard input; without a byte order mark and one newline at its "
       "end"},
      {"--out", &o->out, "FILE", "the file to write: the largest magnitude of each input column of each matrix, JSON"},
      {"--window",
       &o->window,
       "N",
       "how many tokens to run together; each window starts afresh [512]",
       {.lowest = 1, .highest = double(int64_t{1} << 31)}},
      {"--limit",
       &o->limit,
       "N",
       "read at most this many tokens of the text [all]",
       {.lowest = 1, .highest = double(int64_t{1} << 31)}},
      {"--force", &o->force, "", "replace the file if it is there"},
      {"-q,--quiet", &o->quiet, "", "print only warnings and errors"},
      invalid_utf8_option(o->text)};
  add_model_options(options, o->model);
  return {options, [o] { return calibrate_model(*o); }};
}

constexpr Example kExamples[] = {
    {"qgen calibrate -m ./finetune --text chats.txt --out inputs.json", "then: quantize --input-stats inputs.json"},
    {"qgen calibrate -m ./finetune --limit 20000 --out inputs.json < chats.txt", "of the first 20,000 tokens"}};

}  // namespace

const Command kCalibrateCommand = {"calibrate", "what a model's layers see in a text, for quantize", kExamples, bind};

}  // namespace qgen::cli
