// Every normalizer reads a text once and either leaves it alone or builds the next one.
#include "tokenizer/normalizers.h"

#include <functional>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenizer/sentencepiece_text.h"
#include "tokenizer/unicode_forms.h"

namespace qgen::tokenizer {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxSteps = 100;

// Each character as `change` would have it: it appends to `out` and says whether that differs.
void map_chars(Text& text, const std::function<bool(uint32_t, std::string&)>& change) {
  const std::string_view in = text.view();
  size_t at = 0;
  std::string out;
  Char c;
  for (; at < in.size(); at += c.length) {
    c = char_at(in.substr(at));
    out.clear();
    if (change(c.code_point, out)) break;
  }
  if (at == in.size()) return;
  TextBuilder builder(text);
  builder.keep(0, at);
  for (; at < in.size(); at += c.length) {
    c = char_at(in.substr(at));
    out.clear();
    if (change(c.code_point, out)) {
      builder.put(out, at, at + c.length);
    } else {
      builder.keep(at, at + c.length);
    }
  }
  text = builder.take();
}

void apply(UnicodeForm form, Text& text) { to_unicode_form(form, text); }

void apply(const NormalizeReplace& replace, Text& text) {
  std::vector<Span> matches;
  replace.pattern.find_all(text.view(), matches);
  if (matches.empty()) return;
  TextBuilder builder(text);
  size_t done = 0;
  for (const Span& match : matches) {
    builder.keep(done, match.begin);
    size_t last = match.end;  // what replaces several characters stands for the last of them
    if (last > match.begin) {
      do --last;
      while (last > match.begin && is_continuation(text.view()[last]));
    }
    builder.put(replace.content, last, match.end);
    done = match.end;
  }
  builder.keep(done, text.view().size());
  text = builder.take();
}

void apply(const NormalizePrepend& prepend, Text& text) {
  if (text.empty() || prepend.prefix.empty()) return;
  TextBuilder builder(text);
  builder.put(prepend.prefix, 0, char_at(text.view()).length);
  builder.keep(0, text.view().size());
  text = builder.take();
}

void apply(const NormalizeStrip& strip, Text& text) {
  const std::string_view in = text.view();
  size_t begin = 0, end = in.size();
  while (strip.left && begin < end) {
    const Char c = char_at(in.substr(begin));
    if (!is_white_space(c.code_point)) break;
    begin += c.length;
  }
  while (strip.right && end > begin) {
    const Char c = char_before_end(in.substr(0, end));
    if (!is_white_space(c.code_point)) break;
    end -= c.length;
  }
  if (begin == 0 && end == in.size()) return;
  TextBuilder builder(text);
  builder.keep(begin, end);
  text = builder.take();
}

void apply(const NormalizeLowercase&, Text& text) {
  map_chars(text, [](uint32_t c, std::string& out) {
    if (c < 0x80) {
      if (c < 'A' || c > 'Z') return false;
      out += char(c + 32);
      return true;
    }
    append_lower(out, c);
    return char_at(out).code_point != c;
  });
}

void apply(const NormalizeStripAccents&, Text& text) {
  map_chars(text, [](uint32_t c, std::string&) { return c >= 0x300 && is_mark(c); });
}

void apply(const NormalizeNmt&, Text& text) {
  map_chars(text, [](uint32_t c, std::string& out) {
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return true;
    if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
        c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
      out += ' ';
      return true;
    }
    return false;
  });
}

void apply(const NormalizeByteLevel&, Text& text) {
  const std::string_view in = text.view();
  TextBuilder builder(text);
  std::string out;
  for (size_t at = 0; at < in.size(); ++at) {
    out.clear();
    append_byte_level(out, in.substr(at, 1));
    builder.put(out, at, at + 1);
  }
  text = builder.take();
}

void apply(const NormalizePrecompiled& precompiled, Text& text) {
  const std::string_view in = text.view();
  TextBuilder builder(text);
  for (size_t at = 0; at < in.size();) {
    const size_t length = grapheme_length(in.substr(at));
    // `tokenizers` looks up whole graphemes, but only short ones; else every character for itself.
    if (length < 6) {
      if (const auto hit = precompiled.map.shortest(in.substr(at, length))) {
        builder.put(hit->replacement, at, at + length);
        at += length;
        continue;
      }
    }
    for (const size_t end = at + length; at < end;) {
      const size_t char_length = char_at(in.substr(at)).length;
      if (const auto hit = precompiled.map.shortest(in.substr(at, char_length))) {
        builder.put(hit->replacement, at, at + char_length);
      } else {
        builder.keep(at, at + char_length);
      }
      at += char_length;
    }
  }
  text = builder.take();
}

bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void apply(const NormalizeBert& bert, Text& text) {
  if (bert.clean_text) {
    map_chars(text, [](uint32_t c, std::string& out) {
      const bool white = c == '\t' || c == '\n' || c == '\r';
      if (c == 0 || c == 0xFFFD || (!white && is_other(c))) return true;
      if (c == ' ' || !(white || is_white_space(c))) return false;
      out += ' ';
      return true;
    });
  }
  if (bert.handle_chinese_chars) {
    map_chars(text, [](uint32_t c, std::string& out) {
      if (!is_chinese(c)) return false;
      out += ' ';
      append_utf8(out, c);
      out += ' ';
      return true;
    });
  }
  if (bert.strip_accents) {
    to_unicode_form(UnicodeForm::kNfd, text);
    map_chars(text, [](uint32_t c, std::string&) { return c >= 0x300 && is_nonspacing_mark(c); });
  }
  if (bert.lowercase) apply(NormalizeLowercase(), text);
}

void apply(const NormalizeSentencePiece& normalizer, Text& text) { normalize_for_sentencepiece(normalizer, text); }

void read_into(const Json& json, int depth, std::vector<Normalizer>& out) {
  if (depth > kMaxDepth || out.size() > kMaxSteps) json.fail("too many nested normalizers");
  const Json type_json = json.at("type");
  const std::string_view type = type_json.as_string();
  const auto flag = [&](std::string_view key) { return json.at(key).as_bool(); };
  if (type == "Sequence") {
    for (const Json& element : json.at("normalizers").elements()) read_into(element, depth + 1, out);
  } else if (type == "NFC") {
    out.emplace_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    out.emplace_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    out.emplace_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    out.emplace_back(UnicodeForm::kNfkd);
  } else if (type == "Replace") {
    out.emplace_back(NormalizeReplace{Pattern::read(json.at("pattern")), std::string(json.at("content").as_string())});
  } else if (type == "Prepend") {
    out.emplace_back(NormalizePrepend{std::string(json.at("prepend").as_string())});
  } else if (type == "Strip") {
    out.emplace_back(NormalizeStrip{flag("strip_left"), flag("strip_right")});
  } else if (type == "Lowercase") {
    out.emplace_back(NormalizeLowercase());
  } else if (type == "StripAccents") {
    out.emplace_back(NormalizeStripAccents());
  } else if (type == "Nmt") {
    out.emplace_back(NormalizeNmt());
  } else if (type == "ByteLevel") {
    out.emplace_back(NormalizeByteLevel());
  } else if (type == "Precompiled") {
    const Json map = json.at("precompiled_charsmap");
    const auto blob = decode_base64(map.as_string());
    if (!blob) map.fail("not base64");
    out.emplace_back(NormalizePrecompiled{Charsmap(*blob, map.path())});
  } else if (type == "BertNormalizer") {
    NormalizeBert bert{flag("clean_text"), flag("handle_chinese_chars"), false, flag("lowercase")};
    const auto strip = json.get("strip_accents");
    bert.strip_accents = strip ? strip->as_bool() : bert.lowercase;
    out.emplace_back(bert);
  } else {
    type_json.fail(fmt::format("'{}' is not supported", type));
  }
}

}  // namespace

Pattern Pattern::read(const Json& json) {
  Pattern pattern;
  if (const auto regex = json.get("Regex")) {
    try {
      pattern.regex.emplace(regex->as_string());
    } catch (const Error& error) {
      regex->fail(error.message(), error.hint());
    }
  } else if (const auto text = json.get("String")) {
    pattern.text = text->as_string();
  } else {
    json.fail("expected a String or a Regex");
  }
  return pattern;
}

void Pattern::find_all(std::string_view in, std::vector<Span>& out) const {
  if (regex) {
    if (!in.empty()) regex->find_all(in, out);
    return;
  }
  if (text.empty()) {
    // As a regular expression: it matches before every character and at the end.
    for (size_t at = 0; at <= in.size() && !in.empty(); at += at < in.size() ? char_at(in.substr(at)).length : 1) {
      out.push_back({uint32_t(at), uint32_t(at)});
    }
    return;
  }
  for (size_t at = in.find(text); at != std::string_view::npos; at = in.find(text, at + text.size())) {
    out.push_back({uint32_t(at), uint32_t(at + text.size())});
  }
}

std::vector<Normalizer> read_normalizers(const Json& json) {
  std::vector<Normalizer> out;
  if (!json.is_null()) read_into(json, 0, out);
  return out;
}

void normalize(const std::vector<Normalizer>& normalizers, Text& text) {
  for (const Normalizer& normalizer : normalizers) {
    if (text.view().size() >= UINT32_MAX / 2) qgen::fail(ErrorKind::kModel, "tokenizer: the text grows beyond 2 GiB");
    std::visit([&](const auto& step) { apply(step, text); }, normalizer);
  }
}

}  // namespace qgen::tokenizer
