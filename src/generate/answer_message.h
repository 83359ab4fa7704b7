// What a model wrote, as the message that a chat template is given: thinking comes apart.
#pragma once

#include <string>
#include <vector>

#include "chat/reasoning.h"
#include "chat/template.h"

namespace qgen {

class AnswerMessage {
 public:
  // `thinking`: whether the prompt already opened a <think> block. `split`: the pieces come apart already.
  AnswerMessage(bool thinking, bool split) : splitter_(thinking), split_(split) {}

  void add(const ReasoningPiece& piece);
  // Ends it. Thinking is its "reasoning_content".
  Message finish();

 private:
  void take(const std::vector<ReasoningPiece>& pieces);

  ReasoningSplitter splitter_;
  bool split_;
  std::string answer_, thinking_;
};

}  // namespace qgen
