#include "generate/prompt_limit.h"

#include "base/error.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

const std::unique_ptr<Tokenizer>& tokenizer() {
  static const auto loaded = Tokenizer::load(ModelFiles(source_folder() / "models/stories260K-FP8"));
  return loaded;
}

std::string problem(const std::string& text, int64_t context) {
  ErrorKind kind = ErrorKind::kUsage;
  const std::string_view whole = text;
  const std::string error = error_of([&] { refuse_far_too_long({&whole, 1}, *tokenizer(), context, "m"); }, &kind);
  CHECK(kind == ErrorKind::kUsage);
  return error;
}

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  while (times-- > 0) out += text;
  return out;
}

TEST_CASE("prompt limit: far too long is refused from the beginning of the text, with both numbers") {
  const std::string text = repeated("the little dog ran to the park. ", 40000);
  CHECK(contains(problem(text, 512),
                 "m: the prompt does not fit in the context (expected at most 512 tokens, found more than "));
  CHECK(contains(problem(repeated("x", 2'000'000), 512), "found more than"));
  CHECK(contains(problem(repeated("日本", 300'000), 512), "found more than"));
}

TEST_CASE("prompt limit: what fits, or nearly does, passes") {
  const std::string text = repeated("the little dog ran to the park. ", 40000);
  const auto tokens = int64_t(tokenizer()->encode(text).ids.size());
  for (const int64_t context : {tokens, tokens - 1, tokens * 9 / 10, tokens * 2}) CHECK(problem(text, context) == "");
  CHECK(problem("", 1) == "");
}

}  // namespace
}  // namespace qgen::test
