// Any bytes as a safetensors file: an Error or tensors that lie inside the file, one after the other.
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const std::byte* position = nullptr;
    for (const qgen::TensorView& tensor : qgen::parse_safetensors(file, "fuzz").tensors) {
      if (position != nullptr && tensor.bytes.data() != position) std::abort();
      position = tensor.bytes.data() + tensor.bytes.size();
      if (position > file.data() + file.size()) std::abort();
      if (size_t(tensor.elements()) * size_t(qgen::dtype_bits(tensor.dtype)) != tensor.bytes.size() * 8) std::abort();
    }
  } catch (const qgen::Error& error) {
    if (error.kind() != qgen::ErrorKind::kModel || error.message().empty()) std::abort();
  }
  return 0;
}
