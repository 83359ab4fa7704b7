#include "checkpoint/safetensors_writer.h"

#include <cstring>

#include <fmt/format.h>

#include "base/json.h"
#include "base/rounding.h"

namespace qgen {
namespace {

constexpr size_t kLengthBytes = 8;

// Where each tensor begins in a file with this header, and at the end where the file ends.
std::vector<uint64_t> place_tensors(std::span<const TensorShape> tensors, uint64_t begin) {
  std::vector<uint64_t> out = {begin};
  for (const TensorShape& tensor : tensors) out.push_back(out.back() + tensor.bytes());
  return out;
}

}  // namespace

uint64_t TensorShape::bytes() const {
  uint64_t elements = 1;
  for (const int64_t size : shape) elements *= uint64_t(size);
  return elements * uint64_t(dtype_bits(dtype)) / 8;
}

std::string safetensors_header(std::span<const TensorShape> tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  const std::vector<uint64_t> places = place_tensors(tensors, 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorShape& tensor = tensors[i];
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_quote(tensor.name),
                        dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), places[i], places[i + 1]);
  }
  json += '}';
  json.resize(size_t(round_up(int64_t(json.size()), int64_t(kLengthBytes))), ' ');
  const auto length = uint64_t(json.size());
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, kLengthBytes);
  return out + json;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorShape> tensors)
    : SafetensorsWriter(path, tensors, safetensors_header(tensors)) {}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorShape> tensors,
                                     const std::string& header)
    : begins_(place_tensors(tensors, header.size())), file_(path, NewFile::Readers::kAll, begins_.back()) {
  file_.write(0, std::as_bytes(std::span(header)));
}

void SafetensorsWriter::write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
  file_.write(begins_[tensor] + offset, bytes);
}

}  // namespace qgen
