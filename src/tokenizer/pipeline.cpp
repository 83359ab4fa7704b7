// Text is cut at added tokens, each part is normalized and cut into words, and the model turns those into
// ids. Who wrote which bytes is known all the way.
#include "tokenizer/pipeline.h"

#include <algorithm>

#include <simdjson.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

namespace qgen::tokenizer {

struct Pipeline::Scratch {
  BpeScratch bpe;
  UnigramScratch unigram;
  std::vector<Token> tokens;
  std::vector<Part> parts;
};

const Vocabulary& Stages::vocabulary() const {
  return std::visit([](const auto& m) -> const Vocabulary& { return m.vocabulary(); }, model);
}

std::string Stages::normalized(std::string_view content) const {
  constexpr size_t kMostGrowth = 4, kMostAdded = 256;
  Text text(content, 0, kMostAdded + kMostGrowth * content.size());
  normalize(normalizers, text);
  return std::string(text.view());
}

Pipeline::Pipeline(Stages stages) : stages_(std::move(stages)) {
  if (Bpe* bpe = std::get_if<Bpe>(&stages_.model); bpe != nullptr && !stages_.pre_tokenizers.empty()) {
    auto* last = std::get_if<SplitByteLevel>(&stages_.pre_tokenizers.back());
    if (last != nullptr && bpe->can_read_bytes()) {
      last->spell_bytes = false;
      bpe->read_bytes();
    }
  }
  stages_.added.complete([&](std::string_view content) { return stages_.normalized(content); });
  const std::vector<TokenId> special = stages_.added.special_ids(stages_.vocabulary());
  std::visit([&](auto& model) { model.forbid(special); }, stages_.model);
}

Pipeline::~Pipeline() = default;

std::unique_ptr<Pipeline::Scratch> Pipeline::take_scratch() const {
  {
    const std::lock_guard lock(scratch_mutex_);
    if (!idle_scratch_.empty()) {
      auto scratch = std::move(idle_scratch_.back());
      idle_scratch_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void Pipeline::give_scratch(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(scratch_mutex_);
  idle_scratch_.push_back(std::move(scratch));
}

Encoding Pipeline::encode(std::string_view text, const EncodeOptions& options) const {
  std::string valid;
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    valid = replace_invalid_utf8(text);
    text = valid;
  }
  std::vector<Span> trusted;
  if (options.parse_special_tokens) trusted.push_back({0, uint32_t(std::min<size_t>(text.size(), UINT32_MAX))});
  Encoding encoding = encode_text(text, trusted);
  post_process(stages_.post_processors, *this, options.add_special_tokens, encoding);
  return encoding;
}

std::vector<TokenId> Pipeline::encode(const Prompt& prompt) const {
  std::string text;
  std::vector<Span> trusted;
  for (const PromptPart& part : prompt) {
    const size_t begin = text.size();
    text += is_utf8(part.text) ? part.text : replace_invalid_utf8(part.text);
    if (text.size() >= UINT32_MAX / 4) fail(ErrorKind::kRuntime, "prompt: longer than 1 GiB");
    if (part.trusted) trusted.push_back({uint32_t(begin), uint32_t(text.size())});
  }
  return encode_text(text, trusted).ids;
}

Encoding Pipeline::encode_text(std::string_view text, const std::vector<Span>& trusted) const {
  const MatchTime limited(text.size());
  return with_memory_for("the text", text.size(), [&] { return encode_parts(text, trusted); });
}

Encoding Pipeline::encode_parts(std::string_view text, const std::vector<Span>& trusted) const {
  if (text.size() >= UINT32_MAX / 4) fail(ErrorKind::kRuntime, "text: longer than 1 GiB");
  Encoding out;
  std::unique_ptr<Scratch> scratch = take_scratch();
  std::vector<Part> parts;
  stages_.added.split(text, 0, text.size(), false, trusted, parts);
  size_t room = most_bytes_from(text.size());
  for (const Part& part : parts) {
    if (part.token >= 0) {
      out.ids.push_back(part.token);
      out.offsets.push_back({part.begin, part.end});
    } else {
      encode_part(text, part, trusted, room, *scratch, out);
    }
  }
  give_scratch(std::move(scratch));
  return out;
}

void Pipeline::encode_part(std::string_view whole, const Part& part, const std::vector<Span>& trusted, size_t& room,
                           Scratch& scratch, Encoding& out) const {
  Text text(whole.substr(part.begin, part.end - part.begin), uint32_t(part.begin), room);
  normalize(stages_.normalizers, text);

  // Whether all the input that a range of the text stands for is trusted.
  const auto is_trusted = [&](const Span& source) {
    const auto after = std::upper_bound(trusted.begin(), trusted.end(), source.begin,
                                        [](uint32_t at, const Span& range) { return at < range.begin; });
    return after != trusted.begin() && source.end <= std::prev(after)->end;
  };
  const bool all_trusted = is_trusted({uint32_t(part.begin), uint32_t(part.end)});

  auto& words = scratch.parts;
  words.clear();
  const size_t size = text.view().size();
  if (stages_.added.any(true)) {
    std::vector<Span> allowed;
    if (all_trusted) {
      allowed.push_back({0, uint32_t(size)});
    } else if (!trusted.empty()) {
      for (uint32_t i = 0; i < size; ++i) {
        if (!is_trusted(text.source_of(i))) continue;
        if (!allowed.empty() && allowed.back().end == i) {
          ++allowed.back().end;
        } else {
          allowed.push_back({i, i + 1});
        }
      }
    }
    stages_.added.split(text.view(), 0, size, true, allowed, words);
  } else if (size > 0) {
    words.push_back({0, size, -1});
  }
  pre_tokenize(stages_.pre_tokenizers, text, words);

  const std::string_view view = text.view();
  room -= std::min(room, view.size());
  const size_t expected = out.ids.size() + words.size() + words.size() / 4;
  if (out.ids.capacity() < expected) {
    out.ids.reserve(std::max(expected, out.ids.capacity() * 2));
    out.offsets.reserve(std::max(expected, out.ids.capacity() * 2));
  }
  for (const Part& word : words) {
    if (word.token >= 0) {
      const Span source = text.source_of(word.begin, word.end);
      out.ids.push_back(word.token);
      out.offsets.push_back({source.begin, source.end});
      continue;
    }
    const Trust trust =
        all_trusted || is_trusted(text.source_of(word.begin, word.end)) ? Trust::kTrusted : Trust::kUntrusted;
    auto& tokens = scratch.tokens;
    tokens.clear();
    const std::string_view spelled = view.substr(word.begin, word.end - word.begin);
    if (const Bpe* bpe = std::get_if<Bpe>(&stages_.model)) {
      bpe->tokenize(spelled, trust, scratch.bpe, tokens);
    } else if (const Unigram* unigram = std::get_if<Unigram>(&stages_.model)) {
      unigram->tokenize(spelled, trust, scratch.unigram, tokens);
    } else {
      std::get<WordPiece>(stages_.model).tokenize(spelled, trust, tokens);
    }
    for (const Token& token : tokens) {
      const Span source = text.source_of(word.begin + token.begin, word.begin + token.end);
      out.ids.push_back(token.id);
      out.offsets.push_back({source.begin, source.end});
    }
  }
}

std::string_view Pipeline::spelling(TokenId id) const {
  if (const AddedToken* token = stages_.added.find(id)) return token->content;
  return stages_.vocabulary().piece(id);
}

class Pipeline::Run : public DecodeRun {
 public:
  Run(const Pipeline& pipeline, bool skip_special_tokens)
      : pipeline_(pipeline), skip_(skip_special_tokens), chain_(pipeline.stages_.decoders) {}

  void push(TokenId id, std::string& out) override {
    const bool known = pipeline_.stages_.added.find(id) != nullptr || pipeline_.stages_.vocabulary().has(id);
    if (!known || (skip_ && pipeline_.is_special(id))) return;
    chain_.push(pipeline_.spelling(id), out);
  }
  void finish(std::string& out) override { chain_.finish(out); }

 private:
  const Pipeline& pipeline_;
  bool skip_;
  DecodeChain chain_;
};

std::unique_ptr<DecodeRun> Pipeline::start_decoding(bool skip_special_tokens) const {
  return std::make_unique<Run>(*this, skip_special_tokens);
}

std::string Pipeline::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  const MatchTime limited(ids.size());
  Run run(*this, skip_special_tokens);
  std::string out;
  for (const TokenId id : ids) run.push(id, out);
  run.finish(out);
  return out;
}

size_t Pipeline::vocabulary_size() const {
  return stages_.vocabulary().size() + stages_.added.count_beyond(stages_.vocabulary());
}

std::optional<TokenId> Pipeline::id_of(std::string_view piece) const {
  TokenId id = stages_.added.id_of(piece);
  if (id < 0) id = stages_.vocabulary().find(piece);
  if (id < 0) return {};
  return id;
}

std::string Pipeline::piece_of(TokenId id) const { return std::string(spelling(id)); }

std::vector<TokenOffset> Pipeline::guarded_in(std::string_view text) const {
  std::vector<TokenOffset> out;
  for (const Span& span : stages_.added.guarded_in(text)) out.push_back({span.begin, span.end});
  return out;
}

bool Pipeline::is_special(TokenId id) const {
  const std::string_view piece = spelling(id);
  return !piece.empty() && stages_.added.is_special_content(piece);
}

}  // namespace qgen::tokenizer
