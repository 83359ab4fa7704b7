// The filters that make text: case, trimming, escaping, layout, numbers from text and JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "jinja/builtins.h"
#include "jinja/format.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

using In = Interpreter&;
using V = const Value&;
using A = Arguments&;

// Replaces single characters of a text, keeping the marks; `replace` returns nothing for the others.
template <class Replace>
Value map_characters(Heap& heap, const Value& value, Replace replace) {
  const Text& text = value.text();
  heap.charge_characters(text.size());
  TextBuilder out;
  rewrite(out, text, [&](std::string& run, size_t at) {
    run += replace(text.view()[at]);
    return size_t{1};
  });
  return heap.text(std::move(out));
}

Value escape_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "escape", {});
  return map_characters(in.heap(), to_string(in.heap(), self), [](char c) -> std::string {
    switch (c) {
      case '&': return "&amp;";
      case '<': return "&lt;";
      case '>': return "&gt;";
      case '\'': return "&#39;";
      case '"': return "&#34;";
      default: return std::string(1, c);
    }
  });
}

Value quote_url(Heap& heap, const Value& value, bool query) {
  return map_characters(heap, to_string(heap, value), [&](char c) -> std::string {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) return std::string(1, c);
    return query && c == ' ' ? "+" : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  });
}

Value urlencode(In in, V self, A arguments) {
  const Binder bound(arguments, "urlencode", {});
  Heap& heap = in.heap();
  if (!self.is(Kind::kDict) && !self.is(Kind::kSequence)) return quote_url(heap, self, false);
  std::vector<Value> pairs;
  if (self.is(Kind::kDict)) {
    for (const auto& [key, value] : self.dict().entries) pairs.push_back(heap.tuple({key, value}));
  } else {
    pairs = iterate(heap, self);
  }
  TextBuilder out;
  for (const Value& pair : pairs) {
    const std::vector<Value> parts = iterate(heap, pair);
    if (parts.size() != 2) raise("urlencode takes pairs");
    if (out.size() != 0) out.append("&", false);
    out.append(quote_url(heap, parts[0], true).text());
    out.append("=", false);
    out.append(quote_url(heap, parts[1], true).text());
    heap.check_text(out.size());
  }
  return heap.text(std::move(out));
}

template <char first>
Value case_filter(In in, V self, A arguments) {
  constexpr std::string_view name = first == 'u' ? "upper" : first == 'l' ? "lower" : "capitalize";
  const Binder bound(arguments, name, {});
  return change_case(in.heap(), to_string(in.heap(), self), name);
}

// Unlike str.title, only blanks, hyphens and opening brackets begin a new word.
Value title_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "title", {});
  const Value value = to_string(in.heap(), self);
  const Text& text = value.text();
  in.heap().charge_characters(text.size());
  TextBuilder out;
  bool begin = true;
  rewrite(out, text, [&](std::string& run, size_t at) {
    const CodePoint c = code_point_at(text.view(), at);
    const bool separator =
        is_space(c.value) || c.value == '-' || c.value == '(' || c.value == '{' || c.value == '[' || c.value == '<';
    append_cased(run, c.value, begin && !separator ? Case::kUpper : Case::kLower);
    begin = separator;
    return c.bytes;
  });
  return in.heap().text(std::move(out));
}

Value trim_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "trim", {"chars"});
  return strip(in.heap(), to_string(in.heap(), self), bound.get(0), Side::kBoth);
}

Value replace_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "replace", {"old", "new", "count"}, 2);
  Heap& heap = in.heap();
  const bool counted = bound.get(2) != nullptr && !bound.at(2).is_none();
  return replace_all(heap, to_string(heap, self), to_string(heap, bound.at(0)), to_string(heap, bound.at(1)),
                     counted ? as_index(bound.at(2)) : -1);
}

Value indent_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "indent", {"width", "first", "blank"});
  Heap& heap = in.heap();
  as_text(self, "the value to indent");
  Value indent = heap.text("    ", false);
  if (bound.get(0) != nullptr) {
    indent = bound.at(0).is_string()
                 ? bound.at(0)
                 : arithmetic(heap, Op::kMultiply, heap.text(" ", false), Value::of(as_index(bound.at(0))));
  }
  const bool blank = bound.flag(2, false);
  // A newline at the end gives one more, empty line.
  const Value terminated = arithmetic(heap, Op::kAdd, self, heap.text("\n", false));
  const std::vector<Value> lines = split_lines(heap, terminated, false);
  TextBuilder out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out.append("\n", false);
    const bool indented = i == 0 ? bound.flag(1, false) : blank || !lines[i].text().empty();
    if (indented) out.append(indent.text());
    out.append(lines[i].text());
    heap.check_text(out.size());
  }
  // The newlines between the lines are the value's own if the value has any mark of a user.
  Text text = out.take();
  TextBuilder marked;
  if (!self.text().any_user()) {
    marked.append(text);
    return heap.text(std::move(marked));
  }
  for (size_t at = 0; at < text.size();) {
    const size_t newline = std::min(text.view().find('\n', at), text.size());
    marked.append(text, at, newline);
    if (newline < text.size()) marked.append("\n", true);
    at = newline + 1;
  }
  return heap.text(std::move(marked));
}

Value format_filter(In in, V self, A arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    raise("can't handle positional and keyword arguments at the same time");
  }
  Heap& heap = in.heap();
  const Value format = to_string(heap, self);
  if (arguments.named.empty()) return percent_format(heap, format, heap.tuple(std::move(arguments.positional)));
  Dict* values = heap.new_dict();
  for (const auto& [name, value] : arguments.named) values->set(heap.text(name, arguments.user_names), value);
  return percent_format(heap, format, heap.finish(values));
}

Value center_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "center", {"width"});
  return center_text(in.heap(), to_string(in.heap(), self), bound.integer(0, 80), nullptr);
}

Value string_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "string", {});
  return to_string(in.heap(), self);
}

Value pprint_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "pprint", {});
  TextBuilder out;
  append_repr(in.heap(), out, self);
  return in.heap().text(std::move(out));
}

Value wordcount(In in, V self, A arguments) {
  const Binder bound(arguments, "wordcount", {});
  const Value value = to_string(in.heap(), self);
  const std::string_view text = value.view();
  in.heap().charge_characters(text.size());
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const bool word = is_word(c.value);
    count += word && !inside ? 1 : 0;
    inside = word;
    at += c.bytes;
  }
  return Value::of(count);
}

Value truncate(In in, V self, A arguments) {
  const Binder bound(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  Heap& heap = in.heap();
  const Text& text = as_text(self, "the value to truncate").text();
  if (!text.ascii()) in.heap().charge(text.size());
  const int64_t length = bound.integer(0, 255);
  const Value end = bound.get(2) ? as_text(bound.at(2), "end") : heap.text("...", false);
  const int64_t leeway = bound.get(3) && !bound.at(3).is_none() ? as_index(bound.at(3)) : 5;
  const auto end_length = static_cast<int64_t>(end.text().length());
  if (length < end_length) raise(fmt::format("expected length >= {}, got {}", end_length, length));
  if (leeway < 0) raise(fmt::format("expected leeway >= 0, got {}", leeway));
  const auto size = static_cast<int64_t>(text.length());
  if (size <= length || size - length <= leeway) return self;
  size_t cut = text.offset_of(static_cast<size_t>(length - end_length));
  if (!bound.flag(1, false)) {
    const size_t blank = text.view().substr(0, cut).rfind(' ');
    if (blank != std::string_view::npos) cut = blank;
  }
  return arithmetic(heap, Op::kAdd, heap.slice(self, 0, cut), end);
}

// The words of a line and the blanks between them, as textwrap splits it; hyphenated words may break.
std::vector<std::pair<size_t, size_t>> chunks_of(std::string_view line, bool hyphens) {
  std::vector<std::pair<size_t, size_t>> chunks;
  const auto blank = [&](size_t i) { return line[i] == ' ' || (line[i] >= '\t' && line[i] <= '\r'); };
  const auto letter = [&](size_t i) { return i < line.size() && is_alpha(code_point_at(line, i).value); };
  for (size_t at = 0; at < line.size();) {
    size_t end = at + 1;
    if (blank(at)) {
      while (end < line.size() && blank(end)) ++end;
    } else {
      while (end < line.size() && !blank(end)) {
        const bool after_letters = end >= at + 3 && line[end - 1] == '-' && line[end - 2] != '-';
        if (hyphens && after_letters && letter(end) && letter(end + 1)) break;
        ++end;
      }
    }
    chunks.emplace_back(at, end);
    at = end;
  }
  return chunks;
}

Value wordwrap(In in, V self, A arguments) {
  const Binder bound(arguments, "wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  Heap& heap = in.heap();
  heap.charge_characters(as_text(self, "the value to wrap").text().size() * 2);
  const int64_t width = bound.integer(0, 79);
  if (width <= 0) raise(fmt::format("invalid width {} (must be > 0)", width));
  const bool break_words = bound.flag(1, true);
  const bool has_string = bound.get(2) != nullptr && !bound.at(2).is_none();
  const Value newline = has_string ? as_text(bound.at(2), "wrapstring") : heap.text("\n", false);
  std::vector<Value> out;
  for (const Value& line : split_lines(heap, self, false)) {
    const Text& text = line.text();
    std::vector<std::pair<size_t, size_t>> chunks = chunks_of(text.view(), bound.flag(3, true));
    std::reverse(chunks.begin(), chunks.end());
    const auto blank = [&](const std::pair<size_t, size_t>& chunk) {
      return strip(heap, heap.slice(line, chunk.first, chunk.second), nullptr, Side::kBoth).text().empty();
    };
    const auto length = [&](const std::pair<size_t, size_t>& chunk) {
      return static_cast<int64_t>(count_code_points(text.view().substr(chunk.first, chunk.second - chunk.first)));
    };
    std::vector<Value> wrapped;
    while (!chunks.empty()) {
      heap.step();
      std::vector<std::pair<size_t, size_t>> current;
      int64_t used = 0;
      if (!wrapped.empty() && blank(chunks.back())) chunks.pop_back();
      while (!chunks.empty() && used + length(chunks.back()) <= width) {
        used += length(chunks.back());
        current.push_back(chunks.back());
        chunks.pop_back();
      }
      if (!chunks.empty() && length(chunks.back()) > width) {
        auto& chunk = chunks.back();
        if (break_words) {
          size_t cut = chunk.first;
          for (; used < width && cut < chunk.second; ++used) cut += code_point_at(text.view(), cut).bytes;
          if (cut > chunk.first) current.emplace_back(chunk.first, cut);
          chunk.first = cut;
        } else if (current.empty()) {
          current.push_back(chunk);
          chunks.pop_back();
        }
      }
      if (!current.empty() && blank(current.back())) current.pop_back();
      if (!current.empty()) wrapped.push_back(heap.slice(line, current.front().first, current.back().second));
    }
    out.push_back(join_values(heap, newline, wrapped, true));
  }
  return join_values(heap, newline, out, true);
}

// The text between tags; entities as their characters.
Value striptags(In in, V self, A arguments) {
  const Binder bound(arguments, "striptags", {});
  Heap& heap = in.heap();
  const Value value = to_string(heap, self);
  const Text& text = value.text();
  const std::string_view view = text.view();
  heap.charge_characters(text.size());
  const auto cut = [&](const Text& source, std::string_view open, std::string_view close) {
    TextBuilder out;
    size_t at = 0;
    while (true) {
      const size_t begin = find_text(source.view(), open, at);
      const size_t end = begin == std::string_view::npos ? begin : find_text(source.view(), close, begin);
      if (end == std::string_view::npos) break;
      out.append(source, at, begin);
      at = end + close.size();
    }
    out.append(source, at, source.size());
    return out.take();
  };
  const Value plain = Value::of(cut(cut(text, "<!--", "-->"), "<", ">"));
  Arguments none;
  const Value words = heap.list(iterate(heap, find_method(plain, "split")(in, plain, none)));
  const Value joined =
      join_values(heap, heap.text(" ", view.empty() ? false : text.any_user()), words.sequence().items, true);
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&amp;", "&"}, {"&lt;", "<"},   {"&gt;", ">"},         {"&quot;", "\""},
      {"&#39;", "'"}, {"&#34;", "\""}, {"&nbsp;", "\xC2\xA0"}};
  TextBuilder out;
  for (size_t at = 0; at < joined.text().size();) {
    const std::string_view rest = joined.view().substr(at);
    const auto* entity = std::find_if(std::begin(kEntities), std::end(kEntities),
                                      [&](const auto& e) { return rest.starts_with(e.first); });
    if (entity != std::end(kEntities)) {
      const bool mixed = joined.text().run_end(at) < at + entity->first.size();
      out.append(entity->second, mixed || joined.text().user_at(at));
      at += entity->first.size();
    } else {
      out.append(rest.substr(0, 1), joined.text().user_at(at));
      ++at;
    }
  }
  return heap.text(std::move(out));
}

Value tojson(In in, V self, A arguments) {
  const Binder bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.get(1) != nullptr && !bound.at(1).is_none()) {
    const Value& indent = bound.at(1);
    constexpr int64_t kMaxIndent = 1000;
    if (indent.is_string()) {
      style.indent = std::string(indent.view());
      style.user |= indent.text().any_user();
    } else {
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(as_index(indent), 0, kMaxIndent)), ' ');
    }
    style.item_separator = ",";
  }
  if (bound.get(2) != nullptr && !bound.at(2).is_none()) {
    const std::vector<Value> parts = iterate(in.heap(), bound.at(2));
    if (parts.size() != 2) raise("separators must be a pair");
    style.item_separator = as_text(parts[0], "the item separator").view();
    style.key_separator = as_text(parts[1], "the key separator").view();
    style.user |= parts[0].text().any_user() || parts[1].text().any_user();
  }
  TextBuilder out;
  append_json(in.heap(), out, self, style);
  return in.heap().text(std::move(out));
}

// Python's float(text); nothing if it is none.
std::optional<double> parse_float(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || i + 1 >= text.size() || !std::isdigit(static_cast<unsigned char>(text[i - 1])) ||
               !std::isdigit(static_cast<unsigned char>(text[i + 1]))) {
      return {};
    }
  }
  size_t at = plain.starts_with('-') || plain.starts_with('+') ? 1 : 0;
  const std::string word = lower(plain.substr(at));
  const double sign = plain.starts_with('-') ? -1 : 1;
  if (word == "inf" || word == "infinity") return sign * HUGE_VAL;
  if (word == "nan") return std::nan("");
  if (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string::npos) return {};
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  return end == plain.c_str() + plain.size() ? std::optional<double>(value) : std::nullopt;
}

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) raise("int() base must be >= 2 and <= 36, or 0");
  bool negative = false;
  if (text.starts_with('-') || text.starts_with('+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const char letter = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const int64_t prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (prefixed != 0 && (base == prefixed || base == 0)) {
    text.remove_prefix(text[2] == '_' ? 3 : 2);
    base = prefixed;
  }
  if (base == 0) base = 10;
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return {};
    }
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return {};
  digits.insert(0, negative ? "-" : "");
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end != digits.data() + digits.size()) return {};
  if (error == std::errc::result_out_of_range) raise("the integer does not fit in 64 bits");
  return value;
}

int64_t whole(double number) {
  if (std::isnan(number)) raise("cannot convert float NaN to integer");
  if (std::isinf(number)) raise("cannot convert float infinity to integer");
  if (!(std::abs(number) < 0x1p63)) raise("the integer does not fit in 64 bits");
  return static_cast<int64_t>(number);
}

Value int_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "int", {"default", "base"});
  Value result = bound.get(0) ? bound.at(0) : Value::of(int64_t{0});
  require_defined(self);
  if (self.is_number()) {
    result = Value::of(self.is(Kind::kFloat) ? whole(self.number) : self.as_int());
    result.user = self.user;
  } else if (self.is_string()) {
    in.heap().charge_characters(self.text().size() * 16);  // long numerals are slow to read
    const Value trimmed = strip(in.heap(), self, nullptr, Side::kBoth);
    if (const auto integer = parse_integer(trimmed.view(), bound.integer(1, 10))) {
      result = Value::of(*integer);
      result.user = self.text().any_user();
    } else if (const auto number = parse_float(trimmed.view()); number && std::isfinite(*number)) {
      result = Value::of(whole(*number));
      result.user = self.text().any_user();
    }
  }
  return result;
}

Value float_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "float", {"default"});
  Value result = bound.get(0) ? bound.at(0) : Value::of(0.0);
  require_defined(self);
  if (self.is_number()) {
    result = Value::of(self.as_double());
    result.user = self.user;
  } else if (self.is_string()) {
    in.heap().charge_characters(self.text().size() * 16);  // long numerals are slow to read
    const Value trimmed = strip(in.heap(), self, nullptr, Side::kBoth);
    if (const auto number = parse_float(trimmed.view())) {
      result = Value::of(*number);
      result.user = self.text().any_user();
    }
  }
  return result;
}

Value round_filter(In, V self, A arguments) {
  const Binder bound(arguments, "round", {"precision", "method"});
  require_defined(self);
  if (!self.is_number()) raise(fmt::format("type {} doesn't define __round__ method", type_name(self)));
  const int64_t precision = std::clamp<int64_t>(bound.integer(0, 0), -400, 400);
  const std::string_view method = bound.get(1) ? as_text(bound.at(1), "method").view() : "common";
  if (method != "common" && method != "ceil" && method != "floor") raise("method must be common, ceil or floor");
  Value result;
  const double number = self.as_double();
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    result = Value::of((method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale);
  } else if (self.is_integral() && precision >= 0) {
    result = Value::of(self.as_int());
  } else if (!std::isfinite(number)) {
    result = Value::of(number);
  } else if (precision >= 0) {
    // The printed decimal is rounded correctly, which scaling is not.
    result = Value::of(std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr));
  } else {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double rounded = std::isinf(scale) ? 0.0 : std::nearbyint(number / scale) * scale;
    result = self.is_integral() ? Value::of(whole(rounded)) : Value::of(rounded);
  }
  result.user = self.user;
  return result;
}

Value abs_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "abs", {});
  require_defined(self);
  if (!self.is_number()) raise(fmt::format("bad operand type for abs(): '{}'", type_name(self)));
  const bool negative = self.is(Kind::kFloat) ? std::signbit(self.number) : self.as_int() < 0;
  return negate(in.heap(), negative ? Op::kNegative : Op::kPositive, self);
}

constexpr NamedBuiltin kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", case_filter<'c'>},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"float", float_filter},
    {"forceescape", escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"lower", case_filter<'l'>},
    {"pprint", pprint_filter},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", string_filter},
    {"string", string_filter},
    {"striptags", striptags},
    {"title", title_filter},
    {"tojson", tojson},
    {"trim", trim_filter},
    {"truncate", truncate},
    {"upper", case_filter<'u'>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
    {"wordwrap", wordwrap},
};

}  // namespace

std::span<const NamedBuiltin> text_filters() { return kFilters; }

}  // namespace qgen::jinja
