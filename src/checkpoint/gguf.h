// The GGUF container, versions 2 and 3, little endian: keys with values, then tensors, then their data.
// Checks all that the reference implementation (ggml, gguf.cpp) checks before anything is believed, counts against
// the size of the file first of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor.h"

namespace qgen {

// The value of a key, as it lies in the file.
struct GgufValue {
  enum class Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
  Type type = Type::kU8;
  Type element = Type::kU8;          // of an array
  uint64_t count = 1;                // elements of an array
  std::span<const std::byte> bytes;  // little endian; of a string its characters, of an array all its elements
};

class Gguf {
 public:
  // A whole mapped file, which the result points into. `file_name` is for messages; `alignment` is that of the data
  // where the file does not say (parts of a split model may leave it to the first). Throws a model Error that names
  // the file and, where there is one, the key or the tensor.
  // `blank`: as for parse_safetensors().
  static Gguf parse(std::span<const std::byte> file, std::string file_name, uint32_t alignment = 32,
                    const BlankData& blank = {});

  const std::string& file_name() const { return file_name_; }
  uint32_t alignment() const { return alignment_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }  // in the order of their data
  const GgufValue* find(std::string_view key) const;                   // nullptr if absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // The value of a key, nothing if it is absent; a model Error if it is of another type or out of range.
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key, int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;
  // Integers included; the shortest decimal that reads back as the same number is what the file was made from.
  std::optional<std::string> decimal(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;
  std::optional<std::vector<bool>> flags(std::string_view key) const;

  [[noreturn]] void fail_key(std::string_view key, const std::string& problem, std::string hint = {}) const;

 private:
  friend class GgufReader;
  std::string file_name_;
  uint32_t alignment_ = 32;
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<TensorView> tensors_;
};

}  // namespace qgen
