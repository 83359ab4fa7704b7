// One rendering's memory and its limits: owns the containers, counts steps, bytes and depth, and raises a
// Problem when a template asks for more than any real one does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace qgen::jinja {

struct Limits {
  int64_t steps = 10'000'000;
  size_t text_bytes = size_t{64} << 20;     // one string, and the output
  size_t items = size_t{2} << 20;           // one list or dict
  size_t work_bytes = size_t{1} << 30;      // all text made on the way
  size_t object_bytes = size_t{512} << 20;  // all containers
  int calls = 200;                          // macros and recursive loops within each other
  int depth = 1200;                         // expressions and statements under evaluation
  int height = 200;                         // of a value: lists in lists
};

class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  const Limits& limits() const { return limits_; }

  void step(size_t count = 1);
  // For work in proportion to `bytes` of text that is copied or searched, and for work on each character.
  void charge(size_t bytes);
  void charge_characters(size_t bytes) { charge(bytes * 8); }
  // For comparing or hashing a key.
  void charge_key(const Value& key) {
    if (key.is_string()) charge(key.text().size() / 4);
  }
  void check_text(size_t bytes) const;
  void check_items(size_t count) const;

  // A string value; counts its bytes.
  Value text(TextBuilder&& builder);
  Value text(std::string bytes, bool user);
  // [begin, end) in bytes.
  Value slice(const Value& text, size_t begin, size_t end);

  Value list(std::vector<Value> items, SequenceKind kind = SequenceKind::kList);
  Value tuple(std::vector<Value> items) { return list(std::move(items), SequenceKind::kTuple); }
  Value generator(std::vector<Value> items) { return list(std::move(items), SequenceKind::kGenerator); }
  // Entries are added by Dict::set and then declared complete by finish.
  Dict* new_dict();
  Value finish(Dict* dict);

  template <class T>
  T* make(size_t extra_bytes = 0) {
    reserve(sizeof(T) + extra_bytes);
    auto owned = std::make_unique<T>();
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }

  // Counts the depth of a recursion for as long as it lives.
  class Depth {
   public:
    explicit Depth(Heap& heap) : heap_(heap) {
      if (++heap_.depth_ > heap_.limits_.depth) {
        --heap_.depth_;
        raise("maximum recursion depth exceeded");
      }
    }
    ~Depth() { --heap_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Heap& heap_;
  };

 private:
  void reserve(size_t bytes);
  void check_height(Object& object, const Value& child) const;

  Limits limits_;
  int64_t steps_ = 0;
  size_t work_bytes_ = 0;
  size_t object_bytes_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace qgen::jinja
