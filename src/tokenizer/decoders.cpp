// Stages hand each other tokens as a beginning, pieces of text and an end, so that a stage that makes one
// long token of many need not hold it back.
#include "tokenizer/decoders.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace qgen::tokenizer {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxSteps = 100;
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace

// How much text a chain may make: a small multiple of the tokens that came.
class DecodeChain::Budget {
 public:
  void add_token(size_t bytes) { tokens_ += bytes; }
  void check(size_t bytes) const {
    const size_t most = most_bytes_from(tokens_);
    if (bytes > most)
      fail(ErrorKind::kModel, fmt::format("tokenizer: its decoders make more than {} bytes of the tokens", most),
           "a damaged tokenizer.json?");
  }

 private:
  size_t tokens_ = 0;  // bytes of their spellings
};

class DecodeChain::Stage {
 public:
  virtual ~Stage() = default;
  virtual void begin() = 0;
  virtual void text(std::string_view piece) = 0;
  virtual void end() = 0;
  virtual void finish() { next_->finish(); }
  void connect(Stage* next, const Budget* budget) {
    next_ = next;
    budget_ = budget;
  }

 protected:
  void append(std::string& out, std::string_view part) const {
    budget_->check(out.size() + part.size());
    out += part;
  }
  std::string replace_all(std::string_view text, std::string_view from, std::string_view to) const {
    std::string out;
    size_t done = 0;
    if (from.empty()) {
      while (done < text.size()) {
        const size_t length = char_at(text.substr(done)).length;
        append(out, to);
        append(out, text.substr(done, length));
        done += length;
      }
      append(out, to);
      return out;
    }
    for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
      append(out, text.substr(done, at - done));
      append(out, to);
      done = at + from.size();
    }
    append(out, text.substr(done));
    return out;
  }
  void emit(std::string_view token) {
    next_->begin();
    next_->text(token);
    next_->end();
  }
  Stage* next_ = nullptr;
  const Budget* budget_ = nullptr;
};

namespace {

using Stage = DecodeChain::Stage;

class Output : public Stage {
 public:
  void begin() override {}
  void text(std::string_view piece) override {
    made_ += piece.size();
    budget_->check(made_);
    *out_ += piece;
  }
  void end() override {}
  void finish() override {}
  void set_out(std::string* out) { out_ = out; }

 private:
  std::string* out_ = nullptr;
  size_t made_ = 0;  // bytes
};

// For stages that must see a whole token.
class WholeTokens : public Stage {
 public:
  void begin() override { token_.clear(); }
  void text(std::string_view piece) override { append(token_, piece); }
  void end() override { token(token_); }

 protected:
  virtual void token(std::string_view whole) = 0;

 private:
  std::string token_;
};

// For stages that make one token of all.
class OneToken : public Stage {
 public:
  void finish() override {
    open();
    next_->end();
    next_->finish();
  }

 protected:
  void open() {
    if (!open_) next_->begin();
    open_ = true;
  }

 private:
  bool open_ = false;
};

class FuseStage : public OneToken {
 public:
  void begin() override { open(); }
  void text(std::string_view piece) override { next_->text(piece); }
  void end() override {}
};

class ByteLevelStage : public OneToken {
 public:
  void begin() override {
    open();
    bytes_.clear();
    raw_.clear();
    spelled_ = true;
  }
  void text(std::string_view piece) override {
    raw_ += piece;
    for (size_t at = 0; at < piece.size() && spelled_;) {
      const Char c = char_at(piece.substr(at));
      const int byte = byte_of_char(c.code_point);
      spelled_ = byte >= 0;
      if (spelled_) bytes_ += char(byte);
      at += c.length;
    }
  }
  void end() override {
    held_ += spelled_ ? bytes_ : raw_;
    release(false);
  }
  void finish() override {
    open();
    release(true);
    OneToken::finish();
  }

 private:
  // All but a sequence that may still become a character.
  void release(bool all) {
    std::string out;
    std::string_view left = held_;
    while (!left.empty()) {
      const Utf8Step step = utf8_step(left);
      if (step.truncated && !all) break;
      out += step.valid ? left.substr(0, step.length) : kReplacementCharacter;
      left.remove_prefix(step.length);
    }
    if (!out.empty()) next_->text(out);
    held_ = std::string(left);
  }
  std::string raw_, bytes_, held_;
  bool spelled_ = true;
};

// <0x41> and the like. A run of them is text if it is UTF-8 as a whole, else all its bytes are replaced: it
// can go on only when it has ended, or is broken already.
class ByteFallbackStage : public Stage {
 public:
  void begin() override {
    token_.clear();
    through_ = false;
  }
  void text(std::string_view piece) override {
    if (through_) {
      next_->text(piece);
      return;
    }
    token_ += piece;
    if (token_.size() > 6) pass_on();
  }
  void end() override {
    if (through_) {
      next_->end();
      return;
    }
    const int byte = byte_of(token_);
    if (byte < 0) {
      pass_on();
      next_->end();
      return;
    }
    if (broken_) {
      emit(kReplacementCharacter);
      return;
    }
    run_ += char(byte);
    open_ += char(byte);
    const Utf8Step step = utf8_step(open_);
    if (step.valid) {
      open_.clear();
    } else if (!step.truncated) {
      broken_ = true;
      for (size_t i = 0; i < run_.size(); ++i) emit(kReplacementCharacter);
    }
  }
  void finish() override {
    end_run();
    next_->finish();
  }

 private:
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return -1;
    };
    // Rust reads a sign before a single digit.
    const int low = digit(token[4]), high = token[3] == '+' ? 0 : digit(token[3]);
    return low < 0 || high < 0 ? -1 : high * 16 + low;
  }
  void end_run() {
    if (!run_.empty() && !broken_) {
      if (open_.empty()) {
        emit(run_);
      } else {
        for (size_t i = 0; i < run_.size(); ++i) emit(kReplacementCharacter);
      }
    }
    run_.clear();
    open_.clear();
    broken_ = false;
  }
  void pass_on() {
    end_run();
    through_ = true;
    next_->begin();
    next_->text(token_);
  }
  std::string token_, run_, open_;
  bool through_ = false, broken_ = false;
};

class MetaspaceStage : public Stage {
 public:
  explicit MetaspaceStage(const DecodeMetaspace& decoder) : decoder_(decoder) {}
  void begin() override { next_->begin(); }
  void text(std::string_view piece) override {
    next_->text(replace_all(piece, decoder_.replacement, first_ && decoder_.drops_first ? "" : " "));
  }
  void end() override {
    first_ = false;
    next_->end();
  }

 private:
  const DecodeMetaspace& decoder_;
  bool first_ = true;
};

class StripStage : public Stage {
 public:
  explicit StripStage(const DecodeStrip& decoder) : decoder_(decoder) {}
  void begin() override {
    to_skip_ = decoder_.start;
    held_ = 0;
    next_->begin();
  }
  void text(std::string_view piece) override {
    const size_t size = decoder_.content.size();
    size_t done = 0;
    while (to_skip_ > 0 && done < piece.size()) {
      if (!piece.substr(done).starts_with(decoder_.content)) {
        to_skip_ = 0;
        break;
      }
      done += size;
      --to_skip_;
    }
    if (decoder_.stop == 0) {
      next_->text(piece.substr(done));
      return;
    }
    // What is at the end may be stripped; the rest of what was held back goes on.
    size_t end = piece.size(), at_end = 0;
    while (end > done && at_end < decoder_.stop && piece.substr(done, end - done).ends_with(decoder_.content)) {
      end -= size;
      ++at_end;
    }
    const bool only = end == done;
    const size_t total = only ? held_ + at_end : at_end;
    const size_t keep = std::min(total, decoder_.stop);
    std::string out;
    for (size_t i = only ? keep : 0; i < (only ? total : held_); ++i) out += decoder_.content;
    out += piece.substr(done, end - done);
    held_ = keep;
    next_->text(out);
  }
  void end() override { next_->end(); }

 private:
  const DecodeStrip& decoder_;
  size_t to_skip_ = 0;  // of the content at the token's beginning
  size_t held_ = 0;     // of the content at its end
};

class ReplaceRegexStage : public WholeTokens {
 public:
  explicit ReplaceRegexStage(const DecodeReplace& decoder) : decoder_(decoder) {}

 protected:
  void token(std::string_view whole) override {
    std::vector<Span> matches;
    decoder_.pattern.find_all(whole, matches);
    std::string out;
    size_t done = 0;
    for (const Span& match : matches) {
      append(out, whole.substr(done, match.begin - done));
      append(out, decoder_.content);
      done = match.end;
    }
    append(out, whole.substr(done));
    emit(out);
  }

 private:
  const DecodeReplace& decoder_;
};

// Replacement of a plain text, found by Knuth, Morris and Pratt: the part that has matched so far is held back.
class ReplaceTextStage : public Stage {
 public:
  explicit ReplaceTextStage(const DecodeReplace& decoder) : decoder_(decoder), from_(decoder.pattern.text) {
    borders_.resize(from_.size() + 1, 0);
    for (size_t i = 1, length = 0; i < from_.size(); ++i) {
      while (length > 0 && from_[i] != from_[length]) length = borders_[length];
      length += from_[i] == from_[length];
      borders_[i + 1] = length;
    }
  }
  void begin() override {
    matched_ = 0;
    next_->begin();
  }
  void text(std::string_view piece) override {
    std::string out;
    for (const char c : piece) {
      while (matched_ > 0 && from_[matched_] != c) {
        const size_t shorter = borders_[matched_];
        out += from_.substr(0, matched_ - shorter);
        matched_ = shorter;
      }
      if (from_[matched_] != c) {
        out += c;
      } else if (++matched_ == from_.size()) {
        append(out, decoder_.content);
        matched_ = 0;
      }
    }
    // Whole characters only, for the stages behind.
    partial_ += out;
    size_t end = partial_.size();
    while (end > 0 && is_continuation(partial_[end - 1])) --end;
    if (end > 0 && (partial_[end - 1] & 0x80) != 0) --end;
    if (end < partial_.size() && utf8_step(std::string_view(partial_).substr(end)).valid) end = partial_.size();
    next_->text(std::string_view(partial_).substr(0, end));
    partial_.erase(0, end);
  }
  void end() override {
    partial_ += from_.substr(0, matched_);
    matched_ = 0;
    next_->text(partial_);
    partial_.clear();
    next_->end();
  }

 private:
  const DecodeReplace& decoder_;
  std::string_view from_;
  std::vector<size_t> borders_;
  std::string partial_;
  size_t matched_ = 0;
};

class WordPieceStage : public WholeTokens {
 public:
  explicit WordPieceStage(const DecodeWordPiece& decoder) : decoder_(decoder) {}

 protected:
  void token(std::string_view whole) override {
    std::string out;
    if (!first_ && whole.starts_with(decoder_.prefix)) {
      out = whole.substr(decoder_.prefix.size());
    } else {
      out = (first_ ? "" : " ") + std::string(whole);
    }
    first_ = false;
    if (decoder_.cleanup) {
      constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
          {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
          {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
      for (const auto& [from, to] : kChanges) out = replace_all(out, from, to);
    }
    emit(out);
  }

 private:
  const DecodeWordPiece& decoder_;
  bool first_ = true;
};

// The suffix is a space, except in the last token: each waits for the next.
class BpeStage : public WholeTokens {
 public:
  explicit BpeStage(const DecodeBpe& decoder) : decoder_(decoder) {}
  void finish() override {
    if (held_) emit(replace_all(*held_, decoder_.suffix, ""));
    next_->finish();
  }

 protected:
  void token(std::string_view whole) override {
    if (held_) emit(replace_all(*held_, decoder_.suffix, " "));
    held_ = whole;
  }

 private:
  const DecodeBpe& decoder_;
  std::optional<std::string> held_;
};

class JoinStage : public Stage {
 public:
  void begin() override {
    next_->begin();
    if (!first_) next_->text(" ");
    first_ = false;
  }
  void text(std::string_view piece) override { next_->text(piece); }
  void end() override { next_->end(); }

 private:
  bool first_ = true;
};

std::unique_ptr<Stage> make_stage(const Decoder& decoder) {
  struct Maker {
    std::unique_ptr<Stage> operator()(const DecodeByteLevel&) { return std::make_unique<ByteLevelStage>(); }
    std::unique_ptr<Stage> operator()(const DecodeByteFallback&) { return std::make_unique<ByteFallbackStage>(); }
    std::unique_ptr<Stage> operator()(const DecodeMetaspace& d) { return std::make_unique<MetaspaceStage>(d); }
    std::unique_ptr<Stage> operator()(const DecodeFuse&) { return std::make_unique<FuseStage>(); }
    std::unique_ptr<Stage> operator()(const DecodeStrip& d) { return std::make_unique<StripStage>(d); }
    std::unique_ptr<Stage> operator()(const DecodeReplace& d) {
      if (d.pattern.regex || d.pattern.text.empty()) return std::make_unique<ReplaceRegexStage>(d);
      return std::make_unique<ReplaceTextStage>(d);
    }
    std::unique_ptr<Stage> operator()(const DecodeWordPiece& d) { return std::make_unique<WordPieceStage>(d); }
    std::unique_ptr<Stage> operator()(const DecodeBpe& d) { return std::make_unique<BpeStage>(d); }
    std::unique_ptr<Stage> operator()(const DecodeJoin&) { return std::make_unique<JoinStage>(); }
  };
  return std::visit(Maker(), decoder);
}

void read_into(const Json& json, int depth, std::vector<Decoder>& out) {
  if (depth > kMaxDepth || out.size() > kMaxSteps) json.fail("too many nested decoders");
  const Json type_json = json.at("type");
  const std::string_view type = type_json.as_string();
  const auto text = [&](std::string_view key) { return std::string(json.at(key).as_string()); };
  const auto one_char = [&](std::string_view key) {
    const Json value = json.at(key);
    std::string c(value.as_string());
    if (c.empty() || char_at(c).length != c.size()) value.fail("expected one character");
    return c;
  };
  if (type == "Sequence") {
    for (const Json& element : json.at("decoders").elements()) read_into(element, depth + 1, out);
  } else if (type == "ByteLevel") {
    out.emplace_back(DecodeByteLevel());
  } else if (type == "ByteFallback") {
    out.emplace_back(DecodeByteFallback());
  } else if (type == "Fuse") {
    out.emplace_back(DecodeFuse());
  } else if (type == "Metaspace") {
    const auto scheme = json.get("prepend_scheme");
    const auto legacy = json.get("add_prefix_space");
    const bool never = (scheme && scheme->as_string() == "never") || (legacy && !legacy->as_bool());
    out.emplace_back(DecodeMetaspace{one_char("replacement"), !never});
  } else if (type == "Strip") {
    out.emplace_back(DecodeStrip{one_char("content"), size_t(json.at("start").as_integer(0)),
                                 size_t(json.at("stop").as_integer(0))});
  } else if (type == "Replace") {
    out.emplace_back(DecodeReplace{Pattern::read(json.at("pattern")), text("content")});
  } else if (type == "WordPiece") {
    out.emplace_back(DecodeWordPiece{text("prefix"), json.at("cleanup").as_bool()});
  } else if (type == "BPEDecoder") {
    out.emplace_back(DecodeBpe{text("suffix")});
  } else {
    type_json.fail(fmt::format("'{}' is not supported", type));
  }
}

}  // namespace

std::vector<Decoder> read_decoders(const Json& json) {
  std::vector<Decoder> out;
  if (json.is_null()) {
    out.emplace_back(DecodeJoin());
  } else {
    read_into(json, 0, out);
  }
  return out;
}

DecodeChain::DecodeChain(const std::vector<Decoder>& decoders) : budget_(std::make_unique<Budget>()) {
  for (const Decoder& decoder : decoders) stages_.push_back(make_stage(decoder));
  stages_.push_back(std::make_unique<Output>());
  for (size_t i = 0; i < stages_.size(); ++i)
    stages_[i]->connect(i + 1 < stages_.size() ? stages_[i + 1].get() : nullptr, budget_.get());
}

DecodeChain::~DecodeChain() = default;

void DecodeChain::push(std::string_view token, std::string& out) {
  budget_->add_token(token.size() + 1);
  static_cast<Output&>(*stages_.back()).set_out(&out);
  stages_.front()->begin();
  stages_.front()->text(token);
  stages_.front()->end();
}

void DecodeChain::finish(std::string& out) {
  static_cast<Output&>(*stages_.back()).set_out(&out);
  stages_.front()->finish();
}

}  // namespace qgen::tokenizer
