#include "generate/chat_session.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "generate/answer_message.h"

namespace qgen {
namespace {

constexpr const char* kMoreRoom = "/undo takes back the last turn, /clear starts over, --context N makes more room";

void check_room(int64_t tokens, const TextModel& model) {
  if (tokens <= model.loaded().context) return;
  fail(ErrorKind::kUsage,
       fmt::format("{}: the conversation does not fit in the context (expected at most {} tokens, found {})",
                   model.name(), model.loaded().context, tokens),
       kMoreRoom);
}

}  // namespace

int64_t tokens_of_next_turn(const TextModel& model, const Conversation& conversation,
                            const TemplateVariables& variables) {
  std::vector<Message> messages = conversation.all();
  if (conversation.messages.empty() || messages.back().role != "user") messages.push_back({"user", "?", {}});
  return int64_t(model.render(messages, variables).ids.size());
}

ChatSession::ChatSession(const TextModel& model, TemplateVariables variables)
    : model_(model),
      variables_(std::move(variables)),
      session_(std::in_place, model.engine(), model.loaded().context) {}

Generation ChatSession::ask(const std::string& question, const GenerationSettings& settings, const TextSink& sink) {
  std::vector<Message> messages = conversation_.all();
  messages.push_back({"user", question, {}});
  Prompt prompt = model_.render_prompt(messages, variables_);
  ModelInput input = model_.input_of(prompt, timeline_.encode(prompt, model_.tokenizer()));
  check_room(int64_t(input.ids.size()), model_);

  changed_ = true;
  AnswerMessage answer(input.thinking, settings.split_reasoning);
  Generation generation;
  try {
    generation = generate(*session_, model_, input, settings, [&](const ReasoningPiece& piece) {
      answer.add(piece);
      sink(piece);
    });
  } catch (...) {
    computed_before_ += session_->computed_tokens();
    session_.reset();  // there is room for one
    session_.emplace(model_.engine(), model_.loaded().context);
    throw;
  }
  if (generation.stop == "interrupted" && generation.tokens.empty()) return generation;
  Message message = answer.finish();
  timeline_.record(std::move(prompt), std::move(input.ids), generation.tokens, message.content, model_.tokenizer());
  conversation_.messages.push_back(std::move(messages.back()));
  conversation_.messages.push_back(std::move(message));
  changed_ = false;
  return generation;
}

Generation ChatSession::retry(const GenerationSettings& settings, const TextSink& sink) {
  Conversation before = conversation_;
  const auto question = std::find_if(before.messages.rbegin(), before.messages.rend(),
                                     [](const Message& message) { return message.role == "user"; });
  if (question == before.messages.rend()) fail(ErrorKind::kUsage, "/retry: there is no question yet");
  const std::string text = question->content;
  undo();
  const auto take_back = [&] {
    conversation_ = std::move(before);
    changed_ = true;
  };
  try {
    Generation generation = ask(text, settings, sink);
    if (generation.stop == "interrupted" && generation.tokens.empty()) take_back();
    return generation;
  } catch (...) {
    take_back();
    throw;
  }
}

void ChatSession::check(const Conversation& conversation) const {
  check_room(tokens_of_next_turn(model_, conversation, variables_), model_);
}

void ChatSession::replace(Conversation conversation) {
  check(conversation);
  conversation_ = std::move(conversation);
  changed_ = true;
}

bool ChatSession::undo() {
  changed_ = true;
  return conversation_.undo();
}

void ChatSession::clear() {
  conversation_.messages.clear();
  changed_ = true;
}

int64_t ChatSession::tokens_in_context() const {
  if (!changed_) return int64_t(session_->tokens().size());
  if (conversation_.messages.empty()) return 0;
  return int64_t(timeline_.encode(model_.render_prompt(conversation_.all(), variables_), model_.tokenizer()).size());
}

void ChatSession::set_system(std::optional<std::string> text) {
  Conversation conversation = conversation_;
  conversation.set_system(std::move(text));
  replace(std::move(conversation));
}

}  // namespace qgen
