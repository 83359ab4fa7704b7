// compressed-tensors "pack-quantized": integer codes plus their middle value, dense in words along a row;
// weight_scale per channel or group; where asymmetric, weight_zero_point packed in the same way along N, or I8;
// weight_g_idx where in activation order. W = (code - zero_point) * scale.
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int64_t kWordBits = 32;

int64_t words_of(int64_t values, int bits) { return (values * bits + kWordBits - 1) / kWordBits; }

// Other layouts have words with this name as well, and other tensors beside them.
bool detect(const Module& module) {
  const TensorView* words = module.peek("weight_packed");
  return words != nullptr && words->dtype == Dtype::kI32 && module.has("weight_scale");
}

// Some writers leave the rest of a word empty where a code would be cut: then the shape is that of more bits.
void refuse_gaps(const Module& module, const TensorView& words) {
  const QuantConfig& config = module.config();
  const auto groups = config.json ? config.json->get("config_groups") : std::nullopt;
  if (!groups || !groups->is_object() || words.shape.size() != 2) return;
  for (const auto& [name, group] : groups->members()) {
    const auto weights = group.is_object() ? group.get("weights") : std::nullopt;
    const auto bits = weights && weights->is_object() ? weights->get("num_bits") : std::nullopt;
    if (!bits || !bits->is_integer() || bits->as_integer() < 2 || bits->as_integer() > 7) continue;
    const int64_t declared = bits->as_integer(), in_word = kWordBits / declared;
    const int64_t with_gaps = (module.cols() + in_word - 1) / in_word;
    if (words.shape[1] == with_gaps && with_gaps != words_of(module.cols(), int(declared)))
      fail_tensor(words, fmt::format("codes of {} bits with gaps between words are not supported", declared));
  }
}

int code_bits(const Module& module, const TensorView& words) {
  refuse_gaps(module, words);
  for (const int bits : {8, 4, 2, 6, 3, 5, 7}) {
    if (words.shape == std::vector<int64_t>{module.rows(), words_of(module.cols(), bits)}) return bits;
  }
  fail_tensor(words,
              fmt::format("wrong shape (expected [{}, {}] for codes of 8 bits, found {})", module.rows(),
                          words_of(module.cols(), 8), words.shape_text()),
              "supported: 8 to 2 bits");
}

// Zero points (groups of N, groups of K) out of words along N.
void read_zero_points(const TensorView& words, int bits, ScaleGrid& grid) {
  const auto mask = uint32_t((1u << bits) - 1);
  std::vector<std::byte> values(size_t(grid.rows * grid.cols));
  for (int64_t r = 0; r < grid.rows; ++r) {
    const int64_t bit = r * bits, first = bit / kWordBits;
    const bool cut = bit % kWordBits + bits > kWordBits;  // by the end of a word
    for (int64_t c = 0; c < grid.cols; ++c) {
      uint32_t two[2] = {};
      for (int64_t i = 0; i < (cut ? 2 : 1); ++i)
        std::memcpy(&two[i], words.bytes.data() + ((first + i) * grid.cols + c) * int64_t(sizeof two[i]),
                    sizeof two[i]);
      const uint32_t value = uint32_t((two[0] | uint64_t{two[1]} << kWordBits) >> bit % kWordBits) & mask;
      values[size_t(r * grid.cols + c)] = std::byte(uint8_t(value - (1u << (bits - 1))));
    }
  }
  set_values(grid, ScaleType::kI8, std::move(values));
}

Weight bind(Module& module) {
  const TensorView& words = module.take("weight_packed");
  const int bits = code_bits(module, words);
  Weight weight = module.codes_over(words, Codes::kI8);
  weight.file_codes = bits_name(bits);
  weight.scale = module.take_grid("weight_scale");
  module.require_declared(weight.scale);
  module.ignore("weight_shape");  // the configuration says it, and weight_packed bears it out
  const TensorView* zeros = module.peek("weight_zero_point");
  if (zeros != nullptr && zeros->dtype == Dtype::kI32) {
    module.take("weight_zero_point", {Dtype::kI32}, {words_of(weight.scale.rows, bits), weight.scale.cols});
    weight.zero_point = weight.scale;
    weight.zero_point.type = ScaleType::kI8;
    weight.zero_point.data = nullptr;
    weight.zero_point.tensor = fmt::format("{}: tensor {}", zeros->file, zeros->name);
  } else if (zeros != nullptr) {
    weight.zero_point = module.take_zero_points("weight_zero_point", weight.scale);
    zeros = nullptr;
  }
  const TensorView* order = module.has("weight_g_idx") ? &take_group_index(module, "weight_g_idx") : nullptr;
  weight.ordered = order != nullptr && weight.scale.cols > 1;
  // Parts of stacks are tensors of the module, which is gone when the model is loaded: repacks have copies.
  std::optional<TensorView> packed_zeros, index;
  if (zeros != nullptr) packed_zeros = *zeros;
  if (order != nullptr) index = *order;
  const auto prepare = [=](Weight& w) {
    if (packed_zeros) read_zero_points(*packed_zeros, bits, w.zero_point);
    if (!w.zero_point.empty() && all_equal(w.zero_point, 0)) w.zero_point = {};
    if (index) w.column_order = read_group_order(*index, w.scale, w.cols);
  };
  weight.repack = make_row_repack(prepare, [words = words, bits](const Weight& w, int64_t n, std::span<std::byte> out) {
    const auto row_bytes = size_t(words_of(w.cols, bits)) * sizeof(uint32_t);
    unpack_bits(words.bytes.subspan(size_t(n) * row_bytes, row_bytes), bits, 1 << (bits - 1), out);
  });
  return weight;
}

// The row of compressed-tensors declares these, too.
bool read(const QuantSource&, Declaration&) { return false; }

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const int64_t groups = scheme_grid_cols(scheme, cols);
  std::vector<DeclaredTensor> out = {{"weight_packed", Dtype::kI32, {rows, words_of(cols, scheme.bits)}},
                                     {"weight_scale", scheme.scales, {rows, groups}}};
  if (scheme.zero_points) out.push_back({"weight_zero_point", Dtype::kI32, {words_of(rows, scheme.bits), groups}});
  if (scheme.activation_order) out.push_back({"weight_g_idx", Dtype::kI32, {cols}, std::byte{0xFF}});
  return out;
}

}  // namespace

const Format kPackFormat = {
    "compressed-tensors packed",
    "pack-quantized: integer codes in words, with weight_scale per channel or group, with or without zero points, in "
    "activation order or not; 8 bits, or 7 to 2 held as 8",
    detect,
    bind,
    read,
    declare,
    "`weight_packed` in I32, (N, K * bits / 32); `weight_scale` per channel or group; `weight_zero_point` in I32, "
    "packed "
    "along N, or I8; `weight_g_idx` where in activation order; `weight_shape`"};

}  // namespace qgen
