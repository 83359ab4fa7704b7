// A checkpoint of one module, made of a test's tensors: what W is once it is loaded, or what is said of it.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "quant/binder.h"
#include "quant/repack.h"
#include "tests/support.h"
#include "tests/tensors.h"

namespace qgen::test {

template <typename T>
Tensor tensor(std::string dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {std::move(dtype), std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

// A checkpoint with nothing but the tensors of module "m".
struct Files {
  TemporaryFolder folder;
  std::optional<Checkpoint> checkpoint;

  Files(const Tensors& tensors, const std::string& quantization) {
    Tensors named;
    for (const auto& [name, one] : tensors) named["m." + name] = one;
    folder.write("model.safetensors", write_tensors(named));
    folder.write("config.json", "{" + quantization + "}");
    checkpoint.emplace(open_checkpoint(locate_model(folder.path().string())));
  }
};

struct Loaded {
  std::vector<std::vector<double>> w;  // (N, K)
  std::string planned, method;
};

inline Loaded load(const Tensors& tensors, int64_t rows, int64_t cols, const std::string& quantization = "") {
  const Files files(tensors, quantization);
  Binder binder(*files.checkpoint);
  Weight weight = binder.matrix("m", rows, cols);
  const std::string everything[] = {""};
  binder.finish(everything, {}, "test");
  Loaded out;
  out.planned = method_name(weight);
  const size_t bytes = weight.bytes();
  Weight* const weights[] = {&weight};
  repack_weights(weights);
  CHECK(weight.bytes() <= bytes);
  scan_weights(weights);
  out.method = method_name(weight);
  for (int64_t n = 0; n < rows; ++n) {
    out.w.emplace_back(size_t(cols));
    dequantize_row(weight, n, out.w.back());
  }
  return out;
}

inline std::string problem(const Tensors& tensors, int64_t rows, int64_t cols, const std::string& quantization = "") {
  ErrorKind kind = ErrorKind::kModel;
  const std::string message = error_of([&] { load(tensors, rows, cols, quantization); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return message;
}

inline std::vector<uint8_t> random_codes(std::mt19937& random, size_t count, int bits) {
  std::vector<uint8_t> out(count);
  for (uint8_t& code : out) code = uint8_t(random() >> 8 & ((1u << bits) - 1));
  return out;
}

}  // namespace qgen::test
