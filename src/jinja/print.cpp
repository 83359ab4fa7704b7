#include "jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/operators.h"
#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

// `quote` for a text that holds ' and maybe ".
char repr_quote(std::string_view text) {
  return text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
}

void append_repr_char(std::string& out, uint32_t c, std::string_view bytes, char quote) {
  if (c == static_cast<unsigned char>(quote) || c == '\\') {
    out += '\\';
    out += static_cast<char>(c);
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (is_printable(c)) {
    out += bytes;
  } else if (c <= 0xFF) {
    out += fmt::format("\\x{:02x}", c);
  } else if (c <= 0xFFFF) {
    out += fmt::format("\\u{:04x}", c);
  } else {
    out += fmt::format("\\U{:08x}", c);
  }
}

// Calls append(out, code_point, bytes) for each character and keeps the marks.
template <class Append>
void transform(TextBuilder& out, const Text& text, Append append) {
  rewrite(out, text, [&](std::string& run, size_t at) {
    const CodePoint c = code_point_at(text.view(), at);
    append(run, c.value, text.view().substr(at, c.bytes));
    return c.bytes;
  });
}

void append_repr_string(TextBuilder& out, const Text& text) {
  const char quote = repr_quote(text.view());
  const std::string_view mark(&quote, 1);
  out.append(mark, text.any_user());
  transform(out, text,
            [&](std::string& run, uint32_t c, std::string_view bytes) { append_repr_char(run, c, bytes, quote); });
  out.append(mark, text.any_user());
}

void append_items(Heap& heap, TextBuilder& out, const std::vector<Value>& items, bool user) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ", user);
    first = false;
    append_repr(heap, out, item);
  }
}

void append_sequence(Heap& heap, TextBuilder& out, const Sequence& s) {
  switch (s.kind) {
    case SequenceKind::kList:
      out.append("[", s.user);
      append_items(heap, out, s.items, s.user);
      out.append("]", s.user);
      return;
    case SequenceKind::kTuple:
    case SequenceKind::kGroup:
      out.append("(", s.user);
      append_items(heap, out, s.items, s.user);
      out.append(s.items.size() == 1 ? ",)" : ")", s.user);
      return;
    case SequenceKind::kRange:
      out.append(s.step == 1 ? fmt::format("range({}, {})", s.start, s.stop)
                             : fmt::format("range({}, {}, {})", s.start, s.stop, s.step),
                 s.user);
      return;
    case SequenceKind::kGenerator: out.append("<generator object>", false); return;
    case SequenceKind::kKeys:
    case SequenceKind::kValues:
    case SequenceKind::kItems:
      out.append(s.kind == SequenceKind::kKeys     ? "dict_keys(["
                 : s.kind == SequenceKind::kValues ? "dict_values(["
                                                   : "dict_items([",
                 s.user);
      append_items(heap, out, s.items, s.user);
      out.append("])", s.user);
      return;
  }
}

void append_namespace(Heap& heap, TextBuilder& out, const Namespace& ns) {
  out.append("<Namespace {", false);
  bool first = true;
  for (const auto& [name, value] : ns.attributes) {
    if (!first) out.append(", ", false);
    first = false;
    append_repr(heap, out, name);
    out.append(": ", false);
    append_repr(heap, out, value);
  }
  out.append("}>", false);
}

void append_json_string(TextBuilder& out, const Text& text, bool ensure_ascii) {
  out.append("\"", text.any_user());
  transform(out, text, [&](std::string& run, uint32_t c, std::string_view bytes) {
    switch (c) {
      case '"': run += "\\\""; return;
      case '\\': run += "\\\\"; return;
      case '\n': run += "\\n"; return;
      case '\r': run += "\\r"; return;
      case '\t': run += "\\t"; return;
      case '\b': run += "\\b"; return;
      case '\f': run += "\\f"; return;
      default: break;
    }
    if (c < 0x20 || (ensure_ascii && c >= 0x7F && c <= 0xFFFF)) {
      run += fmt::format("\\u{:04x}", c);
    } else if (ensure_ascii && c > 0xFFFF) {
      run += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      run += bytes;
    }
  });
  out.append("\"", text.any_user());
}

std::string json_float(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return float_text(number);
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, TextBuilder& out, const JsonStyle& style) : heap_(heap), out_(out), style_(style) {}

  void write(const Value& value, size_t level) {
    const Heap::Depth depth(heap_);
    heap_.step();
    heap_.check_text(out_.size());
    switch (value.kind) {
      case Kind::kNone: return out_.append("null", value.user);
      case Kind::kBool: return out_.append(value.boolean ? "true" : "false", value.user);
      case Kind::kInt: return out_.append(fmt::format("{}", value.integer), value.user);
      case Kind::kFloat: return out_.append(json_float(value.number), value.user);
      case Kind::kString:
        heap_.charge_characters(value.text().size());
        return append_json_string(out_, value.text(), style_.ensure_ascii);
      case Kind::kDict: return write_dict(value.dict(), level);
      case Kind::kSequence: {
        const Sequence& s = value.sequence();
        if (s.kind == SequenceKind::kList || s.kind == SequenceKind::kTuple || s.kind == SequenceKind::kGroup) {
          return write_list(s, level);
        }
        break;
      }
      default: break;
    }
    raise(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }

 private:
  void new_line(size_t level, bool user) {
    if (!style_.indent) return;
    heap_.charge(style_.indent->size() * level);
    heap_.check_text(out_.size() + style_.indent->size() * level);
    std::string line = "\n";
    for (size_t i = 0; i < level; ++i) line += *style_.indent;
    out_.append(line, user || style_.user);
  }

  void write_list(const Sequence& list, size_t level) {
    if (list.items.empty()) return out_.append("[]", list.user);
    out_.append("[", list.user);
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_.append(style_.item_separator, list.user || style_.user);
      first = false;
      new_line(level + 1, list.user);
      write(item, level + 1);
    }
    new_line(level, list.user);
    out_.append("]", list.user);
  }

  void write_key(const Value& key) {
    switch (key.kind) {
      case Kind::kString: return append_json_string(out_, key.text(), style_.ensure_ascii);
      case Kind::kNone: return out_.append("\"null\"", key.user);
      case Kind::kBool: return out_.append(key.boolean ? "\"true\"" : "\"false\"", key.user);
      case Kind::kInt: return out_.append(fmt::format("\"{}\"", key.integer), key.user);
      case Kind::kFloat: return out_.append("\"" + json_float(key.number) + "\"", key.user);
      default: raise(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) return out_.append("{}", dict.user);
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return order(heap_, a->first, b->first) < 0; });
    }
    out_.append("{", dict.user);
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_.append(style_.item_separator, dict.user || style_.user);
      first = false;
      new_line(level + 1, dict.user);
      write_key(entry->first);
      out_.append(style_.key_separator, dict.user || style_.user);
      write(entry->second, level + 1);
    }
    new_line(level, dict.user);
    out_.append("}", dict.user);
  }

  Heap& heap_;
  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  std::string digits;
  int exponent = 0;
  const char* at = buffer;
  const bool negative = *at == '-';
  if (negative) ++at;
  for (; at != result.ptr && *at != 'e'; ++at) {
    if (*at != '.') digits += *at;
  }
  // from_chars reads no plus sign.
  at += at[1] == '+' ? 2 : 1;
  std::from_chars(at, result.ptr, exponent);
  std::string out = negative ? "-" : "";
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::string repr_text(std::string_view text) {
  TextBuilder builder;
  append_repr_string(builder, Text(std::string(text), false));
  return std::string(builder.view());
}

void append_str(Heap& heap, TextBuilder& out, const Value& value) {
  heap.check_text(out.size());
  switch (value.kind) {
    case Kind::kUndefined: return;
    case Kind::kString: return out.append(value.text());
    default: return append_repr(heap, out, value);
  }
}

void append_repr(Heap& heap, TextBuilder& out, const Value& value) {
  const Heap::Depth depth(heap);
  heap.step();
  heap.check_text(out.size());
  switch (value.kind) {
    case Kind::kUndefined: return out.append("Undefined", false);
    case Kind::kNone: return out.append("None", value.user);
    case Kind::kBool: return out.append(value.boolean ? "True" : "False", value.user);
    case Kind::kInt: return out.append(fmt::format("{}", value.integer), value.user);
    case Kind::kFloat: return out.append(float_text(value.number), value.user);
    case Kind::kString: heap.charge_characters(value.text().size()); return append_repr_string(out, value.text());
    case Kind::kSequence: return append_sequence(heap, out, value.sequence());
    case Kind::kDict: {
      const Dict& dict = value.dict();
      out.append("{", dict.user);
      bool first = true;
      for (const auto& [key, item] : dict.entries) {
        if (!first) out.append(", ", dict.user);
        first = false;
        append_repr(heap, out, key);
        out.append(": ", dict.user);
        append_repr(heap, out, item);
      }
      return out.append("}", dict.user);
    }
    case Kind::kNamespace: return append_namespace(heap, out, value.ns());
    case Kind::kFunction:
      return out.append(fmt::format("<{} {}>", type_name(value), repr_text(value.function().name)), false);
    case Kind::kLoop:
      return out.append(fmt::format("<LoopContext {}/{}>", value.loop().index + 1, value.loop().items.size()), false);
    case Kind::kCycler:
    case Kind::kJoiner: return out.append(fmt::format("<{} object>", type_name(value)), false);
  }
}

Value to_string(Heap& heap, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder builder;
  append_str(heap, builder, value);
  return heap.text(std::move(builder));
}

void append_json(Heap& heap, TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(heap, out, style).write(value, 0);
}

Value from_json(Heap& heap, const Json& json, bool user) {
  const Heap::Depth depth(heap);
  Value value;
  if (json.is_string()) return heap.text(std::string(json.as_string()), user);
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& element : json.elements()) items.push_back(from_json(heap, element, user));
    value = heap.list(std::move(items));
    value.sequence().user = user;
    return value;
  }
  if (json.is_object()) {
    Dict* dict = heap.new_dict();
    dict->user = user;
    for (const auto& [key, member] : json.members()) {
      dict->set(heap.text(std::string(key), user), from_json(heap, member, user));
    }
    return heap.finish(dict);
  }
  if (json.is_bool()) {
    value = Value::of(json.as_bool());
  } else if (json.is_integer()) {
    value = Value::of(json.as_integer());
  } else if (json.is_number()) {
    if (!json.integer_text().empty()) json.fail("an integer beyond 64 bits");
    value = Value::of(json.as_number());
  }
  value.user = user;
  return value;
}

}  // namespace qgen::jinja
