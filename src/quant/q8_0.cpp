// GGUF's Q8_0: blocks of 32 codes along a row behind their F16 scale, 34 bytes, so never aligned. Repacked at load
// into INT8 codes and a grid of scales: W = code * scale.
#include <cmath>
#include <cstring>

#include "base/numbers.h"
#include "quant/formats.h"

namespace qgen {
namespace {

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && weight->dtype == Dtype::kQ8_0;
}

int64_t repack_rows(const Repack& repack, Weight& weight, int64_t begin, int64_t end) {
  const int64_t blocks = weight.cols / kQ8_0BlockElements;
  int64_t bad = 0;
  for (int64_t n = begin; n < end; ++n) {
    const std::byte* block = repack.source.data() + repack.source_row(weight.rows, n) * blocks * kQ8_0BlockBytes;
    std::byte* codes = weight.owned.data() + n * weight.cols;
    float* scales = weight.scale.values.data() + n * blocks;
    for (int64_t b = 0; b < blocks; ++b, block += kQ8_0BlockBytes, codes += kQ8_0BlockElements) {
      uint16_t bits;
      std::memcpy(&bits, block, sizeof bits);
      scales[b] = f16_to_float(bits);
      bad += !std::isfinite(scales[b]);
      std::memcpy(codes, block + sizeof bits, kQ8_0BlockElements);
    }
  }
  return bad;
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", Codes::kI8);
  weight.scale = make_grid(weight.rows, weight.cols, 1, kQ8_0BlockElements);
  weight.repack.source = module.peek("weight")->bytes;
  weight.repack.rows = repack_rows;
  weight.data = {};
  return weight;
}

// Only tensors say it; a GGUF file is never without its weights.
bool read(const QuantSource&, Declaration&) { return false; }
std::vector<DeclaredTensor> declare(const Scheme&, int64_t, int64_t) { return {}; }

}  // namespace

const Format kQ8_0Format = {"gguf", "Q8_0: INT8 codes in blocks of 32 with an F16 scale", detect, bind, read, declare};

}  // namespace qgen
