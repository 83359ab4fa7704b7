// Weights as they were trained: F32, F16 or BF16, no scale. Read so whatever the configuration declares.
#include "quant/formats.h"

namespace qgen {
namespace {

std::optional<Codes> float_codes(const TensorView& tensor) {
  switch (tensor.dtype) {
    case Dtype::kF32: return Codes::kF32;
    case Dtype::kF16: return Codes::kF16;
    case Dtype::kBf16: return Codes::kBf16;
    default: return {};
  }
}

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && float_codes(*weight).has_value();
}

Weight bind(Module& module) { return module.take_codes("weight", *float_codes(*module.peek("weight"))); }

bool read(const QuantSource& source, Declaration&) { return !source.json; }

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  return {{"weight", scheme.codes, {rows, cols}}};
}

}  // namespace

const Format kPlainFormat = {"none",  "unquantized F32, F16 and BF16", detect, bind, read,
                             declare, "`weight` in F32, F16 or BF16"};

}  // namespace qgen
