// The template language against Jinja itself: what transformers renders for a set of small templates, and what errors
// say.
#include <string>

#include <doctest/doctest.h>

#include "base/file_map.h"
#include "chat/template.h"
#include "tests/chat/chat_support.h"

namespace qgen {
namespace {

using namespace chat_tests;

TEST_CASE("jinja: every golden case renders as transformers renders it") {
  const std::string path = std::string(QGEN_SOURCE_DIR) + "/tests/golden-chat/cases.json";
  const auto document = JsonDocument::parse(read_file(path), "cases.json");
  const Json root = document->root();
  TemplateOptions options;
  options.now = root.at("now").as_integer();
  for (const auto& [name, value] : root.at("variables").members()) {
    options.variables.emplace_back(std::string(name), json_text(value));
  }
  size_t count = 0;
  for (const Json& entry : root.at("cases").elements()) {
    ++count;
    const std::string source(entry.at("template").as_string());
    CAPTURE(source);
    const auto messages = messages_of(root.at("conversations").at(entry.at("messages").as_string()));
    std::string text, error;
    try {
      text = text_of(ChatTemplate::parse(source, "case").render(messages, options));
    } catch (const Error& caught) {
      error = caught.message();
    }
    if (const auto expected = entry.get("text")) {
      CHECK(error == "");
      CHECK(text == expected->as_string());
      continue;
    }
    // Every failure is one here too; what the template or Python says is kept where it is about values.
    CHECK(error != "");
    const std::string expected(entry.at("error").as_string());
    const bool syntax = expected.starts_with("TemplateSyntaxError") || expected.starts_with("SyntaxError");
    const bool own_words =
        expected.find("underscore") != std::string::npos || expected.find("tojson()") != std::string::npos;
    if (!syntax && !own_words) {
      CAPTURE(error);
      CHECK(error.find(expected.substr(expected.find(": ") + 2)) != std::string::npos);
    }
  }
  CHECK(count >= 250);
}

TEST_CASE("jinja: errors name subject, line and column") {
  CHECK(error_of("a\n  {{ raise_exception('no such role') }}") == "test:2:21: no such role");
  CHECK(error_of("{{ 1 +\n}}") == "test:2:1: unexpected 'end of print statement'");
  CHECK(error_of("é{% for %}") == "test:1:9: Expected an expression, got 'end of statement block'");
}

}  // namespace
}  // namespace qgen
