// Any bytes as tokenizer.json, or as tokenizer.model.
#include "tests/fuzz/support.h"
#include "tests/fuzz/tokenizer_use.h"
#include "tokenizer/loaders.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A stage may make a megabyte of any text, with its origins; regular expressions take what PCRE2 takes.
  const qgen::fuzz::MemoryLimit limit(size, 512, 96 << 20);
  const std::string_view bytes = qgen::fuzz::text_of(data, size);
  qgen::fuzz::expect_model_error([&] {
    if (bytes.starts_with('{') || bytes.starts_with(' ')) {
      qgen::fuzz::use_tokenizer(*qgen::tokenizer::parse_tokenizer_json(bytes, "tokenizer.json"));
    } else {
      qgen::fuzz::use_tokenizer(*qgen::tokenizer::parse_sentencepiece(bytes, "tokenizer.model", {}));
    }
  });
  return 0;
}
