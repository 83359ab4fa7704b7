#include "chat/template.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "chat/program.h"
#include "jinja/parser.h"
#include "jinja/print.h"

namespace qgen {
namespace {

using jinja::Dict;
using jinja::Heap;
using jinja::Value;

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

// "subject:line:column: problem", counted from 1 in lines and characters.
[[noreturn]] void fail_at(const std::string& subject, std::string_view source, size_t offset,
                          const std::string& problem) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const std::string_view start = newline == std::string_view::npos ? before : before.substr(newline + 1);
  fail(ErrorKind::kModel,
       fmt::format("{}:{}:{}: {}", subject, line, jinja::count_code_points(start) + 1, replace_invalid_utf8(problem)));
}

Value member(Heap& heap, const std::string& json, const std::string& subject, ErrorKind kind, bool user) {
  const auto document = JsonDocument::parse(json, subject, kind);
  return jinja::from_json(heap, document->root(), user);
}

// The names under which a message's reasoning is passed; templates read the first.
constexpr std::string_view kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

// A message's reasoning under the names that templates read, whatever it came under.
Value with_reasoning(Heap& heap, Dict* message) {
  for (const std::string_view name : kReasoning) {
    const Value* found = message->find(name);
    if (found == nullptr || found->is_none()) continue;
    const Value reasoning = *found;
    Dict* out = heap.new_dict();
    out->user = true;
    out->set(heap.text("thinking", true), reasoning);
    for (const auto& [key, value] : message->entries) out->set(key, value);
    out->set(heap.text("reasoning_content", true), reasoning);
    return heap.finish(out);
  }
  return heap.finish(message);
}

// Role names of the chat protocol count as the template's text: templates build special tokens around them ('<|' + role
// + '|>').
constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool", "function", "developer"};

// Text of the user, but for its tokens.
Value own_text(Heap& heap, std::string_view text, const TemplateOptions& options) {
  jinja::TextBuilder out;
  size_t done = 0;
  for (const auto& [begin, end] : options.own_tokens(text)) {
    out.append(text.substr(done, begin - done), true);
    out.append(text.substr(begin, end - begin), false);
    done = end;
  }
  out.append(text.substr(done), true);
  return heap.text(std::move(out));
}

Value message_value(Heap& heap, const Message& message, size_t index, const TemplateOptions& options) {
  Dict* dict = heap.new_dict();
  dict->user = true;
  const auto text = [&](const std::string& bytes) { return heap.text(replace_invalid_utf8(bytes), true); };
  const auto said = [&](const std::string& bytes) {
    const bool own = message.role == "assistant" && options.own_tokens;
    return own ? own_text(heap, replace_invalid_utf8(bytes), options) : text(bytes);
  };
  const bool known_role = std::find(std::begin(kRoles), std::end(kRoles), message.role) != std::end(kRoles);
  dict->set(text("role"), known_role ? heap.text(message.role, false) : text(message.role));
  if (message.has_content) dict->set(text("content"), said(message.content));
  for (const auto& [name, json] : message.extra) {
    const std::string subject = fmt::format("messages[{}].{}", index, name);
    Value value = member(heap, json, subject, ErrorKind::kUsage, true);
    if (value.is_string() && std::ranges::find(kReasoning, name) != std::end(kReasoning))
      value = said(std::string(value.text().view()));
    dict->set(text(name), std::move(value));
  }
  return with_reasoning(heap, dict);
}

void define_all(jinja::Interpreter& interpreter, const std::vector<Message>& messages, const TemplateOptions& options) {
  Heap& heap = interpreter.heap();
  std::vector<Value> list;
  for (size_t i = 0; i < messages.size(); ++i) list.push_back(message_value(heap, messages[i], i, options));
  Value all = heap.list(std::move(list));
  all.sequence().user = true;
  interpreter.define("messages", std::move(all));
  interpreter.define("add_generation_prompt", Value::of(options.add_generation_prompt));
  for (const auto& [name, token] : options.special_tokens)
    interpreter.define(name, heap.text(replace_invalid_utf8(token), false));
  interpreter.define("tools", Value::none());
  interpreter.define("documents", Value::none());
  for (const auto& [name, json] : options.variables) {
    interpreter.define(name, member(heap, json, name, ErrorKind::kUsage, true));
  }
}

Prompt parts_of(const jinja::Text& text) {
  Prompt prompt;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.run_end(at);
    prompt.push_back({std::string(text.view().substr(at, end - at)), !text.user_at(at)});
    at = end;
  }
  return prompt;
}

}  // namespace

struct ChatTemplate::Program : jinja::Program {};

namespace jinja {

Program parse_program(std::string_view source, std::string subject) {
  if (source.starts_with("\xEF\xBB\xBF")) source.remove_prefix(3);
  if (source.size() > kMaxSourceBytes) {
    fail(ErrorKind::kModel, fmt::format("{}: a template of more than {} bytes", subject, kMaxSourceBytes));
  }
  if (!is_utf8(source)) fail(ErrorKind::kModel, subject + ": not valid UTF-8");
  Program program;
  program.subject = std::move(subject);
  with_memory_for(program.subject, source.size(), [&] {
    program.source = normalize_source(source);
    try {
      program.syntax = parse_source(program.source);
    } catch (const SyntaxProblem& problem) {
      fail_at(program.subject, program.source, problem.offset, problem.text);
    }
  });
  return program;
}

Prompt render_program(const Program& program, const std::vector<Message>& messages, const TemplateOptions& options,
                      const Limits& limits) {
  const long long now = options.now ? *options.now : static_cast<long long>(std::time(nullptr));
  return with_memory_for(program.subject + ": the conversation", 0, [&] {
    Interpreter interpreter(program.syntax, limits, now);
    try {
      define_all(interpreter, messages, options);
      return parts_of(interpreter.run());
    } catch (const Problem& problem) {
      fail_at(program.subject, program.source, interpreter.offset(), problem.text);
    }
  });
}

}  // namespace jinja

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, std::string subject) {
  return ChatTemplate(std::make_unique<Program>(Program{jinja::parse_program(source, std::move(subject))}));
}

Prompt ChatTemplate::render(const std::vector<Message>& messages, const TemplateOptions& options) const {
  return jinja::render_program(*program_, messages, options, jinja::Limits());
}

bool ChatTemplate::mentions(std::string_view variable) const {
  const int id = program_->syntax.names.find(std::string(variable));
  const auto& read = program_->syntax.read;
  return id >= 0 && static_cast<size_t>(id) < read.size() && read[static_cast<size_t>(id)];
}

const std::string& ChatTemplate::subject() const { return program_->subject; }
const std::string& ChatTemplate::source() const { return program_->source; }

}  // namespace qgen
