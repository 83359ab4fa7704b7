#include "jinja/format.h"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

constexpr int64_t kMaxPrecision = 10000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // - + space
  bool alternate = false;
  bool zero = false;
  char grouping = '\0';
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
  bool user = false;  // whose text the padding is
};

int64_t read_number(std::string_view text, size_t& at) {
  int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > int64_t{1} << 40) raise("Too many decimal digits in format string");
  }
  return value;
}

void check_precision(int64_t precision) {
  if (precision > kMaxPrecision) raise("precision too big");
}

std::string print_double(double number, char type, int64_t precision, bool alternate) {
  check_precision(precision);
  const std::string format = std::string(alternate ? "%#.*" : "%.*") + type;
  const int digits = static_cast<int>(precision < 0 ? 6 : precision);
  const int size = std::snprintf(nullptr, 0, format.c_str(), digits, number);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), digits, number);
  out.pop_back();
  return out;
}

std::string print_integer(uint64_t magnitude, char type) {
  switch (type) {
    case 'x': return fmt::format("{:x}", magnitude);
    case 'X': return fmt::format("{:X}", magnitude);
    case 'o': return fmt::format("{:o}", magnitude);
    case 'b': return fmt::format("{:b}", magnitude);
    default: return fmt::format("{}", magnitude);
  }
}

std::string group(const std::string& digits, char separator, size_t every) {
  if (separator == '\0') return digits;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out;
}

uint64_t magnitude_of(int64_t value) {
  return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

// Pads a body (already with its sign or prefix, of `head` bytes) to the width.
Value pad(Heap& heap, const Spec& spec, const Text& body, size_t head, char default_align) {
  const auto length = static_cast<int64_t>(body.length());
  TextBuilder out;
  if (spec.width <= length) {
    out.append(body);
    return heap.text(std::move(out));
  }
  const auto missing = static_cast<size_t>(spec.width - length);
  heap.check_text(missing * spec.fill.size());
  const auto fill = [&](size_t count) {
    std::string padding;
    for (size_t i = 0; i < count; ++i) padding += spec.fill;
    out.append(padding, spec.user);
  };
  const char align = spec.align ? spec.align : default_align;
  if (align == '<') {
    out.append(body);
    fill(missing);
  } else if (align == '^') {
    fill(missing / 2);
    out.append(body);
    fill(missing - missing / 2);
  } else if (align == '=') {
    out.append(body, 0, head);
    fill(missing);
    out.append(body, head, body.size());
  } else {
    fill(missing);
    out.append(body);
  }
  return heap.text(std::move(out));
}

std::string sign_text(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

Value format_integer(Heap& heap, const Spec& spec, const Value& value) {
  const int64_t number = value.as_int();
  std::string prefix = sign_text(spec, number < 0);
  const size_t every = spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b' ? 4 : 3;
  if (spec.alternate && every == 4) prefix += std::string("0") + spec.type;
  std::string digits = group(print_integer(magnitude_of(number), spec.type), spec.grouping, every);
  const size_t head = prefix.size();
  return pad(heap, spec, Text(prefix + digits, value.user || spec.user), head, '>');
}

Value format_float(Heap& heap, const Spec& spec, const Value& value) {
  double number = value.as_double();
  const bool negative = std::signbit(number) && !std::isnan(number);
  number = std::abs(number);
  std::string digits;
  if (spec.type == '\0' || spec.type == 'n') {
    if (spec.precision < 0) {
      digits = float_text(number);
    } else {
      digits = print_double(number, 'g', std::max<int64_t>(spec.precision, 1), false);
      if (std::isfinite(number) && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    }
  } else if (spec.type == '%') {
    digits = print_double(number * 100, 'f', spec.precision, spec.alternate) + "%";
  } else {
    digits = print_double(number, spec.type, spec.precision, spec.alternate);
  }
  if (spec.grouping) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = group(digits.substr(0, whole), spec.grouping, 3) + digits.substr(whole);
  }
  const std::string prefix = sign_text(spec, negative);
  return pad(heap, spec, Text(prefix + digits, value.user || spec.user), prefix.size(), '>');
}

Value format_string(Heap& heap, const Spec& spec, const Value& value, char default_align) {
  const Text& text = value.text();
  if (spec.precision >= 0 && static_cast<uint64_t>(spec.precision) < text.length()) {
    const Value cut = heap.slice(value, 0, text.offset_of(static_cast<size_t>(spec.precision)));
    return pad(heap, spec, cut.text(), 0, default_align);
  }
  return pad(heap, spec, text, 0, default_align);
}

Value character(Heap& heap, int64_t code, bool user) {
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) raise("%c arg not in range(0x110000)");
  std::string out;
  append_utf8(out, static_cast<uint32_t>(code));
  return heap.text(std::move(out), user);
}

// --- "%" ---

class PercentFormat {
 public:
  PercentFormat(Heap& heap, const Value& format, const Value& values)
      : heap_(heap), format_(format.text()), values_(values) {
    is_tuple_ = values.is(Kind::kSequence) &&
                (values.sequence().kind == SequenceKind::kTuple || values.sequence().kind == SequenceKind::kGroup);
  }

  Value run() {
    const std::string_view text = format_.view();
    size_t at = 0;
    while (at < text.size()) {
      const size_t percent = std::min(text.find('%', at), text.size());
      out_.append(format_, at, percent);
      at = percent;
      if (at < text.size()) conversion(text, at);
      heap_.check_text(out_.size());
    }
    const bool mapping = values_.is(Kind::kDict);
    const bool left =
        is_tuple_ ? next_ < values_.sequence().items.size() : !mapping && next_ == 0 && !values_.is(Kind::kSequence);
    if (left) raise("not all arguments converted during string formatting");
    return heap_.text(std::move(out_));
  }

 private:
  Value next_value() {
    heap_.step();
    if (is_tuple_ ? next_ >= values_.sequence().items.size() : next_ > 0) {
      raise("not enough arguments for format string");
    }
    const size_t index = next_++;
    return is_tuple_ ? values_.sequence().items[index] : values_;
  }

  int64_t number_or_star(std::string_view text, size_t& at) {
    if (at < text.size() && text[at] == '*') {
      ++at;
      const Value value = next_value();
      if (!value.is_integral()) raise("* wants int");
      return value.as_int();
    }
    return read_number(text, at);
  }

  void conversion(std::string_view text, size_t& at) {
    const size_t begin = at++;
    std::optional<Value> named;
    if (at < text.size() && text[at] == '(') {
      if (!values_.is(Kind::kDict)) raise("format requires a mapping");
      const size_t close = text.find(')', at);
      if (close == std::string_view::npos) raise("incomplete format key");
      const std::string_view name = text.substr(at + 1, close - at - 1);
      const Value* found = values_.dict().find(name);
      if (found == nullptr) raise(repr_text(name));
      named = *found;
      at = close + 1;
    }
    Spec spec;
    bool left = false;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') left = true;
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') spec.zero = true;
    }
    spec.width = number_or_star(text, at);
    if (spec.width < 0) {
      left = true;
      spec.width = -std::max(spec.width, -(int64_t{1} << 40));
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(number_or_star(text, at), 0);
    }
    while (at < text.size() && (text[at] == 'l' || text[at] == 'h' || text[at] == 'L')) ++at;
    if (at >= text.size()) raise("incomplete format");
    spec.type = text[at++];
    spec.user = format_.user_at(begin);
    spec.align = left ? '<' : '\0';
    if (spec.type == '%') {
      out_.append(format_, at - 1, at);
      return;
    }
    const Value value = named ? *named : next_value();
    out_.append(converted(spec, value, at - 1).text());
  }

  Value converted(Spec& spec, const Value& value, size_t at) {
    const auto zero_fill = [&] {
      if (spec.zero && spec.align == '\0') {
        spec.fill = "0";
        spec.align = '=';
      }
    };
    switch (spec.type) {
      case 's': return format_string(heap_, spec, to_string(heap_, value), '>');
      case 'r':
      case 'a': {
        TextBuilder builder;
        append_repr(heap_, builder, value);
        return format_string(heap_, spec, heap_.text(std::move(builder)), '>');
      }
      case 'c':
        if (value.is_string() && value.text().length() == 1) return format_string(heap_, spec, value, '>');
        if (!value.is_integral()) raise("%c requires int or char");
        return format_string(heap_, spec, character(heap_, value.as_int(), value.user), '>');
      case 'd':
      case 'i':
      case 'u': {
        require_defined(value);
        if (!value.is_number()) {
          raise(fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(value)));
        }
        Value whole = value;
        if (value.is(Kind::kFloat)) {
          if (!(std::abs(value.number) < 0x1p63)) raise("cannot convert float to a 64-bit integer");
          whole = Value::of(static_cast<int64_t>(value.number));
          whole.user = value.user;
        }
        zero_fill();
        spec.type = 'd';
        return digits(spec, whole);
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) {
          raise(fmt::format("%{} format: an integer is required, not {}", spec.type, type_name(value)));
        }
        zero_fill();
        return digits(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_number()) raise(fmt::format("must be real number, not {}", type_name(value)));
        zero_fill();
        return format_float(heap_, spec, value);
      default:
        raise(fmt::format("unsupported format character '{}' (0x{:x}) at index {}", spec.type,
                          static_cast<unsigned char>(spec.type), format_.index_of(at)));
    }
  }

  // An integer's precision is its least number of digits.
  Value digits(Spec& spec, const Value& value) {
    if (spec.precision <= 0) return format_integer(heap_, spec, value);
    check_precision(spec.precision);
    std::string digits = print_integer(magnitude_of(value.as_int()), spec.type);
    if (digits.size() < static_cast<size_t>(spec.precision)) {
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    std::string prefix = sign_text(spec, value.as_int() < 0);
    if (spec.alternate && spec.type != 'd') prefix += std::string("0") + spec.type;
    const size_t head = prefix.size();
    return pad(heap_, spec, Text(prefix + digits, value.user || spec.user), head, '>');
  }

  Heap& heap_;
  const Text& format_;
  const Value& values_;
  bool is_tuple_ = false;
  size_t next_ = 0;
  TextBuilder out_;
};

// --- str.format ---

Spec parse_spec(const Text& text) {
  Spec spec;
  spec.user = text.any_user();
  const std::string_view s = text.view();
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < s.size() && std::string_view("<>^=").find(s[i]) != std::string_view::npos;
  };
  if (!s.empty()) {
    const size_t first = code_point_at(s, 0).bytes;
    if (is_align(first)) {
      spec.fill = s.substr(0, first);
      spec.align = s[first];
      at = first + 1;
    } else if (is_align(0)) {
      spec.align = s[0];
      at = 1;
    }
  }
  const auto peek = [&] { return at < s.size() ? s[at] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = s[at++];
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    spec.zero = true;
    ++at;
  }
  spec.width = read_number(s, at);
  if (peek() == ',' || peek() == '_') spec.grouping = s[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') raise("Format specifier missing precision");
    spec.precision = read_number(s, at);
  }
  if (at < s.size()) spec.type = s[at++];
  if (at < s.size()) raise("Invalid format specifier");
  return spec;
}

Value format_value(Heap& heap, const Value& value, const Text& spec_text) {
  if (spec_text.empty()) return to_string(heap, value);
  Spec spec = parse_spec(spec_text);
  const auto unknown = [&] {
    raise(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
  };
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') unknown();
    if (spec.align == '=') raise("'=' alignment not allowed in string format specifier");
    if (spec.zero && !spec.align) spec.fill = "0";
    return format_string(heap, spec, value, '<');
  }
  if (!value.is_number()) {
    raise(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  }
  if (spec.zero && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  const bool real = std::string_view("eEfFgG%").find(spec.type ? spec.type : '!') != std::string_view::npos;
  if (value.is(Kind::kFloat) || real) {
    if (!real && spec.type != '\0' && spec.type != 'n') unknown();
    return format_float(heap, spec, value);
  }
  if (spec.type == 'c') return format_string(heap, spec, character(heap, value.as_int(), value.user), '<');
  if (std::string_view("dboxXn").find(spec.type ? spec.type : 'd') == std::string_view::npos) unknown();
  if (spec.precision >= 0) raise("Precision not allowed in integer format specifier");
  return format_integer(heap, spec, value);
}

class BraceFormat {
 public:
  BraceFormat(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  Value run(const Text& format, int depth) {
    if (depth > 2) raise("Max string recursion exceeded");
    Heap& heap = interpreter_.heap();
    const std::string_view text = format.view();
    TextBuilder out;
    size_t at = 0;
    while (at < text.size()) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, brace);
      at = brace;
      if (at >= text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        out.append(format, at, at + 1);
        at += 2;
      } else if (text[at] == '}') {
        raise("Single '}' encountered in format string");
      } else {
        out.append(field(format, at, depth).text());
      }
      heap.check_text(out.size());
    }
    return heap.text(std::move(out));
  }

 private:
  // "{name.attribute[index]!r:spec}"; `at` is at the brace and moves behind the field.
  Value field(const Text& format, size_t& at, int depth) {
    Heap& heap = interpreter_.heap();
    heap.step();
    const std::string_view text = format.view();
    const size_t begin = at + 1;
    size_t end = begin;
    for (int open = 1;; ++end) {
      if (end >= text.size())
        raise(begin == end ? "Single '{' encountered in format string" : "expected '}' before end of string");
      if (text[end] == '{') ++open;
      if (text[end] == '}' && --open == 0) break;
    }
    at = end + 1;
    size_t name_end = begin;
    while (name_end < end && text[name_end] != ':' && text[name_end] != '!') {
      name_end = text[name_end] == '[' ? std::min(text.find(']', name_end), end) : name_end + 1;
    }
    Value value = resolve(text.substr(begin, name_end - begin));
    size_t spec_begin = name_end;
    if (name_end < end && text[name_end] == '!') {
      const char conversion = name_end + 1 < end ? text[name_end + 1] : '\0';
      spec_begin = name_end + 2;
      if (conversion == 's') {
        value = to_string(heap, value);
      } else if (conversion == 'r' || conversion == 'a') {
        TextBuilder builder;
        append_repr(heap, builder, value);
        value = heap.text(std::move(builder));
      } else {
        raise("Unknown conversion specifier in a format string");
      }
      if (spec_begin < end && text[spec_begin] != ':') raise("expected ':' after conversion specifier");
    }
    TextBuilder spec;
    if (spec_begin < end) spec.append(format, spec_begin + 1, end);
    const Value expanded = run(spec.take(), depth + 1);
    return format_value(heap, value, expanded.text());
  }

  Value resolve(std::string_view name) {
    const size_t head_end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, head_end));
    for (size_t at = head_end; at < name.size();) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) raise("Empty attribute in format string");
        value = interpreter_.attribute(value, name.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const size_t end = name.find(']', at);
        if (name[at] != '[' || end == std::string_view::npos) raise("Missing ']' in format string");
        const std::string_view key = name.substr(at + 1, end - at - 1);
        if (key.empty()) raise("Empty attribute in format string");
        value = interpreter_.item(value, index_of(key));
        at = end + 1;
        if (at < name.size() && name[at] != '.' && name[at] != '[') {
          raise("Only '.' or '[' may follow ']' in format field specifier");
        }
      }
    }
    return value;
  }

  static bool all_digits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  static Value index_of(std::string_view key) {
    size_t at = 0;
    return all_digits(key) ? Value::of(read_number(key, at)) : Value::literal(key);
  }

  Value first(std::string_view name) {
    if (name.empty() || all_digits(name)) {
      if (numbering_ != '\0' && numbering_ != (name.empty() ? 'a' : 'm')) {
        raise("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = name.empty() ? 'a' : 'm';
      size_t at = 0;
      const size_t index = name.empty() ? next_++ : static_cast<size_t>(read_number(name, at));
      if (index >= arguments_.positional.size()) {
        raise("tuple index out of range");
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    raise(repr_text(name));
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  size_t next_ = 0;
  char numbering_ = '\0';  // (a)utomatic or (m)anual
};

}  // namespace

Value percent_format(Heap& heap, const Value& format, const Value& values) {
  heap.charge_characters(format.text().size());
  return PercentFormat(heap, format, values).run();
}

Value brace_format(Interpreter& interpreter, const Value& format, const Arguments& arguments) {
  interpreter.heap().charge_characters(format.text().size());
  return BraceFormat(interpreter, arguments).run(format.text(), 0);
}

}  // namespace qgen::jinja
