// optimum-quanto: I8 or F8 codes in X.weight._data and X.weight._scale per tensor or row, W = code * scale. Its own
// file, quanto_qmap.json, says nothing that the tensors do not.
#include <fmt/format.h>

#include "quant/formats.h"

namespace qgen {
namespace {

bool detect(const Module& module) { return module.has("weight._data") && module.has("weight._scale"); }

Weight bind(Module& module) {
  Weight weight = module.take_byte_codes("weight._data");
  weight.scale = module.take_grid("weight._scale");
  module.ignore("input_scale");
  module.ignore("output_scale");
  return weight;
}

// optimum-quanto writes a file of its own about its modules, nothing into config.json.
bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "quanto") return false;
  const auto weights = source.json->get("weights");
  const std::string_view type = weights && weights->is_string() ? weights->as_string() : "int8";
  if (type != "int8" && type != "float8")
    weights->fail(fmt::format("'{}' is not supported", type), "supported: int8, float8");
  Scheme scheme;
  scheme.codes = type == "int8" ? Dtype::kI8 : Dtype::kF8E4M3;
  scheme.scales = source.plain;
  scheme.group_rows = 1;
  out.schemes.push_back(std::move(scheme));
  out.excluded = read_names(*source.json, "modules_to_not_convert");
  out.excluded.emplace_back("lm_head");
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  return {{"weight._data", scheme.codes, {rows, cols}}, {"weight._scale", scheme.scales, {rows, 1}}};
}

}  // namespace

const Format kQuantoFormat = {"quanto",
                              "INT8 or FP8 codes per tensor or row",
                              detect,
                              bind,
                              read,
                              declare,
                              "`weight._data` in I8, F8_E4M3 or F8_E5M2; `weight._scale` per tensor or row"};

}  // namespace qgen
