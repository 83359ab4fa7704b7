// The ids of a conversation as they went through the model, and the text they stand for. A rendering that begins
// with that text keeps the ids: an answer is never tokenized again, and its tokens need not be those that the
// tokenizer would choose.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/prompt.h"
#include "base/token.h"
#include "tokenizer/tokenizer.h"

namespace qgen {

class Timeline {
 public:
  // The ids of a rendered conversation. Those of its longest known beginning are reused, if the template goes on
  // from there with a special token (nothing that is tokenized together is then torn apart); the rest is encoded.
  std::vector<TokenId> encode(const Prompt& prompt, const Tokenizer& tokenizer) const;

  // What the model has read and written: a prompt with its ids from encode(), and the tokens of the answer, which
  // the conversation keeps as `text`. Tokens after that text (a stop string's) are left out.
  void record(Prompt prompt, std::vector<TokenId> ids, std::span<const TokenId> answer, std::string_view text,
              const Tokenizer& tokenizer);

 private:
  // The first `bytes` of the text are the first `ids`.
  struct Cut {
    size_t bytes;
    size_t ids;
  };

  Prompt text_;
  std::vector<TokenId> ids_;
  std::vector<Cut> cuts_;  // ascending; each where an answer ends
};

}  // namespace qgen
