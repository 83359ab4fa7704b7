// How fast a model reads and writes on this machine, against what the machine can do at best, measured between the
// rounds: speeds on shared machines wander, so only neighbours are compared. With random weights where a model is
// only a config.json.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "engine/sequence.h"
#include "engine/shortlist.h"
#include "generate/loader.h"
#include "model/declare.h"
#include "model/open.h"
#include "model/planner.h"

namespace qgen::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr uint64_t kSeed = 1;  // of random weights; speed does not depend on it
constexpr int64_t kWarmUpTokens = 24;
// Models that lie in a cache are not compared with the memory.
constexpr double kLeastBytesPerToken = 64 << 20;

struct BenchOptions {
  ModelOptions model;
  std::string dummy;
  std::string prefill, decode, depth;  // lists; empty: the defaults, as far as they fit in the model's context
  std::string parallel;                // a list, too; empty: one line at a time
  int64_t rounds = 5;
  std::string output = "table";
};

// One row: so many tokens after a context of `depth`, of each of several lines that are written together.
struct Test {
  bool is_prefill = false;
  int64_t tokens = 0;
  int64_t depth = 0;
  int64_t lines = 1;

  double all_tokens() const { return double(tokens * lines); }
  std::string name() const {
    return fmt::format("{}{}{}{}", is_prefill ? "pp" : "tg", tokens, lines > 1 ? fmt::format(" x {}", lines) : "",
                       depth > 0 ? fmt::format(" @ d{}", depth) : "");
  }
};

struct Result {
  Test test;
  double work = 0;              // per token: bytes read, or operations
  std::vector<double> seconds;  // of each round, for all tokens
  std::vector<double> shares;   // of the device's speed that was measured beside each round

  // Tokens a second.
  double speed() const;
  double lowest() const { return test.all_tokens() / *std::max_element(seconds.begin(), seconds.end()); }
  double highest() const { return test.all_tokens() / *std::min_element(seconds.begin(), seconds.end()); }
  double rate() const { return work * speed(); }  // bytes or operations a second
};

struct Bench {
  std::string name;
  bool dummy = false;
  bool int8 = false;  // which peak the operations of a prefill are compared with
  const EngineRow* engine = nullptr;
  LoadedModel model;
  int64_t rounds = 0;
  std::vector<Result> results;
  std::vector<DeviceSpeed> device;  // one a round
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Result::speed() const { return test.all_tokens() / median(seconds); }

double median_speed(const Bench& bench, double DeviceSpeed::*what) {
  std::vector<double> values;
  for (const DeviceSpeed& speed : bench.device) values.push_back(speed.*what);
  return median(std::move(values));
}

// "512" or "0,4096": increasing, each once. Zero tokens mean no such test.
std::vector<int64_t> parse_list(std::string_view text, std::string_view option, int64_t lowest) {
  std::vector<int64_t> out;
  const char* p = text.data();
  const char* const end = p + text.size();
  for (;;) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(p, end, value);
    if (error == std::errc::result_out_of_range || value > kMostTokens)
      fail(ErrorKind::kUsage, fmt::format("{} {}: out of range (expected at most {})", option, text, kMostTokens));
    if (error != std::errc{} || value < 0 || (next != end && *next != ','))
      fail(ErrorKind::kUsage, fmt::format("{}: '{}' is not a list of numbers (expected 8 or 8,16)", option, text));
    if (value >= lowest) out.push_back(value);
    if (next == end) break;
    p = next + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Each test of a depth before the next depth. A usage Error if one does not fit in the model's context.
std::vector<Test> list_tests(const BenchOptions& options, const std::string& name, int64_t native) {
  const auto lengths = [&](const std::string& text, std::string_view option, int64_t usual) {
    return text.empty() ? std::vector<int64_t>{std::min(usual, native)} : parse_list(text, option, 1);
  };
  const std::vector<int64_t> prefill = lengths(options.prefill, "--prefill", 512);
  const std::vector<int64_t> decode = lengths(options.decode, "--decode-tokens", 128);
  if (prefill.empty() && decode.empty()) fail(ErrorKind::kUsage, "bench: nothing to measure", "-p 512, or -n 128");
  const int64_t longest = std::max(prefill.empty() ? 0 : prefill.back(), decode.empty() ? 0 : decode.back());
  std::vector<int64_t> depths = {0};
  if (!options.depth.empty()) {
    depths = parse_list(options.depth, "--depth", 0);
  } else if (4096 + longest <= native) {
    depths.push_back(4096);
  }
  if (depths.back() + longest > native) {
    fail(ErrorKind::kUsage,
         fmt::format("{}: {} tokens after a depth of {} do not fit in the context (expected at most {}, found {})",
                     name, longest, depths.back(), native, depths.back() + longest),
         longest < native ? fmt::format("-d {} is the deepest", native - longest) : "fewer tokens");
  }
  const std::vector<int64_t> parallel =
      options.parallel.empty() ? std::vector<int64_t>{1} : parse_list(options.parallel, "--parallel", 1);
  if (parallel.empty() || parallel.back() > kMostLines)
    fail(ErrorKind::kUsage,
         fmt::format("--parallel {}: out of range (expected 1 to {})", options.parallel, kMostLines));
  std::vector<Test> tests;
  for (const int64_t depth : depths) {
    for (const int64_t tokens : prefill) tests.push_back({true, tokens, depth});
    for (const int64_t tokens : decode) {
      for (const int64_t lines : parallel) tests.push_back({false, tokens, depth, lines});
    }
  }
  return tests;
}

// Bytes that a decoded token reads: its share of all weights, and the cache at its average length.
double bytes_per_token(const Plan& plan, const Test& test, const EngineOptions& options) {
  return double(bytes_per_token(plan, options)) / double(test.lines) +
         kv_bytes_read(plan, test.depth + test.tokens / 2, options.kv);
}

// Operations that a token of a prefill takes: multiplications and additions of matrices and of attention.
double ops_per_token(const Plan& plan, const Test& test) {
  double total = score_operations(plan);  // for the last token only
  for (int64_t t = 0; t < test.tokens; ++t) total += operations(plan, test.depth + t);
  return total / double(test.tokens);
}

LoadedModel load(std::unique_ptr<Plan> plan, const ModelOptions& options, bool dummy, int64_t longest) {
  const Placement placement = place(*plan, options, options.context);
  if (!placement.fits) {
    fail_placement(*plan, placement,
                   placement.largest > longest
                       ? fmt::format("-d {} fits with the same numbers of tokens", placement.largest - longest)
                       : fmt::format("{} tokens fit", placement.largest));
  }
  if (!dummy) return load_model(std::move(plan), options, options.context, terminal_control(false).progress, true);
  LoadedModel model;
  model.name = plan->checkpoint.location().name;
  ProgressLine progress(false);
  fill_randomly(*plan, kSeed, [&](size_t done) {
    progress.show([&] {
      return fmt::format("random weights: {} of {}", format_bytes(double(done)),
                         format_bytes(double(placement.use.weights)));
    });
  });
  progress.clear();
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  repack_weights(weights);
  model.engine = placement.engine->make_engine(*plan, placement.options);
  model.context = placement.options.context;
  model.engine_options = placement.options;
  model.plan = std::move(plan);
  return model;
}

// Runs the tests; the timeline is always filled up to the depth of the current one.
class Runner {
 public:
  explicit Runner(Bench& bench)
      : bench_(bench), engine_(*bench.model.engine), sequence_(engine_, bench.model.context), progress_(false) {
    const int64_t vocab = bench.model.plan->model.vocab;
    for (int64_t i = 0; i < bench.model.context; ++i)
      tokens_.push_back(TokenId(i * 7919 % std::min<int64_t>(vocab, 1000)));
  }

  // Adds the test's row; false where a signal ended it before all rounds were done.
  bool run(const Test& test) {
    const Plan& plan = *bench_.model.plan;
    Result result{test, 0, {}, {}};
    result.work =
        test.is_prefill ? ops_per_token(plan, test) : bytes_per_token(plan, test, bench_.model.engine_options);
    const Lines lines(*this, test);
    if (!fill_up_to(test)) return false;
    show(test, "warming up");
    once({test.is_prefill, test.is_prefill ? test.tokens : std::min(test.tokens, kWarmUpTokens), test.depth,
          test.lines});
    for (int64_t round = 0; round < bench_.rounds; ++round) {
      if (noted_signal() != 0) return false;
      show(test, fmt::format("round {} of {}", round + 1, bench_.rounds));
      double best = 0;
      if (bench_.engine->measure != nullptr) {
        const DeviceSpeed speed = bench_.engine->measure(bench_.model.engine_options, true);
        bench_.device.push_back(speed);
        best = !test.is_prefill ? (result.work < kLeastBytesPerToken ? 0 : speed.read_bytes_per_second)
               : bench_.int8    ? speed.int8_ops_per_second
                                : speed.float_ops_per_second;
      }
      result.seconds.push_back(once(test));
      if (noted_signal() != 0 && !whole_) return false;
      if (best > 0) result.shares.push_back(result.work * test.all_tokens() / result.seconds.back() / best);
    }
    bench_.results.push_back(std::move(result));
    return noted_signal() == 0;
  }

 private:
  void show(const Test& test, std::string_view what) {
    progress_.show([&] { return fmt::format("{}: {}", test.name(), what); });
  }

  // Sequences of a test of several lines, open as long as it runs.
  struct Lines {
    Lines(Runner& own, const Test& test) : runner(own) {
      for (int64_t i = 0; test.lines > 1 && i < test.lines; ++i) {
        const auto line = runner.engine_.open(test.depth + test.tokens);
        if (!line) {
          fail(ErrorKind::kMemory, fmt::format("{}: its key-value cache does not fit in memory", test.name()),
               fmt::format("{} texts fit", i));
        }
        runner.lines_.push_back(*line);
      }
    }
    ~Lines() {
      for (const SequenceId line : runner.lines_) runner.engine_.close(line);
      runner.lines_.clear();
    }
    Runner& runner;
  };

  bool fill_up_to(const Test& test) {
    if (lines_.empty()) return fill_up_to(test, sequence_.id());
    return std::all_of(lines_.begin(), lines_.end(), [&](SequenceId line) { return fill_up_to(test, line); });
  }

  bool fill_up_to(const Test& test, SequenceId sequence) {
    const int64_t at = engine_.rewind(sequence, test.depth);
    if (at == test.depth) return true;
    engine_.set_observer([&](double done) {
      show(test, fmt::format("reading {:.0f} of {} tokens", double(at) + done, test.depth));
      return noted_signal() == 0;
    });
    const Work work{sequence, std::span(tokens_).subspan(size_t(at), size_t(test.depth - at)), Wanted::kNone};
    const bool whole = engine_.run({&work, 1});
    engine_.set_observer({});
    return whole;
  }

  void decode_together(const TokenId& token) {
    std::vector<Work> work;
    for (const SequenceId line : lines_)
      work.push_back({.sequence = line, .tokens = {&token, 1}, .choices = {kGreedyChoices, 1}});
    engine_.run(
        work, [](size_t, int64_t, const Scores& scores) { scores.top(1); }, Kernels::kGenerate);
  }

  double once(const Test& test) {
    fill_up_to(test);
    const std::span<const TokenId> tokens = std::span(tokens_).subspan(size_t(test.depth), size_t(test.tokens));
    whole_ = true;
    engine_.set_observer([](double) { return noted_signal() == 0; });
    const auto start = Clock::now();
    if (test.is_prefill) {
      whole_ = !sequence_.run(tokens).empty();
    } else {
      TokenId token = tokens[0];
      for (size_t i = 0; i < tokens.size() && whole_; ++i) {
        if (lines_.empty()) {
          token = sequence_.run(token, std::span(kGreedyChoices).first(i + 1 < tokens.size() ? 2 : 1))
                      .best()
                      .value_or(tokens[i]);
        } else {
          decode_together(tokens[i]);
        }
        whole_ = noted_signal() == 0;
      }
    }
    engine_.set_observer({});
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Bench& bench_;
  Engine& engine_;
  Sequence sequence_;
  std::vector<SequenceId> lines_;
  ProgressLine progress_;
  std::vector<TokenId> tokens_;
  bool whole_ = true;  // whether the last round ran to its end
};

std::string short_number(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 1000 ? 1 : 0); }

std::vector<std::vector<std::string>> cells(const Bench& bench) {
  std::vector<std::vector<std::string>> rows = {
      {"test", "tok/s", "range", "ms/token", "GB/s", "of read", bench.int8 ? "TOPS" : "TFLOP/s", "of peak"}};
  for (const Result& result : bench.results) {
    const std::string share = result.shares.empty() ? "" : fmt::format("{:.0f} %", 100 * median(result.shares));
    std::vector<std::string> row = {
        result.test.name(), short_number(result.speed()),
        fmt::format("{} to {}", short_number(result.lowest()), short_number(result.highest())),
        short_number(1e3 / result.speed())};
    if (result.test.is_prefill) {
      row.insert(row.end(), {"", "", fmt::format("{:.3f}", result.rate() / 1e12), share});
    } else {
      row.insert(row.end(), {fmt::format("{:.1f}", result.rate() / 1e9), share, "", ""});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string title(const Bench& bench) {
  const Plan& plan = *bench.model.plan;
  return fmt::format("{} {} · {} · {} · kv {} · {}median of {}", plan.model.family, parameters_text(plan.parameters()),
                     plan.method(), bench.model.engine->description(), kv_name(bench.model.engine_options.kv),
                     bench.dummy ? "random weights · " : "", bench.rounds);
}

std::string device_line(const Bench& bench) {
  if (bench.device.empty()) return "";
  return fmt::format("measured beside it: read {:.1f} GB/s · int8 {:.3f} TOPS · float {:.3f} TFLOP/s",
                     median_speed(bench, &DeviceSpeed::read_bytes_per_second) / 1e9,
                     median_speed(bench, &DeviceSpeed::int8_ops_per_second) / 1e12,
                     median_speed(bench, &DeviceSpeed::float_ops_per_second) / 1e12);
}

std::string table_text(const Bench& bench) {
  const std::string device = device_line(bench);
  return fmt::format("{}\n{}{}", title(bench), format_table(cells(bench), {1, 2, 3, 4, 5, 6, 7}),
                     device.empty() ? "" : fmt::format("  {}\n", device));
}

std::string markdown_text(const Bench& bench) {
  std::string out = fmt::format("{}\n\n", title(bench));
  bool head = true;
  for (const auto& row : cells(bench)) {
    out += fmt::format("| {} |\n", fmt::join(row, " | "));
    if (head) out += "|---|---:|---:|---:|---:|---:|---:|---:|\n";
    head = false;
  }
  const std::string device = device_line(bench);
  return device.empty() ? out : fmt::format("{}\n{}\n", out, device);
}

std::string csv_text(const Bench& bench) {
  const auto quote = [](std::string text) {
    for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
    return "\"" + text + "\"";
  };
  std::string out =
      "model,method,test,kind,tokens,depth,tokens_per_second,lowest,highest,ms_per_token,bytes_per_second,"
      "read_share,ops_per_second,peak_share,engine\n";
  for (const Result& result : bench.results) {
    const std::string rate = fmt::format("{:.0f}", result.rate());
    const std::string share = result.shares.empty() ? "" : fmt::format("{:.4f}", median(result.shares));
    const bool prefill = result.test.is_prefill;
    out += fmt::format("{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.6f},{},{},{},{},{}\n", quote(bench.model.name),
                       quote(bench.model.plan->method()), result.test.name(), prefill ? "prefill" : "decode",
                       result.test.tokens, result.test.depth, result.speed(), result.lowest(), result.highest(),
                       1e3 / result.speed(), prefill ? "" : rate, prefill ? "" : share, prefill ? rate : "",
                       prefill ? share : "", quote(bench.model.engine->description()));
  }
  return out;
}

std::string json_text(const Bench& bench) {
  const Plan& plan = *bench.model.plan;
  const MemoryUse use = bench.model.engine->memory();
  std::string out = fmt::format(
      R"({{"schema":1,"model":{},"random_weights":{},"family":{},"parameters":{},"method":{},"engine":{},"activations":{},"kv_type":{},)"
      R"("context":{},"rounds":{},"memory":{{"weights":{},"kv":{},"work":{},"total":{}}},"device":)",
      json_quote(bench.model.name), bench.dummy, json_quote(plan.model.family), plan.parameters(),
      json_quote(plan.method()), json_quote(bench.model.engine->description()),
      json_quote(activations_name(bench.model.engine->activations())),
      json_quote(kv_name(bench.model.engine_options.kv)), bench.model.context, bench.rounds, use.weights, use.kv,
      use.work, use.total());
  if (bench.device.empty()) {
    out += "null";
  } else {
    out +=
        fmt::format(R"({{"read_bytes_per_second":{:.0f},"int8_ops_per_second":{:.0f},"float_ops_per_second":{:.0f}}})",
                    median_speed(bench, &DeviceSpeed::read_bytes_per_second),
                    median_speed(bench, &DeviceSpeed::int8_ops_per_second),
                    median_speed(bench, &DeviceSpeed::float_ops_per_second));
  }
  std::vector<std::string> tests;
  for (const Result& result : bench.results) {
    const std::string share = result.shares.empty() ? "null" : fmt::format("{:.4f}", median(result.shares));
    std::vector<std::string> seconds;
    for (const double s : result.seconds) seconds.push_back(fmt::format("{:.6f}", s));
    tests.push_back(fmt::format(
        R"({{"name":{},"kind":"{}","tokens":{},"depth":{},"parallel":{},"seconds":{},"tokens_per_second":{{"median":{:.3f},"lowest":{:.3f},)"
        R"("highest":{:.3f}}},"ms_per_token":{:.6f},)",
        json_quote(result.test.name()), result.test.is_prefill ? "prefill" : "decode", result.test.tokens,
        result.test.depth, result.test.lines, json_list(seconds), result.speed(), result.lowest(), result.highest(),
        1e3 / result.speed()));
    tests.back() += result.test.is_prefill
                        ? fmt::format(R"("ops_per_second":{:.0f},"peak":"{}","peak_share":{}}})", result.rate(),
                                      bench.int8 ? "int8" : "float", share)
                        : fmt::format(R"("bytes_per_second":{:.0f},"read_share":{}}})", result.rate(), share);
  }
  return fmt::format("{},\"tests\":{}}}\n", out, json_list(tests));
}

int bench(BenchOptions options) {
  if (!options.dummy.empty() && !options.model.model.empty())
    fail(ErrorKind::kUsage, "bench: --model and --dummy", "give one of them");
  Bench bench;
  bench.dummy = !options.dummy.empty();
  bench.rounds = options.rounds;
  if (bench.dummy) options.model.model = options.dummy;
  require_model(options.model);
  const ModelLocation location = locate_model(options.model.model);
  if (!bench.dummy && lacks_weights(location)) {
    fail(ErrorKind::kModel, fmt::format("{}: its weights are not there", location.name),
         fmt::format("--dummy {} measures with random weights of the same shapes", options.model.model));
  }
  if (bench.dummy && (!options.model.quantize.empty() || options.model.quantize_head)) {
    fail(ErrorKind::kUsage, "--quantize: random weights are made as config.json declares them",
         "a config.json of that method, or --model");
  }
  auto plan =
      bench.dummy ? make_plan(declare_checkpoint(location), options.model.trust_tensors) : open_plan(options.model);
  if (bench.dummy) warn(declared_size_note(plan->checkpoint));
  const std::vector<Test> tests = list_tests(options, location.name, plan->model.context);
  int64_t longest = 0;
  for (const Test& test : tests) {
    longest = std::max(longest, test.tokens);
    options.model.lines = std::max(options.model.lines, test.lines);
  }
  options.model.context = tests.back().depth + longest;
  bench.int8 = plan->method().starts_with("int8");
  EngineOptions engine_options;
  bench.engine = &find_engine(options.model.device, engine_options);
  bench.model = load(std::move(plan), options.model, bench.dummy, longest);
  bench.int8 = bench.int8 && bench.model.engine->activations() != Activations::kF32;
  {
    start_answer();  // Ctrl-C ends the test at hand and keeps the rows before it
    Runner runner(bench);
    for (const Test& test : tests) {
      if (!runner.run(test)) break;
    }
    end_answer();
  }
  const int ended = noted_signal() != 0 ? 128 + noted_signal() : 0;
  if (bench.results.empty()) return ended;
  write_stdout(options.output == "json"  ? json_text(bench)
               : options.output == "csv" ? csv_text(bench)
               : options.output == "md"  ? markdown_text(bench)
                                         : table_text(bench));
  return ended;
}

Command::Bound bind() {
  const auto o = std::make_shared<BenchOptions>();
  std::vector<Option> options = {
      {"--dummy", &o->dummy, "DIR",
       "measure with random weights in the shapes and the method that DIR/config.json declares"},
      {"-p,--prefill", &o->prefill, "LIST",
       "how many tokens to read in a test, several in a list; 0 leaves it out [512]"},
      {"-n,--decode-tokens", &o->decode, "LIST",
       "how many tokens to write in a test, several in a list; 0 leaves it out [128]"},
      {"-d,--depth", &o->depth, "LIST", "how many tokens of context to have before each test [0,4096]"},
      {"--parallel", &o->parallel, "LIST", "how many texts to write together in a test, several in a list [1]"},
      {"-r,--rounds", &o->rounds, "N", "how often to repeat each test [5]", {.lowest = 1, .highest = 10000}},
      {"--output",
       &o->output,
       "FORM",
       "print a table, md (Markdown), csv or json [table]",
       {.choices = "table,md,csv,json"}}};
  add_model_options(options, o->model);
  // The tests decide the context.
  std::erase_if(options, [](const Option& option) { return option.long_name() == "context"; });
  for (Option& option : options) {
    if (option.long_name() == "model") option.details.unless = "dummy";
  }
  options.push_back(model_word(o->model));
  return {options, [o] { return bench(*o); }};
}

constexpr Example kExamples[] = {{"qgen bench -m ./model", "tokens a second, share of the memory's speed"},
                                 {"qgen bench --dummy ./folder -d 0", "shapes of a config.json, random weights"}};

}  // namespace

const Command kBenchCommand = {"bench", "how fast it reads and writes, against what the machine can do", kExamples,
                               bind};

}  // namespace qgen::cli
