// Checkpoints of a few tensors, made in memory, and whole small models written anew in another method's layout.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/safetensors.h"
#include "quant/binder.h"
#include "tests/support.h"

namespace qgen::test {

// Tensors in memory beside a config.json and other texts.
class SmallCheckpoint {
 public:
  explicit SmallCheckpoint(std::string config = "{}") { texts_["config.json"] = std::move(config); }

  template <typename T>
  SmallCheckpoint& add(const std::string& name, Dtype type, std::vector<int64_t> shape, const std::vector<T>& values) {
    std::string& bytes = data_.emplace_back(values.size() * sizeof(T), '\0');
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    TensorView view;
    view.name = name;
    view.dtype = type;
    view.shape = std::move(shape);
    view.bytes = std::as_bytes(std::span(bytes));
    view.file = "small.safetensors";
    tensors_.push_back(std::move(view));
    return *this;
  }
  SmallCheckpoint& text(const std::string& name, std::string content) {
    texts_[name] = std::move(content);
    return *this;
  }

  // The object must outlive it.
  Checkpoint make() const {
    ModelFiles::Texts texts;
    for (const auto& [name, content] : texts_) texts[name] = [content] { return content; };
    return Checkpoint::assemble({"small", "."}, ModelFiles("small", std::move(texts)),
                                JsonDocument::parse(texts_.at("config.json"), "config.json"), tensors_);
  }

 private:
  std::map<std::string, std::string> texts_;
  std::deque<std::string> data_;
  std::vector<TensorView> tensors_;
};

// W of a module as it is once the model is loaded.
inline std::vector<double> loaded_matrix(const SmallCheckpoint& small, const std::string& module, int64_t rows,
                                         int64_t cols) {
  const Checkpoint checkpoint = small.make();
  Binder binder(checkpoint);
  Weight weight = binder.matrix(module, rows, cols);
  Weight* const weights[] = {&weight};
  repack_weights(weights);
  scan_weights(weights);
  std::vector<double> out(static_cast<size_t>(rows * cols));
  for (int64_t n = 0; n < rows; ++n) dequantize_row(weight, n, std::span(out).subspan(size_t(n * cols), size_t(cols)));
  return out;
}

// A tensor that is about to be written.
struct StoredTensor {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  template <typename T>
  static StoredTensor of(Dtype dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    StoredTensor out{dtype, std::move(shape), std::string(values.size() * sizeof(T), '\0')};
    std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
    return out;
  }
  std::vector<float> values() const {
    TensorView view;
    view.dtype = dtype;
    view.shape = shape;
    view.bytes = std::as_bytes(std::span(bytes));
    return tensor_values(view);
  }
};
using StoredTensors = std::map<std::string, StoredTensor>;

inline StoredTensors read_tensors(const fs::path& file) {
  const FileMap map(file);
  StoredTensors out;
  for (const TensorView& tensor : parse_safetensors(map.bytes(), file.string()).tensors) {
    const auto* const begin = reinterpret_cast<const char*>(tensor.bytes.data());
    out[tensor.name] = {tensor.dtype, tensor.shape, std::string(begin, tensor.bytes.size())};
  }
  return out;
}

inline std::string write_tensors(const StoredTensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header == "{" ? "" : ",",
                          name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), data.size(),
                          data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  return safetensors_file(header + "}", data);
}

}  // namespace qgen::test
