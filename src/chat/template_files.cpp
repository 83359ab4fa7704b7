// Reads the chat template and its special tokens from a model's folder, and conversations from JSON.
#include <cmath>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/edit_distance.h"
#include "base/error.h"
#include "base/json.h"
#include "chat/template.h"
#include "jinja/print.h"

namespace qgen {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;

std::optional<std::string> read_if_there(const ModelFiles& files, std::string_view name) {
  if (!files.has(name)) return {};
  return files.read(name, kMaxFileBytes);
}

// The "chat_template" member of a JSON file.
std::optional<ChatTemplate> template_member(const std::string& text, const std::string& file) {
  const auto document = JsonDocument::parse(text, file);
  if (!document->root().is_object()) return {};
  const auto member = document->root().get("chat_template");
  if (!member) return {};
  const std::string subject = file + ": chat_template";
  if (member->is_string()) return ChatTemplate::parse(member->as_string(), subject);
  if (!member->is_array()) member->fail("expected a string or a list of named templates");
  for (const Json& entry : member->elements()) {
    if (entry.at("name").as_string() == "default") {
      return ChatTemplate::parse(entry.at("template").as_string(), subject);
    }
  }
  if (member->elements().empty()) return {};
  member->fail("none of the templates is named \"default\"");
}

std::string content_of(const Json& content) {
  if (!content.is_array()) {
    if (!content.is_string()) content.fail("expected a string or a list of parts");
    return std::string(content.as_string());
  }
  std::string text;
  for (const Json& part : content.elements()) {
    if (!part.is_object() || part.at("type").as_string() != "text")
      part.fail("only parts of the type \"text\" are supported");
    text += part.at("text").as_string();
  }
  return text;
}

void append_json_text(std::string& out, const Json& json) {
  const auto separator = [&](bool& first) {
    if (!first) out += ", ";
    first = false;
  };
  bool first = true;
  if (json.is_string()) {
    out += json_quote(json.as_string());
  } else if (json.is_array()) {
    out += '[';
    for (const Json& element : json.elements()) {
      separator(first);
      append_json_text(out, element);
    }
    out += ']';
  } else if (json.is_object()) {
    out += '{';
    for (const auto& [key, value] : json.members()) {
      separator(first);
      out += json_quote(key) + ": ";
      append_json_text(out, value);
    }
    out += '}';
  } else if (json.is_bool()) {
    out += json.as_bool() ? "true" : "false";
  } else if (json.is_null()) {
    out += "null";
  } else if (const std::string integer = json.integer_text(); !integer.empty()) {
    out += integer;
  } else {
    const double number = json.as_number();
    out += std::isnan(number)   ? "NaN"
           : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity")
                                : jinja::float_text(number);
  }
}

// Templates know roles of their own ("tools" in Granite's), but one that is nearly one of the usual ones is a slip,
// which they would write as it is.
std::string role_of(const Json& json) {
  const std::string_view role = json.as_string();
  if (role.empty()) json.fail("is empty", "usual are system, user, assistant and tool");
  if (role == "tools" || (!role.empty() && role.back() >= '0' && role.back() <= '9')) return std::string(role);
  const std::string small = lower(role);
  for (const std::string_view usual : {"system", "developer", "user", "assistant", "tool"}) {
    if (role != usual && edit_distance(small, usual) <= 1)
      json.fail(fmt::format("'{}' is no role", role), fmt::format("did you mean {}?", usual));
  }
  return std::string(role);
}

// ChatGLM2 has its prompt in its program alone (tokenization_chatglm.py, build_prompt).
constexpr std::string_view kChatGlm2 =
    "[gMASK]sop{% set seen = namespace(rounds=0) %}{% for message in messages %}"
    "{% if message['role'] == 'user' %}{% set seen.rounds = seen.rounds + 1 %}"
    "[Round {{ seen.rounds }}]\n\n\u95ee\uff1a{{ message['content'] }}\n\n\u7b54\uff1a"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}\n\n"
    "{% else %}{{ raise_exception('ChatGLM2 knows messages of users and its own only') }}{% endif %}{% endfor %}";

// The template of a tokenizer that says none because its program has it.
std::optional<ChatTemplate> template_of_class(const ModelFiles& files) {
  const auto text = read_if_there(files, "tokenizer_config.json");
  if (!text) return {};
  const auto document = JsonDocument::parse(*text, files.subject("tokenizer_config.json"));
  const auto name = document->root().is_object() ? document->root().get("tokenizer_class") : std::nullopt;
  if (!name || !name->is_string() || name->as_string() != "ChatGLMTokenizer") return {};
  return ChatTemplate::parse(kChatGlm2, "the template of ChatGLMTokenizer");
}

}  // namespace

std::string json_text(const Json& json) {
  std::string out;
  append_json_text(out, json);
  return out;
}

std::optional<ChatTemplate> ChatTemplate::load(const ModelFiles& files) {
  if (const auto source = read_if_there(files, "chat_template.jinja")) {
    return parse(*source, files.subject("chat_template.jinja"));
  }
  for (const char* file : {"chat_template.json", "tokenizer_config.json"}) {
    if (const auto text = read_if_there(files, file)) {
      if (auto found = template_member(*text, files.subject(file))) return found;
    }
  }
  return template_of_class(files);
}

std::vector<Message> parse_messages(std::string_view json, std::string subject) {
  return read_messages(JsonDocument::parse(json, std::move(subject), ErrorKind::kUsage)->root());
}

std::vector<Message> read_messages(const Json& list) {
  if (!list.is_array()) list.fail("expected a list of messages");
  std::vector<Message> messages;
  for (const Json& entry : list.elements()) {
    if (!entry.is_object()) entry.fail("expected a message, an object with \"role\" and \"content\"");
    Message message;
    message.role = role_of(entry.at("role"));
    const auto content = entry.get("content");
    if (content && content->is_object() && message.role == "tool") {
      message.has_content = false;  // what a tool answered, which templates write as JSON
      message.extra.emplace_back("content", json_text(*content));
    } else if (content) {
      message.content = content_of(*content);
    } else {
      if (message.role == "user" || message.role == "system") entry.fail("has no content");
      message.has_content = false;
    }
    for (const auto& [key, value] : entry.members()) {
      // Members that are null are left out, as transformers does before a template sees them.
      if (key == "role" || key == "content" || value.is_null()) continue;
      message.extra.emplace_back(std::string(key), json_text(value));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace qgen
