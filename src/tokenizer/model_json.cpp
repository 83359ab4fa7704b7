// Models come in bulk: their tables are walked without a Json for each member.
#include "tokenizer/model_json.h"

#include <limits>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::tokenizer {
namespace {

// Ids index tables: a vocabulary may leave gaps, but not use ids far beyond its size.
TokenId check_id(const Json& json, std::string_view piece, int64_t id, size_t pieces) {
  const int64_t limit = int64_t{1} << 22;
  if (id < 0 || id >= limit + 16 * int64_t(pieces)) {
    json.fail(
        fmt::format("{} has the id {} in a vocabulary of {} pieces", json_quote(piece.substr(0, 100)), id, pieces));
  }
  return TokenId(id);
}

std::optional<std::string> read_text(const Json& json, std::string_view key) {
  const auto value = json.get(key);
  if (!value) return {};
  return std::string(value->as_string());
}

bool read_flag(const Json& json, std::string_view key) {
  const auto value = json.get(key);
  return value && value->as_bool();
}

// The affixes that are put before or behind each character of a word.
std::string read_affix(const Json& json, std::string_view key) {
  constexpr size_t kMostAffixBytes = 256;
  std::string text = read_text(json, key).value_or("");
  if (text.size() > kMostAffixBytes) json.at(key).fail(fmt::format("longer than {} bytes", kMostAffixBytes));
  return text;
}

MergeTable read_merges(const Json& json, const Vocabulary& vocabulary, std::string_view prefix) {
  if (!json.is_array()) json.fail("expected an array");
  const simdjson::dom::array elements = json.raw();
  MergeReader merges(vocabulary, prefix, json.path());
  merges.reserve(elements.size());
  std::optional<bool> pairs;
  for (const auto element : elements) {
    if (pairs && *pairs != element.is_array()) json.fail("strings and pairs are mixed");
    pairs = element.is_array();
    if (*pairs) {
      std::string_view texts[2];
      size_t parts = 0;
      bool strings = true;
      for (const auto part : simdjson::dom::array(element)) {
        strings = strings && parts < 2 && part.get(texts[parts]) == simdjson::SUCCESS;
        ++parts;
      }
      if (parts != 2 || !strings) json.fail("expected pairs of strings");
      merges.add(texts[0], texts[1]);
    } else {
      std::string_view line;
      if (element.get(line) != simdjson::SUCCESS) json.fail("expected strings or pairs of strings");
      if (!line.starts_with("#version")) merges.add(line);
    }
  }
  return merges.take();
}

Model read_bpe(const Json& json) {
  Vocabulary vocabulary = read_vocabulary(json.at("vocab"));
  BpeOptions options;
  options.unknown = read_text(json, "unk_token");
  options.continuing_prefix = read_affix(json, "continuing_subword_prefix");
  options.end_suffix = read_affix(json, "end_of_word_suffix");
  options.fuse_unknown = read_flag(json, "fuse_unk");
  options.byte_fallback = read_flag(json, "byte_fallback");
  options.ignore_merges = read_flag(json, "ignore_merges");
  MergeTable merges = read_merges(json.at("merges"), vocabulary, options.continuing_prefix);
  return Bpe(std::move(vocabulary), std::move(merges), std::move(options));
}

Model read_wordpiece(const Json& json) {
  WordPieceOptions options;
  options.unknown = json.at("unk_token").as_string();
  options.continuing_prefix = json.at("continuing_subword_prefix").as_string();
  options.max_chars = size_t(json.at("max_input_chars_per_word").as_integer(0));
  return WordPiece(read_vocabulary(json.at("vocab")), std::move(options));
}

Model read_unigram(const Json& json) {
  const Json vocab = json.at("vocab");
  if (!vocab.is_array()) vocab.fail("expected an array");
  Vocabulary vocabulary;
  std::vector<double> scores;
  UnigramOptions options;
  options.lowest_score = std::numeric_limits<double>::infinity();
  for (const auto element : simdjson::dom::array(vocab.raw())) {
    std::string_view piece;
    double score = 0;
    simdjson::dom::array pair;
    if (element.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(piece) != simdjson::SUCCESS ||
        pair.at(1).get(score) != simdjson::SUCCESS) {
      vocab.fail(fmt::format("piece {}: expected a string and its score", scores.size()));
    }
    vocabulary.add(piece, TokenId(scores.size()));
    scores.push_back(score);
    options.lowest_score = std::min(options.lowest_score, score);
  }
  if (const auto unknown = json.get("unk_id")) {
    options.unknown = TokenId(unknown->as_integer(0, INT32_MAX));
    if (size_t(*options.unknown) >= scores.size()) unknown->fail("beyond the vocabulary");
  }
  options.byte_fallback = read_flag(json, "byte_fallback");
  return Unigram(std::move(vocabulary), std::move(scores), std::move(options));
}

}  // namespace

Vocabulary read_vocabulary(const Json& json) {
  if (!json.is_object()) json.fail("expected an object");
  const simdjson::dom::object members = json.raw();
  Vocabulary vocabulary;
  size_t bytes = 0, count = 0;
  for (const auto [piece, id] : members) bytes += piece.size(), ++count;
  vocabulary.reserve(count, bytes);
  for (const auto [piece, value] : members) {
    int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS) {
      json.fail(fmt::format("{} has no integer for its id", json_quote(std::string_view(piece).substr(0, 100))));
    }
    vocabulary.add(piece, check_id(json, piece, id, count));
  }
  return vocabulary;
}

TokenId MergeReader::id_of(std::string_view piece) const {
  const TokenId id = vocabulary_.find(piece);
  if (id < 0) {
    fail(ErrorKind::kModel,
         fmt::format("{}: merge {}: {} is not in the vocabulary", subject_, rank_, json_quote(piece.substr(0, 100))));
  }
  return id;
}

void MergeReader::add(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    fail(ErrorKind::kModel, fmt::format("{}: merge {}: expected two pieces and a space between them, found {}",
                                        subject_, rank_, json_quote(line.substr(0, 100))));
  }
  add(line.substr(0, space), line.substr(space + 1));
}

void MergeReader::add(std::string_view left, std::string_view right) {
  const TokenId left_id = id_of(left), right_id = id_of(right);
  if (right.size() < prefix_.size()) {
    fail(ErrorKind::kModel,
         fmt::format("{}: merge {}: {} is shorter than continuing_subword_prefix", subject_, rank_, json_quote(right)));
  }
  merged_ = left;
  merged_ += right.substr(prefix_.size());
  merges_.add(left_id, right_id, {rank_, id_of(merged_)});
  ++rank_;
}

Model read_model(const Json& json) {
  const auto type = json.get("type");
  // Old files do not name the type of their model.
  const std::string_view name = type                                    ? type->as_string()
                                : json.find("merges")                   ? "BPE"
                                : json.find("max_input_chars_per_word") ? "WordPiece"
                                                                        : "Unigram";
  if (name == "BPE") return read_bpe(json);
  if (name == "WordPiece") return read_wordpiece(json);
  if (name == "Unigram") return read_unigram(json);
  type->fail(fmt::format("'{}' is not supported", name));
}

}  // namespace qgen::tokenizer
