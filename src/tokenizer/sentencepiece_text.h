// How SentencePiece itself prepares text, for models that come as tokenizer.model.
#pragma once

#include "tokenizer/normalizers.h"

namespace qgen::tokenizer {

void normalize_for_sentencepiece(const NormalizeSentencePiece& normalizer, Text& text);

}  // namespace qgen::tokenizer
