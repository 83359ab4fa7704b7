#include "quant/weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/numbers.h"

namespace qgen {
namespace {

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace

std::string_view codes_name(Codes codes) {
  switch (codes) {
    case Codes::kF32: return "f32";
    case Codes::kF16: return "f16";
    case Codes::kBf16: return "bf16";
    case Codes::kI8: return "int8";
    case Codes::kE4M3: return "fp8";
    case Codes::kE5M2: return "fp8-e5m2";
  }
  return "?";
}

int64_t scale_bytes(ScaleType type) {
  switch (type) {
    case ScaleType::kF32: return 4;
    case ScaleType::kF16:
    case ScaleType::kBf16: return 2;
    default: return 1;
  }
}

namespace {

float load_scale(const std::byte* p, ScaleType type) {
  switch (type) {
    case ScaleType::kF32: return load<float>(p);
    case ScaleType::kF16: return f16_to_float(load<uint16_t>(p));
    case ScaleType::kBf16: return bf16_to_float(load<uint16_t>(p));
    case ScaleType::kE8M0: return e8m0_to_float(load<uint8_t>(p));
    case ScaleType::kI8: return float(load<int8_t>(p));
    case ScaleType::kU8: return float(load<uint8_t>(p));
    case ScaleType::kE4M3: return e4m3_to_float(load<uint8_t>(p));
  }
  return 0;
}

}  // namespace

float ScaleGrid::stored(int64_t r, int64_t c) const { return load_scale(data + r * row_pitch + c * col_pitch, type); }

float ScaleGrid::super_scale(int64_t r, int64_t c) const {
  if (!two_levels()) return 1;
  return load_scale(super.data + r * super.row_pitch + (c >> super.shift) * scale_bytes(super.type), super.type);
}

ScaleGrid make_grid(int64_t rows, int64_t cols, int64_t group_rows, int64_t group_cols) {
  ScaleGrid grid;
  grid.group_rows = group_rows;
  grid.group_cols = group_cols;
  grid.rows = (rows + grid.group_rows - 1) / grid.group_rows;
  grid.cols = (cols + grid.group_cols - 1) / grid.group_cols;
  return grid;
}

ScaleGrid make_column_grid(int64_t rows, int64_t cols, int64_t period) {
  ScaleGrid grid;
  grid.group_rows = rows / period;
  grid.group_cols = 1;
  grid.row_period = period;
  grid.rows = period;
  grid.cols = cols;
  return grid;
}

bool all_zero(const ScaleGrid& grid) {
  for (int64_t r = 0; r < grid.rows; ++r) {
    for (int64_t c = 0; c < grid.cols; ++c) {
      if (grid.value(r, c) != 0) return false;
    }
  }
  return true;
}

void set_values(ScaleGrid& grid, std::vector<float> values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  set_values(grid, ScaleType::kF32, {bytes.begin(), bytes.end()});
}

void set_values(ScaleGrid& grid, ScaleType type, std::vector<std::byte> values) {
  grid.owned = std::make_shared<const std::vector<std::byte>>(std::move(values));
  grid.type = type;
  grid.data = grid.owned->data();
  grid.col_pitch = scale_bytes(type);
  grid.row_pitch = grid.cols * grid.col_pitch;
}

const std::byte* Weight::code_at(int64_t n, int64_t k) const {
  const std::byte* const row = data.data() + n * row_bytes;
  if (!in_blocks()) return row + k * code_bytes(codes);
  return row + k / block_cols * block_bytes + block_offset + k % block_cols * code_bytes(codes);
}

size_t Weight::bytes() const {
  size_t total = size_t(rows * row_bytes) + zero_point.bytes() + minimum.bytes();
  if (!in_blocks()) total += scale.bytes();  // blocks hold their scales
  if (ordered) total += size_t(cols) * sizeof(int32_t);
  return total;
}

namespace {

// Rows first, first + step, ... of a grid.
ScaleGrid rows_of(ScaleGrid grid, int64_t first, int64_t rows, int64_t step, const std::string& tensor) {
  if (grid.empty()) return grid;
  if (grid.row_period > 0) {
    if (step > 1)
      fail(ErrorKind::kModel, fmt::format("{}: scales of columns over rows that alternate are not supported", tensor));
    grid.row_origin = (grid.row_origin + first) % grid.row_period;
    if (grid.row_origin + rows > grid.row_period) return grid;
    // Some rows of the grid, each for one row of the weight.
    if (grid.data != nullptr) grid.data += grid.row_origin * grid.row_pitch;
    grid.rows = grid.row_period = rows;
    grid.row_origin = 0;
    return grid;
  }
  const int64_t begin = grid.row_origin + first, first_group = begin / grid.group_rows;
  grid.rows = (begin + (rows - 1) * step) / grid.group_rows + 1 - first_group;
  if (grid.data != nullptr) grid.data += first_group * grid.row_pitch;
  if (grid.super.data != nullptr) grid.super.data += first_group * grid.super.row_pitch;
  grid.row_origin = begin % grid.group_rows;
  if (step == 1 || grid.rows == 1) return grid;
  if (grid.group_rows != 1)
    fail(ErrorKind::kModel, fmt::format("{}: blocks of scales over rows that alternate are not supported", tensor));
  grid.rows = rows;
  grid.row_pitch *= step;
  grid.super.row_pitch *= step;
  return grid;
}

// The metadata of some rows of a weight, without its data and its repack.
Weight rows_of(const Weight& whole, int64_t first, int64_t rows, int64_t step = 1) {
  Weight out;
  out.name = whole.name;
  out.rows = rows;
  out.cols = whole.cols;
  out.codes = whole.codes;
  out.row_bytes = whole.row_bytes;
  out.block_cols = whole.block_cols;
  out.block_bytes = whole.block_bytes;
  out.block_offset = whole.block_offset;
  out.scale = rows_of(whole.scale, first, rows, step, whole.tensor);
  out.zero_point = rows_of(whole.zero_point, first, rows, step, whole.tensor);
  out.minimum = rows_of(whole.minimum, first, rows, step, whole.tensor);
  out.code_shift = whole.code_shift;
  out.f32_steps = whole.f32_steps;
  out.file_codes = whole.file_codes;
  out.rounded_from = whole.rounded_from;
  out.column_order = whole.column_order;
  out.ordered = whole.ordered;
  out.tensor = whole.tensor;
  out.source_pitch = whole.source_pitch * step;
  return out;
}

// Repacks a copy of the whole weight, of its rows those of the slice, and takes the slice from there.
std::shared_ptr<const Weight::Repack> slice_repack(const Weight& whole, int64_t first, int64_t rows) {
  auto out = std::make_shared<Weight::Repack>();
  auto stored = std::make_shared<Weight>(rows_of(whole, 0, whole.rows));
  stored->data = whole.data;
  out->prepare = [stored = std::shared_ptr<const Weight>(std::move(stored)), repack = whole.repack, first,
                  rows](Weight& slice) {
    Weight copy = rows_of(*stored, 0, stored->rows);
    copy.data = stored->data;
    repack->prepare(copy);
    if (repack->rows) repack->rows(copy, first, first + rows);
    Weight part = rows_of(copy, first, rows);
    const auto codes = copy.data.subspan(size_t(first * copy.row_bytes), size_t(rows * copy.row_bytes));
    if (!copy.owned.empty()) slice.owned.assign(codes.begin(), codes.end());
    slice.data = copy.owned.empty() ? codes : std::span<const std::byte>(slice.owned);
    slice.scale = std::move(part.scale);
    slice.zero_point = std::move(part.zero_point);
    slice.minimum = std::move(part.minimum);
    slice.code_shift = part.code_shift;
    slice.column_order = std::move(part.column_order);
    slice.ordered = part.ordered;
  };
  return out;
}

}  // namespace

Weight slice_rows(const Weight& whole, int64_t first, int64_t rows, int64_t step) {
  if (step > 1 && !whole.data.empty() && (whole.repack == nullptr || whole.source_pitch == 0))
    fail(ErrorKind::kModel, fmt::format("{}: rows that alternate are not supported in this layout", whole.tensor));
  Weight out = rows_of(whole, first, rows, step);
  if (whole.repack == nullptr) {
    out.data = whole.data.subspan(size_t(first * whole.row_bytes), size_t(rows * whole.row_bytes));
    return out;
  }
  out.data = whole.data;
  if (const int64_t bytes = whole.source_pitch; bytes > 0) {
    // Behind the last row of an alternating slice there is nothing up to the pitch.
    const std::span<const std::byte> rest = whole.data.subspan(size_t(first * bytes));
    out.data = rest.first(std::min(rest.size(), size_t(((rows - 1) * step + 1) * bytes)));
    out.repack = whole.repack;
  } else if (first == 0 && rows == whole.rows) {
    out.repack = whole.repack;
  } else {
    out.repack = slice_repack(whole, first, rows);
  }
  return out;
}

void decode_codes(const Weight& weight, int64_t n, std::span<double> out) {
  for (int64_t k = 0; k < weight.cols; ++k) {
    const std::byte* const p = weight.code_at(n, k);
    switch (weight.codes) {
      case Codes::kF32: out[k] = load<float>(p); break;
      case Codes::kF16: out[k] = f16_to_float(load<uint16_t>(p)); break;
      case Codes::kBf16: out[k] = bf16_to_float(load<uint16_t>(p)); break;
      case Codes::kI8: out[k] = load<int8_t>(p); break;
      case Codes::kE4M3: out[k] = e4m3_to_float(load<uint8_t>(p)); break;
      case Codes::kE5M2: out[k] = e5m2_to_float(load<uint8_t>(p)); break;
    }
  }
}

namespace {

// W of a code in group (r, c), with a rounding to `Number` after each operation.
template <typename Number>
Number element_of(const Weight& weight, Number code, int64_t r, int64_t c) {
  Number value = code + Number(weight.code_shift);
  if (!weight.zero_point.empty()) value -= Number(weight.zero_point.exact(r, c));
  if (!weight.scale.empty()) {
    if (weight.scale.two_levels()) value *= Number(weight.scale.super_scale(r, c));
    value = value * Number(weight.scale.stored(r, c)) * Number(weight.scale.factor);
  }
  if (!weight.minimum.empty()) value += Number(weight.minimum.exact(r, c));
  return value;
}

}  // namespace

void dequantize_row(const Weight& weight, int64_t n, std::span<double> out) {
  decode_codes(weight, n, out);
  if (const ScaleGrid& grid = weight.scale; !grid.empty()) {
    const int64_t r = grid.row_of(n);
    for (int64_t k = 0; k < weight.cols; ++k) {
      const int64_t c = k / grid.group_cols;
      out[k] = weight.f32_steps ? element_of(weight, float(out[k]), r, c) : element_of(weight, out[k], r, c);
    }
  }
  if (weight.column_order.empty()) return;
  const std::vector<double> stored(out.begin(), out.begin() + weight.cols);
  for (int64_t k = 0; k < weight.cols; ++k) out[weight.column_order[k]] = stored[k];
}

std::string method_name(const Weight& weight) {
  std::string name(codes_name(weight.codes));
  const ScaleGrid& grid = weight.scale;
  if (!weight.file_codes.empty()) {
    name = fmt::format("{}, held as {}{}", weight.file_codes, weight.codes == Codes::kI8 ? "8" : name,
                       grid.empty() ? "" : ",");
  }
  if (grid.empty()) return name;
  if (grid.row_period > 0) {
    name += fmt::format(" column group {}", grid.group_rows);
  } else if (grid.group_rows >= weight.rows && grid.group_cols == weight.cols && grid.group_rows > 1) {
    name += " tensor";
  } else if (grid.group_rows == 1 && grid.cols == 1) {
    name += " channel";
  } else if (grid.group_rows == 1) {
    name += fmt::format(" group {}", grid.group_cols);
  } else {
    name += fmt::format(" block {}x{}", grid.group_rows, grid.group_cols);
  }
  if (!weight.zero_point.empty() || !weight.minimum.empty()) name += " asymmetric";
  if (weight.ordered) name += " act-order";
  if (!weight.rounded_from.empty()) name += fmt::format(", rounded from {}", weight.rounded_from);
  return name;
}

std::vector<float> tensor_values(const TensorView& tensor) {
  std::vector<float> out(size_t(tensor.elements()));
  const std::byte* const p = tensor.bytes.data();
  switch (tensor.dtype) {
    case Dtype::kF32:
      if (!out.empty()) std::memcpy(out.data(), p, tensor.bytes.size());
      break;
    case Dtype::kF16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = f16_to_float(load<uint16_t>(p + 2 * i));
      break;
    case Dtype::kBf16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_float(load<uint16_t>(p + 2 * i));
      break;
    case Dtype::kF8E8M0:
    case Dtype::kU8:
      for (size_t i = 0; i < out.size(); ++i) out[i] = e8m0_to_float(load<uint8_t>(p + i));
      break;
    default:
      fail(ErrorKind::kModel,
           fmt::format("{}: tensor {}: type {} cannot be read here (expected F32, F16, BF16 or F8_E8M0)", tensor.file,
                       tensor.name, dtype_name(tensor.dtype)));
  }
  return out;
}

Vector slice(const Vector& whole, int64_t first, int64_t size) {
  Vector part = whole;
  part.size = size;
  part.first = whole.first + first;
  if (!whole.given.empty()) part.given = {whole.given.begin() + first, whole.given.begin() + first + size};
  if (whole.bytes.empty()) return part;
  const size_t element = whole.bytes.size() / size_t(whole.size);
  part.bytes = whole.bytes.subspan(size_t(first) * element, size_t(size) * element);
  return part;
}

std::vector<float> Vector::values() const {
  if (!given.empty()) return given;
  if (derived != nullptr) {
    const std::vector<float> all = (*derived)();
    return {all.begin() + first, all.begin() + first + size};
  }
  TensorView view;
  view.dtype = type;
  view.shape = {size};
  view.bytes = bytes;
  std::vector<float> out = tensor_values(view);
  for (float& value : out) {
    // A bias of minus infinity can be meant: a token that never comes.
    if (std::isnan(value) || value == INFINITY)
      fail(ErrorKind::kModel, fmt::format("{}: holds {}", name, value),
           "the file is damaged, or its numbers overflowed when it was made");
    value = float(double(value) + add);
  }
  return out;
}

}  // namespace qgen
