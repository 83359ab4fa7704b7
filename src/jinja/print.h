// Values as text: Python's str() and repr(), json.dumps, and back from JSON. Marks follow: what a user's data
// holds stays the user's, its quotes and escapes included.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "jinja/heap.h"

namespace qgen::jinja {

void append_str(Heap& heap, TextBuilder& out, const Value& value);
void append_repr(Heap& heap, TextBuilder& out, const Value& value);
// str() of a value; a string is itself.
Value to_string(Heap& heap, const Value& value);
// For messages.
std::string repr_text(std::string_view text);
// As Python's repr() writes a float.
std::string float_text(double number);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level's
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool user = false;  // a user's text is among the above
};
void append_json(Heap& heap, TextBuilder& out, const Value& value, const JsonStyle& style);

// `user`: whose data it is. Raises a Problem when it is nested too deeply or holds an integer beyond 64 bits.
Value from_json(Heap& heap, const Json& json, bool user);

}  // namespace qgen::jinja
