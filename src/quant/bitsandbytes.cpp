// bitsandbytes LLM.int8: I8 codes and SCB, the largest magnitude of each row. W = code * SCB[n] * (1 / 127), multiplied
// in F32 in this order (bitsandbytes/_ops.py, int8_vectorwise_dequant). Outliers are a matter of activations: the
// weights are complete.
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

constexpr float kOneOver127 = 7.874015718698502e-3f;

bool detect(const Module& module) { return module.has("weight") && module.has("SCB"); }

// weight_format: 0 is row after row, the others are layouts of old GPUs.
void check_layout(const TensorView& tensor) {
  const auto layout = tensor.bytes.empty() ? 0 : int(tensor.bytes[0]);
  if (layout != 0)
    fail_tensor(tensor, fmt::format("weights in layout {} of a GPU are not supported (expected 0, row major)", layout));
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", Codes::kI8);
  if (const TensorView& codes = *module.peek("weight"); codes.dtype != Dtype::kI8)
    fail_tensor(codes, fmt::format("wrong type (expected I8, found {})", dtype_name(codes.dtype)));
  const TensorView& scales = module.take("SCB", {Dtype::kF32}, {module.rows()});
  weight.scale = grid_over(scales, make_grid(weight.rows, weight.cols, 1, weight.cols));
  weight.scale.factor = kOneOver127;
  weight.f32_steps = true;
  if (module.has("weight_format")) {
    const TensorView& layout = module.take("weight_format");
    auto repack = std::make_shared<Weight::Repack>();
    repack->prepare = [&layout](Weight&) { check_layout(layout); };
    weight.repack = std::move(repack);
  }
  return weight;
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "bitsandbytes") return false;
  if (!source.json->flag_or("load_in_8bit", false) && !source.json->flag_or("_load_in_8bit", false))
    source.json->fail("bitsandbytes is supported with load_in_8bit only");
  Scheme scheme;
  scheme.codes = Dtype::kI8;
  out.schemes.push_back(std::move(scheme));
  out.excluded = read_names(*source.json, "llm_int8_skip_modules");
  out.excluded.emplace_back("lm_head");
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme&, int64_t rows, int64_t cols) {
  return {{"weight", Dtype::kI8, {rows, cols}}, {"SCB", Dtype::kF32, {rows}}, {"weight_format", Dtype::kU8, {}}};
}

}  // namespace

const Format kBitsandbytesFormat = {"bitsandbytes",
                                    "LLM.int8: INT8 codes with the largest magnitude of each row",
                                    detect,
                                    bind,
                                    read,
                                    declare,
                                    "`weight` in I8; `SCB` in F32, one per row; `weight_format`, which must be 0"};

}  // namespace qgen
