// Any bytes as a safetensors file: an Error or tensors that lie inside the file, one after the other.
#include <cstdlib>

#include "checkpoint/safetensors.h"
#include "tests/fuzz/support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 64, 1 << 20);
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  qgen::fuzz::expect_model_error([&] {
    const std::byte* position = nullptr;
    for (const qgen::TensorView& tensor : qgen::parse_safetensors(file, "fuzz").tensors) {
      if (position != nullptr && tensor.bytes.data() != position) std::abort();
      position = tensor.bytes.data() + tensor.bytes.size();
      if (position > file.data() + file.size()) std::abort();
      if (size_t(tensor.elements()) * size_t(qgen::dtype_bits(tensor.dtype)) != tensor.bytes.size() * 8) std::abort();
    }
  });
  return 0;
}
