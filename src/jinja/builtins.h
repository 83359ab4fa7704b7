// The tables of what templates can call: global functions, filters, tests and methods, by name.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "jinja/interpreter.h"

namespace qgen::jinja {

// A filter gets the value it stands behind as `self`, a method its object, a function nothing.
struct NamedBuiltin {
  std::string_view name;
  Builtin builtin;
};

std::span<const NamedBuiltin> global_functions();
std::span<const NamedBuiltin> text_filters();
std::span<const NamedBuiltin> sequence_filters();
Builtin find_filter(std::string_view name);

using TestFunction = bool (*)(Interpreter&, const Value& self, Arguments& arguments);
TestFunction find_test(std::string_view name);

// The method `name` of the object; null if it has none that is safe and supported.
Builtin find_method(const Value& object, std::string_view name);
// Whether Python has the method but templates may not use it: it changes the object.
bool is_forbidden_method(const Value& object, std::string_view name);

// Binds arguments to parameters as Python does. `required` is how many must be given.
class Binder {
 public:
  Binder(Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> parameters,
         size_t required = 0);
  // The argument, or nothing if it was not given.
  const Value* get(size_t index) const { return values_[index]; }
  const Value& at(size_t index) const { return *values_[index]; }
  bool flag(size_t index, bool fallback) const;
  int64_t integer(size_t index, int64_t fallback) const;

 private:
  std::array<const Value*, 8> values_{};
};

// A string argument, or a TypeError.
const Value& as_text(const Value& value, std::string_view what);

// Shared by filters and methods.
enum class Side { kBoth, kLeft, kRight };
Value strip(Heap& heap, const Value& text, const Value* chars, Side side);
Value change_case(Heap& heap, const Value& text, std::string_view method);
Value replace_all(Heap& heap, const Value& text, const Value& from, const Value& to, int64_t count);
Value join_values(Heap& heap, const Value& separator, const std::vector<Value>& items, bool strings_only);
Value center_text(Heap& heap, const Value& text, int64_t width, const Value* fill);
std::vector<Value> split_lines(Heap& heap, const Value& text, bool keep_ends);

// Finds `part` from `from` on; npos if absent. Linear in time whatever the texts.
size_t find_text(std::string_view text, std::string_view part, size_t from);

// True for all cased characters being upper (lower) with at least one of them.
bool all_cased(std::string_view text, bool upper);

}  // namespace qgen::jinja
