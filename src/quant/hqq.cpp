// HQQ: W_q with unsigned codes, the weight's elements in row order cut into groups; scale and zero with one value for
// each. W = (code - zero) * scale, both floats, rounded to F32 after each operation here (hqq rounds to its
// compute_dtype). With axis 1, where shapes say (groups, size), a group is `size` neighbours; with axis 0, (size,
// groups), element i is in group i modulo groups. Groups along a row are held as int8 with zero points; others, which
// no scale grid describes, as F32.
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

bool detect(const Module& module) { return module.has("W_q") && module.has("scale") && module.has("zero"); }

// What the tensors' shapes say.
struct Layout {
  int bits = 8;
  int64_t groups = 0;
  bool neighbours = true;  // axis 1
};

Layout read_layout(const Module& module, const TensorView& codes, const TensorView& scale) {
  const int64_t elements = module.rows() * module.cols();
  Layout out;
  out.bits = 0;
  for (const int bits : {8, 4, 2, 1}) {
    if (int64_t(codes.bytes.size()) * (8 / bits) == elements) out.bits = bits;
  }
  if (out.bits == 0) {
    fail_tensor(codes,
                fmt::format("wrong size (expected {} bytes for {} x {} codes of 8 bits, found {} {})", elements,
                            module.rows(), module.cols(), dtype_name(codes.dtype), codes.shape_text()),
                "supported: 8, 4, 2 and 1 bits");
  }
  if (scale.shape.size() != 2 || (scale.shape[0] != 1 && scale.shape[1] != 1) || scale.elements() < 1 ||
      elements % scale.elements() != 0) {
    fail_tensor(scale, fmt::format("wrong shape (expected [groups, 1] or [1, groups] of {} elements, found {})",
                                   elements, scale.shape_text()));
  }
  out.groups = scale.elements();
  out.neighbours = scale.shape[1] == 1;
  return out;
}

// Element i in row order. Fewer than 8 bits are packed so that a byte has the elements i, i + bytes, i + 2 * bytes,
// ..., the first in its highest bits (hqq/core/bitpack.py).
uint8_t code_at(std::span<const std::byte> codes, int bits, int64_t i) {
  const auto bytes = int64_t(codes.size());
  const int64_t part = i / bytes, shift = 8 - bits * (part + 1);
  return uint8_t(uint8_t(codes[size_t(i % bytes)]) >> shift) & uint8_t((1u << bits) - 1);
}

const TensorView& take_floats(Module& module, std::string_view suffix) {
  const TensorView& tensor = module.take(suffix);
  if (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kF16 && tensor.dtype != Dtype::kBf16) {
    fail_tensor(tensor, fmt::format("wrong type (expected F32, F16 or BF16, found {})", dtype_name(tensor.dtype)),
                "scales and zeros that are quantized themselves are not supported");
  }
  return tensor;
}

// Codes less their middle value, in the groups of their rows.
Weight bind_groups(Module& module, const TensorView& codes, const TensorView& scale, const TensorView& zero,
                   const Layout& layout) {
  Weight weight = module.codes_over(codes, Codes::kI8);
  const int64_t group_cols = weight.rows * weight.cols / layout.groups;
  weight.file_codes = bits_name(layout.bits);
  weight.code_shift = 1 << (layout.bits - 1);
  weight.f32_steps = true;
  const ScaleGrid shape = make_grid(weight.rows, weight.cols, 1, group_cols);
  weight.scale = grid_over(scale, shape);
  weight.zero_point = grid_over(zero, shape);
  weight.repack = make_row_repack({}, [codes = codes, layout](const Weight& w, int64_t n, std::span<std::byte> out) {
    if (layout.bits == 8) {
      unpack_bits(codes.bytes.subspan(size_t(n * w.cols), size_t(w.cols)), 8, 128, out);
      return;
    }
    for (int64_t k = 0; k < w.cols; ++k)
      out[size_t(k)] = std::byte(uint8_t(code_at(codes.bytes, layout.bits, n * w.cols + k) - w.code_shift));
  });
  return weight;
}

Weight bind_floats(Module& module, const TensorView& codes, const TensorView& scale, const TensorView& zero,
                   const Layout& layout) {
  Weight weight = module.codes_over(codes, Codes::kF32);
  weight.file_codes = layout.bits == 8 ? "8 bits" : bits_name(layout.bits);
  const int64_t group_size = weight.rows * weight.cols / layout.groups;
  struct Values {
    std::vector<float> scale, zero;
  };
  const auto values = std::make_shared<Values>();
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [values, scale = scale, zero = zero](Weight& w) {
    *values = {tensor_values(scale), tensor_values(zero)};
    own_codes(w);
  };
  repack->rows = [values, codes = codes, layout, group_size](Weight& w, int64_t begin, int64_t end) {
    for (int64_t i = begin * w.cols; i < end * w.cols; ++i) {
      const auto group = size_t(layout.neighbours ? i / group_size : i % layout.groups);
      const float value = (float(code_at(codes.bytes, layout.bits, i)) - values->zero[group]) * values->scale[group];
      std::memcpy(w.owned.data() + i * int64_t(sizeof value), &value, sizeof value);
    }
  };
  weight.repack = std::move(repack);
  return weight;
}

Weight bind(Module& module) {
  const TensorView& codes = module.take("W_q");
  const TensorView& scale = take_floats(module, "scale");
  const TensorView& zero = take_floats(module, "zero");
  const Layout layout = read_layout(module, codes, scale);
  if (zero.shape != scale.shape)
    fail_tensor(
        zero, fmt::format("not the shape of its scale (expected {}, found {})", scale.shape_text(), zero.shape_text()));
  // What each module says of itself; shapes have it, too.
  for (const char* suffix : {"shape", "axis", "channel_wise", "compute_dtype", "encoded_state_dict", "group_size",
                             "nbits", "offload_meta", "optimize", "packing", "quant_scale", "quant_zero", "round_zero",
                             "stores_quant_config", "unpack_view_dtype", "view_as_float"})
    module.ignore(suffix);
  const int64_t group_size = module.rows() * module.cols() / layout.groups;
  const bool in_rows = layout.neighbours && module.cols() % group_size == 0;
  return (in_rows ? bind_groups : bind_floats)(module, codes, scale, zero, layout);
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "hqq") return false;
  const Json params = source.json->at("quant_config").at("weight_quant_params");
  Scheme scheme;
  scheme.bits = int(params.at("nbits").as_integer(1, 8));
  if (scheme.bits != 8 && scheme.bits != 4 && scheme.bits != 2 && scheme.bits != 1)
    params.at("nbits").fail(fmt::format("{} bits are not supported", scheme.bits), "supported: 8, 4, 2, 1");
  if (const auto group = params.get("group_size")) scheme.group_cols = group->as_integer(1, kMaxGroup);
  const auto axis = params.get("axis");
  scheme.group_rows = axis && axis->as_integer() == 0 ? 0 : 1;
  scheme.scales = source.plain;
  out.schemes.push_back(std::move(scheme));
  out.excluded = read_names(*source.json, "skip_modules");
  out.excluded.emplace_back("lm_head");
  return true;
}

// A null group_size is a whole row, or with axis 0 a whole column.
std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const bool neighbours = scheme.group_rows == 1;
  const int64_t size = scheme.group_cols > 0 ? scheme.group_cols : neighbours ? cols : rows;
  const int64_t groups = rows * cols / size;
  const std::vector<int64_t> values = neighbours ? std::vector<int64_t>{groups, 1} : std::vector<int64_t>{1, groups};
  const std::vector<int64_t> codes = neighbours ? std::vector<int64_t>{groups * scheme.bits / 8, size}
                                                : std::vector<int64_t>{size * scheme.bits / 8, groups};
  return {{"W_q", Dtype::kU8, codes}, {"scale", scheme.scales, values}, {"zero", scheme.scales, values}};
}

}  // namespace

const Format kHqqFormat = {"hqq",
                           "integer codes with float zeros and scales; 8 bits, or 4, 2 or 1 held as 8; groups that are "
                           "no part of a row (axis 0) "
                           "held as F32",
                           detect,
                           bind,
                           read,
                           declare,
                           "`W_q` in U8; `scale` and `zero` in F32, F16 or BF16, (groups, 1) or (1, groups); what else "
                           "a module says of itself is "
                           "not needed"};

}  // namespace qgen
