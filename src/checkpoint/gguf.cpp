#include "checkpoint/gguf.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace qgen {
namespace {

using Type = GgufValue::Type;

// The reference implementation's limits.
constexpr uint64_t kMaxElements = uint64_t{1} << 30;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxTensorName = 63;
constexpr uint64_t kMaxKey = 65535;
// The least that an entry takes: lengths and numbers of fixed size, no characters.
constexpr uint64_t kLeastKeyBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
constexpr size_t kTypeBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
std::string_view type_name(Type type) { return kTypeNames[size_t(type)]; }
size_t type_bytes(Type type) { return kTypeBytes[size_t(type)]; }

// The types of tensors by their number; those without a name were withdrawn.
constexpr std::string_view kTensorTypes[] = {
    "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
    "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4",   "Q1_0"};

// Those that Dtype has under the same name.
constexpr Dtype kSupported[] = {Dtype::kF32,  Dtype::kF16,   Dtype::kBf16,  Dtype::kQ8_0, Dtype::kQ4_0, Dtype::kQ4_1,
                                Dtype::kQ5_0, Dtype::kQ5_1,  Dtype::kQ2_K,  Dtype::kQ3_K, Dtype::kQ4_K, Dtype::kQ5_K,
                                Dtype::kQ6_K, Dtype::kIq4Nl, Dtype::kIq4Xs, Dtype::kMxfp4};

std::optional<Dtype> supported_dtype(std::string_view name) {
  for (const Dtype dtype : kSupported) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return {};
}

std::string supported_names() {
  std::string out;
  for (const Dtype dtype : kSupported) out += fmt::format("{}{}", out.empty() ? "" : ", ", dtype_name(dtype));
  return out;
}

template <typename T>
T load(std::span<const std::byte> bytes, uint64_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof value);
  return value;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_name(std::string_view text) {
  return !text.empty() && text.find('\0') == std::string_view::npos && is_utf8(text);
}

std::optional<int64_t> integer_at(Type type, std::span<const std::byte> bytes, uint64_t i) {
  switch (type) {
    case Type::kU8: return load<uint8_t>(bytes, i);
    case Type::kI8: return load<int8_t>(bytes, i);
    case Type::kU16: return load<uint16_t>(bytes, i);
    case Type::kI16: return load<int16_t>(bytes, i);
    case Type::kU32: return load<uint32_t>(bytes, i);
    case Type::kI32: return load<int32_t>(bytes, i);
    case Type::kI64: return load<int64_t>(bytes, i);
    case Type::kU64: {
      const uint64_t value = load<uint64_t>(bytes, i);
      return value <= uint64_t(INT64_MAX) ? std::optional<int64_t>(value) : std::nullopt;
    }
    default: return {};
  }
}

}  // namespace

// Reads a file from its beginning to where the tensors' data starts.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> file, Gguf& out, const BlankData& blank)
      : file_(file), out_(out), blank_(blank) {}

  void read() {
    read_start();
    for (uint64_t i = 0; i < keys_; ++i) read_key();
    read_alignment();
    for (uint64_t i = 0; i < tensors_; ++i) read_tensor();
    place_tensors();
  }

 private:
  struct Place {
    uint64_t offset;
    uint64_t bytes;
  };

  [[noreturn]] void fail_file(const std::string& problem, std::string hint = {}) const {
    fail(ErrorKind::kModel, fmt::format("{}: {}", out_.file_name_, problem), std::move(hint));
  }
  [[noreturn]] void fail_tensor(std::string_view name, const std::string& problem, std::string hint = {}) const {
    fail_file(fmt::format("tensor {}: {}", is_name(name) ? std::string(name) : json_quote(name), problem),
              std::move(hint));
  }
  uint64_t left() const { return file_.size() - position_; }

  std::span<const std::byte> take(uint64_t bytes, std::string_view what) {
    if (bytes > left()) {
      fail_file(fmt::format("truncated: {} runs beyond the file (expected {} bytes, found {})", what, bytes, left()),
                "an interrupted download? compare the file's size with the original");
    }
    const auto taken = file_.subspan(position_, bytes);
    position_ += bytes;
    return taken;
  }
  template <typename T>
  T number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  std::span<const std::byte> string(std::string_view what, uint64_t limit) {
    const auto length = number<uint64_t>(what);
    if (length > limit) fail_file(fmt::format("{} is too long (expected at most {}, found {})", what, limit, length));
    return take(length, what);
  }

  void read_start() {
    if (file_.size() < 4 || as_text(file_.first(4)) != "GGUF") {
      const bool pointer = as_text(file_.first(std::min<size_t>(file_.size(), 8))) == "version ";
      fail_file("not a GGUF file (expected it to begin with \"GGUF\")",
                pointer ? "this is a Git LFS pointer, not the weights: run `git lfs pull`" : "");
    }
    position_ = 4;
    const auto version = number<uint32_t>("the version");
    if ((version & 0xFFFF) == 0 && version != 0) fail_file("a big-endian GGUF file (expected little-endian)");
    if (version != 2 && version != 3) {
      fail_file(fmt::format("GGUF version {} is not supported (expected 2 or 3)", version));
    }
    tensors_ = number<uint64_t>("the number of tensors");
    keys_ = number<uint64_t>("the number of keys");
    if (keys_ > left() / kLeastKeyBytes || tensors_ > left() / kLeastTensorBytes) {
      fail_file(
          fmt::format("{} keys and {} tensors do not fit into the {} bytes of the file", keys_, tensors_, file_.size()),
          "damaged, or an interrupted download? compare the file's size with the original");
    }
  }

  Type read_type(std::string_view key) {
    const auto type = number<uint32_t>("the type of a value");
    if (type >= std::size(kTypeNames)) {
      out_.fail_key(key, fmt::format("unknown type {} (expected 0 to {})", type, std::size(kTypeNames) - 1));
    }
    return Type(type);
  }

  void read_key() {
    const std::string key(as_text(string("a key", kMaxKey)));
    if (!is_name(key)) fail_file(fmt::format("key {}: empty, or not plain UTF-8", json_quote(key)));
    GgufValue value;
    value.type = read_type(key);
    const std::string what = fmt::format("the value of key {}", key);
    if (value.type == Type::kString) {
      value.bytes = string(what, kMaxElements);
    } else if (value.type == Type::kArray) {
      read_array(key, what, value);
    } else {
      value.bytes = take(type_bytes(value.type), what);
    }
    if (!out_.values_.emplace(key, value).second) out_.fail_key(key, "occurs twice");
  }

  void read_array(const std::string& key, const std::string& what, GgufValue& value) {
    value.element = read_type(key);
    if (value.element == Type::kArray) out_.fail_key(key, "arrays of arrays are not allowed");
    value.count = number<uint64_t>(what);
    const bool strings = value.element == Type::kString;
    const uint64_t least = strings ? sizeof(uint64_t) : type_bytes(value.element);
    if (value.count > kMaxElements || value.count > left() / least) {
      out_.fail_key(key, fmt::format("too many elements (expected at most {}, found {})",
                                     std::min(kMaxElements, left() / least), value.count));
    }
    if (!strings) {
      value.bytes = take(value.count * least, what);
      return;
    }
    const uint64_t begin = position_;
    for (uint64_t i = 0; i < value.count; ++i) string(what, kMaxElements);
    value.bytes = file_.subspan(begin, position_ - begin);
  }

  void read_alignment() {
    constexpr std::string_view kKey = "general.alignment";
    const GgufValue* value = out_.find(kKey);
    if (value == nullptr) return;
    if (value->type != Type::kU32) {
      out_.fail_key(kKey, fmt::format("wrong type (expected u32, found {})", type_name(value->type)));
    }
    out_.alignment_ = load<uint32_t>(value->bytes);
    if (!std::has_single_bit(out_.alignment_)) {
      out_.fail_key(kKey, fmt::format("not a power of two (found {})", out_.alignment_));
    }
  }

  void read_tensor() {
    const auto length = number<uint64_t>("a tensor's name");
    const std::string name(as_text(take(std::min(length, left()), "a tensor's name")));
    if (length > kMaxTensorName || !is_name(name)) {
      fail_tensor(name.substr(0, 100), fmt::format("its name is not plain UTF-8 of 1 to {} bytes", kMaxTensorName));
    }
    const auto dimensions = number<uint32_t>("a tensor's dimensions");
    if (dimensions < 1 || dimensions > kMaxDimensions) {
      fail_tensor(name, fmt::format("number of dimensions (expected 1 to {}, found {})", kMaxDimensions, dimensions));
    }
    TensorView tensor;
    tensor.name = name;
    tensor.file = out_.file_name_;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = number<int64_t>("a tensor's dimensions");
      if (size < 1) fail_tensor(name, fmt::format("dimension {} is {} (expected at least 1)", i, size));
      if (__builtin_mul_overflow(elements, uint64_t(size), &elements) || elements > uint64_t(INT64_MAX)) {
        fail_tensor(name, "the number of elements overflows");
      }
      tensor.shape.insert(tensor.shape.begin(), size);  // the file has the contiguous dimension first
    }
    const auto type = number<uint32_t>("a tensor's type");
    if (type >= std::size(kTensorTypes) || kTensorTypes[type].empty()) {
      fail_tensor(name, fmt::format("unknown type {} (expected one of {})", type, supported_names()));
    }
    const auto dtype = supported_dtype(kTensorTypes[type]);
    if (!dtype) {
      fail_tensor(name,
                  fmt::format("type {} is not supported (expected one of {})", kTensorTypes[type], supported_names()),
                  "look for the Q8_0 or Q4_K_M file of the same model");
    }
    tensor.dtype = *dtype;
    const BlockShape block = block_shape(*dtype);
    if (tensor.shape.back() % block.elements != 0) {
      fail_tensor(name, fmt::format("rows of {} elements are not a whole number of blocks of {}", tensor.shape.back(),
                                    block.elements));
    }
    Place place{};
    if (__builtin_mul_overflow(elements / uint64_t(block.elements), uint64_t(block.bytes), &place.bytes))
      fail_tensor(name, "its size overflows");
    place.offset = number<uint64_t>("a tensor's offset");
    if (!names_.insert(name).second) fail_tensor(name, "occurs twice");
    out_.tensors_.push_back(std::move(tensor));
    places_.push_back(place);
  }

  bool align(uint64_t& position) const {
    const uint64_t mask = out_.alignment_ - 1;
    if (__builtin_add_overflow(position, mask, &position)) return false;
    position &= ~mask;
    return true;
  }

  // The data, or zeros in its place where the last tensor ends beyond it.
  std::span<const std::byte> with_blanks(std::span<const std::byte> data) const {
    uint64_t end = 0;
    for (const Place& place : places_) {
      uint64_t own = 0;
      if (!__builtin_add_overflow(place.offset, place.bytes, &own)) end = std::max(end, own);
    }
    return end > data.size() && end <= kLargestFile ? blank_(end) : data;
  }

  // Each tensor begins where the one before it ends, aligned; the data begins at the next aligned place of the file.
  void place_tensors() {
    uint64_t start = position_, expected = 0;
    if (!align(start)) fail_file("the header's size overflows");
    std::span<const std::byte> data = file_.subspan(std::min<uint64_t>(start, file_.size()));
    if (blank_) data = with_blanks(data);
    for (size_t i = 0; i < places_.size(); ++i) {
      TensorView& tensor = out_.tensors_[i];
      const Place& place = places_[i];
      if (place.offset != expected) {
        fail_tensor(tensor.name, fmt::format("its data {} (expected to begin at {}, found {})",
                                             place.offset < expected ? "overlaps another tensor's, or is not aligned"
                                                                     : "leaves a hole, or is not aligned",
                                             expected, place.offset));
      }
      uint64_t end = 0;
      if (__builtin_add_overflow(place.offset, place.bytes, &end) || end > data.size()) {
        fail_tensor(tensor.name,
                    fmt::format("truncated: ends beyond the file (expected {} bytes from {}, found {} bytes of data)",
                                place.bytes, place.offset, data.size()),
                    "an interrupted download? compare the file's size with the original");
      }
      tensor.bytes = data.subspan(place.offset, place.bytes);
      expected = end;
      if (!align(expected)) fail_tensor(tensor.name, "the end of its data overflows");
    }
  }

  std::span<const std::byte> file_;
  Gguf& out_;
  const BlankData& blank_;
  uint64_t position_ = 0;
  uint64_t tensors_ = 0, keys_ = 0;
  std::set<std::string> names_;
  std::vector<Place> places_;
};

Gguf Gguf::parse(std::span<const std::byte> file, std::string file_name, uint32_t alignment, const BlankData& blank) {
  Gguf out;
  out.file_name_ = std::move(file_name);
  out.alignment_ = alignment;
  GgufReader(file, out, blank).read();
  return out;
}

void Gguf::fail_key(std::string_view key, const std::string& problem, std::string hint) const {
  fail(ErrorKind::kModel, fmt::format("{}: key {}: {}", file_name_, key, problem), std::move(hint));
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

namespace {

[[noreturn]] void fail_type(const Gguf& file, std::string_view key, std::string_view expected, const GgufValue& value) {
  file.fail_key(
      key, fmt::format("wrong type (expected {}, found {}{})", expected, value.type == Type::kArray ? "array of " : "",
                       type_name(value.type == Type::kArray ? value.element : value.type)));
}

int64_t integer_within(const Gguf& file, std::string_view key, const GgufValue& value, int64_t low, int64_t high,
                       std::string_view expected) {
  if (value.type == Type::kArray) fail_type(file, key, expected, value);
  const auto number = integer_at(value.type, value.bytes, 0);
  if (!number && value.type != Type::kU64) fail_type(file, key, expected, value);
  if (!number || *number < low || *number > high) {
    file.fail_key(key, fmt::format("out of range (expected {} to {}, found {})", low, high,
                                   number ? fmt::format("{}", *number) : "more than 2^63"));
  }
  return *number;
}

// The value of `key` as an array; nullptr if it is absent.
const GgufValue* find_array(const Gguf& file, std::string_view key, std::string_view expected) {
  const GgufValue* value = file.find(key);
  if (value != nullptr && value->type != Type::kArray) fail_type(file, key, expected, *value);
  return value;
}

}  // namespace

std::optional<std::string_view> Gguf::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->type != Type::kString) fail_type(*this, key, "string", *value);
  const std::string_view text = as_text(value->bytes);
  if (!is_utf8(text)) fail_key(key, "not UTF-8");
  return text;
}

std::optional<int64_t> Gguf::integer(std::string_view key, int64_t low, int64_t high) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  return integer_within(*this, key, *value, low, high, "an integer");
}

std::optional<std::string> Gguf::decimal(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->type != Type::kF32 && value->type != Type::kF64)
    return fmt::format("{}", integer_within(*this, key, *value, INT64_MIN, INT64_MAX, "a number"));
  const bool single = value->type == Type::kF32;
  const double number = single ? load<float>(value->bytes) : load<double>(value->bytes);
  if (!std::isfinite(number)) fail_key(key, fmt::format("not a finite number (found {})", number));
  return single ? fmt::format("{}", float(number)) : fmt::format("{}", number);
}

std::optional<bool> Gguf::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (value->type != Type::kBool) fail_type(*this, key, "bool", *value);
  return load<uint8_t>(value->bytes) != 0;
}

std::optional<std::vector<std::string_view>> Gguf::texts(std::string_view key) const {
  const GgufValue* value = find_array(*this, key, "array of string");
  if (value == nullptr) return {};
  if (value->element != Type::kString) fail_type(*this, key, "array of string", *value);
  std::vector<std::string_view> out;
  out.reserve(value->count);
  std::span<const std::byte> bytes = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<uint64_t>(bytes);
    out.push_back(as_text(bytes.subspan(sizeof length, length)));
    bytes = bytes.subspan(sizeof length + length);
    if (!is_utf8(out.back())) fail_key(key, fmt::format("element {}: not UTF-8", i));
  }
  return out;
}

std::optional<std::vector<int64_t>> Gguf::integers(std::string_view key) const {
  const GgufValue* value = find_array(*this, key, "array of integers");
  if (value == nullptr) return {};
  std::vector<int64_t> out;
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = integer_at(value->element, value->bytes, i);
    if (!number) fail_type(*this, key, "array of integers", *value);
    out.push_back(*number);
  }
  return out;
}

std::optional<std::vector<float>> Gguf::floats(std::string_view key) const {
  const GgufValue* value = find_array(*this, key, "array of f32");
  if (value == nullptr) return {};
  if (value->element != Type::kF32) fail_type(*this, key, "array of f32", *value);
  std::vector<float> out(value->count);
  if (!out.empty()) std::memcpy(out.data(), value->bytes.data(), value->bytes.size());
  return out;
}

std::optional<std::vector<bool>> Gguf::flags(std::string_view key) const {
  const GgufValue* value = find_array(*this, key, "array of bool");
  if (value == nullptr) return {};
  std::vector<bool> out;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = value->element == Type::kBool ? std::optional(int64_t(value->bytes[i]))
                                                      : integer_at(value->element, value->bytes, i);
    if (!number) fail_type(*this, key, "array of bool", *value);
    out.push_back(*number != 0);
  }
  return out;
}

}  // namespace qgen
