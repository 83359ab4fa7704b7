// Refuses prompts that are far too long before all of them is tokenized.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace qgen {

// A usage Error, as for any prompt that does not fit in `context` tokens, where the prompt has so many bytes that it
// may not and its beginning alone has a quarter more tokens than that. Others pass, whether they fit or not.
void refuse_far_too_long(std::span<const std::string_view> prompt, const Tokenizer& tokenizer, int64_t context,
                         const std::string& model_name);

}  // namespace qgen
