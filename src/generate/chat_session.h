// A conversation with a model: what was said, the ids that stand for it, and the engine's cache, which is kept from
// turn to turn so that each token is computed once. Prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generate/conversation.h"
#include "generate/generation.h"
#include "generate/session.h"
#include "generate/text_model.h"
#include "generate/timeline.h"

namespace qgen {

// The least that a next turn of the conversation needs, in tokens. Throws what the template has against it.
int64_t tokens_of_next_turn(const TextModel& model, const Conversation& conversation,
                            const TemplateVariables& variables);

class ChatSession {
 public:
  // `model` is loaded and has a chat template.
  ChatSession(const TextModel& model, TemplateVariables variables);

  // One turn. The question and its answer, whole or interrupted, join the conversation; where nothing was answered
  // before an interruption, or an error comes up (a usage Error if the turn does not fit), it stays as it was.
  Generation ask(const std::string& question, const GenerationSettings& settings, const TextSink& sink);

  // Asks the last question again. Its earlier answer goes once there is another one; it stays where ask() keeps
  // nothing. A usage Error if there is no question.
  Generation retry(const GenerationSettings& settings, const TextSink& sink);

  const Conversation& conversation() const { return conversation_; }
  // Refuses, with an Error, what the template cannot render or the context cannot hold.
  void replace(Conversation conversation);
  void set_system(std::optional<std::string> text);
  bool undo();
  void clear();

  // Of the conversation as it stands.
  int64_t tokens_in_context() const;
  // That went through the model so far.
  int64_t computed_tokens() const { return computed_before_ + session_->computed_tokens(); }

 private:
  void check(const Conversation& conversation) const;

  const TextModel& model_;
  TemplateVariables variables_;
  Conversation conversation_;
  Timeline timeline_;
  std::optional<Session> session_;  // made anew after an error, when the engine's state is not known
  int64_t computed_before_ = 0;     // by earlier ones
  bool changed_ = false;            // since the last answer: the cache holds something else
};

}  // namespace qgen
