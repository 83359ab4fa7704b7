// A line of --batch as what it asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"
#include "cli/answer.h"
#include "generate/text_model.h"

namespace qgen::cli {

struct BatchRequest {
  std::string id = "null";  // JSON text of what the line calls itself, as it was written
  AnswerOptions options;    // that hold for it
  std::optional<std::string> prompt;
  std::optional<std::vector<Message>> messages;
};

// Reads line `line` into a request with these options, which it may override. What the line calls itself is set as early
// as it is known, for the answer to a bad line. Throws a usage Error that names line and key.
void read_batch_request(std::string_view text, int64_t line, const AnswerOptions& options, BatchRequest& request);

// What the model is to go on from. Throws an Error.
ModelInput batch_input(const BatchRequest& request, const TextModel& model);

}  // namespace qgen::cli
