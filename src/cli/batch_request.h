// A line of --batch as what it asks for: in our form, {"prompt": …} or {"messages": […]} with options beside it, or in
// OpenAI's, with "custom_id", "url" and the request under "body".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/template.h"
#include "cli/answer.h"
#include "generate/text_model.h"

namespace qgen::cli {

enum class BatchForm {
  kOwn,
  kChat,        // OpenAI's /v1/chat/completions
  kCompletion,  // OpenAI's /v1/completions: text that is continued as it is
};

struct BatchRequest {
  int64_t line = 0;  // of the input, from 1
  BatchForm form = BatchForm::kOwn;
  std::string id = "null";  // JSON text of what the line calls itself
  std::optional<std::string> prompt;
  std::optional<std::vector<Message>> messages;
  AnswerOptions options;

  // "line 3: messages": where errors about the text are.
  std::string text_path() const;
};

// Reads line `line` into a request with these options, which it may override. What the line calls itself and its form
// are set as early as they are known, for the answer to a bad line; one that is no object keeps the form that `request`
// has. Throws a usage Error that names line and key.
void read_batch_request(std::string_view text, int64_t line, const AnswerOptions& options, BatchRequest& request);

// What the model is to go on from. Throws an Error that names the line.
ModelInput batch_input(const BatchRequest& request, const TextModel& model);

}  // namespace qgen::cli
