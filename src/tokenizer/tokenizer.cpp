// Which files make a tokenizer, and the decoder for growing sequences.
#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "tokenizer/loaders.h"

namespace qgen {
namespace {

bool has(const std::filesystem::path& folder, const char* name) {
  std::error_code error;
  return std::filesystem::is_regular_file(folder / name, error);
}

}  // namespace

bool Tokenizer::exists(const std::filesystem::path& folder) {
  return has(folder, "tokenizer.json") || (has(folder, "vocab.json") && has(folder, "merges.txt")) ||
         has(folder, "tokenizer.model");
}

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  if (has(folder, "tokenizer.json")) return tokenizer::load_tokenizer_json(folder / "tokenizer.json");
  if (has(folder, "vocab.json") && has(folder, "merges.txt")) return tokenizer::load_vocab_and_merges(folder);
  if (has(folder, "tokenizer.model")) return tokenizer::load_sentencepiece(folder);
  fail(ErrorKind::kModel, folder.string() + ": no tokenizer",
       "expected tokenizer.json, or vocab.json and merges.txt, or tokenizer.model");
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : run_(tokenizer.start_decoding(skip_special_tokens)) {}

std::string StreamDecoder::next(TokenId id) {
  std::string out;
  run_->push(id, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  run_->finish(out);
  return out;
}

}  // namespace qgen
