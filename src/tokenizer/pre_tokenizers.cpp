// Pre-tokenizers that only cut work on ranges; those that change text rebuild it.
#include "tokenizer/pre_tokenizers.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/utf8.h"

namespace qgen::tokenizer {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxSteps = 100;

struct Piece {
  uint32_t begin;
  uint32_t end;
  bool matched;
};

// The pieces at and between matches, put together as the behavior says; cut from `part`, whose beginning
// the pieces' offsets count from.
void cut(const std::vector<Piece>& pieces, SplitBehavior behavior, const Part& part, std::vector<Part>& out) {
  const auto emit = [&](uint32_t begin, uint32_t end) {
    if (begin < end) out.push_back({part.begin + begin, part.begin + end, -1});
  };
  const auto merge = [&](auto first, auto last, auto&& joins) {
    bool previous = false;
    bool open = false;
    Span span;
    for (auto piece = first; piece != last; ++piece) {
      if (open && joins(piece->matched, previous)) {
        span.begin = std::min(span.begin, piece->begin);
        span.end = std::max(span.end, piece->end);
      } else {
        if (open) emit(span.begin, span.end);
        span = {piece->begin, piece->end};
        open = true;
      }
      previous = piece->matched;
    }
    if (open) emit(span.begin, span.end);
  };
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Piece& piece : pieces) {
        if (!piece.matched) emit(piece.begin, piece.end);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Piece& piece : pieces) emit(piece.begin, piece.end);
      break;
    case SplitBehavior::kContiguous:
      merge(pieces.begin(), pieces.end(), [](bool matched, bool previous) { return matched == previous; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge(pieces.begin(), pieces.end(), [](bool matched, bool previous) { return matched && !previous; });
      break;
    case SplitBehavior::kMergedWithNext: {
      const size_t old = out.size();
      merge(pieces.rbegin(), pieces.rend(), [](bool matched, bool previous) { return matched && !previous; });
      std::reverse(out.begin() + old, out.end());
      break;
    }
  }
}

// Working memory of one pass.
struct Pass {
  std::vector<Part> out;
  std::vector<Span> matches;
  std::vector<Piece> pieces;
};

template <typename F>
void for_each_word(const std::vector<Part>& parts, Pass& pass, F&& f) {
  for (const Part& part : parts) {
    if (part.token >= 0) {
      pass.out.push_back(part);
    } else {
      f(part);
    }
  }
}

void split_by_matches(std::string_view word, const std::vector<Span>& matches, bool invert,
                      std::vector<Piece>& pieces) {
  pieces.clear();
  uint32_t done = 0;
  for (const Span& match : matches) {
    if (match.begin != done) pieces.push_back({done, match.begin, invert});
    pieces.push_back({match.begin, match.end, !invert});
    done = match.end;
  }
  if (done != word.size()) pieces.push_back({done, uint32_t(word.size()), invert});
}

template <typename Predicate>
void split_by_chars(const Text& text, std::vector<Part>& parts, Predicate&& predicate, SplitBehavior behavior) {
  Pass pass;
  for_each_word(parts, pass, [&](const Part& part) {
    const std::string_view word = text.view().substr(part.begin, part.end - part.begin);
    pass.pieces.clear();
    uint32_t done = 0;
    for (uint32_t at = 0; at < word.size();) {
      const Char c = char_at(word.substr(at));
      if (predicate(c.code_point)) {
        if (done < at) pass.pieces.push_back({done, at, false});
        pass.pieces.push_back({at, at + c.length, true});
        done = at + c.length;
      }
      at += c.length;
    }
    if (done < word.size()) pass.pieces.push_back({done, uint32_t(word.size()), false});
    cut(pass.pieces, behavior, part, pass.out);
  });
  parts = std::move(pass.out);
}

void isolate(const Text& text, std::vector<Part>& parts, const Regex& regex) {
  Pass pass;
  pass.out.reserve(text.view().size() / 4 + 8);
  for_each_word(parts, pass, [&](const Part& part) {
    pass.matches.clear();
    const std::string_view word = text.view().substr(part.begin, part.end - part.begin);
    regex.find_all(word, pass.matches);
    uint32_t done = 0;
    for (const Span& match : pass.matches) {
      if (match.begin != done) pass.out.push_back({part.begin + done, part.begin + match.begin, -1});
      if (match.begin != match.end) pass.out.push_back({part.begin + match.begin, part.begin + match.end, -1});
      done = match.end;
    }
    if (done != word.size()) pass.out.push_back({part.begin + done, part.end, -1});
  });
  parts = std::move(pass.out);
}

// Rebuilds the text part by part; `change` puts the new text of a word into the builder.
template <typename F>
void rebuild(Text& text, std::vector<Part>& parts, F&& change) {
  TextBuilder builder(text);
  for (Part& part : parts) {
    const size_t begin = builder.size();
    if (part.token >= 0) {
      builder.keep(part.begin, part.end);
    } else {
      change(part, builder);
    }
    part.begin = begin;
    part.end = builder.size();
  }
  text = builder.take();
}

void apply(const SplitByteLevel& step, Text& text, std::vector<Part>& parts) {
  const auto word_of = [&](const Part& part) { return text.view().substr(part.begin, part.end - part.begin); };
  if (step.add_prefix_space && std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
        return part.token < 0 && !word_of(part).starts_with(' ');
      })) {
    rebuild(text, parts, [&](const Part& part, TextBuilder& builder) {
      const std::string_view word = word_of(part);
      if (!word.empty() && word[0] != ' ') builder.put(" ", part.begin, part.begin + char_at(word).length);
      builder.keep(part.begin, part.end);
    });
  }
  if (step.use_regex) isolate(text, parts, step.regex);
  if (!step.spell_bytes) return;
  std::string spelled;
  rebuild(text, parts, [&](const Part& part, TextBuilder& builder) {
    for (size_t at = part.begin; at < part.end; ++at) {
      spelled.clear();
      append_byte_level(spelled, text.view().substr(at, 1));
      builder.put(spelled, at, at + 1);
    }
  });
}

void apply(const SplitPattern& step, Text& text, std::vector<Part>& parts) {
  if (step.pattern.regex && step.behavior == SplitBehavior::kIsolated) {
    isolate(text, parts, *step.pattern.regex);
    return;
  }
  Pass pass;
  for_each_word(parts, pass, [&](const Part& part) {
    const std::string_view word = text.view().substr(part.begin, part.end - part.begin);
    pass.matches.clear();
    step.pattern.find_all(word, pass.matches);
    split_by_matches(word, pass.matches, step.invert, pass.pieces);
    cut(pass.pieces, step.behavior, part, pass.out);
  });
  parts = std::move(pass.out);
}

void apply(const SplitDigits& step, Text& text, std::vector<Part>& parts) {
  split_by_chars(text, parts, is_numeric, step.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

void apply(const SplitPunctuation& step, Text& text, std::vector<Part>& parts) {
  split_by_chars(text, parts, is_punctuation, step.behavior);
}

void apply(const SplitWords&, Text& text, std::vector<Part>& parts) {
  Pass pass;
  for_each_word(parts, pass, [&](const Part& part) {
    const std::string_view word = text.view().substr(part.begin, part.end - part.begin);
    enum { kSpace, kWord, kOther } last = kSpace;
    size_t begin = 0;
    for (size_t at = 0; at < word.size();) {
      const Char c = char_at(word.substr(at));
      const auto kind = is_word(c.code_point) ? kWord : is_white_space(c.code_point) ? kSpace : kOther;
      if (kind != last) {
        if (last != kSpace) pass.out.push_back({part.begin + begin, part.begin + at, -1});
        begin = at;
        last = kind;
      }
      at += c.length;
    }
    if (last != kSpace && begin < word.size()) pass.out.push_back({part.begin + begin, part.end, -1});
  });
  parts = std::move(pass.out);
}

void apply(const SplitWhitespace&, Text& text, std::vector<Part>& parts) {
  split_by_chars(text, parts, is_white_space, SplitBehavior::kRemoved);
}

void apply(const SplitBert&, Text& text, std::vector<Part>& parts) {
  split_by_chars(text, parts, is_white_space, SplitBehavior::kRemoved);
  split_by_chars(text, parts, is_punctuation, SplitBehavior::kIsolated);
}

void apply(const SplitMetaspace& step, Text& text, std::vector<Part>& parts) {
  rebuild(text, parts, [&](const Part& part, TextBuilder& builder) {
    const std::string_view word = text.view().substr(part.begin, part.end - part.begin);
    if (word.empty()) return;
    const bool prepends = step.prepend == SplitMetaspace::Prepend::kAlways ||
                          (step.prepend == SplitMetaspace::Prepend::kFirst && text.source_of(part.begin).begin == 0);
    if (prepends && word[0] != ' ' && !word.starts_with(step.replacement)) {
      builder.put(step.replacement, part.begin, part.begin + char_at(word).length);
    }
    size_t done = 0;
    for (size_t at = word.find(' '); at != std::string_view::npos; at = word.find(' ', at + 1)) {
      builder.keep(part.begin + done, part.begin + at);
      builder.put(step.replacement, part.begin + at, part.begin + at + 1);
      done = at + 1;
    }
    builder.keep(part.begin + done, part.end);
  });
  if (!step.split) return;
  const uint32_t replacement = char_at(step.replacement).code_point;
  split_by_chars(
      text, parts, [&](uint32_t c) { return c == replacement; }, SplitBehavior::kMergedWithNext);
}

void apply(const SplitDelimiter& step, Text& text, std::vector<Part>& parts) {
  split_by_chars(
      text, parts, [&](uint32_t c) { return c == step.delimiter; }, SplitBehavior::kRemoved);
}

void apply(const SplitFixedLength& step, Text& text, std::vector<Part>& parts) {
  Pass pass;
  for_each_word(parts, pass, [&](const Part& part) {
    size_t begin = part.begin, chars = 0;
    for (size_t at = part.begin; at < part.end;) {
      if (chars == step.chars) {
        pass.out.push_back({begin, at, -1});
        begin = at;
        chars = 0;
      }
      at += char_at(text.view().substr(at)).length;
      ++chars;
    }
    if (begin < part.end) pass.out.push_back({begin, part.end, -1});
  });
  parts = std::move(pass.out);
}

SplitBehavior read_behavior(const Json& json) {
  const std::string_view name = json.as_string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  json.fail(fmt::format("'{}' is not supported", name));
}

// A string of exactly one character.
std::string_view read_char(const Json& json) {
  const std::string_view text = json.as_string();
  if (text.empty() || char_at(text).length != text.size()) json.fail("expected one character");
  return text;
}

SplitMetaspace read_metaspace(const Json& json) {
  SplitMetaspace step;
  step.replacement = read_char(json.at("replacement"));
  if (const auto scheme = json.get("prepend_scheme")) {
    const std::string_view name = scheme->as_string();
    if (name == "first") {
      step.prepend = SplitMetaspace::Prepend::kFirst;
    } else if (name == "never") {
      step.prepend = SplitMetaspace::Prepend::kNever;
    } else if (name != "always") {
      scheme->fail(fmt::format("'{}' is not supported", name));
    }
  }
  if (const auto legacy = json.get("add_prefix_space"); legacy && !legacy->as_bool()) {
    if (json.get("prepend_scheme") && step.prepend != SplitMetaspace::Prepend::kNever) {
      legacy->fail("does not match prepend_scheme");
    }
    step.prepend = SplitMetaspace::Prepend::kNever;
  }
  if (const auto split = json.get("split")) step.split = split->as_bool();
  return step;
}

void read_into(const Json& json, int depth, std::vector<PreTokenizer>& out) {
  if (depth > kMaxDepth || out.size() > kMaxSteps) json.fail("too many nested pre-tokenizers");
  const Json type_json = json.at("type");
  const std::string_view type = type_json.as_string();
  if (type == "Sequence") {
    for (const Json& element : json.at("pretokenizers").elements()) read_into(element, depth + 1, out);
  } else if (type == "ByteLevel") {
    out.emplace_back(SplitByteLevel{json.at("add_prefix_space").as_bool(), json.flag_or("use_regex", true), true,
                                    byte_level_regex()});
  } else if (type == "Split") {
    out.emplace_back(SplitPattern{Pattern::read(json.at("pattern")), read_behavior(json.at("behavior")),
                                  json.at("invert").as_bool()});
  } else if (type == "Digits") {
    out.emplace_back(SplitDigits{json.at("individual_digits").as_bool()});
  } else if (type == "Punctuation") {
    const auto behavior = json.get("behavior");
    out.emplace_back(SplitPunctuation{behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated});
  } else if (type == "Whitespace") {
    out.emplace_back(SplitWords());
  } else if (type == "WhitespaceSplit") {
    out.emplace_back(SplitWhitespace());
  } else if (type == "BertPreTokenizer") {
    out.emplace_back(SplitBert());
  } else if (type == "Metaspace") {
    out.emplace_back(read_metaspace(json));
  } else if (type == "CharDelimiterSplit") {
    out.emplace_back(SplitDelimiter{char_at(read_char(json.at("delimiter"))).code_point});
  } else if (type == "FixedLength") {
    const auto length = json.get("length");
    out.emplace_back(SplitFixedLength{length ? size_t(length->as_integer(1)) : 5});
  } else {
    type_json.fail(fmt::format("'{}' is not supported", type));
  }
}

}  // namespace

Regex byte_level_regex() {
  static const Regex regex("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
  return regex;
}

std::vector<PreTokenizer> read_pre_tokenizers(const Json& json) {
  std::vector<PreTokenizer> out;
  if (!json.is_null()) read_into(json, 0, out);
  return out;
}

void pre_tokenize(const std::vector<PreTokenizer>& pre_tokenizers, Text& text, std::vector<Part>& parts) {
  for (const PreTokenizer& pre_tokenizer : pre_tokenizers) {
    if (text.view().size() >= UINT32_MAX / 4) fail(ErrorKind::kModel, "tokenizer: the text grows beyond 1 GiB");
    std::visit([&](const auto& step) { apply(step, text, parts); }, pre_tokenizer);
  }
}

}  // namespace qgen::tokenizer
