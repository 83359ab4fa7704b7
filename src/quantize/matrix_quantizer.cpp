#include "quantize/matrix_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/numbers.h"

namespace qgen::quantize {
namespace {

constexpr int64_t kStripElements = 1 << 20;
constexpr const char* kDamaged = "the file is damaged, or the weights overflowed when it was made";

std::string subject_of(const TensorView& tensor) { return fmt::format("{}: tensor {}", tensor.file, tensor.name); }

bool is_own(const SourceMatrix& matrix, const TensorView& tensor) { return tensor.name.starts_with(matrix.name + "."); }

// The tensor that a matrix comes from; of several those with such values, where that can be seen without their scales.
std::string subject_of(const SourceMatrix& matrix) {
  if (matrix.tensors.empty()) return matrix.weight != nullptr ? matrix.weight->tensor : matrix.name;
  const auto bad = std::ranges::find_if(
      matrix.tensors, [](const TensorView* tensor) { return !all_finite(tensor->bytes, tensor->dtype); });
  const TensorView& tensor = **(bad == matrix.tensors.end() ? matrix.tensors.begin() : bad);
  if (is_own(matrix, tensor)) return subject_of(tensor);
  const bool known = bad != matrix.tensors.end() || matrix.tensors.size() == 1;
  return known ? fmt::format("{} ({})", subject_of(tensor), matrix.name)
               : fmt::format("{}: {}", tensor.file, matrix.name);
}

// The largest magnitude; NaN where it holds one.
float largest_of(const SourceMatrix& matrix) {
  float out = 0;
  RowReader reader(matrix);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (const float value : reader.tile(row, 1, 0, matrix.cols)) {
      if (std::isnan(value)) return value;
      out = std::max(out, std::fabs(value));
    }
  }
  return out;
}

}  // namespace

void fail_values(const TensorView& tensor) {
  fail(ErrorKind::kModel, fmt::format("{}: holds NaN or infinity", subject_of(tensor)), kDamaged);
}

void fail_values(const SourceMatrix& matrix, Dtype type) {
  if (const float largest = largest_of(matrix); std::isfinite(largest)) {
    fail(ErrorKind::kModel,
         fmt::format("{}: holds {} (expected numbers of {})", subject_of(matrix), largest, dtype_name(type)),
         "F16 ends at 65504, Q8_0 at 8.3e6, BF16 and F32 at 3.4e38");
  }
  fail(ErrorKind::kModel, fmt::format("{}: holds NaN or infinity", subject_of(matrix)), kDamaged);
}

int64_t strip_rows(const SourceMatrix& matrix) {
  return std::clamp<int64_t>(kStripElements / std::max<int64_t>(matrix.cols, 1), 1, matrix.rows);
}

int64_t strip_rows(const SourceMatrix& matrix, const Recipe& recipe) {
  return recipe.format == Format::kFp8 ? recipe.block : strip_rows(matrix);
}

void release_rows(const SourceMatrix& matrix, int64_t first, int64_t rows) {
  if (matrix.plain.empty() || !matrix.mapped) return;
  const int64_t row_bytes = matrix.cols * dtype_bits(matrix.type) / 8;
  release_pages(matrix.plain.subspan(size_t(first * row_bytes), size_t(rows * row_bytes)));
}

MatrixQuantizer::MatrixQuantizer(const SourceMatrix& matrix, const Recipe& recipe, const float* weights, Scales scales)
    : matrix_(matrix),
      recipe_(recipe),
      weights_(weights),
      group_cols_(recipe.group_cols(matrix.cols)),
      grid_cols_((matrix.cols + group_cols_ - 1) / group_cols_) {
  const int64_t group_rows = recipe.group_rows(matrix.rows);
  if (scales == Scales::kKept) scales_.resize(size_t((matrix.rows + group_rows - 1) / group_rows * grid_cols_));
}

bool MatrixQuantizer::has_whole_scale() const {
  return recipe_.format == Format::kFp8Tensor || recipe_.format == Format::kInt8Tensor;
}

size_t MatrixQuantizer::strips() const {
  const int64_t rows = strip_rows(matrix_);
  return size_t((matrix_.rows + rows - 1) / rows);
}

template <typename Look>
void MatrixQuantizer::for_strips(bool parallel, const Look& look) const {
  const int64_t rows = strip_rows(matrix_);
  const auto one = [&](size_t strip) {
    RowReader reader(matrix_);
    const int64_t first = int64_t(strip) * rows, count = std::min(rows, matrix_.rows - first);
    Group group{.rows = count, .cols = matrix_.cols, .pitch = matrix_.cols, .weights = weights_};
    group.values = reader.tile(first, count, 0, matrix_.cols).data();
    look(strip, group);
    release_rows(matrix_, first, count);
  };
  if (parallel) {
    on_all_cores(strips(), one);
  } else {
    for (size_t strip = 0; strip < strips(); ++strip) one(strip);
  }
}

float MatrixQuantizer::largest(bool parallel) const {
  std::vector<uint32_t> bits(strips());
  for_strips(parallel, [&](size_t strip, const Group& group) {
    bits[strip] = GroupQuantizer::largest_bits(group, rounding_kernels());
  });
  const float out = std::bit_cast<float>(*std::max_element(bits.begin(), bits.end()));
  if (!std::isfinite(out)) fail_values(matrix_);
  return out;
}

void MatrixQuantizer::set_whole_scale(Scale scale) {
  whole_ = scale;
  scales_.front() = scale.stored;
}

void MatrixQuantizer::find_whole_scale(bool parallel) {
  if (!has_whole_scale()) return;
  const GroupQuantizer quantizer(recipe_, recipe_.scale_type(matrix_.type));
  const float most = largest(parallel);
  if (most == 0) return set_whole_scale({});
  const int64_t elements = matrix_.rows * matrix_.cols;
  // The sums of the strips are added up in their order.
  if (recipe_.mode == Mode::kRms) {
    std::vector<double> squares(strips());
    for_strips(parallel, [&](size_t strip, const Group& group) { squares[strip] = quantizer.squares(group, most); });
    double sum = 0;
    for (const double part : squares) sum += part;
    return set_whole_scale(quantizer.from_squares(most, sum, elements));
  }
  if (recipe_.mode == Mode::kMse) {
    std::vector<std::vector<double>> errors(strips());
    for_strips(parallel, [&](size_t strip, const Group& group) { errors[strip] = quantizer.errors(group, most); });
    std::vector<double> sums(size_t(recipe_.mse_steps), 0.0);
    for (const auto& part : errors) std::transform(sums.begin(), sums.end(), part.begin(), sums.begin(), std::plus<>());
    return set_whole_scale(quantizer.from_errors(most, sums));
  }
  if (recipe_.mode == Mode::kPercentile) {
    std::vector<float> magnitudes(static_cast<size_t>(elements));
    const int64_t rows = strip_rows(matrix_);
    for_strips(parallel, [&](size_t strip, const Group& group) {
      std::transform(group.values, group.values + group.rows * group.cols,
                     magnitudes.begin() + int64_t(strip) * rows * matrix_.cols, [](float w) { return std::fabs(w); });
    });
    return set_whole_scale(quantizer.from_quantile(most, quantizer.quantile(magnitudes, elements)));
  }
  set_whole_scale(quantizer.from_largest(most));
}

void MatrixQuantizer::strip(int64_t first, int64_t rows, std::span<std::byte> out) {
  const int64_t group_rows = recipe_.format == Format::kFp8 ? recipe_.block : 1;
  strip(first, rows, out,
        whole_ ? std::span<float>() : std::span(scales_).subspan(size_t(first / group_rows * grid_cols_)));
}

void MatrixQuantizer::strip(int64_t first, int64_t rows, std::span<std::byte> out, std::span<float> scales) const {
  RowReader reader(matrix_);
  GroupQuantizer quantizer(recipe_, recipe_.scale_type(matrix_.type));
  const int64_t group_rows = recipe_.format == Format::kFp8 ? recipe_.block : 1;
  for (int64_t row = first; row < first + rows; row += group_rows) {
    Group group{.rows = std::min(group_rows, first + rows - row)};
    for (int64_t c = 0; c < grid_cols_; ++c) {
      const int64_t col = c * group_cols_;
      group.cols = std::min(group_cols_, matrix_.cols - col);
      group.pitch = group.cols;
      group.values = reader.tile(row, group.rows, col, group.cols).data();
      group.weights = weights_ == nullptr ? nullptr : weights_ + col;
      group.positions = recipe_.format == Format::kFp8 ? recipe_.block * recipe_.block : group.rows * group.cols;
      const std::optional<Scale> scale = whole_ ? whole_ : quantizer.scale(group);
      if (!scale) fail_values(matrix_);
      if (!whole_) scales[size_t((row - first) / group_rows * grid_cols_ + c)] = scale->stored;
      for (int64_t r = 0; r < group.rows; ++r)
        quantizer.codes(group, r, *scale, out.data() + (row - first + r) * matrix_.cols + col);
    }
  }
}

std::vector<std::byte> MatrixQuantizer::stored_scales() const {
  const ScaleType type = recipe_.scale_type(matrix_.type);
  std::vector<std::byte> out(scales_.size() * size_t(scale_bytes(type)));
  for (size_t i = 0; i < scales_.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(scales_[i]);
    const uint32_t stored = type == ScaleType::kBf16   ? bits >> 16
                            : type == ScaleType::kE8M0 ? bits >> 23
                            : type == ScaleType::kF16  ? float_to_f16(scales_[i])
                                                       : bits;
    std::memcpy(out.data() + i * size_t(scale_bytes(type)), &stored, size_t(scale_bytes(type)));
  }
  return out;
}

}  // namespace qgen::quantize
