// Rendered prompts, from the chat template to the tokenizer: text with a mark on each part that says whether the
// template or the user wrote it.
#pragma once

#include <string>
#include <vector>

namespace qgen {

// Only text that the template's author wrote can become special tokens; what a user (or a message of the
// conversation) brought in is always plain text, whatever it spells.
struct PromptPart {
  std::string text;
  bool trusted = false;
};
using Prompt = std::vector<PromptPart>;  // neighbours differ in `trusted`; no part is empty

}  // namespace qgen
