// Any bytes as a conversation file (of /save, or a list of messages), which is refused or can be rendered by templates;
// and as a line typed into the chat.
#include "chat/template.h"
#include "cli/message_reader.h"
#include "generate/conversation.h"
#include "tests/fuzz/support.h"

namespace {

// Reads all that messages may have, as published templates do.
constexpr std::string_view kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content }}{% endif %}"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}{% endfor %}";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 1024, 8 << 20);
  const std::string_view text = qgen::fuzz::text_of(data, size);
  static const qgen::ChatTemplate chat_template = qgen::ChatTemplate::parse(kTemplate, "template");
  qgen::fuzz::expect_error({qgen::ErrorKind::kUsage, qgen::ErrorKind::kModel}, [&] {
    qgen::Conversation conversation = qgen::parse_conversation(text, "talk.json");
    const auto messages = conversation.all();
    if (messages.size() != conversation.messages.size() + (conversation.system ? 1 : 0)) std::abort();
    const int64_t turns = conversation.turns();
    if (conversation.undo() != (turns > 0) || conversation.turns() != std::max<int64_t>(turns - 1, 0)) std::abort();
    qgen::TemplateOptions options;
    options.now = 0;
    chat_template.render(messages, options);
  });
  qgen::cli::MessageAssembler assembler;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (assembler.push(text.substr(at, end - at)) && assembler.pending()) std::abort();
    at = end + 1;
  }
  if (assembler.pending()) assembler.take();
  return 0;
}
