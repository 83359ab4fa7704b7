// Splits what a reasoning model writes into its thinking (<think> … </think>) and its answer, piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qgen {

struct ReasoningPiece {
  std::string text;
  bool thinking = false;
};

class ReasoningSplitter {
 public:
  // `thinking`: whether the prompt already opened a <think> block.
  explicit ReasoningSplitter(bool thinking) : thinking_(thinking) {}

  // The tags themselves are in no piece, and neither is the white space between </think> and the answer.
  std::vector<ReasoningPiece> push(std::string_view text);
  std::vector<ReasoningPiece> finish();

 private:
  void take(std::string_view text, std::vector<ReasoningPiece>& out);

  bool thinking_;
  bool skip_space_ = false;  // right after a tag
  std::string held_;         // may become a tag
};

// Whether a rendered prompt ends inside an open <think> block.
bool ends_in_thinking(std::string_view prompt);

}  // namespace qgen
