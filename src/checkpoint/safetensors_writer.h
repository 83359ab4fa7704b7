// Writes safetensors files whose tensors are known before their values: any thread may write any part of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/new_file.h"
#include "checkpoint/tensor.h"

namespace qgen {

// What a file says of a tensor.
struct TensorShape {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;

  uint64_t bytes() const;
};

// What comes before the data, its length included: metadata {"format": "pt"}, which transformers wants, then the
// tensors, side by side in their order. Padded to 8 bytes.
std::string safetensors_header(std::span<const TensorShape> tensors);

class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorShape> tensors);

  // Bytes of a tensor from `offset` on.
  void write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes);
  // Gives the file its name.
  void keep() { file_.keep(); }

 private:
  SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorShape> tensors, const std::string& header);

  std::vector<uint64_t> begins_;  // of the tensors, in the file
  NewFile file_;
};

}  // namespace qgen
