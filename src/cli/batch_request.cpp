#include "cli/batch_request.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "cli/input_text.h"
#include "generate/conversation.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr int64_t kMostLogprobs = 1 << 20;
constexpr double kMostNumber = 1e9;  // as resolve_sampling()

// The JSON text of a member exactly as the line has it, so that an id of 1.0 or 2^64 comes back unchanged.
std::string text_of_member(std::string_view line, std::string_view name, const Json& value) {
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  const simdjson::padded_string padded(line);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  simdjson::ondemand::value found;
  std::string_view text;
  if (parser.iterate(padded).get(document) == simdjson::SUCCESS &&
      document.find_field_unordered(name).get(found) == simdjson::SUCCESS &&
      simdjson::to_json_string(found).get(text) == simdjson::SUCCESS) {
    return std::string(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
  }
  value.fail("not valid JSON");  // NaN, which configurations may have
}

double number_in(const Json& value, double low, double high) {
  const double number = value.as_number();
  if (!(number >= low && number <= high))
    value.fail(fmt::format("{} is out of range (expected {} to {})", number, low, high));
  return number;
}
double number_above_zero(const Json& value, double high) {
  const double number = number_in(value, 0, high);
  if (number == 0) value.fail(fmt::format("0 is out of range (expected above 0 to {})", high));
  return number;
}

std::vector<std::string> read_stops(const Json& value) {
  if (value.is_string()) return {std::string(value.as_string())};
  std::vector<std::string> out;
  for (const Json& stop : value.elements()) out.emplace_back(stop.as_string());
  return out;
}

std::string read_think(const Json& value) {
  const std::string mode = value.is_bool() ? (value.as_bool() ? "on" : "off") : std::string(value.as_string());
  for (const std::string_view known : {"on", "off", "auto", "low", "medium", "high"}) {
    if (mode == known) return mode;
  }
  value.fail(fmt::format("{} is not allowed (expected on, off, auto, low, medium, high)", json_quote(mode)));
}

// OpenAI's words.
std::string read_effort(const Json& value) {
  const std::string_view effort = value.as_string();
  for (const std::string_view known : {"none", "minimal", "low", "medium", "high", "xhigh"}) {
    if (effort == known) return effort == "none" ? "off" : std::string(effort);
  }
  value.fail(fmt::format("{} is not allowed (expected none, minimal, low, medium, high)", json_quote(effort)));
}

// One text; lists of several would need several answers.
std::string read_prompt_text(const Json& value) {
  if (!value.is_array()) return std::string(value.as_string());
  const auto parts = value.elements();
  if (parts.size() != 1 || !parts.front().is_string())
    value.fail("a list is not supported (expected one text)", "one line for each prompt");
  return std::string(parts.front().as_string());
}

void check_type_is_text(const Json& value) {
  const Json type = value.at("type");
  if (type.as_string() != "text")
    type.fail(fmt::format("{} is not supported (expected \"text\")", json_quote(type.as_string())));
}

void check_false(const Json& value, const char* why) {
  if (value.as_bool()) value.fail(fmt::format("true is not supported: {}", why));
}

void check_empty(const Json& value) {
  if (!value.is_array() || !value.elements().empty()) value.fail("not supported (expected none)");
}

void check_one_of(const Json& value, std::initializer_list<std::string_view> allowed) {
  const bool known = value.is_string() && std::find(allowed.begin(), allowed.end(), value.as_string()) != allowed.end();
  if (!known) value.fail(fmt::format("not supported (expected {})", fmt::join(allowed, ", ")));
}

void read_template_arguments(const Json& value, AnswerOptions& options) {
  check_template_arguments(value);
  options.reasoning.arguments = json_text(value);
}

// The members a line may have, by every name in use for them.
struct Member {
  std::initializer_list<std::string_view> names;
  void (*read)(const Json& value, BatchRequest& request);
};
using R = BatchRequest;
const Member kMembers[] = {
    {{"custom_id", "id"}, [](const Json&, R&) {}},  // read before all others
    {{"prompt"}, [](const Json& v, R& r) { r.prompt = read_prompt_text(v); }},
    {{"messages"}, [](const Json& v, R& r) { r.messages = read_messages(v); }},
    {{"system"}, [](const Json& v, R& r) { r.options.system = std::string(v.as_string()); }},
    {{"raw"}, [](const Json& v, R& r) { r.options.raw = v.as_bool(); }},
    {{"think"}, [](const Json& v, R& r) { r.options.reasoning.think = read_think(v); }},
    {{"max_tokens", "max_completion_tokens"},
     [](const Json& v, R& r) { r.options.max_tokens = v.as_integer(0, kMostTokens); }},
    {{"stop"}, [](const Json& v, R& r) { r.options.stops = read_stops(v); }},
    {{"temperature", "temp"},
     [](const Json& v, R& r) { r.options.sampling.temperature = number_in(v, 0, kMostNumber); }},
    {{"top_k"}, [](const Json& v, R& r) { r.options.sampling.top_k = v.as_integer(0, int64_t(kMostNumber)); }},
    {{"top_p"}, [](const Json& v, R& r) { r.options.sampling.top_p = number_in(v, 0, 1); }},
    {{"min_p"}, [](const Json& v, R& r) { r.options.sampling.min_p = number_in(v, 0, 1); }},
    {{"typical_p"}, [](const Json& v, R& r) { r.options.sampling.typical_p = number_above_zero(v, 1); }},
    {{"repeat_penalty", "repetition_penalty"},
     [](const Json& v, R& r) { r.options.sampling.repetition_penalty = number_above_zero(v, kMostNumber); }},
    {{"presence_penalty"},
     [](const Json& v, R& r) { r.options.sampling.presence_penalty = number_in(v, -kMostNumber, kMostNumber); }},
    {{"frequency_penalty"},
     [](const Json& v, R& r) { r.options.sampling.frequency_penalty = number_in(v, -kMostNumber, kMostNumber); }},
    {{"seed"}, [](const Json& v, R& r) { r.options.sampling.seed = v.as_unsigned(); }},
    // A number, or OpenAI's flag, which "top_logprobs" beside it may go beyond.
    {{"logprobs"},
     [](const Json& v, R& r) {
       r.options.logprobs = !v.is_bool()   ? v.as_integer(0, kMostLogprobs)
                            : !v.as_bool() ? 0
                                           : std::max<int64_t>(r.options.logprobs, 1);
     }},
    {{"top_logprobs"},
     [](const Json& v, R& r) { r.options.logprobs = std::max(r.options.logprobs, v.as_integer(0, kMostLogprobs)); }},
    // As --logit-bias has them, and after those.
    {{"logit_bias"},
     [](const Json& v, R& r) {
       for (const auto& [key, bias] : v.members())
         r.options.logit_bias.push_back(fmt::format("{}={}", key, number_in(bias, -kMostNumber, kMostNumber)));
     }},
    {{"reasoning_effort"}, [](const Json& v, R& r) { r.options.reasoning.think = read_effort(v); }},
    {{"chat_template_kwargs"}, [](const Json& v, R& r) { read_template_arguments(v, r.options); }},
    // What changes nothing here, or is the only way here.
    {{"model"}, [](const Json& v, R&) { v.as_string(); }},
    {{"n", "best_of"},
     [](const Json& v, R&) {
       if (const int64_t n = v.as_integer(); n != 1) v.fail(fmt::format("{} is not supported (expected 1)", n));
     }},
    {{"stream"}, [](const Json& v, R&) { check_false(v, "each answer is one line"); }},
    {{"echo"}, [](const Json& v, R&) { check_false(v, "the prompt is not part of the answer"); }},
    {{"response_format"}, [](const Json& v, R&) { check_type_is_text(v); }},
    {{"tools", "functions"}, [](const Json& v, R&) { check_empty(v); }},
    {{"tool_choice", "function_call"},
     [](const Json& v, R&) {
       check_one_of(v, {"none", "auto"});
     }},
    {{"parallel_tool_calls"}, [](const Json& v, R&) { v.as_bool(); }},
    {{"modalities"},
     [](const Json& v, R&) {
       for (const Json& kind : v.elements()) check_one_of(kind, {"text"});
     }},
    {{"user", "metadata", "store", "service_tier", "stream_options", "safety_identifier", "prompt_cache_key"},
     [](const Json&, R&) {}},
};

void read_member(std::string_view key, const Json& value, BatchRequest& request) {
  if (value.is_null()) return;  // as if it were not there
  std::vector<std::string> known;
  for (const Member& member : kMembers) {
    for (const std::string_view name : member.names) {
      if (key == name) return member.read(value, request);
      known.emplace_back(name);
    }
  }
  const std::string meant = closest_word(key, known);
  value.fail("unknown member", meant.empty() ? "" : fmt::format("did you mean {}?", meant));
}

// What steers the service in OpenAI's form.
void read_envelope(const Json& line, const Json& body, BatchRequest& request) {
  if (const auto method = line.get("method")) check_one_of(*method, {"POST"});
  const auto url = line.get("url");
  if (url) check_one_of(*url, {"/v1/chat/completions", "/v1/completions"});
  const bool completion = url ? url->as_string() == "/v1/completions" : body.find("prompt").has_value();
  request.form = completion ? BatchForm::kCompletion : BatchForm::kChat;
  request.options.raw = completion;
}

}  // namespace

std::string BatchRequest::text_path() const {
  return fmt::format("line {}: {}{}", line, form == BatchForm::kOwn ? "" : "body.", messages ? "messages" : "prompt");
}

void read_batch_request(std::string_view text, int64_t line, const AnswerOptions& options, BatchRequest& request) {
  request.line = line;
  request.options = options;
  const auto document = JsonDocument::parse(text, fmt::format("line {}", line), ErrorKind::kUsage);
  const Json root = document->root();
  if (!root.is_object()) root.fail("expected an object with \"prompt\" or \"messages\"");
  request.form = BatchForm::kOwn;
  for (const std::string_view name : {"custom_id", "id"}) {
    if (const auto id = root.find(name)) request.id = text_of_member(text, name, *id);
  }
  const auto body = root.get("body");
  if (body) {
    request.form = BatchForm::kChat;  // until more is known
    if (!body->is_object()) body->fail("expected an object");
    read_envelope(root, *body, request);
  }
  for (const auto& [key, value] : root.members()) {
    if (body && (key == "body" || key == "method" || key == "url")) continue;
    read_member(key, value, request);
  }
  if (body) {
    for (const auto& [key, value] : body->members()) read_member(key, value, request);
  }
  const Json& where = body ? *body : root;
  if (request.form == BatchForm::kCompletion && !request.prompt) where.fail("no \"prompt\"");
  if (request.form == BatchForm::kChat && !request.messages) where.fail("no \"messages\"");
  if (request.prompt.has_value() == request.messages.has_value())
    where.fail(request.prompt ? "\"prompt\" and \"messages\" (expected one of them)"
                              : "no \"prompt\" and no \"messages\"");
  if (request.messages && request.messages->empty()) where.fail("no message in \"messages\"");
}

ModelInput batch_input(const BatchRequest& request, const TextModel& model) {
  const AnswerOptions& options = request.options;
  try {
    ModelInput input;
    if (options.raw || !model.has_template()) {
      if (request.messages || options.system)
        fail(ErrorKind::kUsage, options.raw ? "raw takes the prompt as it is" : "the model has no chat template");
      input = model.continue_text(*request.prompt);
    } else {
      Conversation conversation;
      if (options.system) conversation.set_system(*options.system);
      if (request.messages) {
        conversation.messages = *request.messages;
      } else {
        conversation.messages.push_back({"user", *request.prompt, {}});
      }
      input = model.render(conversation.all(), options.reasoning.variables());
    }
    check_fits(input, model);
    return input;
  } catch (const Error& error) {
    fail(error.kind(), fmt::format("{}: {}", request.text_path(), error.message()), error.hint());
  }
}

}  // namespace qgen::cli
