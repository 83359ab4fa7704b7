#include "generate/answer_message.h"

#include "base/json.h"

namespace qgen {

void AnswerMessage::add(const ReasoningPiece& piece) { split_ ? take({piece}) : take(splitter_.push(piece.text)); }

Message AnswerMessage::finish() {
  if (!split_) take(splitter_.finish());
  Message out{"assistant", answer_, {}};
  if (!thinking_.empty()) out.extra.emplace_back("reasoning_content", json_quote(thinking_));
  return out;
}

void AnswerMessage::take(const std::vector<ReasoningPiece>& pieces) {
  for (const ReasoningPiece& piece : pieces) (piece.thinking ? thinking_ : answer_) += piece.text;
}

}  // namespace qgen
