// Chat templates against the real thing: what transformers renders for published templates, and how templates and
// conversations are read from files. The language itself is tested in tests/jinja.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "base/config_tokens.h"
#include "base/file_map.h"
#include "chat/template.h"
#include "chat_support.h"

namespace qgen {
namespace {

using namespace chat_tests;

constexpr long long kNow = 1795262400;  // 2026-11-21 12:00 UTC

TEST_CASE("chat: published templates render as transformers renders them") {
  const auto shared = shared_folder();
  if (!shared || !std::filesystem::exists(*shared / "data" / "chat-templates" / "renders.json")) {
    test::skipped_without_shared("published templates");
    return;
  }
  const auto folder = *shared / "data" / "chat-templates";
  const auto document = JsonDocument::parse(read_file(folder / "renders.json"), "renders.json");
  size_t count = 0;
  for (const auto& [file, cases] : document->root().members()) {
    const std::string name(file);
    CAPTURE(name);
    const auto chat_template = ChatTemplate::parse(read_file(folder / name), name);
    for (const Json& entry : cases.elements()) {
      ++count;
      TemplateOptions options;
      options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      options.now = kNow;
      if (const auto prompt = entry.at("options").get("add_generation_prompt")) {
        options.add_generation_prompt = prompt->as_bool();
      }
      if (const auto thinking = entry.at("options").get("enable_thinking"))
        options.variables.emplace_back("enable_thinking", thinking->as_bool() ? "true" : "false");
      const auto messages = messages_of(entry.at("messages"));
      std::string text, error;
      try {
        text = text_of(chat_template.render(messages, options));
      } catch (const Error& caught) {
        error = caught.message();
      }
      if (const auto expected = entry.get("text")) {
        CHECK(error == "");
        CHECK(text == expected->as_string());
      } else {
        CHECK(error.find(entry.at("error").as_string()) != std::string::npos);
      }
    }
  }
  CHECK(count == 180);
}

TEST_CASE("chat: mentions names of variables only") {
  const auto chat_template =
      ChatTemplate::parse("{% set a = b.c %}{{ 'd' }}{% if enable_thinking is defined %}{% endif %}", "t");
  CHECK(chat_template.mentions("enable_thinking"));
  CHECK(chat_template.mentions("b"));
  CHECK_FALSE(chat_template.mentions("a"));
  CHECK_FALSE(chat_template.mentions("c"));
  CHECK_FALSE(chat_template.mentions("d"));
  CHECK(chat_template.subject() == "t");
}

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "qgen-chat-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& text) const { std::ofstream(path / name) << text; }
  std::filesystem::path path;
};

std::string first_line(const Folder& folder) {
  const auto found = ChatTemplate::load(folder.path);
  return found ? text_of(found->render({}, {})) : "nothing";
}

TEST_CASE("chat: special tokens of a folder, as transformers knows them") {
  const Folder folder;
  const auto rendered = [&](std::string_view source) {
    TemplateOptions options;
    options.special_tokens = read_config_tokens(folder.path).names;
    return text_of(ChatTemplate::parse(source, "template").render({}, options));
  };
  constexpr std::string_view kBegin = "{{ bos_token|default('<b>') }}";
  folder.write("tokenizer_config.json", R"({"bos_token": null, "pad_token": "<pad>", "unk_token": {"content": "<unk>"},
    "boi_token": "<boi>", "add_bos_token": true, "extra_special_tokens": {"image_token": "<image>"}})");
  CHECK(rendered("{{ pad_token }}{{ unk_token }}{{ boi_token }}{{ image_token }}{{ mask_token is defined }}{{ "
                 "add_bos_token is defined }}") == "<pad><unk><boi><image>FalseFalse");
  CHECK(rendered(kBegin) == "<b>");
  // special_tokens_map.json counts where tokenizer_config.json has no added_tokens_decoder; an eos_token that neither
  // has is an empty string.
  folder.write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  folder.write("tokenizer_config.json", R"({"bos_token": null, "added_tokens_decoder": {}})");
  CHECK(rendered(kBegin) == "<b>");
  CHECK(rendered("{{ eos_token is defined }}{{ eos_token }}") == "True");
  folder.write("tokenizer_config.json", R"({"bos_token": null})");
  CHECK(rendered(kBegin) == "<s>");
  CHECK(rendered("{{ eos_token }}") == "</s>");
  folder.write("special_tokens_map.json", "{}");
  CHECK(rendered(kBegin) == "<b>");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast", "eos_token": "<|end|>"})");
  CHECK(rendered("{{ bos_token }}{{ eos_token }}{{ unk_token }}") == "<s><|end|><unk>");
}

TEST_CASE("chat: the template of a folder") {
  const Folder folder;
  CHECK(first_line(folder) == "nothing");
  CHECK(read_config_tokens(folder.path).names == SpecialTokens{{"bos_token", ""}, {"eos_token", ""}});
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": null})");
  CHECK(first_line(folder) == "nothing");
  CHECK(read_config_tokens(folder.path).names == SpecialTokens{{"bos_token", "<s>"}});
  folder.write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": null, "eos_token": "</s>"})");
  CHECK(first_line(folder) == "config");
  CHECK(read_config_tokens(folder.path).names == SpecialTokens{{"eos_token", "</s>"}});
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "rag", "template": "a"}, {"name": "default", "template": "b"}]})");
  CHECK(first_line(folder) == "b");
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  CHECK(first_line(folder) == "json");
  folder.write("chat_template.jinja", "jinja\n");
  CHECK(first_line(folder) == "jinja");
  folder.write("chat_template.jinja", "{{");
  CHECK_THROWS_AS(ChatTemplate::load(folder.path), Error);
  folder.write("chat_template.jinja", "\xFF");
  CHECK_THROWS_AS(ChatTemplate::load(folder.path), Error);
}

TEST_CASE("chat: conversations from JSON") {
  const auto messages = parse_messages(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x\"y"},
          {"role": "assistant", "content": null, "name": null,
           "tool_calls": [{"f": 1.0, "i": -3, "n": null, "b": false}]}])",
      "chat.json");
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].role == "user");
  CHECK(messages[0].content == "ab");
  CHECK(messages[0].extra == std::vector<std::pair<std::string, std::string>>{{"name", R"("x\"y")"}});
  // transformers leaves members out that are null: templates see undefined.
  CHECK_FALSE(messages[1].has_content);
  REQUIRE(messages[1].extra.size() == 1);
  CHECK(messages[1].extra[0].second == R"([{"f": 1.0, "i": -3, "n": null, "b": false}])");
  const auto shown = ChatTemplate::parse("{{ messages[1].content is defined }}{{ messages[1].tool_calls }}", "t");
  CHECK(text_of(shown.render(messages, {})) == "False[{'f': 1.0, 'i': -3, 'n': None, 'b': False}]");
  for (const char* bad :
       {"{}", "[1]", R"([{"content": "x"}])", R"([{"role": 1, "content": "x"}])", R"([{"role": "user", "content": 1}])",
        R"([{"role": "user", "content": [{"type": "image"}]}])", "[", ""}) {
    CAPTURE(bad);
    try {
      parse_messages(bad, "chat.json");
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUsage);
      CHECK(error.message().starts_with("chat.json: "));
    }
  }
}

}  // namespace
}  // namespace qgen
