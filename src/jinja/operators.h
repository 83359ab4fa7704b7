// Python's operators on template values: truth, equality, order, arithmetic, membership, iteration,
// indexing. What Python refuses raises a Problem, in Python's words where they are known.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "jinja/heap.h"
#include "jinja/node.h"

namespace qgen::jinja {

bool truthy(const Value& value);
bool equal(Heap& heap, const Value& a, const Value& b);
// -1, 0 or 1; `op` is for the message.
int order(Heap& heap, const Value& a, const Value& b, std::string_view op = "<");
bool compare(Heap& heap, Op op, const Value& a, const Value& b);
bool contains(Heap& heap, const Value& container, const Value& item);
Value arithmetic(Heap& heap, Op op, const Value& a, const Value& b);
Value negate(Heap& heap, Op op, const Value& value);
// What a loop over the value gives; a generator is used up by it.
std::vector<Value> iterate(Heap& heap, const Value& value);
// len(); nothing for what has no length.
std::optional<size_t> length_of(const Value& value);
Value slice_value(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step);
// object[key] without the fallback to attributes; nothing if Python raises.
std::optional<Value> item_of(Heap& heap, const Value& object, const Value& key);
// A raise() with an undefined value's reason.
void require_defined(const Value& value);
// Python's `abs`, `round`-like checks share this: the value as an integer index, or a TypeError.
int64_t as_index(const Value& value);

}  // namespace qgen::jinja
