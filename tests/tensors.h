// Tensors by name, which tests bend and write as one safetensors file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support.h"

namespace qgen::test {

// A checkpoint that can be bent: tensors by name, written as one file.
struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};
using Tensors = std::map<std::string, Tensor>;

inline std::string write_tensors(const Tensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                    name, tensor.dtype, fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.data.size());
    data += tensor.data;
  }
  return safetensors_file(header + "}", data);
}

}  // namespace qgen::test
