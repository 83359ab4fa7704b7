#include "quantize/source.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/numbers.h"
#include "model/families/table.h"
#include "model/open.h"
#include "model/planner.h"
#include "model/rope.h"
#include "quant/declaration.h"
#include "quantize/compare_models.h"
#include "quantize/expert_matrices.h"
#include "quantize/hugging_face.h"
#include "quantize/joined_matrices.h"
#include "quantize/quantized_source.h"

namespace qgen::quantize {
namespace {

constexpr std::string_view kWeight = ".weight";

// What config.json does not declare the types say: methods without a declaration keep codes under names of their own.
bool is_quantized(const Checkpoint& checkpoint) {
  const auto declared = QuantConfig::read(checkpoint.config(), checkpoint.files(), true);
  if (declared.json || !declared.method.empty()) return true;
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(), [](const TensorView& tensor) {
    const bool weight = tensor.name.ends_with(kWeight) && !is_float(tensor.dtype);
    const bool codes = tensor.name.find(".weight") != tensor.name.npos && dtype_bits(tensor.dtype) == 8 &&
                       tensor.dtype != Dtype::kBool;
    return tensor.shape.size() == 2 && (weight || codes);
  });
}

bool is_stack(const TensorView& tensor) { return !module_of_stack(tensor).empty(); }

void add_plain(Source& source) {
  std::set<std::string> stacks;
  const bool known = find_family(source.checkpoint.config()) != nullptr;
  if (source.stacks != Stacks::kWhole && known && std::ranges::any_of(source.checkpoint.tensors(), is_stack))
    stacks = add_stacked_experts(source, Dtype::kBf16);
  for (const TensorView& tensor : source.checkpoint.tensors()) {
    if (stacks.contains(tensor.name)) continue;
    if (tensor.shape.size() != 2 || !is_float(tensor.dtype) || !tensor.name.ends_with(kWeight) ||
        tensor.elements() == 0) {
      source.copied.push_back(&tensor);
      continue;
    }
    SourceMatrix matrix;
    matrix.name = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    matrix.rows = tensor.shape[0];
    matrix.cols = tensor.shape[1];
    matrix.type = tensor.dtype;
    matrix.plain = tensor.bytes;
    matrix.tensors = {&tensor};
    source.matrices.push_back(std::move(matrix));
  }
}

std::shared_ptr<const std::vector<int64_t>> shared_or_null(std::vector<int64_t> order) {
  return order.empty() ? nullptr : std::make_shared<const std::vector<int64_t>>(std::move(order));
}

// What config.json says in transformers' words must be the model that the files are of.
void check_same_model(const Source& source, const Plan& original) {
  const std::string difference = different_step([&] { return plan_of(source); }, original);
  if (difference.empty()) return;
  fail(ErrorKind::kModel,
       fmt::format("{}: files of family {} in this layout cannot be converted ({})", source.location.name,
                   original.model.family, difference),
       "start from the model's Hugging Face files");
}

}  // namespace

bool is_float(Dtype type) { return type == Dtype::kF32 || type == Dtype::kF16 || type == Dtype::kBf16; }

Dtype float_type(Codes codes) {
  return codes == Codes::kF32 ? Dtype::kF32 : codes == Codes::kF16 ? Dtype::kF16 : Dtype::kBf16;
}

std::vector<std::byte> stored_floats(std::span<const float> values, Dtype type) {
  const size_t size = size_t(dtype_bits(type) / 8);
  std::vector<std::byte> out(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = type == Dtype::kF16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
    std::memcpy(out.data() + i * size, type == Dtype::kF32 ? static_cast<const void*>(&values[i]) : &half, size);
  }
  return out;
}

bool is_plain(const Weight& weight) {
  return !weight.quantized() && weight.scale.empty() && !weight.ordered && weight.column_order.empty() &&
         !weight.in_blocks();
}

void decode_row(const Weight& weight, int64_t n, std::span<float> out) {
  const bool simple = weight.quantized() && !weight.has_offsets() && weight.column_order.empty() &&
                      !weight.in_blocks() && !weight.scale.empty() && !weight.scale.two_levels() &&
                      weight.scale.factor == 1 && weight.codes != Codes::kE5M2;
  if (!simple) {
    std::vector<double> exact(size_t(weight.cols));
    dequantize_row(weight, n, exact);
    std::transform(exact.begin(), exact.end(), out.begin(), [](double value) { return float(value); });
    return;
  }
  // A product of a code and a scale, rounded once: the same in F32.
  static const std::array<std::array<float, 256>, 2> values = [] {
    std::array<std::array<float, 256>, 2> table;
    for (int code = 0; code < 256; ++code) {
      table[0][size_t(code)] = float(int8_t(code));
      table[1][size_t(code)] = e4m3_to_float(uint8_t(code));
    }
    return table;
  }();
  const auto& table = values[weight.codes == Codes::kE4M3];
  const auto* codes = reinterpret_cast<const uint8_t*>(weight.code_at(n, 0));
  for (int64_t begin = 0; begin < weight.cols; begin += weight.scale.group_cols) {
    const float scale = weight.scale_at(n, begin);
    const int64_t end = std::min(begin + weight.scale.group_cols, weight.cols);
    for (int64_t k = begin; k < end; ++k) out[size_t(k)] = table[codes[k]] * scale;
  }
}

void Source::add_changed(TensorView tensor, std::span<const float> values) {
  Changed& added = changed.emplace_back();
  added.bytes = stored_floats(values, tensor.dtype);
  added.tensor = std::move(tensor);
  added.tensor.bytes = added.bytes;
  copied.push_back(&added.tensor);
}

std::span<const float> RowReader::tile(int64_t first, int64_t rows, int64_t col, int64_t cols) {
  const std::span<const float> out = stored_tile(first, rows, col, cols);
  if (matrix_.multipliers == nullptr) return out;
  const float* const factors = matrix_.multipliers->data() + col;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < cols; ++k) values_[size_t(r * cols + k)] *= factors[k];
  }
  return out;
}

std::span<const float> RowReader::stored_tile(int64_t first, int64_t rows, int64_t col, int64_t cols) {
  const size_t size = size_t(rows) * size_t(cols);
  if (values_.size() < size) values_.resize(size);
  const bool plain = !matrix_.plain.empty() || is_plain(*matrix_.weight);
  if (plain && matrix_.stored_cols == nullptr) {
    for (int64_t r = 0; r < rows; ++r) widen(matrix_.stored_row(first + r), col, cols, values_.data() + r * cols);
    return {values_.data(), size};
  }
  const int64_t width = matrix_.cols;
  if (first != first_decoded_ || rows != rows_decoded_) {
    decoded_.resize(size_t(rows * width));
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = std::span(decoded_).subspan(size_t(r * width), size_t(width));
      if (plain) {
        widen(matrix_.stored_row(first + r), 0, width, row.data());
      } else {
        decode_row(*matrix_.weight, matrix_.stored_row(first + r), row);
      }
    }
    first_decoded_ = first;
    rows_decoded_ = rows;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* const from = decoded_.data() + r * width;
    if (matrix_.stored_cols == nullptr) {
      std::memcpy(values_.data() + r * cols, from + col, size_t(cols) * sizeof(float));
    } else {
      for (int64_t k = 0; k < cols; ++k) values_[size_t(r * cols + k)] = from[(*matrix_.stored_cols)[size_t(col + k)]];
    }
  }
  return {values_.data(), size};
}

void RowReader::widen(int64_t row, int64_t col, int64_t cols, float* out) const {
  const bool in_file = !matrix_.plain.empty();
  const Dtype type = in_file ? matrix_.type : float_type(matrix_.weight->codes);
  const int64_t element = dtype_bits(type) / 8;
  const std::byte* const from =
      in_file ? matrix_.plain.data() + (row * matrix_.cols + col) * element : matrix_.weight->code_at(row, col);
  switch (type) {
    case Dtype::kBf16: kernels_.widen_bf16(from, cols, out); break;
    case Dtype::kF16: kernels_.widen_f16(from, cols, out); break;
    default: std::memcpy(out, from, size_t(cols) * sizeof(float)); break;
  }
}

std::string module_of_stack(const TensorView& tensor) {
  constexpr std::string_view kExperts = ".experts";
  if (tensor.shape.size() != 3 || tensor.shape[1] == 1 || !is_float(tensor.dtype)) return {};
  const size_t experts = tensor.name.find(fmt::format("{}.", kExperts));
  if (experts != tensor.name.npos) return tensor.name.substr(0, experts + kExperts.size());
  // Convolutions have as many dimensions.
  if (!tensor.name.ends_with(kWeight) || tensor.name.find("conv") != tensor.name.npos) return {};
  return tensor.name.substr(0, tensor.name.size() - kWeight.size());
}

uint64_t stored_bytes(const SourceMatrix& matrix, std::set<const TensorView*>& counted) {
  uint64_t total = 0;
  for (const TensorView* tensor : matrix.tensors) {
    if (counted.insert(tensor).second) total += tensor->bytes.size();
  }
  return total;
}

std::unique_ptr<Plan> plan_of_files(const Source& source) {
  return make_plan(open_checkpoint(source.location), source.trust_tensors);
}

Source open_source(const std::string& model, Stacks stacks, bool trust_tensors) {
  Source source;
  source.stacks = stacks;
  source.trust_tensors = trust_tensors;
  source.location = locate_model(model);
  source.checkpoint = open_checkpoint(source.location);
  HuggingFaceView view;
  std::unique_ptr<Plan> original;
  source.other_layout = has_other_layout(source.checkpoint);
  if (source.other_layout) {
    original = plan_of_files(source);
    view = as_hugging_face(std::move(source.checkpoint));
    source.checkpoint = std::move(view.checkpoint);
    source.parts = std::move(view.parts);
    source.float_type = view.float_type;
    source.file_modules = std::move(view.file_modules);
    source.left = std::move(view.left);
  }
  source.quantized = is_quantized(source.checkpoint) || (!view.joined.empty() && is_quantized(source.parts));
  if (source.quantized) {
    add_quantized(source);
  } else {
    add_plain(source);
  }
  if (!view.joined.empty()) add_joined(source, std::move(view.joined));
  if (original != nullptr) check_same_model(source, *original);
  for (SourceMatrix& matrix : source.matrices) {
    const auto order = view.orders.find(matrix.name);
    if (order == view.orders.end()) continue;
    matrix.stored_rows = shared_or_null(std::move(order->second.rows));
    matrix.stored_cols = shared_or_null(std::move(order->second.cols));
  }
  return source;
}

}  // namespace qgen::quantize
