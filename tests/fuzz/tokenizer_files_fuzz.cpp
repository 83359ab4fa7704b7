// Any texts as vocab.json, merges.txt and the small files beside them, or as those beside a tokenizer.model or a
// tekken.json; and as the chat template and the special tokens that tokenizer_config.json has.
#include "base/config_tokens.h"
#include "chat/template.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/tokenizer_use.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 1024, 96 << 20);
  const std::string_view input = qgen::fuzz::text_of(data, size);
  const auto parts = qgen::fuzz::parts_of(input, 7);
  const qgen::ModelFiles files =
      qgen::fuzz::files_of(parts, {"tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json",
                                   "added_tokens.json", "tokenizer.model", "tekken.json"});
  qgen::fuzz::expect_model_error([&] {
    if (qgen::Tokenizer::exists(files)) qgen::fuzz::use_tokenizer(*qgen::Tokenizer::load(files));
  });
  qgen::fuzz::expect_model_error([&] { qgen::ChatTemplate::load(files); });
  qgen::fuzz::expect_model_error([&] { qgen::read_config_tokens(files).names; });
  return 0;
}
