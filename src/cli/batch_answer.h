// The answer to a line of --batch as a line: in our form (schemas/batch.schema.json), or as OpenAI's Batch API
// documents its output files, with a response of /v1/chat/completions or /v1/completions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/batch_request.h"
#include "generate/generation.h"

namespace qgen::cli {

struct BatchAnswer {
  Generation generation;
  std::string text, reasoning;
  uint64_t seed = 0;
  std::string_view cut_short;  // as in reports
};

// Without a newline. An interrupted answer is none in OpenAI's form.
std::string answer_line(const BatchRequest& request, const BatchAnswer& answer, std::string_view model,
                        const Tokenizer& tokenizer);
std::string error_line(const BatchRequest& request, const Error& error);

}  // namespace qgen::cli
