#include "jinja/heap.h"

#include <algorithm>

#include <fmt/format.h>

namespace qgen::jinja {

void Heap::step(size_t count) {
  steps_ += static_cast<int64_t>(count);
  if (steps_ > limits_.steps) raise(fmt::format("the template takes more than {} steps", limits_.steps));
}

void Heap::charge(size_t bytes) {
  work_bytes_ += bytes;
  if (work_bytes_ > limits_.work_bytes) {
    raise(fmt::format("the template works on more than {} bytes of text", limits_.work_bytes));
  }
}

void Heap::check_text(size_t bytes) const {
  if (bytes > limits_.text_bytes) raise(fmt::format("a string of more than {} bytes", limits_.text_bytes));
}

void Heap::check_items(size_t count) const {
  if (count > limits_.items) raise(fmt::format("a list of more than {} items", limits_.items));
}

void Heap::reserve(size_t bytes) {
  object_bytes_ += bytes;
  if (object_bytes_ > limits_.object_bytes) {
    raise(fmt::format("the template uses more than {} bytes of memory", limits_.object_bytes));
  }
}

Value Heap::text(TextBuilder&& builder) {
  check_text(builder.size());
  charge(builder.size());
  return Value::of(builder.take());
}

Value Heap::text(std::string bytes, bool user) {
  check_text(bytes.size());
  charge(bytes.size());
  return Value::of(Text(std::move(bytes), user));
}

Value Heap::slice(const Value& text, size_t begin, size_t end) {
  if (begin == 0 && end == text.text().size()) return text;
  TextBuilder builder;
  if (begin < end) builder.append(text.text(), begin, end);
  return this->text(std::move(builder));
}

void Heap::check_height(Object& object, const Value& child) const {
  if (child.kind != Kind::kSequence && child.kind != Kind::kDict) return;
  object.height = std::max(object.height, child.object->height + 1);
  if (object.height > limits_.height) raise(fmt::format("a value nested more than {} levels deep", limits_.height));
}

Value Heap::list(std::vector<Value> items, SequenceKind kind) {
  check_items(items.size());
  step(items.size() / 8);
  Sequence* sequence = make<Sequence>(items.size() * sizeof(Value));
  sequence->kind = kind;
  for (const Value& item : items) check_height(*sequence, item);
  sequence->items = std::move(items);
  return Value::of(sequence);
}

Dict* Heap::new_dict() { return make<Dict>(); }

Value Heap::finish(Dict* dict) {
  check_items(dict->entries.size());
  step(dict->entries.size() / 8);
  reserve(dict->entries.size() * 3 * sizeof(Value));
  for (const auto& [key, value] : dict->entries) {
    check_height(*dict, key);
    check_height(*dict, value);
  }
  return Value::of(dict);
}

}  // namespace qgen::jinja
