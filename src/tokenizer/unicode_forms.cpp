// Text is cut where no form can reach across, and the cuts that change are normalized one by one; what
// comes out of one stands for all of it.
#include "tokenizer/unicode_forms.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode_age.h"

namespace qgen::tokenizer {
namespace {

// Whether a normalization form may join this character with those before it, or reorder it among them.
bool can_join_left(uint32_t c) {
  if (c < 0x300) return false;
  if ((c >= 0x1160 && c <= 0x11FF) || (c >= 0xD7B0 && c <= 0xD7FF)) return true;  // vowels and finals of Hangul
  // Characters whose compatible forms are such: Hangul letters, halfwidth ones, halfwidth voicing marks.
  if ((c >= 0x3131 && c <= 0x318E) || (c >= 0xFF9E && c <= 0xFFDC)) return true;
  return is_mark(c) || is_in(kMarkDiffers, c) || utf8proc_get_property(utf8proc_int32_t(c))->combining_class != 0;
}

bool changes_alone(UnicodeForm form, uint32_t c) {
  const bool composed = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  if (c < (form == UnicodeForm::kNfc ? 0x300u : 0xA0u)) return false;
  if (c >= 0xAC00 && c <= 0xD7A3) return !composed;
  return utf8proc_get_property(utf8proc_int32_t(c))->decomp_seqindex != UINT16_MAX;
}

class Former {
 public:
  explicit Former(UnicodeForm form)
      : composed_(form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc),
        options_(utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                   (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd ? UTF8PROC_COMPAT : 0))) {}

  std::string_view run(std::string_view text) {
    code_points_.clear();
    for (size_t at = 0; at < text.size();) {
      const Char c = char_at(text.substr(at));
      utf8proc_int32_t buffer[32];
      int boundary = 0;
      const auto count = is_in(kNotDecomposed, c.code_point)
                             ? -1
                             : utf8proc_decompose_char(utf8proc_int32_t(c.code_point), buffer, 32, options_, &boundary);
      if (count < 0 || count > 32) {
        code_points_.push_back(utf8proc_int32_t(c.code_point));
      } else {
        code_points_.insert(code_points_.end(), buffer, buffer + count);
      }
      at += c.length;
    }
    order();
    out_.clear();
    // Nothing is composed across (or with) a character that `tokenizers` does not know.
    for (size_t begin = 0; begin < code_points_.size();) {
      size_t end = begin + 1;
      while (end < code_points_.size() && !is_unknown(code_points_[end - 1]) && !is_unknown(code_points_[end])) ++end;
      auto count = utf8proc_ssize_t(end - begin);
      if (composed_) {
        count = utf8proc_normalize_utf32(code_points_.data() + begin, count,
                                         utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        if (count < 0) fail(ErrorKind::kRuntime, utf8proc_errmsg(count));
      }
      for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out_, uint32_t(code_points_[begin + i]));
      begin = end;
    }
    return out_;
  }

 private:
  static bool is_unknown(utf8proc_int32_t c) {
    return is_in(kNotReordered, uint32_t(c)) || is_in(kNotDecomposed, uint32_t(c)) || c == 0x11930 ||
           c == 0x11A7;  // no final of Hangul, though utf8proc takes it for one
  }
  static int combining_class(utf8proc_int32_t c) {
    return is_in(kNotReordered, uint32_t(c)) ? 0 : utf8proc_get_property(c)->combining_class;
  }

  // Canonical order: marks by their class, equals as they were.
  void order() {
    for (size_t begin = 0; begin < code_points_.size();) {
      if (combining_class(code_points_[begin]) == 0) {
        ++begin;
        continue;
      }
      size_t end = begin + 1;
      while (end < code_points_.size() && combining_class(code_points_[end]) != 0) ++end;
      std::stable_sort(code_points_.begin() + begin, code_points_.begin() + end,
                       [](auto a, auto b) { return combining_class(a) < combining_class(b); });
      begin = end;
    }
  }

  bool composed_;
  utf8proc_option_t options_;
  std::vector<utf8proc_int32_t> code_points_;
  std::string out_;
};

}  // namespace

void to_unicode_form(UnicodeForm form, Text& text) {
  const std::string_view in = text.view();
  Former former(form);
  std::optional<TextBuilder> builder;
  size_t kept = 0;  // all before is in the builder
  for (size_t at = 0; at < in.size();) {
    if (static_cast<unsigned char>(in[at]) < 0x80 &&
        (at + 1 == in.size() || static_cast<unsigned char>(in[at + 1]) < 0x80)) {
      ++at;
      continue;
    }
    const Char first = char_at(in.substr(at));
    size_t end = at + first.length;
    while (end < in.size()) {
      const Char c = char_at(in.substr(end));
      if (!can_join_left(c.code_point)) break;
      end += c.length;
    }
    if (end > at + first.length || changes_alone(form, first.code_point)) {
      const std::string_view before = in.substr(at, end - at);
      const std::string_view after = former.run(before);
      if (after != before) {
        if (!builder) builder.emplace(text);
        builder->keep(kept, at);
        builder->put(after, at, end);
        kept = end;
      }
    }
    at = end;
  }
  if (!builder) return;
  builder->keep(kept, in.size());
  text = builder->take();
}

size_t grapheme_length(std::string_view text) {
  utf8proc_int32_t state = 0;
  Char before = char_at(text);
  size_t at = before.length;
  while (at < text.size()) {
    const Char c = char_at(text.substr(at));
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(before.code_point), utf8proc_int32_t(c.code_point), &state)) {
      break;
    }
    at += c.length;
    before = c;
  }
  return at;
}

}  // namespace qgen::tokenizer
