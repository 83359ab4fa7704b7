// Which files make a tokenizer, and the decoder for growing sequences.
#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "tokenizer/loaders.h"

namespace qgen {

bool Tokenizer::exists(const ModelFiles& files) {
  return files.has("tokenizer.json") || (files.has("vocab.json") && files.has("merges.txt")) ||
         files.has("tekken.json") || files.has("tokenizer.model");
}

namespace {

std::unique_ptr<Tokenizer> load_any(const ModelFiles& files) {
  if (files.has("tokenizer.json")) return tokenizer::load_tokenizer_json(files);
  if (files.has("vocab.json") && files.has("merges.txt")) return tokenizer::load_vocab_and_merges(files);
  if (files.has("tekken.json")) return tokenizer::load_tekken(files);
  if (files.has("tokenizer.model")) return tokenizer::load_sentencepiece(files);
  fail(ErrorKind::kModel, files.place() + ": no tokenizer",
       "expected tokenizer.json, or vocab.json and merges.txt, or tekken.json, or tokenizer.model");
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const ModelFiles& files) {
  return with_memory_for(files.place() + ": the tokenizer", 0, [&] { return load_any(files); });
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
