// A model's tokenizer and chat template as the keys of a GGUF file.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "base/model_files.h"
#include "checkpoint/gguf_writer.h"

namespace qgen::quantize {

// Adds tokenizer.ggml.* and tokenizer.chat_template for a model with scores for `vocab` tokens. From tokenizer.model, a
// byte-level tokenizer.json, or one that was made from SentencePiece pieces; "none" where the model has no tokenizer. A
// model Error where llama.cpp has no name for how the tokenizer splits words, or no such kind. `config`: config.json,
// which may know the tokens that begin and end a text. Architecture gemma4 has a kind of its own: merges over the whole
// text.
void add_tokenizer(GgufKeys& keys, std::string_view architecture, const ModelFiles& files, const Json& config,
                   int64_t vocab);

}  // namespace qgen::quantize
