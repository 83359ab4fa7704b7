#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"

namespace qgen {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr size_t kMaxDimensions = 8;

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  int bits;
  BlockShape block = {0, 0};  // of types that come in blocks
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kBool, "BOOL", 8},
    {Dtype::kF4, "F4", 4},
    {Dtype::kF6E2M3, "F6_E2M3", 6},
    {Dtype::kF6E3M2, "F6_E3M2", 6},
    {Dtype::kU8, "U8", 8},
    {Dtype::kI8, "I8", 8},
    {Dtype::kF8E5M2, "F8_E5M2", 8},
    {Dtype::kF8E4M3, "F8_E4M3", 8},
    {Dtype::kF8E8M0, "F8_E8M0", 8},
    {Dtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {Dtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {Dtype::kI16, "I16", 16},
    {Dtype::kU16, "U16", 16},
    {Dtype::kF16, "F16", 16},
    {Dtype::kBf16, "BF16", 16},
    {Dtype::kI32, "I32", 32},
    {Dtype::kU32, "U32", 32},
    {Dtype::kF32, "F32", 32},
    {Dtype::kC64, "C64", 64},
    {Dtype::kF64, "F64", 64},
    {Dtype::kI64, "I64", 64},
    {Dtype::kU64, "U64", 64},
    {Dtype::kQ4_0, "Q4_0", 0, {32, 18}},
    {Dtype::kQ4_1, "Q4_1", 0, {32, 20}},
    {Dtype::kQ5_0, "Q5_0", 0, {32, 22}},
    {Dtype::kQ5_1, "Q5_1", 0, {32, 24}},
    {Dtype::kQ8_0, "Q8_0", 0, {kQ8_0BlockElements, kQ8_0BlockBytes}},
    {Dtype::kQ2_K, "Q2_K", 0, {256, 84}},
    {Dtype::kQ3_K, "Q3_K", 0, {256, 110}},
    {Dtype::kQ4_K, "Q4_K", 0, {256, 144}},
    {Dtype::kQ5_K, "Q5_K", 0, {256, 176}},
    {Dtype::kQ6_K, "Q6_K", 0, {256, 210}},
    {Dtype::kIq4Nl, "IQ4_NL", 0, {32, 18}},
    {Dtype::kIq4Xs, "IQ4_XS", 0, {256, 136}},
    {Dtype::kMxfp4, "MXFP4", 0, {32, 17}},
};

const DtypeRow& row_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

// One header entry before its place in the data is known to be sound.
struct Entry {
  TensorView tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

Entry parse_entry(std::string_view name, const Json& json, const std::string& file) {
  const auto fail_here = [&](const std::string& problem) {
    fail(ErrorKind::kModel, fmt::format("{}: tensor {}: {}", file, quoted_name(name), problem));
  };
  if (name.find('\0') != std::string_view::npos) fail_here("a NUL character in the name");
  if (!json.is_object()) fail_here("its header entry is not an object");
  for (const auto& [key, value] : json.members()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      fail_here(fmt::format("unknown key {}", quoted_name(key)));
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!json.find(key)) fail_here(fmt::format("{} is missing", key));
  }

  Entry entry;
  entry.tensor.name = name;
  entry.tensor.file = file;
  const std::string_view dtype = json.at("dtype").as_string();
  if (const auto known = dtype_from_name(dtype)) {
    entry.tensor.dtype = *known;
  } else {
    fail_here(fmt::format("unknown dtype {}", quoted_name(dtype)));
  }
  const Json shape_json = json.at("shape");
  if (const size_t dimensions = shape_json.count(); dimensions > kMaxDimensions) {
    fail_here(fmt::format("too many dimensions (expected at most {}, found {})", kMaxDimensions, dimensions));
  }
  uint64_t bits = static_cast<uint64_t>(dtype_bits(entry.tensor.dtype));
  for (const Json& dimension : shape_json.elements()) {
    const int64_t size = dimension.as_integer(0);
    entry.tensor.shape.push_back(size);
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(size), &bits)) fail_here("the shape's size overflows");
  }
  const Json offsets_json = json.at("data_offsets");
  if (const size_t count = offsets_json.count(); count != 2)
    fail_here(fmt::format("data_offsets (expected 2 numbers, found {})", count));
  const auto offsets = offsets_json.elements();
  entry.begin = static_cast<uint64_t>(offsets[0].as_integer(0));
  entry.end = static_cast<uint64_t>(offsets[1].as_integer(0));
  if (entry.end < entry.begin) fail_here(fmt::format("data_offsets run backwards ([{}, {}])", entry.begin, entry.end));
  if (bits % 8 != 0) fail_here("its size is not a whole number of bytes");
  if (entry.end - entry.begin != bits / 8) {
    fail_here(fmt::format("data size does not fit {} {} (expected {} bytes, found {})", dtype,
                          entry.tensor.shape_text(), bits / 8, entry.end - entry.begin));
  }
  return entry;
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return row_of(dtype).name; }
int dtype_bits(Dtype dtype) { return row_of(dtype).bits; }
BlockShape block_shape(Dtype dtype) {
  const DtypeRow& row = row_of(dtype);
  return row.block.elements > 0 ? row.block : BlockShape{1, row.bits / 8};
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name && row.bits > 0) return row.dtype;
  }
  return {};
}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string TensorView::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

namespace {

Safetensors parse_file(std::span<const std::byte> file_bytes, const std::string& file_name, const BlankData& blank) {
  const auto fail_file = [&](const std::string& problem, std::string hint = {}) {
    fail(ErrorKind::kModel, fmt::format("{}: {}", file_name, problem), std::move(hint));
  };
  uint64_t header_bytes = 0;
  if (file_bytes.size() < sizeof header_bytes) {
    fail_file(fmt::format("too short for a safetensors file (expected at least 8 bytes, found {})", file_bytes.size()),
              "an interrupted download or a placeholder? compare the file's size with the original");
  }
  std::memcpy(&header_bytes, file_bytes.data(), sizeof header_bytes);
  std::span<const std::byte> rest = file_bytes.subspan(sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    const std::string_view start(reinterpret_cast<const char*>(file_bytes.data()), 8);
    fail_file(fmt::format("header too large (expected at most {} bytes, found {})", kMaxHeaderBytes, header_bytes),
              start.starts_with("version ") ? "this is a Git LFS pointer, not the weights: run `git lfs pull`"
                                            : "not a safetensors file?");
  }
  if (header_bytes > rest.size()) {
    fail_file(fmt::format("truncated header (expected {} bytes, found {})", header_bytes, rest.size()),
              "an interrupted download? compare the file's size with the original");
  }
  const std::string_view header(reinterpret_cast<const char*>(rest.data()), header_bytes);
  std::span<const std::byte> data = rest.subspan(header_bytes);

  Safetensors out;
  const auto document = JsonDocument::parse(header, file_name + ": header");
  if (!document->root().is_object()) fail_file("the header is not a JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, value] : document->root().members()) {
    if (name == "__metadata__") {
      for (const auto& [key, text] : value.members()) out.metadata.emplace(key, text.as_string());
    } else {
      entries.push_back(parse_entry(name, value, file_name));
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const uint64_t end = entries.empty() ? 0 : entries.back().end;
  if (blank && end > data.size() && end <= kLargestFile) data = blank(end);
  uint64_t position = 0;
  for (Entry& entry : entries) {
    if (entry.begin != position) {
      fail_file(
          fmt::format("tensor {}: its data {} (expected to begin at {}, found {})", quoted_name(entry.tensor.name),
                      entry.begin < position ? "overlaps another tensor's" : "leaves a hole", position, entry.begin));
    }
    position = entry.end;
    if (position > data.size()) {
      fail_file(fmt::format("truncated: tensor {} ends beyond the file (expected {} bytes of data, found {})",
                            quoted_name(entry.tensor.name), entries.back().end, data.size()),
                "an interrupted download? compare the file's size with the original");
    }
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    out.tensors.push_back(std::move(entry.tensor));
  }
  if (position != data.size()) {
    fail_file(fmt::format("trailing data after the last tensor (expected {} bytes of data, found {})", position,
                          data.size()));
  }
  return out;
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> file_bytes, const std::string& file_name,
                              const BlankData& blank) {
  return with_memory_for(file_name, file_bytes.size(), [&] { return parse_file(file_bytes, file_name, blank); });
}

}  // namespace qgen
