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
  weight.block_cols = kQ8_0BlockElements;
  weight.block_bytes = kQ8_0BlockBytes;
  weight.block_offset = kQ8_0BlockBytes - kQ8_0BlockElements;
  weight.row_bytes = weight.cols / kQ8_0BlockElements * kQ8_0BlockBytes;
  weight.scale = make_grid(weight.rows, weight.cols, 1, kQ8_0BlockElements);
  weight.scale.type = ScaleType::kF16;
  weight.scale.data = weight.data.data();
  weight.scale.row_pitch = weight.row_bytes;
  weight.scale.col_pitch = kQ8_0BlockBytes;
  weight.scale.tensor = weight.tensor;
  return weight;
}

std::string kind(const Module&) { return "Q8_0"; }

// Only tensors say it; a GGUF file is never without its weights.
bool read(const QuantSource&, Declaration&) { return false; }
std::vector<DeclaredTensor> declare(const Scheme&, int64_t, int64_t) { return {}; }

}  // namespace

const Format kQ8_0Format = {
    "gguf",
    "Q8_0: INT8 codes in blocks of 32 with an F16 scale",
    detect,
    bind,
    read,
    declare,
    "GGUF version 2 or 3, one file or split; tensors of type Q8_0, beside them F32, F16 and BF16 (method `none`)",
    nullptr,
    kind};

}  // namespace qgen
