// The filters over sequences and mappings: selecting, sorting, grouping, aggregating.
#include <algorithm>

#include <fmt/format.h>

#include "jinja/builtins.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

using In = Interpreter&;
using V = const Value&;
using A = Arguments&;

// The steps of an attribute path: "a.0.b".
std::vector<Value> path_of(In in, const Value* attribute) {
  std::vector<Value> path;
  if (attribute == nullptr || attribute->is_none()) return path;
  if (!attribute->is_string()) return {*attribute};
  const Text& text = attribute->text();
  in.heap().charge_characters(text.size());
  for (size_t at = 0; at <= text.size();) {
    const size_t dot = std::min(text.view().find('.', at), text.size());
    const std::string_view part = text.view().substr(at, dot - at);
    if (!part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos) {
      path.push_back(Value::of(static_cast<int64_t>(std::stoll(std::string(part)))));
    } else {
      path.push_back(in.heap().slice(*attribute, at, dot));
    }
    at = dot + 1;
  }
  return path;
}

Value follow(In in, Value value, const std::vector<Value>& path, const Value* fallback = nullptr) {
  for (const Value& part : path) {
    value = in.item(value, part);
    if (fallback != nullptr && !fallback->is_none() && value.is_undefined()) value = *fallback;
  }
  return value;
}

Value without_case(In in, Value value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? change_case(in.heap(), value, "lower") : value;
}

// Items with what they are sorted by.
struct Keyed {
  std::vector<Value> keys;
  Value item;
};

void sort_keyed(In in, std::vector<Keyed>& items, bool reverse) {
  const auto less = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
      if (!equal(in.heap(), a.keys[i], b.keys[i])) return order(in.heap(), a.keys[i], b.keys[i]) < 0;
    }
    return false;
  };
  // Equal items keep their order in both directions, as in Python.
  std::stable_sort(items.begin(), items.end(),
                   [&](const Keyed& a, const Keyed& b) { return reverse ? less(b, a) : less(a, b); });
}

Value sort_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<std::vector<Value>> paths;
  const Value* attribute = bound.get(2);
  if (attribute != nullptr && attribute->is_string()) {
    const Text& text = attribute->text();
    in.heap().charge_characters(text.size());
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.view().find(',', at), text.size());
      const Value part = in.heap().slice(*attribute, at, comma);
      paths.push_back(path_of(in, &part));
      at = comma + 1;
    }
  } else {
    paths.push_back(path_of(in, attribute));
  }
  std::vector<Keyed> keyed;
  for (Value& item : iterate(in.heap(), self)) {
    Keyed entry;
    for (const auto& path : paths) entry.keys.push_back(without_case(in, follow(in, item, path), bound.flag(1, false)));
    entry.item = std::move(item);
    keyed.push_back(std::move(entry));
  }
  sort_keyed(in, keyed, bound.flag(0, false));
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return in.heap().list(std::move(items));
}

const Dict& as_dict(V value) {
  require_defined(value);
  if (!value.is(Kind::kDict)) raise(fmt::format("'{}' object has no attribute 'items'", type_name(value)));
  return value.dict();
}

Value dictsort(In in, V self, A arguments) {
  const Binder bound(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string_view by = bound.get(1) ? as_text(bound.at(1), "by").view() : "key";
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : as_dict(self).entries) {
    keyed.push_back(
        {{without_case(in, by == "key" ? key : value, bound.flag(0, false))}, in.heap().tuple({key, value})});
  }
  sort_keyed(in, keyed, bound.flag(2, false));
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return in.heap().list(std::move(items));
}

Value groupby(In in, V self, A arguments) {
  const Binder bound(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const std::vector<Value> path = path_of(in, bound.get(0));
  const bool case_sensitive = bound.flag(2, false);
  std::vector<Keyed> keyed;
  for (Value& item : iterate(in.heap(), self)) {
    Value key = follow(in, item, path, bound.get(1));
    keyed.push_back({{without_case(in, std::move(key), case_sensitive)}, std::move(item)});
  }
  sort_keyed(in, keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin + 1;
    while (end < keyed.size() && equal(in.heap(), keyed[end].keys[0], keyed[begin].keys[0])) ++end;
    std::vector<Value> members;
    for (size_t i = begin; i < end; ++i) members.push_back(keyed[i].item);
    const Value key = follow(in, members[0], path, bound.get(1));
    groups.push_back(in.heap().list({key, in.heap().list(std::move(members))}, SequenceKind::kGroup));
    begin = end;
  }
  return in.heap().list(std::move(groups));
}

Value unique(In in, V self, A arguments) {
  const Binder bound(arguments, "unique", {"case_sensitive", "attribute"});
  const std::vector<Value> path = path_of(in, bound.get(1));
  Dict seen;
  std::vector<Value> items;
  for (Value& item : iterate(in.heap(), self)) {
    in.heap().step();
    const Value key = without_case(in, follow(in, item, path), bound.flag(0, false));
    in.heap().charge_key(key);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    items.push_back(std::move(item));
  }
  return in.heap().generator(std::move(items));
}

Value extreme(In in, V self, A arguments, bool largest) {
  const Binder bound(arguments, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const std::vector<Value> path = path_of(in, bound.get(1));
  const std::vector<Value> items = iterate(in.heap(), self);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](V item) { return without_case(in, follow(in, item, path), bound.flag(0, false)); };
  Value best = items[0], best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (compare(in.heap(), largest ? Op::kGreater : Op::kLess, key, best_key)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value sum_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "sum", {"attribute", "start"});
  const std::vector<Value> path = path_of(in, bound.get(0));
  Value total = bound.get(1) ? bound.at(1) : Value::of(int64_t{0});
  if (total.is_string()) raise("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(in.heap(), self)) {
    in.heap().step();
    total = arithmetic(in.heap(), Op::kAdd, total, follow(in, item, path));
  }
  return total;
}

Value map_filter(In in, V self, A arguments) {
  std::vector<Value> out;
  if (!truthy(self)) return in.heap().generator(std::move(out));
  if (arguments.positional.empty()) {
    const bool has_attribute = std::any_of(arguments.named.begin(), arguments.named.end(),
                                           [](const auto& named) { return named.first == "attribute"; });
    if (!has_attribute) raise("map requires a filter argument");
    const Binder bound(arguments, "map", {"attribute", "default"});
    const std::vector<Value> path = path_of(in, bound.get(0));
    for (const Value& item : iterate(in.heap(), self)) out.push_back(follow(in, item, path, bound.get(1)));
    return in.heap().generator(std::move(out));
  }
  const Value name = as_text(arguments.positional[0], "the filter's name");
  for (const Value& item : iterate(in.heap(), self)) {
    Arguments rest;
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    rest.named = arguments.named;
    in.heap().step(rest.positional.size() + rest.named.size());
    const Heap::Depth depth(in.heap());
    out.push_back(in.filter(name.view(), item, rest));
  }
  return in.heap().generator(std::move(out));
}

Value choose(In in, V self, A arguments, bool keep, bool by_attribute) {
  std::vector<Value> out;
  if (!truthy(self)) return in.heap().generator(std::move(out));
  const auto& given = arguments.positional;
  if (by_attribute && given.empty()) raise("Missing parameter for attribute name");
  const std::vector<Value> path = by_attribute ? path_of(in, &given[0]) : std::vector<Value>();
  const size_t first = by_attribute ? 1 : 0;
  for (Value& item : iterate(in.heap(), self)) {
    in.heap().step(given.size() + 1);
    const Value tested = follow(in, item, path);
    bool passed = false;
    if (given.size() > first) {
      Arguments rest;
      rest.positional.assign(given.begin() + static_cast<ptrdiff_t>(first) + 1, given.end());
      rest.named = arguments.named;
      passed = in.test(as_text(given[first], "the test's name").view(), tested, rest);
    } else {
      passed = truthy(tested);
    }
    if (passed == keep) out.push_back(std::move(item));
  }
  return in.heap().generator(std::move(out));
}

Value join_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "join", {"d", "attribute"});
  const std::vector<Value> path = path_of(in, bound.get(1));
  std::vector<Value> items = iterate(in.heap(), self);
  if (!path.empty()) {
    for (Value& item : items) item = follow(in, std::move(item), path);
  }
  const Value separator = bound.get(0) ? to_string(in.heap(), bound.at(0)) : in.heap().text(std::string(), false);
  return join_values(in.heap(), separator, items, false);
}

Value length_filter(In, V self, A arguments) {
  const Binder bound(arguments, "length", {});
  const auto length = length_of(self);
  if (!length) raise(fmt::format("object of type '{}' has no len()", type_name(self)));
  return Value::of(static_cast<int64_t>(*length));
}

Value first_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "first", {});
  if (self.is_string() && !self.text().empty()) {
    return in.heap().slice(self, 0, code_point_at(self.view(), 0).bytes);
  }
  if (self.is(Kind::kSequence)) {
    Sequence& sequence = self.sequence();
    if (sequence.next < sequence.items.size()) {
      const size_t index = sequence.next;
      if (sequence.kind == SequenceKind::kGenerator) ++sequence.next;
      return sequence.items[index];
    }
  } else {
    const std::vector<Value> items = iterate(in.heap(), self);
    if (!items.empty()) return items.front();
  }
  return Value::undefined("No first item, sequence was empty.");
}

Value last_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "last", {});
  if (self.is(Kind::kSequence) && self.sequence().kind == SequenceKind::kGenerator) {
    raise("'generator' object is not reversible");
  }
  if (self.is_none() || self.is_number()) raise(fmt::format("'{}' object is not reversible", type_name(self)));
  if (self.is_string() && !self.text().empty()) {
    const size_t size = self.text().size();
    return in.heap().slice(self, size - code_point_before(self.view(), size).bytes, size);
  }
  const std::vector<Value> items = iterate(in.heap(), self);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "reverse", {});
  if (self.is_string()) return slice_value(in.heap(), self, Value::none(), Value::none(), Value::of(int64_t{-1}));
  const bool generator = self.is(Kind::kSequence) && self.sequence().kind == SequenceKind::kGenerator;
  std::vector<Value> items = iterate(in.heap(), self);
  std::reverse(items.begin(), items.end());
  return generator ? in.heap().list(std::move(items)) : in.heap().generator(std::move(items));
}

Value items_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "items", {});
  if (self.is_undefined()) return in.heap().generator({});
  if (!self.is(Kind::kDict)) raise("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().entries) pairs.push_back(in.heap().tuple({key, value}));
  return in.heap().generator(std::move(pairs));
}

Value batch(In in, V self, A arguments) {
  const Binder bound(arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t count = as_index(bound.at(0));
  std::vector<Value> out, line;
  const auto flush = [&] { out.push_back(in.heap().list(std::exchange(line, {}))); };
  for (Value& item : iterate(in.heap(), self)) {
    if (static_cast<int64_t>(line.size()) == count) flush();
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (bound.get(1) != nullptr && !bound.at(1).is_none() && static_cast<int64_t>(line.size()) < count) {
      in.heap().check_items(static_cast<size_t>(count));
      line.resize(static_cast<size_t>(count), bound.at(1));
    }
    flush();
  }
  return in.heap().generator(std::move(out));
}

Value slice_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "slice", {"slices", "fill_with"}, 1);
  const int64_t slices = as_index(bound.at(0));
  if (slices == 0) raise("integer division or modulo by zero");
  const std::vector<Value> items = iterate(in.heap(), self);
  std::vector<Value> out;
  if (slices > 0) {
    const auto count = static_cast<size_t>(slices);
    in.heap().check_items(count);
    const size_t each = items.size() / count, extra = items.size() % count;
    const bool fill = bound.get(1) != nullptr && !bound.at(1).is_none();
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      in.heap().step();
      const size_t size = each + (i < extra ? 1 : 0);
      std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(at),
                              items.begin() + static_cast<ptrdiff_t>(at + size));
      at += size;
      if (fill && i >= extra) part.push_back(bound.at(1));
      out.push_back(in.heap().list(std::move(part)));
    }
  }
  return in.heap().generator(std::move(out));
}

Value default_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "default", {"default_value", "boolean"});
  if (!self.is_undefined() && !(bound.flag(1, false) && !truthy(self))) return self;
  return bound.get(0) ? bound.at(0) : in.heap().text(std::string(), false);
}

Value attr_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "attr", {"name"}, 1);
  require_defined(self);
  const std::string_view name = as_text(bound.at(0), "attribute name").view();
  in.heap().charge_characters(name.size());
  if (auto own = in.own_attribute(self, name)) return *own;
  return Value::undefined(fmt::format("'{} object' has no attribute {}", type_name(self), repr_text(name)));
}

Value list_filter(In in, V self, A arguments) {
  const Binder bound(arguments, "list", {});
  Value list = in.heap().list(iterate(in.heap(), self));
  if (self.is(Kind::kSequence)) list.sequence().user = self.sequence().user;
  return list;
}

Value random_filter(In, V, A) { raise("the filter 'random' is not supported: a prompt must be reproducible"); }

constexpr NamedBuiltin kFilters[] = {
    {"attr", attr_filter},
    {"batch", batch},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", first_filter},
    {"groupby", groupby},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", [](In in, V self, A a) { return extreme(in, self, a, true); }},
    {"min", [](In in, V self, A a) { return extreme(in, self, a, false); }},
    {"random", random_filter},
    {"reject", [](In in, V self, A a) { return choose(in, self, a, false, false); }},
    {"rejectattr", [](In in, V self, A a) { return choose(in, self, a, false, true); }},
    {"reverse", reverse_filter},
    {"select", [](In in, V self, A a) { return choose(in, self, a, true, false); }},
    {"selectattr", [](In in, V self, A a) { return choose(in, self, a, true, true); }},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique},
};

}  // namespace

std::span<const NamedBuiltin> sequence_filters() { return kFilters; }

}  // namespace qgen::jinja
