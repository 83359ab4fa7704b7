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

inline std::vector<Message> messages_of(const Json& list) { return read_messages(list); }

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
