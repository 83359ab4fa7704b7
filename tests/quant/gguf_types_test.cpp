// GGUF's types of fewer than 8 bits: every block as the gguf package dequantizes it (tests/golden-gguf-types, by
// tools/gguf_oracle.py), of whole matrices, of their parts, and of stacks.
#include <fmt/format.h>

#include "base/file_map.h"
#include "checkpoint/gguf.h"
#include "tests/quant/small_checkpoint.h"

namespace qgen::test {
namespace {

fs::path types_folder() { return source_folder() / "tests/golden-gguf-types"; }

Checkpoint checkpoint_of(std::vector<TensorView> tensors) {
  return Checkpoint::assemble({"types", "."}, ModelFiles("types", {}), JsonDocument::parse("{}", "config.json"),
                              std::move(tensors));
}

int64_t differences(const Weight& weight, const float* expected) {
  std::vector<double> row(static_cast<size_t>(weight.cols));
  int64_t count = 0;
  for (int64_t n = 0; n < weight.rows; ++n) {
    dequantize_row(weight, n, row);
    for (int64_t k = 0; k < weight.cols; ++k) count += float(row[size_t(k)]) != expected[n * weight.cols + k];
  }
  return count;
}

void repack_and_scan(std::span<Weight* const> weights) {
  repack_weights(weights);
  scan_weights(weights);
}

TEST_CASE("GGUF's blocks of few bits are what the gguf package makes of them, bit for bit") {
  const FileMap map(types_folder() / "types.gguf");
  const Gguf file = Gguf::parse(map.bytes(), "types.gguf");
  StoredTensors values = read_tensors(types_folder() / "values.safetensors");
  CHECK(values.size() == file.tensors().size());
  CHECK(file.tensors().size() == 13);
  const Checkpoint checkpoint = checkpoint_of(file.tensors());
  Binder binder(checkpoint);
  for (const TensorView& tensor : file.tensors()) {
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    INFO(module, " ", dtype_name(tensor.dtype));
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const std::vector<float> expected = values.at(tensor.name).values();
    Weight weight = binder.matrix(module, rows, cols);
    CHECK(binder.bindings().back().kind == dtype_name(tensor.dtype));
    const size_t planned = weight.bytes();
    CHECK(double(planned) <= 1.15 * double(rows * cols));
    // Parts are known before the whole is repacked.
    Weight first = slice_rows(weight, 0, rows - 1), last = slice_rows(weight, rows - 1, 1),
           part = slice_rows(first, 1, 1);
    Weight* const weights[] = {&weight, &first, &last, &part};
    repack_and_scan(weights);
    CHECK(weight.bytes() == planned);
    CHECK(weight.owned.size() <= planned);
    CHECK(differences(weight, expected.data()) == 0);
    CHECK(differences(first, expected.data()) == 0);
    CHECK(differences(last, expected.data() + (rows - 1) * cols) == 0);
    CHECK(differences(part, expected.data() + cols) == 0);
    CHECK(differences(slice_rows(weight, 1, 2), expected.data() + cols) == 0);
  }
}

TEST_CASE("GGUF: stacks of experts of few bits, and parts of them") {
  const FileMap map(types_folder() / "types.gguf");
  const Gguf file = Gguf::parse(map.bytes(), "types.gguf");
  StoredTensors values = read_tensors(types_folder() / "values.safetensors");
  for (TensorView tensor : file.tensors()) {
    INFO(tensor.name);
    // Experts of two rows each, half a row wide.
    const int64_t experts = tensor.shape[0], cols = tensor.shape[1] / 2;
    tensor.shape = {experts, 2, cols};
    const std::vector<float> expected = values.at(tensor.name).values();
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    std::vector<Weight> stack, halves;
    {
      const Checkpoint checkpoint = checkpoint_of({tensor});
      Binder binder(checkpoint);
      stack = binder.stack(module, experts, 2, cols);
      for (const Weight& expert : stack) {
        halves.push_back(slice_rows(expert, 0, 1));
        halves.push_back(slice_rows(expert, 1, 1));
      }
    }
    std::vector<Weight*> all;
    for (Weight& weight : stack) all.push_back(&weight);
    for (Weight& weight : halves) all.push_back(&weight);
    repack_and_scan(all);
    for (size_t i = 0; i < stack.size(); ++i)
      CHECK(differences(stack[i], expected.data() + int64_t(i) * 2 * cols) == 0);
    for (size_t i = 0; i < halves.size(); ++i) CHECK(differences(halves[i], expected.data() + int64_t(i) * cols) == 0);
  }
}

TEST_CASE("GGUF: NaN or infinite super-scales are refused") {
  const FileMap map(types_folder() / "types.gguf");
  const Gguf file = Gguf::parse(map.bytes(), "types.gguf");
  size_t tried = 0;
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.dtype != Dtype::kQ4_K && tensor.dtype != Dtype::kQ6_K && tensor.dtype != Dtype::kQ4_1) continue;
    ++tried;
    std::string bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    const size_t at = tensor.dtype == Dtype::kQ6_K ? 208 : 2;  // d, dmin or the minimum
    bytes[at] = '\0';
    bytes[at + 1] = char(0x7C);
    TensorView damaged = tensor;
    damaged.bytes = std::as_bytes(std::span(bytes));
    const Checkpoint checkpoint = checkpoint_of({damaged});
    Binder binder(checkpoint);
    Weight weight = binder.matrix(tensor.name.substr(0, tensor.name.rfind('.')), tensor.shape[0], tensor.shape[1]);
    Weight* const weights[] = {&weight};
    repack_weights(weights);
    CHECK(contains(error_of([&] { scan_weights(weights); }), "holds inf"));
  }
  CHECK(tried == 3);
}

}  // namespace
}  // namespace qgen::test
