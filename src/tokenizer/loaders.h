// The kinds of tokenizer files.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/config_tokens.h"
#include "base/model_files.h"
#include "tokenizer/tokenizer.h"

namespace qgen::tokenizer {

std::unique_ptr<Tokenizer> load_tokenizer_json(const ModelFiles& files);
// The same from a file's text; `subject` names it in errors. `config`: of the files beside it.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& subject,
                                                const ConfigTokens& config = {});

// GPT-2's byte-level files.
std::unique_ptr<Tokenizer> load_vocab_and_merges(const ModelFiles& files);

// tekken.json, Mistral's.
std::unique_ptr<Tokenizer> load_tekken(const ModelFiles& files);

// tokenizer.model.
std::unique_ptr<Tokenizer> load_sentencepiece(const ModelFiles& files);
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& subject,
                                               const ConfigTokens& config);

}  // namespace qgen::tokenizer
