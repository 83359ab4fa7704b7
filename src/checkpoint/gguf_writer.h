// Writes GGUF files, version 3, little endian. Source: ggml, docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/new_file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor.h"

namespace qgen {

// Keys with their values, in the order in which they are added.
class GgufKeys {
 public:
  using Type = GgufValue::Type;

  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, int64_t value);  // U32; a runtime Error where it is none
  void real(std::string_view key, double value);     // F32
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void integers(std::string_view key, std::span<const int32_t> values);
  void reals(std::string_view key, std::span<const float> values);
  void flags(std::string_view key, const std::vector<bool>& values);
  void bytes(std::string_view key, std::string_view values);  // an array of U8

  uint64_t count() const { return count_; }
  const std::string& written() const { return written_; }

 private:
  void begin(std::string_view key, Type type);
  void begin_list(std::string_view key, Type element, size_t count);

  std::string written_;
  uint64_t count_ = 0;
};

// What a file says of a tensor: F32, F16, BF16 or Q8_0, its shape as torch has it.
struct GgufTensorShape {
  std::string name;
  Dtype type = Dtype::kF32;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

// Any thread may write any part of a tensor; the file appears under its name with keep(), as NewFile has it.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufKeys& keys, std::span<const GgufTensorShape> tensors);

  void write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
    file_.write(begins_[tensor] + offset, bytes);
  }
  // The file as it is so far, for this process: all it says of tensors is there from the beginning.
  std::filesystem::path readable() const { return file_.readable(); }
  void keep(NewFile::Existing existing = NewFile::Existing::kReplace) { file_.keep(existing); }
  uint64_t size() const { return begins_.back(); }

 private:
  GgufWriter(const std::filesystem::path& path, const std::string& header, std::vector<uint64_t> begins);

  std::vector<uint64_t> begins_;  // of the tensors, in the file, and the file's end
  NewFile file_;
};

}  // namespace qgen
