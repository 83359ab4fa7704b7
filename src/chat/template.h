// Chat templates: the model's own Jinja, rendered as transformers renders it, with every character of the
// result marked as the template's own or as the user's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config_tokens.h"
#include "base/json.h"
#include "base/model_files.h"
#include "base/prompt.h"

namespace qgen {

// Further members of a message as JSON text (reasoning_content, name, tool_calls, …).
using MessageMembers = std::vector<std::pair<std::string, std::string>>;

struct Message {
  std::string role;
  std::string content;
  MessageMembers extra;
  bool has_content = true;  // false: a message that only calls tools; templates then see undefined
};

// Variables of a template, each with its value as JSON text.
using TemplateVariables = std::vector<std::pair<std::string, std::string>>;

struct TemplateOptions {
  bool add_generation_prompt = true;
  SpecialTokens special_tokens;  // others are not defined
  // Further ones, of which the last by a name counts; their text counts as the user's side.
  TemplateVariables variables;
  // Where [begin, end) in what an assistant has said counts as the template's side, ascending: tokens that are not
  // special, which the model has written itself.
  std::function<std::vector<std::pair<size_t, size_t>>(std::string_view)> own_tokens;
  // The time that strftime_now formats: seconds since 1970, shown in the local time zone; not set: now.
  std::optional<long long> now;
};

class ChatTemplate {
 public:
  // Parses Jinja source. `subject` names it in errors ("chat_template.jinja"). Throws a model Error with
  // line and column on a syntax error.
  static ChatTemplate parse(std::string_view source, std::string subject);
  // From chat_template.jinja, else chat_template.json, else tokenizer_config.json ("chat_template" as a
  // string, or a named list of which "default" is taken); nothing where the model has none.
  static std::optional<ChatTemplate> load(const ModelFiles& files);

  // Throws a model Error with line and column when the template fails; what raise_exception says is the
  // problem. Steps and output are limited, so no template runs for ever or fills the memory.
  Prompt render(const std::vector<Message>& messages, const TemplateOptions& options) const;

  // Whether the template reads this variable somewhere ("enable_thinking").
  bool mentions(std::string_view variable) const;
  const std::string& subject() const;
  const std::string& source() const;  // Jinja

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

// A conversation from JSON: an array of {"role": …, "content": …} objects; `subject` names it in errors
// (of the usage kind). content may be a string or an array of {"type": "text", "text": …} parts.
std::vector<Message> parse_messages(std::string_view json, std::string subject);
// The same from a document that is read already.
std::vector<Message> read_messages(const Json& list);

// A value as JSON text, as a message's members and variables are kept.
std::string json_text(const Json& json);

}  // namespace qgen
