// GGUF's Q8_0: blocks of 32 codes along a row behind their F16 scale, 34 bytes, so never aligned. Used where they lie:
// W = code * scale.
#include "quant/formats.h"

namespace qgen {
namespace {

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && weight->dtype == Dtype::kQ8_0;
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", Codes::kI8);
  weight.layout = Layout::kQ8_0Blocks;
  weight.scale = make_grid(weight.rows, weight.cols, 1, kQ8_0BlockElements);
  return weight;
}

// Only tensors say it; a GGUF file is never without its weights.
bool read(const QuantSource&, Declaration&) { return false; }
std::vector<DeclaredTensor> declare(const Scheme&, int64_t, int64_t) { return {}; }

}  // namespace

const Format kQ8_0Format = {"gguf", "Q8_0: INT8 codes in blocks of 32 with an F16 scale", detect, bind, read, declare};

}  // namespace qgen
