#include "jinja/value.h"

#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace qgen::jinja {
namespace {

constexpr size_t kLinearSearch = 8;

template <class T>
Value of_object(Kind kind, T* object) {
  Value v;
  v.kind = kind;
  v.object = object;
  return v;
}

}  // namespace

Value Value::of(Text text) {
  Value v;
  v.kind = Kind::kString;
  v.string = std::make_shared<const Text>(std::move(text));
  return v;
}

Value Value::undefined(std::string reason) {
  Value v = of(Text(std::move(reason), false));
  v.kind = Kind::kUndefined;
  return v;
}

Value Value::of(Sequence* object) { return of_object(Kind::kSequence, object); }
Value Value::of(Dict* object) { return of_object(Kind::kDict, object); }
Value Value::of(Namespace* object) { return of_object(Kind::kNamespace, object); }
Value Value::of(Function* object) { return of_object(Kind::kFunction, object); }
Value Value::of(Loop* object) { return of_object(Kind::kLoop, object); }
Value Value::of(Cycler* object) { return of_object(Kind::kCycler, object); }
Value Value::of(Joiner* object) { return of_object(Kind::kJoiner, object); }

Sequence& Value::sequence() const { return static_cast<Sequence&>(*object); }
Dict& Value::dict() const { return static_cast<Dict&>(*object); }
Namespace& Value::ns() const { return static_cast<Namespace&>(*object); }
Function& Value::function() const { return static_cast<Function&>(*object); }
Loop& Value::loop() const { return static_cast<Loop&>(*object); }
Cycler& Value::cycler() const { return static_cast<Cycler&>(*object); }
Joiner& Value::joiner() const { return static_cast<Joiner&>(*object); }

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kSequence:
      switch (value.sequence().kind) {
        case SequenceKind::kList: return "list";
        case SequenceKind::kTuple: return "tuple";
        case SequenceKind::kGroup: return "_GroupTuple";
        case SequenceKind::kRange: return "range";
        case SequenceKind::kKeys: return "dict_keys";
        case SequenceKind::kValues: return "dict_values";
        case SequenceKind::kItems: return "dict_items";
        case SequenceKind::kGenerator: return "generator";
      }
      break;
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kFunction: return value.function().macro != nullptr ? "Macro" : "function";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCycler: return "Cycler";
    case Kind::kJoiner: return "Joiner";
  }
  return "object";
}

namespace {

// Tuples can share parts, so that walking them takes exponential time; keys are small in earnest.
constexpr int kKeyParts = 1000;

void count_part(int& parts) {
  if (++parts > kKeyParts) raise(fmt::format("a key of more than {} parts is not supported", kKeyParts));
}

bool is_tuple(const Sequence& s) { return s.kind == SequenceKind::kTuple || s.kind == SequenceKind::kGroup; }

size_t hash_part(const Value& value, int& parts) {
  count_part(parts);
  switch (value.kind) {
    case Kind::kUndefined: return 1;
    case Kind::kNone: return 2;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: return std::hash<double>()(value.as_double());
    case Kind::kString: return std::hash<std::string_view>()(value.view());
    case Kind::kSequence: {
      const Sequence& sequence = value.sequence();
      if (is_tuple(sequence)) {
        size_t hash = 3;
        for (const Value& item : sequence.items) hash = hash * 1000003 ^ hash_part(item, parts);
        return hash;
      }
      if (sequence.kind == SequenceKind::kRange || sequence.kind == SequenceKind::kGenerator) break;
      raise(fmt::format("unhashable type: '{}'", type_name(value)));
    }
    case Kind::kDict: raise("unhashable type: 'dict'");
    default: break;
  }
  return std::hash<const void*>()(value.object);
}

bool same_part(const Value& a, const Value& b, int& parts) {
  count_part(parts);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: return a.view() == b.view();
    case Kind::kSequence: {
      const Sequence &x = a.sequence(), &y = b.sequence();
      if (&x == &y) return true;
      if (!is_tuple(x) || !is_tuple(y) || x.items.size() != y.items.size()) return false;
      for (size_t i = 0; i < x.items.size(); ++i) {
        if (!same_part(x.items[i], y.items[i], parts)) return false;
      }
      return true;
    }
    default: return a.object == b.object;
  }
}

}  // namespace

size_t hash_value(const Value& value) {
  int parts = 0;
  return hash_part(value, parts);
}

bool same_key(const Value& a, const Value& b) {
  int parts = 0;
  return same_part(a, b, parts);
}

const Value* Dict::find(const Value& key) const {
  const size_t hash = hash_value(key);
  if (entries.size() <= kLinearSearch) {
    for (const auto& entry : entries) {
      if (same_key(entry.first, key)) return &entry.second;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (same_key(entries[it->second].first, key)) return &entries[it->second].second;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Value& candidate) { return candidate.is_string() && candidate.view() == key; };
  if (entries.size() <= kLinearSearch) {
    for (const auto& entry : entries) {
      if (matches(entry.first)) return &entry.second;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries[it->second].first)) return &entries[it->second].second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  if (const Value* found = find(key)) {
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kLinearSearch + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(hash_value(entries[i].first), i);
  } else if (entries.size() > kLinearSearch) {
    index.emplace(hash_value(entries.back().first), entries.size() - 1);
  }
}

Value* Namespace::find(std::string_view name) {
  for (auto& attribute : attributes) {
    if (attribute.first.view() == name) return &attribute.second;
  }
  return nullptr;
}

void Namespace::set(const Value& name, Value value) {
  if (Value* found = find(name.view())) {
    *found = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

}  // namespace qgen::jinja
