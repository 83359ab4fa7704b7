#include "checkpoint/gguf_writer.h"

#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"

namespace qgen {
namespace {

constexpr int64_t kAlignment = 32;  // of the data, and of each tensor in it

// ggml.h, enum ggml_type.
uint32_t type_number(Dtype type) {
  switch (type) {
    case Dtype::kF32: return 0;
    case Dtype::kF16: return 1;
    case Dtype::kQ8_0: return 8;
    case Dtype::kBf16: return 30;
    default: fail(ErrorKind::kRuntime, fmt::format("{} is written to no GGUF file", dtype_name(type)));
  }
}

template <typename Value>
void put(std::string& out, Value value) {
  const auto raw = std::bit_cast<std::array<char, sizeof value>>(value);
  out.append(raw.data(), raw.size());
}

void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t(text.size()));
  out += text;
}

// Where each tensor begins behind the header, and where the data end.
std::vector<uint64_t> place(std::span<const GgufTensorShape> tensors) {
  std::vector<uint64_t> out = {0};
  for (const GgufTensorShape& tensor : tensors)
    out.push_back(uint64_t(round_up(int64_t(out.back() + tensor.bytes()), kAlignment)));
  return out;
}

std::string header_of(const GgufKeys& keys, std::span<const GgufTensorShape> tensors) {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, uint64_t(tensors.size()));
  put(out, keys.count());
  out += keys.written();
  const std::vector<uint64_t> places = place(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GgufTensorShape& tensor = tensors[i];
    put_text(out, tensor.name);
    put(out, uint32_t(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) put(out, uint64_t(tensor.shape[d]));  // the innermost one first
    put(out, type_number(tensor.type));
    put(out, places[i]);
  }
  out.resize(size_t(round_up(int64_t(out.size()), kAlignment)), '\0');
  return out;
}

}  // namespace

void GgufKeys::begin(std::string_view key, Type type) {
  put_text(written_, key);
  put(written_, uint32_t(type));
  ++count_;
}

void GgufKeys::begin_list(std::string_view key, Type element, size_t count) {
  begin(key, Type::kArray);
  put(written_, uint32_t(element));
  put(written_, uint64_t(count));
}

void GgufKeys::text(std::string_view key, std::string_view value) {
  begin(key, Type::kString);
  put_text(written_, value);
}

void GgufKeys::number(std::string_view key, int64_t value) {
  if (value < 0 || value > int64_t{UINT32_MAX})
    fail(ErrorKind::kRuntime, fmt::format("GGUF key {}: {} is not an unsigned 32-bit number", key, value));
  begin(key, Type::kU32);
  put(written_, uint32_t(value));
}

void GgufKeys::real(std::string_view key, double value) {
  begin(key, Type::kF32);
  put(written_, float(value));
}

void GgufKeys::flag(std::string_view key, bool value) {
  begin(key, Type::kBool);
  put(written_, uint8_t(value));
}

void GgufKeys::texts(std::string_view key, std::span<const std::string> values) {
  begin_list(key, Type::kString, values.size());
  for (const std::string& value : values) put_text(written_, value);
}

void GgufKeys::integers(std::string_view key, std::span<const int32_t> values) {
  begin_list(key, Type::kI32, values.size());
  for (const int32_t value : values) put(written_, value);
}

void GgufKeys::reals(std::string_view key, std::span<const float> values) {
  begin_list(key, Type::kF32, values.size());
  for (const float value : values) put(written_, value);
}

void GgufKeys::flags(std::string_view key, const std::vector<bool>& values) {
  begin_list(key, Type::kBool, values.size());
  for (const bool value : values) put(written_, uint8_t(value));
}

void GgufKeys::bytes(std::string_view key, std::string_view values) {
  begin_list(key, Type::kU8, values.size());
  written_ += values;
}

uint64_t GgufTensorShape::bytes() const {
  uint64_t elements = 1;
  for (const int64_t size : shape) elements *= uint64_t(size);
  const BlockShape block = block_shape(type);
  return elements / uint64_t(block.elements) * uint64_t(block.bytes);
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
                       std::span<const GgufTensorShape> tensors)
    : GgufWriter(path, header_of(keys, tensors), place(tensors)) {}

GgufWriter::GgufWriter(const std::filesystem::path& path, const std::string& header, std::vector<uint64_t> begins)
    : begins_(std::move(begins)), file_(path, NewFile::Readers::kAll, header.size() + begins_.back()) {
  for (uint64_t& begin : begins_) begin += header.size();
  file_.write(0, std::as_bytes(std::span(header)));
}

}  // namespace qgen
