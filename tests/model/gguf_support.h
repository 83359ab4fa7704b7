// Writes GGUF files, right ones and wrong ones.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/gguf.h"

namespace qgen::test {

template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
inline void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t(text.size()));
  out += text;
}

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // as torch has it
  uint32_t type = 0;           // F32 0, F16 1, Q8_0 8, BF16 30
  std::string data;
  std::optional<uint64_t> offset = {};  // where it is said to be, if not where it is
};

// A GGUF file in parts, which a test changes to make a damaged one.
struct GgufFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count, key_count;
  uint64_t alignment = 32;
  std::vector<std::pair<std::string, std::string>> keys;  // name, type and value
  std::vector<GgufTensor> tensors;

  using Type = GgufValue::Type;
  template <typename T>
  void number(const std::string& key, Type type, T value) {
    std::string bytes;
    put(bytes, uint32_t(type));
    put(bytes, value);
    keys.emplace_back(key, bytes);
  }
  void u32(const std::string& key, int64_t value) { number(key, Type::kU32, uint32_t(value)); }
  void f32(const std::string& key, double value) { number(key, Type::kF32, float(value)); }
  void flag(const std::string& key, bool value) { number(key, Type::kBool, uint8_t(value)); }
  void text(const std::string& key, std::string_view value) {
    std::string bytes;
    put(bytes, uint32_t(Type::kString));
    put_text(bytes, value);
    keys.emplace_back(key, bytes);
  }
  template <typename T>
  void list(const std::string& key, Type type, const std::vector<T>& values) {
    std::string bytes;
    put(bytes, uint32_t(Type::kArray));
    put(bytes, uint32_t(type));
    put(bytes, uint64_t(values.size()));
    for (const auto& value : values) {
      if constexpr (std::is_same_v<T, std::string>) {
        put_text(bytes, value);
      } else {
        put(bytes, value);
      }
    }
    keys.emplace_back(key, bytes);
  }
  void replace(const std::string& key) {
    std::erase_if(keys, [&](const auto& entry) { return entry.first == key; });
  }

  std::string bytes() const {
    std::string out = magic, data;
    put(out, version);
    put(out, tensor_count.value_or(tensors.size()));
    put(out, key_count.value_or(keys.size()));
    for (const auto& [name, value] : keys) {
      put_text(out, name);
      out += value;
    }
    for (const GgufTensor& tensor : tensors) {
      put_text(out, tensor.name);
      put(out, uint32_t(tensor.shape.size()));
      for (size_t i = tensor.shape.size(); i-- > 0;) put(out, tensor.shape[i]);
      put(out, tensor.type);
      put(out, tensor.offset.value_or(data.size()));
      data += tensor.data;
      data.resize((data.size() + alignment - 1) / alignment * alignment);
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

}  // namespace qgen::test
