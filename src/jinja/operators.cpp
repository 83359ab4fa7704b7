#include "jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

bool is_list(const Value& v) { return v.is(Kind::kSequence) && v.sequence().kind == SequenceKind::kList; }
bool is_tuple(const Value& v) {
  return v.is(Kind::kSequence) &&
         (v.sequence().kind == SequenceKind::kTuple || v.sequence().kind == SequenceKind::kGroup);
}
bool is_kind(const Value& v, SequenceKind kind) { return v.is(Kind::kSequence) && v.sequence().kind == kind; }

std::string_view symbol(Op op) {
  switch (op) {
    case Op::kAdd: return "+";
    case Op::kSubtract: return "-";
    case Op::kMultiply: return "*";
    case Op::kDivide: return "/";
    case Op::kFloorDivide: return "//";
    case Op::kModulo: return "%";
    case Op::kPower: return "** or pow()";
    case Op::kLess: return "<";
    case Op::kLessEqual: return "<=";
    case Op::kGreater: return ">";
    case Op::kGreaterEqual: return ">=";
    default: return "?";
  }
}

[[noreturn]] void unsupported(Op op, const Value& a, const Value& b) {
  raise(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b)));
}

[[noreturn]] void overflow() { raise("the result does not fit in a 64-bit integer"); }

Value with_user(Value value, const Value& a, const Value& b) {
  value.user = a.user || b.user;
  return value;
}

int sign(long double x) { return x < 0 ? -1 : x > 0 ? 1 : 0; }

Value power(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral() && b.as_int() >= 0) {
    int64_t base = a.as_int(), exponent = b.as_int(), result = 1;
    if (base == 0 || base == 1) return Value::of(exponent == 0 ? int64_t{1} : base);
    if (base == -1) return Value::of(exponent % 2 ? int64_t{-1} : int64_t{1});
    if (exponent > 63) overflow();
    for (; exponent > 0; --exponent) {
      if (__builtin_mul_overflow(result, base, &result)) overflow();
    }
    return Value::of(result);
  }
  const double base = a.as_double(), exponent = b.as_double();
  if (base == 0 && exponent < 0) raise("0.0 cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent)) raise("complex numbers are not supported");
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) raise("Result too large");
  return Value::of(result);
}

Value integer_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::of(result);
    case Op::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::of(result);
    case Op::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::of(result);
    case Op::kDivide:
      if (b == 0) raise("division by zero");
      return Value::of(static_cast<double>(a) / static_cast<double>(b));
    default: break;
  }
  if (b == 0) raise(op == Op::kModulo ? "integer modulo by zero" : "integer division or modulo by zero");
  if (b == -1) {  // INT64_MIN / -1 overflows
    if (op == Op::kModulo) return Value::of(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, a, &result)) overflow();
    return Value::of(result);
  }
  int64_t quotient = a / b, remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    --quotient;
  }
  return Value::of(op == Op::kModulo ? remainder : quotient);
}

Value float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd: return Value::of(a + b);
    case Op::kSubtract: return Value::of(a - b);
    case Op::kMultiply: return Value::of(a * b);
    case Op::kDivide:
      if (b == 0) raise("float division by zero");
      return Value::of(a / b);
    default: break;
  }
  if (b == 0) raise(op == Op::kModulo ? "float modulo" : "float floor division by zero");
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == Op::kModulo) return Value::of(remainder);
  if (quotient == 0) return Value::of(std::copysign(0.0, a / b));
  const double floored = std::floor(quotient);
  return Value::of(quotient - floored > 0.5 ? floored + 1 : floored);
}

Value repeat(Heap& heap, const Value& object, int64_t count) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (object.is_string()) {
    const size_t size = object.text().size();
    if (size != 0 && times > heap.limits().text_bytes / size) heap.check_text(heap.limits().text_bytes + 1);
    TextBuilder builder;
    if (size != 0) {
      for (uint64_t i = 0; i < times; ++i) builder.append(object.text());
    }
    return heap.text(std::move(builder));
  }
  const auto& items = object.sequence().items;
  if (!items.empty() && times > heap.limits().items / items.size()) heap.check_items(heap.limits().items + 1);
  std::vector<Value> out;
  out.reserve(items.size() * times);
  for (uint64_t i = 0; !items.empty() && i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return heap.list(std::move(out), is_tuple(object) ? SequenceKind::kTuple : SequenceKind::kList);
}

Value add_other(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string()) {
    if (!b.is_string()) raise(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
    if (a.text().empty()) return b;
    if (b.text().empty()) return a;
    heap.check_text(a.text().size() + b.text().size());
    TextBuilder builder;
    builder.append(a.text());
    builder.append(b.text());
    return heap.text(std::move(builder));
  }
  if ((is_list(a) && is_list(b)) || (is_tuple(a) && is_tuple(b))) {
    std::vector<Value> items = a.sequence().items;
    heap.check_items(items.size() + b.sequence().items.size());
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    return heap.list(std::move(items), is_list(a) ? SequenceKind::kList : SequenceKind::kTuple);
  }
  if (is_list(a) || is_tuple(a)) {
    raise(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b)));
  }
  unsupported(Op::kAdd, a, b);
}

bool equal_dicts(Heap& heap, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    heap.charge_key(key);
    const Value* other = b.find(key);
    if (other == nullptr || !equal(heap, value, *other)) return false;
  }
  return true;
}

// The items of a list-like between indices as Python slices it.
struct Span {
  int64_t start, stop, step;
  size_t count;
};

Span resolve(const Value& start, const Value& stop, const Value& step, size_t size) {
  const auto get = [](const Value& v, int64_t fallback) {
    if (v.is_none()) return fallback;
    if (!v.is_integral()) raise("slice indices must be integers or None or have an __index__ method");
    return v.as_int();
  };
  Span span{};
  const auto length = static_cast<int64_t>(size);
  span.step = get(step, 1);
  if (span.step == 0) raise("slice step cannot be zero");
  const bool back = span.step < 0;
  const auto clamp = [&](int64_t index) {
    if (index < 0) index = index < -length ? -1 : index + length;
    if (index < 0) return back ? int64_t{-1} : int64_t{0};
    return std::min(index, back ? length - 1 : length);
  };
  span.start = start.is_none() ? (back ? length - 1 : 0) : clamp(get(start, 0));
  span.stop = stop.is_none() ? (back ? -1 : length) : clamp(get(stop, 0));
  const int64_t distance = back ? span.start - span.stop : span.stop - span.start;
  // The magnitude as unsigned: -INT64_MIN does not exist.
  const uint64_t stride = back ? uint64_t{0} - static_cast<uint64_t>(span.step) : static_cast<uint64_t>(span.step);
  span.count = distance <= 0 ? 0 : (static_cast<uint64_t>(distance) - 1) / stride + 1;
  return span;
}

Value slice_text(Heap& heap, const Value& object, const Span& span) {
  const Text& text = object.text();
  if (span.count == 0) return heap.text(std::string(), false);
  heap.charge(text.ascii() ? 0 : text.size() / 4);
  if (span.step == 1) {
    const auto start = static_cast<size_t>(span.start);
    return heap.slice(object, text.offset_of(start), text.offset_of(start + span.count));
  }
  std::vector<size_t> offsets;
  if (!text.ascii()) {
    offsets.reserve(text.length());
    for (size_t at = 0; at < text.size(); at += code_point_at(text.view(), at).bytes) offsets.push_back(at);
  }
  TextBuilder builder;
  for (size_t i = 0; i < span.count; ++i) {
    const auto index = static_cast<size_t>(span.start + static_cast<int64_t>(i) * span.step);
    const size_t begin = text.ascii() ? index : offsets[index];
    builder.append(text, begin, begin + code_point_at(text.view(), begin).bytes);
  }
  heap.charge(span.count * 4);
  return heap.text(std::move(builder));
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is_undefined()) raise(std::string(value.view()));
}

bool truthy(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.boolean;
    case Kind::kInt: return value.integer != 0;
    case Kind::kFloat: return value.number != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kSequence: return value.sequence().kind == SequenceKind::kGenerator || !value.sequence().items.empty();
    case Kind::kDict: return !value.dict().entries.empty();
    default: return true;
  }
}

bool equal(Heap& heap, const Value& a, const Value& b) {
  heap.step();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    const long double x = a.is_integral() ? static_cast<long double>(a.as_int()) : a.number;
    const long double y = b.is_integral() ? static_cast<long double>(b.as_int()) : b.number;
    return x == y;
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      heap.charge(a.text().size() / 16);
      return a.view() == b.view();
    case Kind::kSequence: {
      const Sequence &x = a.sequence(), &y = b.sequence();
      if (&x == &y) return true;
      const bool alike = (is_list(a) && is_list(b)) || (is_tuple(a) && is_tuple(b)) ||
                         (x.kind == SequenceKind::kRange && y.kind == SequenceKind::kRange);
      if (!alike || x.items.size() != y.items.size()) return false;
      const Heap::Depth depth(heap);
      for (size_t i = 0; i < x.items.size(); ++i) {
        if (!equal(heap, x.items[i], y.items[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      const Heap::Depth depth(heap);
      return a.object == b.object || equal_dicts(heap, a.dict(), b.dict());
    }
    default: return a.object == b.object;
  }
}

int order(Heap& heap, const Value& a, const Value& b, std::string_view op) {
  heap.step();
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
    const long double x = a.is_integral() ? static_cast<long double>(a.as_int()) : a.number;
    const long double y = b.is_integral() ? static_cast<long double>(b.as_int()) : b.number;
    return sign(x - y);
  }
  if (a.is_string() && b.is_string()) {
    heap.charge(std::min(a.text().size(), b.text().size()) / 16);
    return sign(a.view().compare(b.view()));
  }
  if ((is_list(a) && is_list(b)) || (is_tuple(a) && is_tuple(b))) {
    const Heap::Depth depth(heap);
    const auto &x = a.sequence().items, &y = b.sequence().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(heap, x[i], y[i])) return order(heap, x[i], y[i], op);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  raise(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
}

bool compare(Heap& heap, Op op, const Value& a, const Value& b) {
  const auto nan = [](const Value& v) { return v.is(Kind::kFloat) && std::isnan(v.number); };
  switch (op) {
    case Op::kEqual: return equal(heap, a, b);
    case Op::kNotEqual: return !equal(heap, a, b);
    case Op::kIn: return contains(heap, b, a);
    case Op::kNotIn: return !contains(heap, b, a);
    default: break;
  }
  const int result = order(heap, a, b, symbol(op));
  if (nan(a) || nan(b)) return false;
  switch (op) {
    case Op::kLess: return result < 0;
    case Op::kLessEqual: return result <= 0;
    case Op::kGreater: return result > 0;
    default: return result >= 0;
  }
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kUndefined: return false;
    case Kind::kString: {
      if (!item.is_string()) {
        raise(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      heap.charge(container.text().size() / 4);
      const std::string_view text = container.view(), part = item.view();
      return part.empty() || memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
    }
    case Kind::kDict: heap.charge_key(item); return container.dict().find(item) != nullptr;
    case Kind::kSequence: {
      Sequence& sequence = container.sequence();
      const bool once = sequence.kind == SequenceKind::kGenerator;
      for (size_t i = sequence.next; i < sequence.items.size(); ++i) {
        if (once) sequence.next = i + 1;
        if (equal(heap, sequence.items[i], item)) return true;
      }
      return false;
    }
    default: raise(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
}

Value arithmetic(Heap& heap, Op op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (op == Op::kPower) return with_user(power(a, b), a, b);
    if (a.is_integral() && b.is_integral()) return with_user(integer_arithmetic(op, a.as_int(), b.as_int()), a, b);
    return with_user(float_arithmetic(op, a.as_double(), b.as_double()), a, b);
  }
  if (op == Op::kAdd) return add_other(heap, a, b);
  if (op == Op::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || is_list(v) || is_tuple(v); };
    if (repeatable(a) && b.is_integral()) return repeat(heap, a, b.as_int());
    if (repeatable(b) && a.is_integral()) return repeat(heap, b, a.as_int());
    if (repeatable(a)) raise(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(b)));
    if (repeatable(b)) raise(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(a)));
  }
  unsupported(op, a, b);
}

Value negate(Heap&, Op op, const Value& value) {
  if (op == Op::kNot) return Value::of(!truthy(value));
  require_defined(value);
  if (!value.is_number()) {
    raise(fmt::format("bad operand type for unary {}: '{}'", op == Op::kNegative ? "-" : "+", type_name(value)));
  }
  Value result;
  if (value.is(Kind::kFloat)) {
    result = Value::of(op == Op::kNegative ? -value.number : value.number);
  } else {
    int64_t negated = value.as_int();
    if (op == Op::kNegative && __builtin_sub_overflow(int64_t{0}, negated, &negated)) overflow();
    result = Value::of(negated);
  }
  result.user = value.user;
  return result;
}

std::vector<Value> iterate(Heap& heap, const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Kind::kUndefined: return items;
    case Kind::kString: {
      const Text& text = value.text();
      heap.check_items(text.length());
      heap.charge(text.size() * 32);  // what a string of one character takes
      items.reserve(text.length());
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = code_point_at(text.view(), at).bytes;
        items.push_back(heap.slice(value, at, at + bytes));
        at += bytes;
      }
      return items;
    }
    case Kind::kDict:
      heap.step(value.dict().entries.size() / 8);
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      return items;
    case Kind::kSequence: {
      Sequence& sequence = value.sequence();
      heap.step(sequence.items.size() / 8);
      items.assign(sequence.items.begin() + static_cast<ptrdiff_t>(sequence.next), sequence.items.end());
      if (sequence.kind == SequenceKind::kGenerator) sequence.next = sequence.items.size();
      return items;
    }
    default: raise(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

std::optional<size_t> length_of(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return value.text().length();
    case Kind::kDict: return value.dict().entries.size();
    case Kind::kSequence:
      if (value.sequence().kind == SequenceKind::kGenerator) return {};
      return value.sequence().items.size();
    case Kind::kLoop: return value.loop().items.size();
    default: return {};
  }
}

Value slice_value(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  if (object.is_string()) return slice_text(heap, object, resolve(start, stop, step, object.text().length()));
  if (!is_list(object) && !is_tuple(object) && !is_kind(object, SequenceKind::kRange)) {
    if (object.is(Kind::kDict)) raise("unhashable type: 'slice'");
    raise(fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
  const Sequence& sequence = object.sequence();
  const Span span = resolve(start, stop, step, sequence.items.size());
  std::vector<Value> items;
  items.reserve(span.count);
  for (size_t i = 0; i < span.count; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(span.start + static_cast<int64_t>(i) * span.step)]);
  }
  const SequenceKind kind = sequence.kind == SequenceKind::kGroup ? SequenceKind::kTuple : sequence.kind;
  Value out = heap.list(std::move(items), kind);
  out.sequence().user = sequence.user;
  if (kind == SequenceKind::kRange) {
    // Only printing needs these; the arithmetic may wrap.
    const auto at = [&](int64_t index) {
      return static_cast<int64_t>(static_cast<uint64_t>(sequence.start) +
                                  static_cast<uint64_t>(index) * static_cast<uint64_t>(sequence.step));
    };
    out.sequence().start = at(span.start);
    out.sequence().stop = at(span.stop);
    out.sequence().step = static_cast<int64_t>(static_cast<uint64_t>(sequence.step) * static_cast<uint64_t>(span.step));
  }
  return out;
}

std::optional<Value> item_of(Heap& heap, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (key.is(Kind::kDict) || is_list(key)) return {};  // unhashable
    heap.charge_key(key);
    const Value* found = object.dict().find(key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_integral()) return {};
  int64_t index = key.as_int();
  const auto resolved = [&](size_t size) {
    if (index < 0) index += static_cast<int64_t>(size);
    return index >= 0 && index < static_cast<int64_t>(size);
  };
  if (object.is_string()) {
    const Text& text = object.text();
    if (!resolved(text.length())) return {};
    if (!text.ascii()) heap.charge(text.size() / 4);
    const size_t begin = text.offset_of(static_cast<size_t>(index));
    return heap.slice(object, begin, begin + code_point_at(text.view(), begin).bytes);
  }
  if (is_list(object) || is_tuple(object) || is_kind(object, SequenceKind::kRange)) {
    const auto& items = object.sequence().items;
    if (!resolved(items.size())) return {};
    return items[static_cast<size_t>(index)];
  }
  return {};
}

int64_t as_index(const Value& value) {
  require_defined(value);
  if (!value.is_integral()) raise(fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
  return value.as_int();
}

}  // namespace qgen::jinja
