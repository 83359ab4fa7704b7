// HQQ: W_q with unsigned codes, the weight's elements in row order cut into groups; scale and zero with one value for
// each. W = (code - zero) * scale, both floats, rounded to F32 after each operation here (hqq rounds to its
// compute_dtype). With axis 1, where shapes say (groups, size), a group is `size` neighbours; with axis 0, (size,
// groups), element i is in group i modulo groups: as a rule rows n, n + period, n + 2 period, ... of a column. Groups
// of one row or one column are held as int8 with zero points; others, which no scale grid describes, as F32.
#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

bool detect(const Module& module) { return module.has("W_q") && module.has("scale") && module.has("zero"); }

// Elements are packed so that a unit has the elements i, i + units, i + 2 * units, ..., the first in its highest bits
// (hqq/core/bitpack.py). Units are bytes; those of 3 bits words of 10 codes, for rows that are filled up to as many.
constexpr int64_t kThreeBitCodes = 10;

constexpr int64_t three_bit_rows(int64_t rows) { return (rows + kThreeBitCodes - 1) / kThreeBitCodes; }

// Codes less `less`, in blocks of a size that the compiler knows, for which it uses vectors.
constexpr size_t kBlock = 64;
void unpack_block(const uint8_t (&bytes)[kBlock], int shift, uint8_t mask, uint8_t less, uint8_t* out) {
  uint64_t words[kBlock / sizeof(uint64_t)];  // shifted eight at once
  uint8_t codes[kBlock];
  std::memcpy(words, bytes, sizeof words);
  for (uint64_t& word : words) word = word >> shift & mask * uint64_t{0x0101010101010101};
  std::memcpy(codes, words, sizeof codes);
  for (uint8_t& code : codes) code = uint8_t(code - less);
  std::memcpy(out, codes, sizeof codes);
}
void unpack_block(const uint32_t (&words)[kBlock], int shift, uint8_t mask, uint8_t less, uint8_t* out) {
  for (size_t i = 0; i < kBlock; ++i) out[i] = uint8_t((words[i] >> shift & mask) - less);
}

template <typename Unit>
void unpack_units(const std::byte* units, int shift, int bits, uint8_t less, std::span<uint8_t> out) {
  const auto mask = uint8_t((1u << bits) - 1);
  Unit block[kBlock] = {};
  size_t i = 0;
  for (; i + kBlock <= out.size(); i += kBlock) {
    std::memcpy(block, units + i * sizeof(Unit), sizeof block);
    unpack_block(block, shift, mask, less, out.data() + i);
  }
  if (i == out.size()) return;
  uint8_t rest[kBlock];
  std::memcpy(block, units + i * sizeof(Unit), (out.size() - i) * sizeof(Unit));
  unpack_block(block, shift, mask, less, rest);
  std::memcpy(out.data() + i, rest, out.size() - i);
}

// What the tensors' shapes say.
struct Layout {
  int bits = 8;
  int64_t units = 0;
  int64_t groups = 0;
  bool neighbours = true;  // axis 1

  // Elements first, first + 1, ... in row order, less `less`.
  void unpack(std::span<const std::byte> codes, int64_t first, uint8_t less, std::span<uint8_t> out) const {
    while (!out.empty()) {
      const int64_t part = first / units, unit = first % units;
      const auto now = out.first(std::min(out.size(), size_t(units - unit)));
      if (bits == 3) {
        const std::byte* const words = codes.data() + unit * int64_t(sizeof(uint32_t));
        unpack_units<uint32_t>(words, int(3 * (kThreeBitCodes - 1 - part)), bits, less, now);
      } else {
        unpack_units<uint8_t>(codes.data() + unit, int(8 - bits * (part + 1)), bits, less, now);
      }
      first += int64_t(now.size());
      out = out.subspan(now.size());
    }
  }
};

// What a module says of itself in tensors of one integer each; nothing where they have another form.
struct Told {
  std::optional<TensorView> nbits, axis;

  static std::optional<int32_t> number(const std::optional<TensorView>& tensor) {
    if (!tensor || tensor->elements() != 1 || (tensor->dtype != Dtype::kI32 && tensor->dtype != Dtype::kI64)) return {};
    int32_t value;  // the lower half of an I64
    std::memcpy(&value, tensor->bytes.data(), sizeof value);
    return value;
  }
};

// Codes whose shapes say another number of bits than `nbits` does (those of 3 bits that are viewed as floats may look
// like 4), or another axis. Called when the model is loaded: until then no values are read.
void check_told(const TensorView& codes, const Told& told, const Layout& layout) {
  if (const auto bits = Told::number(told.nbits); bits && *bits != layout.bits) {
    fail_tensor(codes, fmt::format("{} {} holds codes of {} bits (expected {}, as nbits says)", dtype_name(codes.dtype),
                                   codes.shape_text(), layout.bits, *bits));
  }
  // One group of all elements looks the same along both.
  if (const auto axis = Told::number(told.axis); axis && layout.groups > 1 && *axis != (layout.neighbours ? 1 : 0)) {
    fail_tensor(codes, fmt::format("the shape of its scale is that of axis {} (expected {}, as the tensor axis says)",
                                   layout.neighbours ? 1 : 0, *axis));
  }
}

Layout read_layout(const Module& module, const TensorView& codes, const TensorView& scale) {
  const int64_t elements = module.rows() * module.cols();
  Layout out;
  out.bits = 0;
  if (codes.dtype == Dtype::kI32 && codes.shape.size() == 2) {
    // Rows of the groups' matrix are filled up to a multiple of 10.
    const int64_t width = codes.shape[1], rows = codes.shape[0];
    if (width > 0 && elements % width == 0 && three_bit_rows(elements / width) == rows) out.bits = 3;
    out.units = rows * width;
  } else {
    for (const int bits : {8, 4, 2, 1}) {
      if (int64_t(codes.bytes.size()) * (8 / bits) == elements) out.bits = bits;
    }
    out.units = int64_t(codes.bytes.size());
  }
  if (out.bits == 0) {
    fail_tensor(codes,
                fmt::format("wrong size (expected {} bytes for {} x {} codes of 8 bits, found {} {})", elements,
                            module.rows(), module.cols(), dtype_name(codes.dtype), codes.shape_text()),
                "supported: 8, 4, 3, 2 and 1 bits");
  }
  if (scale.shape.size() != 2 || (scale.shape[0] != 1 && scale.shape[1] != 1) || scale.elements() < 1 ||
      elements % scale.elements() != 0) {
    fail_tensor(scale, fmt::format("wrong shape (expected [groups, 1] or [1, groups] of {} elements, found {})",
                                   elements, scale.shape_text()));
  }
  out.groups = scale.elements();
  out.neighbours = scale.shape[1] == 1;
  // Rows of the codes are groups (axis 1), or have a code of each group (axis 0); floats may view several units as one.
  const int64_t row = out.neighbours ? elements / out.groups : out.groups;
  const int64_t row_bytes = row * int64_t(out.bits == 3 ? sizeof(uint32_t) : sizeof(uint8_t));
  if (out.groups > 1 && (codes.shape.size() != 2 || int64_t(codes.bytes.size()) != row_bytes * codes.shape[0])) {
    fail_tensor(codes, fmt::format("its shape {} does not fit that of its scale, {} (expected rows of {} bytes)",
                                   codes.shape_text(), scale.shape_text(), row_bytes));
  }
  return out;
}

const TensorView& take_floats(Module& module, std::string_view suffix) {
  const TensorView& tensor = module.take(suffix);
  if (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kF16 && tensor.dtype != Dtype::kBf16) {
    fail_tensor(tensor, fmt::format("wrong type (expected F32, F16 or BF16, found {})", dtype_name(tensor.dtype)),
                "scales and zeros that are quantized themselves are not supported");
  }
  return tensor;
}

// The grid of groups that are part of a row, or of a column; empty for others.
ScaleGrid grid_shape(int64_t rows, int64_t cols, const Layout& layout) {
  const int64_t group_size = rows * cols / layout.groups;
  if (layout.neighbours) return cols % group_size == 0 ? make_grid(rows, cols, 1, group_size) : ScaleGrid();
  return layout.groups % cols == 0 ? make_column_grid(rows, cols, layout.groups / cols) : ScaleGrid();
}

// Codes less their middle value, in the groups of a grid.
Weight bind_groups(Module& module, const TensorView& codes, const TensorView& scale, const TensorView& zero,
                   const Told& told, const Layout& layout, const ScaleGrid& shape) {
  Weight weight = module.codes_over(codes, Codes::kI8);
  weight.file_codes = bits_name(layout.bits);
  weight.code_shift = 1 << (layout.bits - 1);
  weight.f32_steps = true;
  weight.scale = grid_over(scale, shape);
  weight.zero_point = grid_over(zero, shape);
  const auto check = [codes = codes, told, layout](Weight&) { check_told(codes, told, layout); };
  weight.repack = make_row_repack(check, [codes = codes, layout](const Weight& w, int64_t n, std::span<std::byte> out) {
    layout.unpack(codes.bytes, n * w.cols, uint8_t(w.code_shift), {reinterpret_cast<uint8_t*>(out.data()), out.size()});
  });
  return weight;
}

Weight bind_floats(Module& module, const TensorView& codes, const TensorView& scale, const TensorView& zero,
                   const Told& told, const Layout& layout) {
  Weight weight = module.codes_over(codes, Codes::kF32);
  weight.file_codes = layout.bits == 8 ? "8 bits" : bits_name(layout.bits);
  const int64_t group_size = weight.rows * weight.cols / layout.groups;
  struct Values {
    std::vector<float> scale, zero;
  };
  const auto values = std::make_shared<Values>();
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [values, codes = codes, told, layout, scale = scale, zero = zero](Weight& w) {
    check_told(codes, told, layout);
    *values = {tensor_values(scale), tensor_values(zero)};
    own_codes(w);
  };
  repack->rows = [values, codes = codes, layout, group_size](Weight& w, int64_t begin, int64_t end) {
    std::vector<uint8_t> row(size_t(w.cols));
    for (int64_t n = begin; n < end; ++n) {
      layout.unpack(codes.bytes, n * w.cols, 0, row);
      const int64_t first = n * w.cols;
      for (int64_t k = 0; k < w.cols;) {
        // As many as share a group, or as have groups side by side.
        const int64_t i = first + k, of_run = layout.neighbours ? i % group_size : i % layout.groups;
        const int64_t run = std::min(w.cols - k, (layout.neighbours ? group_size : layout.groups) - of_run);
        const auto group = size_t(layout.neighbours ? i / group_size : of_run);
        std::byte* const to = w.owned.data() + i * int64_t(sizeof(float));
        for (int64_t j = 0; j < run; ++j) {
          const size_t g = layout.neighbours ? group : group + size_t(j);
          const float value = (float(row[size_t(k + j)]) - values->zero[g]) * values->scale[g];
          std::memcpy(to + j * int64_t(sizeof value), &value, sizeof value);
        }
        k += run;
      }
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
  Told told;
  if (const TensorView* const nbits = module.peek("nbits")) told.nbits = *nbits;
  if (const TensorView* const axis = module.peek("axis")) told.axis = *axis;
  const ScaleGrid shape = grid_shape(module.rows(), module.cols(), layout);
  return shape.empty() ? bind_floats(module, codes, scale, zero, told, layout)
                       : bind_groups(module, codes, scale, zero, told, layout, shape);
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "hqq") return false;
  const Json params = source.json->at("quant_config").at("weight_quant_params");
  Scheme scheme;
  scheme.bits = int(params.at("nbits").as_integer(1, 8));
  if (scheme.bits > 4 && scheme.bits != 8)
    params.at("nbits").fail(fmt::format("{} bits are not supported", scheme.bits), "supported: 8, 4, 3, 2, 1");
  if (const auto group = params.get("group_size")) scheme.group_cols = group->as_integer(1, kMaxGroup);
  const auto axis = params.get("axis");
  scheme.group_rows = axis && !axis->is_null() && axis->as_integer(0, 1) == 0 ? 0 : 1;
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
  const int64_t packed = neighbours ? groups : size, width = neighbours ? size : groups;
  const bool words = scheme.bits == 3;
  const std::vector<int64_t> codes = {words ? three_bit_rows(packed) : packed * scheme.bits / 8, width};
  return {{"W_q", words ? Dtype::kI32 : Dtype::kU8, codes},
          {"scale", scheme.scales, values},
          {"zero", scheme.scales, values}};
}

}  // namespace

const Format kHqqFormat = {
    "hqq",
    "integer codes with float zeros and scales; 8 bits, or 4, 3, 2 or 1 held as 8; groups along rows (axis 1) or "
    "columns (axis 0); those of several rows or columns held as F32",
    detect,
    bind,
    read,
    declare,
    "`W_q` in U8, or I32 for 3 bits; `scale` and `zero` in F32, F16 or BF16, (groups, 1) or (1, groups); what else "
    "a module says of itself is "
    "not needed"};

}  // namespace qgen
