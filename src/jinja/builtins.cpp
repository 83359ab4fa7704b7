// The tables of built-ins as one, argument binding, global functions and tests.
#include "jinja/builtins.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

Value range(Interpreter& in, const Value&, Arguments& arguments) {
  if (!arguments.named.empty()) raise("range() takes no keyword arguments");
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3) raise(fmt::format("range expected 1 to 3 arguments, got {}", given.size()));
  const int64_t start = given.size() == 1 ? 0 : as_index(given[0]);
  const int64_t stop = as_index(given[given.size() == 1 ? 0 : 1]);
  const int64_t step = given.size() == 3 ? as_index(given[2]) : 1;
  if (step == 0) raise("range() arg 3 must not be zero");
  constexpr uint64_t kMaxRange = 100000;
  const bool empty = step > 0 ? start >= stop : start <= stop;
  uint64_t count = 0;
  if (!empty) {
    const uint64_t low = static_cast<uint64_t>(step > 0 ? start : stop);
    const uint64_t high = static_cast<uint64_t>(step > 0 ? stop : start);
    const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    count = (high - low - 1) / stride + 1;
  }
  if (count > kMaxRange) {
    raise(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  }
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(Value::of(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  in.heap().step(count / 8);
  if (std::any_of(given.begin(), given.end(), [](const Value& v) { return v.user; })) {
    for (Value& item : items) item.user = true;
  }
  Value value = in.heap().list(std::move(items), SequenceKind::kRange);
  value.sequence().start = start;
  value.sequence().stop = stop;
  value.sequence().step = step;
  return value;
}

// The pairs that dict(…) and namespace(…) are made of, one after the other, into `set`.
template <class Set>
void collect_pairs(Interpreter& in, std::string_view function, Arguments& arguments, Set set) {
  if (arguments.positional.size() > 1) {
    raise(fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    require_defined(source);
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) set(key, value);
    } else {
      for (const Value& pair : iterate(in.heap(), source)) {
        const std::vector<Value> parts = iterate(in.heap(), pair);
        if (parts.size() != 2) raise("dictionary update sequence element has the wrong length; 2 is required");
        set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set(in.heap().text(name, arguments.user_names), value);
}

Value make_dict(Interpreter& in, const Value&, Arguments& arguments) {
  Dict* dict = in.heap().new_dict();
  collect_pairs(in, "dict", arguments, [&](const Value& key, const Value& value) {
    in.heap().charge_key(key);
    dict->set(key, value);
  });
  return in.heap().finish(dict);
}

Value make_namespace(Interpreter& in, const Value&, Arguments& arguments) {
  auto* ns = in.heap().make<Namespace>();
  collect_pairs(in, "namespace", arguments, [&](const Value& key, const Value& value) {
    if (!key.is_string()) raise("a namespace's attributes have names that are strings");
    if (key.view().starts_with('_')) {
      raise(fmt::format("a namespace cannot hold the attribute {}, which starts with an underscore",
                        repr_text(key.view())));
    }
    constexpr size_t kMaxAttributes = 1000;  // they are found one by one
    if (ns->attributes.size() >= kMaxAttributes) raise("a namespace with too many attributes");
    ns->set(key, value);
  });
  return Value::of(ns);
}

Value make_cycler(Interpreter& in, const Value&, Arguments& arguments) {
  if (arguments.positional.empty()) raise("at least one item has to be provided");
  auto* cycler = in.heap().make<Cycler>(arguments.positional.size() * sizeof(Value));
  cycler->items = arguments.positional;
  return Value::of(cycler);
}

Value make_joiner(Interpreter& in, const Value&, Arguments& arguments) {
  const Binder bound(arguments, "joiner", {"sep"});
  auto* joiner = in.heap().make<Joiner>();
  joiner->separator = bound.get(0) ? bound.at(0) : in.heap().text(", ", false);
  return Value::of(joiner);
}

Value raise_exception(Interpreter& in, const Value&, Arguments& arguments) {
  const Binder bound(arguments, "raise_exception", {"message"}, 1);
  raise(std::string(to_string(in.heap(), bound.at(0)).view()));
}

Value strftime_now(Interpreter& in, const Value&, Arguments& arguments) {
  const Binder bound(arguments, "strftime_now", {"format"}, 1);
  const Text& format = as_text(bound.at(0), "strftime() argument 1").text();
  const std::time_t now = static_cast<std::time_t>(in.now());
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) raise("the time cannot be shown");
  // Python shows microseconds, which the C library does not know.
  std::string expanded;
  const std::string_view text = format.view();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 1 < text.size()) {
      const char directive = text[++i];
      if (directive >= '0' && directive <= '9') raise("a width in a time format is not supported");
      expanded += directive == 'f' ? "000000" : std::string("%") + directive;
    } else if (text[i] == '\0') {
      raise("embedded null character");
    } else {
      expanded += text[i];
    }
  }
  in.heap().charge(expanded.size() * 8);
  if (expanded.size() > 10000) raise("a time format of more than 10000 bytes");
  std::string out(expanded.size() * 64 + 256, '\0');
  // An empty result is no failure: a final letter shows the difference.
  const size_t size = std::strftime(out.data(), out.size(), (expanded + "$").c_str(), &local);
  if (size == 0) raise("the time format gives too long a text");
  out.resize(size - 1);
  return in.heap().text(replace_invalid_utf8(out), format.any_user());
}

constexpr NamedBuiltin kGlobals[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

// Tests.

const Value& operand(Arguments& arguments, std::string_view test) {
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    raise(fmt::format("the test '{}' takes one argument", test));
  return arguments.positional[0];
}

template <Op op>
bool test_compare(Interpreter& in, const Value& self, Arguments& arguments) {
  return compare(in.heap(), op, self, operand(arguments, "compare"));
}

bool test_modulo(Interpreter& in, const Value& self, const Value& divisor, int64_t expected) {
  if (self.is_string()) raise("not all arguments converted during string formatting");
  return equal(in.heap(), arithmetic(in.heap(), Op::kModulo, self, divisor), Value::of(expected));
}

bool same_object(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return a.kind == Kind::kNone;
    case Kind::kBool: return a.boolean == b.boolean;
    case Kind::kInt: return a.integer == b.integer;
    case Kind::kFloat: return false;
    case Kind::kString: return a.string == b.string || a.view() == b.view();
    default: return a.object == b.object;
  }
}

bool test_cased(Interpreter& in, const Value& value, bool upper) {
  const Value text = to_string(in.heap(), value);
  in.heap().charge_characters(text.text().size());
  return all_cased(text.view(), upper);
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};

using In = Interpreter&;
using V = const Value&;
using A = Arguments&;

constexpr NamedTest kTests[] = {
    {"defined", [](In, V v, A) { return !v.is_undefined(); }},
    {"undefined", [](In, V v, A) { return v.is_undefined(); }},
    {"none", [](In, V v, A) { return v.is_none(); }},
    {"string", [](In, V v, A) { return v.is_string(); }},
    {"number", [](In, V v, A) { return v.is_number(); }},
    {"integer", [](In, V v, A) { return v.is(Kind::kInt); }},
    {"float", [](In, V v, A) { return v.is(Kind::kFloat); }},
    {"boolean", [](In, V v, A) { return v.is(Kind::kBool); }},
    {"true", [](In, V v, A) { return v.is(Kind::kBool) && v.boolean; }},
    {"false", [](In, V v, A) { return v.is(Kind::kBool) && !v.boolean; }},
    {"mapping", [](In, V v, A) { return v.is(Kind::kDict); }},
    {"iterable",
     [](In, V v, A) {
       return v.is_undefined() || v.is_string() || v.is(Kind::kDict) || v.is(Kind::kSequence) || v.is(Kind::kLoop);
     }},
    {"sequence",
     [](In, V v, A) {
       if (v.is_undefined() || v.is_string() || v.is(Kind::kDict)) return true;
       if (!v.is(Kind::kSequence)) return false;
       const SequenceKind kind = v.sequence().kind;
       return kind == SequenceKind::kList || kind == SequenceKind::kTuple || kind == SequenceKind::kGroup ||
              kind == SequenceKind::kRange;
     }},
    {"callable",
     [](In, V v, A) { return v.is(Kind::kFunction) || v.is(Kind::kLoop) || v.is(Kind::kJoiner) || v.is_undefined(); }},
    {"odd", [](In in, V v, A) { return test_modulo(in, v, Value::of(int64_t{2}), 1); }},
    {"even", [](In in, V v, A) { return test_modulo(in, v, Value::of(int64_t{2}), 0); }},
    {"divisibleby", [](In in, V v, A a) { return test_modulo(in, v, operand(a, "divisibleby"), 0); }},
    {"sameas",
     [](In in, V v, A a) {
       in.heap().charge_key(v);
       return same_object(v, operand(a, "sameas"));
     }},
    {"escaped", [](In, V, A) { return false; }},
    {"lower", [](In in, V v, A) { return test_cased(in, v, false); }},
    {"upper", [](In in, V v, A) { return test_cased(in, v, true); }},
    {"in", [](In in, V v, A a) { return contains(in.heap(), operand(a, "in"), v); }},
    {"filter", [](In, V v, A) { return v.is_string() && find_filter(v.view()) != nullptr; }},
    {"test", [](In, V v, A) { return v.is_string() && find_test(v.view()) != nullptr; }},
    {"==", test_compare<Op::kEqual>},
    {"eq", test_compare<Op::kEqual>},
    {"equalto", test_compare<Op::kEqual>},
    {"!=", test_compare<Op::kNotEqual>},
    {"ne", test_compare<Op::kNotEqual>},
    {">", test_compare<Op::kGreater>},
    {"gt", test_compare<Op::kGreater>},
    {"greaterthan", test_compare<Op::kGreater>},
    {">=", test_compare<Op::kGreaterEqual>},
    {"ge", test_compare<Op::kGreaterEqual>},
    {"<", test_compare<Op::kLess>},
    {"lt", test_compare<Op::kLess>},
    {"lessthan", test_compare<Op::kLess>},
    {"<=", test_compare<Op::kLessEqual>},
    {"le", test_compare<Op::kLessEqual>},
};

}  // namespace

Binder::Binder(Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> parameters,
               size_t required) {
  if (arguments.positional.size() > parameters.size()) {
    raise(fmt::format("{}() takes at most {} argument(s) ({} given)", function, parameters.size(),
                      arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) raise(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    const auto index = static_cast<size_t>(found - parameters.begin());
    if (values_[index] != nullptr) raise(fmt::format("{}() got multiple values for argument '{}'", function, name));
    values_[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      raise(fmt::format("{}() missing a required argument: '{}'", function, parameters.begin()[i]));
    }
  }
}

bool Binder::flag(size_t index, bool fallback) const { return values_[index] ? truthy(*values_[index]) : fallback; }

int64_t Binder::integer(size_t index, int64_t fallback) const {
  return values_[index] ? as_index(*values_[index]) : fallback;
}

const Value& as_text(const Value& value, std::string_view what) {
  require_defined(value);
  if (!value.is_string()) raise(fmt::format("{} must be str, not {}", what, type_name(value)));
  return value;
}

std::span<const NamedBuiltin> global_functions() { return kGlobals; }

Builtin find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), sequence_filters()}) {
    for (const NamedBuiltin& filter : table) {
      if (filter.name == name) return filter.builtin;
    }
  }
  return nullptr;
}

TestFunction find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return test.function;
  }
  return nullptr;
}

bool all_cased(std::string_view text, bool upper) {
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.bytes;
    if (upper ? is_lower(c.value) || is_title(c.value) : is_upper(c.value) || is_title(c.value)) return false;
    cased |= upper ? is_upper(c.value) : is_lower(c.value);
  }
  return cased;
}

}  // namespace qgen::jinja
