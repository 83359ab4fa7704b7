// What the chat tests share: conversations and variables from JSON files, and prompts as one string.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/json.h"
#include "chat/template.h"
#include "tests/skipped.h"

namespace qgen::chat_tests {

inline std::optional<std::filesystem::path> shared_folder() {
  const char* folder = std::getenv("QGEN_SHARED");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) return {};
  return std::filesystem::path(folder);
}

inline std::string json_text(const Json& json) {
  if (json.is_string()) return json_quote(json.as_string());
  if (json.is_bool()) return json.as_bool() ? "true" : "false";
  if (json.is_null()) return "null";
  if (json.is_integer()) return std::to_string(json.as_integer());
  if (json.is_number()) {
    const std::string text = fmt::format("{}", json.as_number());
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  std::string out;
  if (json.is_array()) {
    for (const Json& element : json.elements()) out += (out.empty() ? "" : ", ") + json_text(element);
    return "[" + out + "]";
  }
  for (const auto& [key, value] : json.members()) {
    out += (out.empty() ? "" : ", ") + json_quote(key) + ": " + json_text(value);
  }
  return "{" + out + "}";
}

inline std::vector<Message> messages_of(const Json& list) { return parse_messages(json_text(list), "messages"); }

inline std::string text_of(const Prompt& prompt) {
  std::string out;
  for (const PromptPart& part : prompt) out += part.text;
  return out;
}

// The parts of one side, with U+0000 between what is not together.
inline std::string side_of(const Prompt& prompt, bool trusted) {
  std::string out;
  for (const PromptPart& part : prompt) out += part.trusted == trusted ? part.text : std::string(1, '\0');
  return out;
}

// One rendering with a single user message.
inline Prompt render(const std::string& source, const std::string& content = "user",
                     const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  TemplateOptions options;
  options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  options.now = 1795262400;  // 2026-11-21 12:00 UTC
  options.variables = variables;
  return ChatTemplate::parse(source, "test").render({{"user", content, {}}}, options);
}

// The message of the Error that parsing or rendering raises; "" if it raises none.
inline std::string error_of(const std::string& source, const std::string& content = "user") {
  try {
    render(source, content);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kModel);
    return error.message();
  }
  return "";
}

}  // namespace qgen::chat_tests
