// Unicode's normalization forms, and extended grapheme clusters, by utf8proc.
#pragma once

#include <cstddef>
#include <string_view>

#include "tokenizer/normalizers.h"

namespace qgen::tokenizer {

// Linear in the text's length, however many marks follow each other.
void to_unicode_form(UnicodeForm form, Text& text);

// Bytes of the grapheme cluster that `text` (not empty) begins with.
size_t grapheme_length(std::string_view text);

}  // namespace qgen::tokenizer
