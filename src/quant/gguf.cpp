// GGUF's quantized types. Q8_0, blocks of 32 codes along a row behind their F16 scale, is used where it lies. Types of
// fewer bits are taken apart when the model is loaded, exactly: codes become INT8, scales keep the levels and types
// that the file has, with W = code * scale, code * scale + minimum (Q4_1, Q5_1), or, of super-blocks of 256 codes, code
// * (d * scale) - dmin * minimum. Rows depend on their own bytes alone, so parts of matrices are taken apart alone.
#include "quant/formats.h"
#include "quant/gguf_blocks.h"

namespace qgen {
namespace {

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && (weight->dtype == Dtype::kQ8_0 || find_block_type(weight->dtype) != nullptr);
}

// The codes of a weight lie in Q8_0's blocks, or will.
void set_q8_0_blocks(Weight& weight) {
  weight.block_cols = kQ8_0BlockElements;
  weight.block_bytes = kQ8_0BlockBytes;
  weight.block_offset = kQ8_0BlockBytes - kQ8_0BlockElements;
  weight.row_bytes = weight.cols / kQ8_0BlockElements * kQ8_0BlockBytes;
  weight.scale.type = ScaleType::kF16;
  weight.scale.row_pitch = weight.row_bytes;
  weight.scale.col_pitch = kQ8_0BlockBytes;
}

// The grids of a row lie side by side, behind the codes of all rows: scales, minimums, super-scales, those of minimums.
struct GridRowLayout {
  int64_t minimums = 0, super = 0, super_minimum = 0, bytes = 0;
};
GridRowLayout grid_row_layout(const Weight& weight) {
  GridRowLayout out;
  if (weight.in_blocks()) return out;
  const ScaleGrid& scale = weight.scale;
  const int64_t levels = weight.minimum.empty() ? 1 : 2, codes = scale.cols * scale_bytes(scale.type),
                super = scale.two_levels() ? scale.super_cols() * scale_bytes(scale.super.type) : 0;
  out.minimums = codes;
  out.super = levels * codes;
  out.super_minimum = out.super + super;
  out.bytes = levels * (codes + super);
  return out;
}

void make_room(Weight& weight) {
  weight.source = weight.data;
  const GridRowLayout layout = grid_row_layout(weight);
  const size_t codes = size_t(weight.rows * weight.row_bytes);
  weight.owned.resize(codes + size_t(weight.rows * layout.bytes));
  weight.data = std::span<const std::byte>(weight.owned).first(codes);
  if (weight.in_blocks()) {
    weight.scale.data = weight.data.data();
    weight.scale.row_pitch = weight.row_bytes;
    return;
  }
  const std::byte* const grids = weight.owned.data() + codes;
  const auto place = [&](ScaleGrid& grid, int64_t first, int64_t super) {
    if (grid.empty()) return;
    grid.data = grids + first;
    grid.row_pitch = layout.bytes;
    if (!grid.two_levels()) return;
    grid.super.data = grids + super;
    grid.super.row_pitch = layout.bytes;
  };
  place(weight.scale, 0, layout.super);
  place(weight.minimum, layout.minimums, layout.super_minimum);
}

void take_rows_apart(const BlockType& type, Weight& weight, int64_t begin, int64_t end) {
  const BlockShape shape = block_shape(type.dtype);
  const GridRowLayout layout = grid_row_layout(weight);
  const int64_t blocks = weight.cols / shape.elements, groups = shape.elements / type.group_cols,
                grid_bytes = groups * scale_bytes(weight.scale.type);
  for (int64_t n = begin; n < end; ++n) {
    const auto* source = reinterpret_cast<const uint8_t*>(weight.source.data()) + n * weight.source_pitch;
    std::byte* codes = weight.owned.data() + n * weight.row_bytes;
    std::byte* const grids = weight.owned.data() + weight.rows * weight.row_bytes + n * layout.bytes;
    for (int64_t block = 0; block < blocks; ++block, source += shape.bytes) {
      if (weight.in_blocks()) {
        type.take_apart(source, {codes + weight.block_offset, codes, nullptr, nullptr, nullptr});
        codes += weight.block_bytes;
        continue;
      }
      const int64_t super = block * int64_t(sizeof(uint16_t));
      type.take_apart(source, {codes, grids + block * grid_bytes, grids + layout.minimums + block * grid_bytes,
                               grids + layout.super + super, grids + layout.super_minimum + super});
      codes += shape.elements;
    }
  }
}

Weight bind(Module& module) {
  const TensorView& tensor = *module.peek("weight");
  Weight weight = module.take_codes("weight", Codes::kI8);
  const BlockType* const type = find_block_type(tensor.dtype);
  const int64_t group_cols = type == nullptr ? kQ8_0BlockElements : type->group_cols;
  weight.scale = make_grid(weight.rows, weight.cols, 1, group_cols);
  weight.scale.tensor = weight.tensor;
  if (type == nullptr) {
    set_q8_0_blocks(weight);
    weight.scale.data = weight.data.data();
    return weight;
  }
  weight.file_codes = type->bits;
  switch (type->scales) {
    case BlockType::Scales::kQ8_0: set_q8_0_blocks(weight); break;
    case BlockType::Scales::kF16: weight.scale.type = ScaleType::kF16; break;
    case BlockType::Scales::kE8M0:
      weight.scale.type = ScaleType::kE8M0;
      weight.scale.factor = 0.5;
      break;
    case BlockType::Scales::kSuper:
      weight.scale.type = ScaleType::kI8;
      weight.scale.super.shift = group_cols == 32 ? 3 : 4;
      break;
  }
  if (!weight.in_blocks()) weight.scale.col_pitch = scale_bytes(weight.scale.type);
  if (type->minimums) {
    weight.minimum = weight.scale;
    if (weight.scale.two_levels()) weight.minimum.factor = -1;
  }
  const BlockShape shape = block_shape(type->dtype);
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = make_room;
  repack->rows = [type](Weight& w, int64_t begin, int64_t end) { take_rows_apart(*type, w, begin, end); };
  weight.source_pitch = weight.cols / shape.elements * shape.bytes;
  weight.repack = std::move(repack);
  return weight;
}

std::string kind(const Module& module) { return std::string(dtype_name(module.peek("weight")->dtype)); }

// Only tensors say it; a GGUF file is never without its weights.
bool read(const QuantSource&, Declaration&) { return false; }
std::vector<DeclaredTensor> declare(const Scheme&, int64_t, int64_t) { return {}; }

}  // namespace

const Format kGgufFormat = {"gguf",
                            "Q8_0: INT8 codes in blocks of 32 with an F16 scale; Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, "
                            "IQ4_NL, IQ4_XS and MXFP4 "
                            "held as 8 bits, with the scales and minimums of their blocks and super-blocks",
                            detect,
                            bind,
                            read,
                            declare,
                            "GGUF version 2 or 3, one file or split; tensors of these types, any mixture of them, "
                            "beside them F32, F16 and BF16 "
                            "(method `none`)",
                            nullptr,
                            kind};

}  // namespace qgen
