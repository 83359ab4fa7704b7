#include "cli/batch_request.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace qgen::cli {
namespace {

constexpr int64_t kMostLogprobs = 1 << 20;

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
  void (*read)(const Json& value, BatchRequest& request);
};
const Member kMembers[] = {
    {{"custom_id", "id"}, [](const Json&, BatchRequest&) {}},  // read before all others
    {{"prompt"}, [](const Json& v, BatchRequest& r) { r.prompt = std::string(v.as_string()); }},
    {{"messages"}, [](const Json& v, BatchRequest& r) { r.messages = read_messages(v); }},
    {{"system"}, [](const Json& v, BatchRequest& r) { r.options.system = std::string(v.as_string()); }},
    {{"raw"}, [](const Json& v, BatchRequest& r) { r.options.raw = v.as_bool(); }},
    {{"think"}, [](const Json& v, BatchRequest& r) { read_think(v, r.options); }},
    {{"max_tokens", "max_completion_tokens"},
     [](const Json& v, BatchRequest& r) { r.options.max_tokens = v.as_integer(0, int64_t{1} << 31); }},
    {{"stop"}, [](const Json& v, BatchRequest& r) { read_stops(v, r.options); }},
    {{"temperature", "temp"}, [](const Json& v, BatchRequest& r) { r.options.sampling.temperature = v.as_number(); }},
    {{"top_k"}, [](const Json& v, BatchRequest& r) { r.options.sampling.top_k = v.as_integer(); }},
    {{"top_p"}, [](const Json& v, BatchRequest& r) { r.options.sampling.top_p = v.as_number(); }},
    {{"min_p"}, [](const Json& v, BatchRequest& r) { r.options.sampling.min_p = v.as_number(); }},
    {{"typical_p"}, [](const Json& v, BatchRequest& r) { r.options.sampling.typical_p = v.as_number(); }},
    {{"repeat_penalty", "repetition_penalty"},
     [](const Json& v, BatchRequest& r) { r.options.sampling.repetition_penalty = v.as_number(); }},
    {{"presence_penalty"}, [](const Json& v, BatchRequest& r) { r.options.sampling.presence_penalty = v.as_number(); }},
    {{"frequency_penalty"}, [](const Json& v, BatchRequest& r) { r.options.sampling.frequency_penalty = v.as_number(); }},
    {{"seed"}, [](const Json& v, BatchRequest& r) { r.options.sampling.seed = v.as_unsigned(); }},
    {{"logprobs"}, [](const Json& v, BatchRequest& r) { read_logprobs(v, r.options); }},
    {{"top_logprobs"}, [](const Json& v, BatchRequest& r) { read_top_logprobs(v, r.options); }},
    {{"logit_bias"}, [](const Json& v, BatchRequest& r) { read_logit_bias(v, r.options); }},
    // Of services: what changes nothing here.
    {{"n"}, [](const Json& v, BatchRequest&) { v.as_integer(1, 1); }},
    {{"stream"}, [](const Json& v, BatchRequest&) { check_stream(v); }},
    {{"user", "metadata", "store", "service_tier"}, [](const Json&, BatchRequest&) {}},
};

void read_member(std::string_view key, const Json& value, BatchRequest& request) {
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
void read_request(const Json& line, std::string_view text, BatchRequest& request) {
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

}  // namespace

void read_batch_request(std::string_view text, int64_t line, const AnswerOptions& options, BatchRequest& request) {
  request.options = options;
  const auto document = JsonDocument::parse(text, fmt::format("line {}", line), ErrorKind::kUsage);
  read_request(document->root(), text, request);
}

ModelInput batch_input(const BatchRequest& request, const TextModel& model) {
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

}  // namespace qgen::cli
