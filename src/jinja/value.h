// The values of a template: what Python objects a chat template can meet, as one small tagged type. Strings
// and numbers are values, containers belong to the Heap of one rendering and are never freed before its end,
// so reference cycles cannot leak and nothing is destroyed recursively.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/text.h"

namespace qgen::jinja {

// What stops a rendering or a parse; the place is added where it is caught.
struct Problem {
  std::string text;
};
[[noreturn]] inline void raise(std::string problem) { throw Problem{std::move(problem)}; }

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kFunction,
  kLoop,
  kCycler,
  kJoiner,
};

struct Object;
struct Sequence;
struct Dict;
struct Namespace;
struct Function;
struct Loop;
struct Cycler;
struct Joiner;

struct Value {
  Kind kind = Kind::kNone;
  bool user = false;  // a number, bool or None that a user's data brought in; strings carry marks themselves
  union {
    bool boolean;
    int64_t integer = 0;
    double number;
    Object* object;
  };
  TextPtr string;  // a string's text; why an undefined value is undefined

  static Value none() { return {}; }
  static Value of(bool b) {
    Value v;
    v.kind = Kind::kBool;
    v.integer = 0;
    v.boolean = b;
    return v;
  }
  static Value of(int64_t i) {
    Value v;
    v.kind = Kind::kInt;
    v.integer = i;
    return v;
  }
  static Value of(double d) {
    Value v;
    v.kind = Kind::kFloat;
    v.number = d;
    return v;
  }
  static Value of(Text text);
  static Value literal(std::string_view text) { return of(Text(std::string(text), false)); }
  static Value undefined(std::string reason);
  static Value of(Sequence* object);
  static Value of(Dict* object);
  static Value of(Namespace* object);
  static Value of(Function* object);
  static Value of(Loop* object);
  static Value of(Cycler* object);
  static Value of(Joiner* object);

  bool is(Kind k) const { return kind == k; }
  bool is_undefined() const { return kind == Kind::kUndefined; }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_string() const { return kind == Kind::kString; }
  // Python's bool is an int.
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  int64_t as_int() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  double as_double() const { return kind == Kind::kFloat ? number : static_cast<double>(as_int()); }
  const Text& text() const { return *string; }
  std::string_view view() const { return string->view(); }
  Sequence& sequence() const;
  Dict& dict() const;
  Namespace& ns() const;
  Function& function() const;
  Loop& loop() const;
  Cycler& cycler() const;
  Joiner& joiner() const;
};

struct Object {
  virtual ~Object() = default;
  int height = 1;  // of the tree of containers below, this one included
};

enum class SequenceKind : uint8_t { kList, kTuple, kGroup, kRange, kKeys, kValues, kItems, kGenerator };

// Everything that Python iterates in order. A generator gives each item once: `next` is its first unread one.
struct Sequence : Object {
  SequenceKind kind = SequenceKind::kList;
  bool user = false;  // from a user's data: its brackets count as theirs
  size_t next = 0;
  int64_t start = 0, stop = 0, step = 1;  // of a range, for printing
  std::vector<Value> items;
};

struct Dict : Object {
  bool user = false;
  std::vector<std::pair<Value, Value>> entries;   // in order of insertion
  std::unordered_multimap<size_t, size_t> index;  // hash to entry, kept for larger dicts only

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
};

struct Namespace : Object {
  std::vector<std::pair<Value, Value>> attributes;  // by name
  Value* find(std::string_view name);
  void set(const Value& name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  bool user_names = false;  // some names came from a user's dict, by **
};

class Interpreter;
struct Stmt;
struct Scope;
using Builtin = Value (*)(Interpreter&, const Value& self, Arguments& arguments);

// A macro (`macro` and `scope` set), a global function or a bound method (`self` is what it is bound to).
struct Function : Object {
  std::string name;
  Builtin builtin = nullptr;
  Value self;
  const Stmt* macro = nullptr;
  Scope* scope = nullptr;
};

struct Loop : Object {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;
  const Stmt* statement = nullptr;  // set for recursive loops
  Scope* scope = nullptr;           // around the loop
  bool has_changed_value = false;
  std::vector<Value> changed_value;
};

struct Cycler : Object {
  std::vector<Value> items;
  size_t position = 0;
};

struct Joiner : Object {
  Value separator;
  bool used = false;
};

// A value's hash as Python's dict needs it: equal numbers hash alike. Raises for lists and dicts.
size_t hash_value(const Value& value);
// Python's == without its costs being counted; for keys, whose nesting is limited.
bool same_key(const Value& a, const Value& b);

// Python's name of a type: "str", "dict", "NoneType", …
std::string_view type_name(const Value& value);

}  // namespace qgen::jinja
