// AWQ (AutoAWQ's "gemm" layout): qweight packs 4-bit codes along N, (K, N / 8) words, and is stored transposed; qzeros
// (groups, N / 8) likewise; scales are (groups, N). A word has its eight columns in the order 0, 2, 4, 6, 1, 3, 5, 7.
// W[n, k] = (code - zero_point[g]) * scale[g]. Codes less 8 are held as int8.

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/nibbles.h"

namespace qgen {
namespace {

// GPTQ's tensors have the same names and pack along K.
bool detect(const Module& module) {
  const TensorView* words = module.peek("qweight");
  return words != nullptr && words->dtype == Dtype::kI32 && module.rows() % kNibblesInWord == 0 &&
         words->shape == std::vector<int64_t>{module.cols(), module.rows() / kNibblesInWord} && module.has("qzeros") &&
         module.has("scales");
}

Weight bind(Module& module) {
  const TensorView& words = module.take("qweight");
  Weight weight = module.codes_over(words, Codes::kI8);
  weight.scale = module.transposed_groups(module.take("scales"));
  const TensorView& zeros = module.take("qzeros", {Dtype::kI32}, {weight.scale.cols, module.rows() / kNibblesInWord});
  set_transposed_nibbles(weight, words, &zeros, NibbleLayout{});
  return weight;
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "awq") return false;
  const Json& json = *source.json;
  for (const char* key : {"bits", "w_bit"}) {
    if (const auto bits = json.get(key); bits && bits->as_integer() != kNibbleBits)
      bits->fail(fmt::format("{} bits are not supported", bits->as_integer()), "supported: 4");
  }
  if (const auto version = json.get("version"); version && version->is_string()) {
    if (lower(version->as_string()) != "gemm")
      version->fail(fmt::format("the layout '{}' is not supported", version->as_string()), "supported: gemm");
  }
  Scheme scheme;
  scheme.bits = kNibbleBits;
  scheme.scales = Dtype::kF16;
  scheme.group_rows = 1;
  for (const char* key : {"group_size", "q_group_size"}) {
    if (const auto group = json.get(key)) {
      if (const int64_t g = group->as_integer(-1, kMaxGroup); g > 0) scheme.group_cols = g;
    }
  }
  out.schemes.push_back(std::move(scheme));
  read_excluded_paths(json, out);
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const int64_t groups = scheme_grid_cols(scheme, cols);
  return {{"qweight", Dtype::kI32, {cols, rows / kNibblesInWord}},
          {"scales", scheme.scales, {groups, rows}},
          {"qzeros", Dtype::kI32, {groups, rows / kNibblesInWord}}};
}

}  // namespace

const Format kAwqFormat = {"awq",
                           "AWQ: 4-bit codes in transposed words, with group scales and zero points, held as 8 bits",
                           detect,
                           bind,
                           read,
                           declare,
                           "`qweight` in I32, (K, N / 8); `scales` in F16, BF16 or F32, (groups, N); `qzeros` in I32, "
                           "(groups, N / 8)"};

}  // namespace qgen
