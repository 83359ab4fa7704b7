// --batch: JSON lines in, JSON lines out in order, flushed one by one, the model loaded once. A bad line gets an
// error object and the run goes on. Every line starts from an empty cache, so its answer does not depend on the
// others.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "cli/answer.h"
#include "cli/answer_writer.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/report_file.h"
#include "cli/terminal.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

constexpr int64_t kMostLogprobs = 1 << 20;

// One line: what to answer, and the options that hold for it.
struct Request {
  std::string id = "null";  // JSON text of what the line calls itself
  AnswerOptions options;
  std::optional<std::string> prompt;
  std::optional<std::vector<Message>> messages;
};

void read_stops(const Json& value, AnswerOptions& options) {
  options.stops.clear();
  if (value.is_string()) {
    options.stops.emplace_back(value.as_string());
    return;
  }
  for (const Json& stop : value.elements()) options.stops.emplace_back(stop.as_string());
}

void read_think(const Json& value, AnswerOptions& options) {
  const std::string mode = value.is_bool() ? (value.as_bool() ? "on" : "off") : std::string(value.as_string());
  if (mode != "on" && mode != "off" && mode != "auto")
    value.fail(fmt::format("{} is not allowed (expected on, off, auto)", json_quote(mode)));
  options.reasoning.think = mode;
}

// A number, or OpenAI's flag, which "top_logprobs" beside it may go beyond.
void read_logprobs(const Json& value, AnswerOptions& options) {
  if (!value.is_bool()) {
    options.logprobs = value.as_integer(0, kMostLogprobs);
  } else {
    options.logprobs = value.as_bool() ? std::max<int64_t>(options.logprobs, 1) : 0;
  }
}
void read_top_logprobs(const Json& value, AnswerOptions& options) {
  options.logprobs = std::max(options.logprobs, value.as_integer(0, kMostLogprobs));
}

// As --logit-bias has them, and after those.
void read_logit_bias(const Json& value, AnswerOptions& options) {
  for (const auto& [key, bias] : value.members())
    options.logit_bias.push_back(fmt::format("{}={}", key, bias.as_number()));
}

void check_stream(const Json& value) {
  if (value.as_bool()) value.fail("true is not allowed: each answer is one line");
}

// The members a line may have, by every name in use for them.
struct Member {
  std::initializer_list<std::string_view> names;
  void (*read)(const Json& value, Request& request);
};
const Member kMembers[] = {
    {{"custom_id", "id"}, [](const Json&, Request&) {}},  // read before all others
    {{"prompt"}, [](const Json& v, Request& r) { r.prompt = std::string(v.as_string()); }},
    {{"messages"}, [](const Json& v, Request& r) { r.messages = read_messages(v); }},
    {{"system"}, [](const Json& v, Request& r) { r.options.system = std::string(v.as_string()); }},
    {{"raw"}, [](const Json& v, Request& r) { r.options.raw = v.as_bool(); }},
    {{"think"}, [](const Json& v, Request& r) { read_think(v, r.options); }},
    {{"max_tokens", "max_completion_tokens"},
     [](const Json& v, Request& r) { r.options.max_tokens = v.as_integer(0, int64_t{1} << 31); }},
    {{"stop"}, [](const Json& v, Request& r) { read_stops(v, r.options); }},
    {{"temperature", "temp"}, [](const Json& v, Request& r) { r.options.sampling.temperature = v.as_number(); }},
    {{"top_k"}, [](const Json& v, Request& r) { r.options.sampling.top_k = v.as_integer(); }},
    {{"top_p"}, [](const Json& v, Request& r) { r.options.sampling.top_p = v.as_number(); }},
    {{"min_p"}, [](const Json& v, Request& r) { r.options.sampling.min_p = v.as_number(); }},
    {{"typical_p"}, [](const Json& v, Request& r) { r.options.sampling.typical_p = v.as_number(); }},
    {{"repeat_penalty", "repetition_penalty"},
     [](const Json& v, Request& r) { r.options.sampling.repetition_penalty = v.as_number(); }},
    {{"presence_penalty"}, [](const Json& v, Request& r) { r.options.sampling.presence_penalty = v.as_number(); }},
    {{"frequency_penalty"}, [](const Json& v, Request& r) { r.options.sampling.frequency_penalty = v.as_number(); }},
    {{"seed"}, [](const Json& v, Request& r) { r.options.sampling.seed = v.as_unsigned(); }},
    {{"logprobs"}, [](const Json& v, Request& r) { read_logprobs(v, r.options); }},
    {{"top_logprobs"}, [](const Json& v, Request& r) { read_top_logprobs(v, r.options); }},
    {{"logit_bias"}, [](const Json& v, Request& r) { read_logit_bias(v, r.options); }},
    // Of services: what changes nothing here.
    {{"n"}, [](const Json& v, Request&) { v.as_integer(1, 1); }},
    {{"stream"}, [](const Json& v, Request&) { check_stream(v); }},
    {{"user", "metadata", "store", "service_tier"}, [](const Json&, Request&) {}},
};

void read_member(std::string_view key, const Json& value, Request& request) {
  if (value.is_null()) return;  // as if it were not there
  for (const Member& member : kMembers) {
    for (const std::string_view name : member.names) {
      if (key == name) return member.read(value, request);
    }
  }
  value.fail("unknown member");
}

// {"prompt": …} or {"messages": …} with options beside it, or the same under "body" as in OpenAI's batch files,
// where the members that only steer the service are left alone.
void read_request(const Json& line, std::string_view text, Request& request) {
  if (!line.is_object()) line.fail("expected an object with \"prompt\" or \"messages\"");
  for (const std::string_view name : {"custom_id", "id"}) {
    if (const auto id = line.find(name)) request.id = id->written_in(text);
  }
  const auto body = line.get("body");
  for (const auto& [key, value] : line.members()) {
    if (body && (key == "body" || key == "method" || key == "url")) continue;
    read_member(key, value, request);
  }
  if (body) {
    for (const auto& [key, value] : body->members()) {
      if (key != "model") read_member(key, value, request);
    }
  }
  if (request.prompt.has_value() == request.messages.has_value())
    line.fail(request.prompt ? "\"prompt\" and \"messages\"" : "no \"prompt\" and no \"messages\"");
  if (request.messages && request.messages->empty()) line.fail("no message in \"messages\"");
}

ModelInput prepare(const Request& request, const TextModel& model) {
  const AnswerOptions& options = request.options;
  if (options.raw || !model.has_template()) {
    if (request.messages || options.system)
      fail(ErrorKind::kUsage, options.raw ? "raw takes the prompt as it is" : "the model has no chat template");
    return model.continue_text(*request.prompt);
  }
  std::vector<Message> messages;
  if (options.system) messages.push_back({"system", *options.system, {}});
  if (request.messages) {
    messages.insert(messages.end(), request.messages->begin(), request.messages->end());
  } else {
    messages.push_back({"user", *request.prompt, {}});
  }
  return model.render(messages, options.reasoning.enable_thinking());
}

struct Totals {
  int64_t lines = 0, failed = 0, prompt_tokens = 0, output_tokens = 0, drafted_tokens = 0, accepted_tokens = 0;
  double prompt_seconds = 0, output_seconds = 0;
};

class Batch {
 public:
  explicit Batch(const AnswerOptions& options) : options_(options), model_(options.model, false) {
    model_.logit_bias(options.logit_bias);  // a wrong one ends the run, not each line
    load(model_, 1, options.report.quiet);
  }

  // A line too long to be read gets its error, and the run goes on.
  bool refuse(int64_t number, size_t most) {
    ++totals_.lines;
    ++totals_.failed;
    number_ = number;
    write_error(
        Error(ErrorKind::kUsage, fmt::format("line {}: too long (expected at most {} bytes)", number, most), ""),
        "null");
    return noted_signal() == 0;
  }

  // Answers line `number`; false once a signal came.
  bool take(const std::string& text, int64_t number) {
    ++totals_.lines;
    number_ = number;
    Request request;
    request.options = options_;
    std::string out;
    try {
      const std::string subject = fmt::format("line {}", number);
      out = with_memory_for(subject, text.size(), [&] {
        const auto document = JsonDocument::parse(text, subject, ErrorKind::kUsage);
        read_request(document->root(), text, request);
        return answer_line(request);
      });
    } catch (const Error& error) {
      ++totals_.failed;
      write_error(error, request.id);
      return noted_signal() == 0;
    }
    print_stdout(out + "\n");
    return noted_signal() == 0;
  }

  void print_totals() const;
  int exit_code() const { return noted_signal() != 0 ? 128 + noted_signal() : totals_.failed > 0 ? 1 : 0; }

 private:
  void write_error(const Error& error, const std::string& id) const {
    print_stdout(fmt::format(R"({{"schema":1,"line":{},"id":{},"error":{{"code":{},"message":{},"hint":{}}}}})"
                             "\n",
                             number_, id, int(error.kind()), json_quote(error.message()),
                             error.hint().empty() ? "null" : json_quote(error.hint())));
  }

  std::string answer_line(const Request& request) {
    const AnswerOptions& options = request.options;
    SamplingFlags flags = options.sampling;
    flags.logit_bias = model_.logit_bias(options.logit_bias);
    const ModelInput input = prepare(request, model_);
    check_fits(input, model_);
    GenerationSettings settings;
    settings.sampling = model_.sampling(flags);
    settings.stops = options.stops;
    settings.max_tokens = options.max_tokens;
    settings.logprobs = options.logprobs;
    settings.prompt_lookup = options.prompt_lookup;
    settings.split_reasoning = input.chat_template && options.reasoning.show != "show";
    settings.control = terminal_control(options.report.quiet);
    std::string answer, thinking;
    Session session(model_.engine());
    const Generation g = generate(session, model_, input, settings, [&](const ReasoningPiece& piece) {
      (piece.thinking ? thinking : answer) += piece.text;
    });
    totals_.prompt_tokens += g.prompt_tokens;
    totals_.output_tokens += int64_t(g.tokens.size());
    totals_.drafted_tokens += g.drafted_tokens;
    totals_.accepted_tokens += g.accepted_tokens;
    totals_.prompt_seconds += g.prompt_seconds;
    totals_.output_seconds += g.output_seconds;
    std::string out =
        fmt::format(R"({{"schema":1,"line":{},"id":{},"text":{})", number_, request.id, json_quote(answer));
    if (!thinking.empty() && options.reasoning.show == "auto")
      out += fmt::format(",\"reasoning\":{}", json_quote(thinking));
    out += fmt::format(
        R"(,"stop":{},"stop_string":{},"prompt_tokens":{},"output_tokens":{},"thinking_tokens":{},"seed":{},"seconds":{:.6f},"logits_hash":{})",
        json_quote(g.stop), g.stop_string.empty() ? "null" : json_quote(g.stop_string), g.prompt_tokens,
        g.tokens.size(), g.thinking_tokens, settings.sampling.seed.value, g.prompt_seconds + g.output_seconds,
        g.logits_hash == 0 ? "null" : fmt::format("\"{:08x}\"", g.logits_hash));
    if (options.logprobs > 0) out += fmt::format(",\"logprobs\":{}", logprobs_json(g, model_.tokenizer()));
    return out + "}";
  }

  const AnswerOptions& options_;
  TextModel model_;
  Totals totals_;
  int64_t number_ = 0;  // of the line at hand, in the file
};

void Batch::print_totals() const {
  const ReportOptions& report = options_.report;
  const bool wanted = report_wanted(report);
  const Totals& t = totals_;
  const auto per_second = [](int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; };
  const std::string json = fmt::format(
      R"({{"schema":1,"model":{},"engine":{},"activations":{},"lines":{},"failed":{},"prompt_tokens":{},"prompt_seconds":{:.6f},"output_tokens":{},"output_seconds":{:.6f},"drafted_tokens":{},"accepted_tokens":{}}})",
      json_quote(model_.name()), json_quote(model_.engine().description()),
      json_quote(activations_name(model_.engine().activations())), t.lines, t.failed, t.prompt_tokens, t.prompt_seconds,
      t.output_tokens, t.output_seconds, t.drafted_tokens, t.accepted_tokens);
  if (!report.stats_file.empty()) {
    write_report_file(report.stats_file, json + "\n");
  }
  if (!wanted) return;
  if (report.stats == "json") return print_stderr(json + "\n");
  std::string text = fmt::format(
      "{} · {} lines, {} failed · prompts {} tokens, {:.0f} tok/s · answers {} tokens, {:.0f} tok/s",
      model_.engine().description(), t.lines, t.failed, t.prompt_tokens, per_second(t.prompt_tokens, t.prompt_seconds),
      t.output_tokens, per_second(t.output_tokens, t.output_seconds));
  if (options_.prompt_lookup > 0) text += fmt::format(" · drafts {}", drafts_text(t.drafted_tokens, t.accepted_tokens));
  print_stderr(text + "\n", Style::kDim);
}

}  // namespace

int answer_batch(const AnswerOptions& options) {
  if (options.prompt || options.file)
    fail(ErrorKind::kUsage, "--batch: no place for --prompt or --file", "write them as lines: {\"prompt\": \"…\"}");
  check_report_file(options.report);
  // A document takes some fifteen times the memory of its text.
  constexpr size_t kMaxLineBytes = size_t{64} << 20;
  LineReader input(options.batch, fmt::format("--batch {}", options.batch), kMaxLineBytes);
  Batch batch(options);
  start_answer();
  std::string line;
  for (int64_t number = 1; input.next(line); ++number) {
    if (!input.cut() && line.find_first_not_of(" \t\r") == line.npos) continue;
    if (!(input.cut() ? batch.refuse(number, kMaxLineBytes) : batch.take(line, number))) break;
  }
  end_answer();
  batch.print_totals();
  return batch.exit_code();
}

}  // namespace qgen::cli
