#include "kernels/linear_dispatch.h"

#include <algorithm>
#include <cmath>

#include "base/rounding.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int64_t kGroup = 128;       // columns that 8-bit floats share a scale for
constexpr int64_t kPieceRows = 16;    // of weights written out: a multiple of this, but for the last
constexpr int64_t kMostRows = 32768;  // that dequantize_to_fp16() takes at once: far below the 65535 blocks of a grid

// The largest power of two that keeps numbers up to `peak` below 2^15, so that F16 holds them.
float f16_factor(float peak) {
  if (!(peak > 0) || !std::isfinite(peak)) return 1;
  return std::exp2(std::clamp(std::floor(std::log2(32768 / peak)), -60.0f, 60.0f));
}

// |rms_norm(x)| is at most the root of its columns.
float input_factor(const LinearInput& input) { return f16_factor(std::sqrt(float(input.cols)) * input.norm_peak); }

// The rows of a matrix from `first` on.
Matrix rows_from(Matrix m, int first) {
  m.codes += first * m.row_bytes;
  if (m.bias != nullptr) m.bias += first;
  m.rows -= first;
  m.row_origin += first;
  return m;
}

// What kernels that prepare inputs are told of them.
void set_input(InputArgs& args, const LinearInput& input, int tokens) {
  args = {.x = input.x,
          .x_stride = input.stride,
          .norm = input.norm.weight,
          .norm_eps = input.norm.eps,
          .cols = input.cols,
          .tokens = tokens};
}

// Kernels of products normalize by themselves what most models have, and load whole pieces of rows.
bool is_fused(const DeviceNorm& norm, int cols) {
  return norm.kind == Norm::Kind::kNone ||
         (norm.kind == Norm::Kind::kRms && norm.weight != nullptr && norm.bias == nullptr && norm.group == cols);
}
bool is_aligned(const LinearInput& input) {
  return reinterpret_cast<uintptr_t>(input.x) % 16 == 0 && (input.zeros_behind || input.cols % kPad == 0);
}

}  // namespace

void LinearDispatch::lay_out(DeviceLayout& layout, const LinearSizes& sizes, Activations activations) {
  activations_ = activations;
  const int64_t tokens = round_up(sizes.tokens, kLibraryGemmTokens), widest = sizes.widest;
  normalized_ = layout.take<float>(sizes.normalized);
  gates_ = layout.take<float>(sizes.gates);
  added_ = layout.take<float>(sizes.added);
  if (activations == Activations::kF32) return;
  fp16_.values = layout.take<uint16_t>(tokens * round_up(widest, kPad));
  fp16_.factor = layout.take<float>(tokens);
  if (sizes.many_sequences) {
    split_.parts.values = layout.take<uint16_t>(2 * sizes.tokens * round_up(widest, kPad));
    split_.parts.inverse = layout.take<float>(sizes.tokens * kInputSlices);
    split_.parts.norm = layout.take<float>(sizes.tokens);
    split_.partial = layout.take<float>(SplitGemmArgs::kPartialFloats);
    split_.counter = layout.take<uint32_t>(SplitGemmArgs::kMostSharedTiles);
  }
  const bool eight = activations == Activations::k8Bit, copies = tokens >= library_gemm_limits().fewest_tokens;
  if (eight) group_scale_ = layout.take<float>(tokens * (round_up(widest, kGroup) / kGroup));
  if (copies) {
    copy_elements_ =
        std::max(library_gemm_limits().copy_bytes / 2, library_gemm_limits().copy_rows * round_up(widest, kPad));
    copy_ = layout.take<uint16_t>(copy_elements_);
  }
  if (eight || copies) workspace_ = layout.take<std::byte>(library_gemm_limits().workspace_bytes);
}

void LinearDispatch::start(Device& device) {
  if (workspace_ != nullptr) gemm_.emplace(device, workspace_);
}

void LinearDispatch::prepare(Stream& stream, Form form, const LinearInput& input, int tokens) {
  if (prepared_ == form) return;
  prepared_ = form;
  if (form == Form::kF16 || form == Form::kF16Ranged || form == Form::kBf16) {
    fp16_.stride = round_up(input.cols, kPad);
    Fp16Args args;
    set_input(args, input, tokens);
    args.bf16 = form == Form::kBf16;
    args.range = form == Form::kF16Ranged ? input_factor(input) : 0;
    args.gate = input.gate;
    args.gate_stride = input.gate != nullptr ? round_up(input.cols, kPad) : 0;
    args.activation = input.activation;
    args.out = fp16_;
    round_to_fp16(stream, args);
    return;
  }
  QuantizeArgs args;
  set_input(args, input, tokens);
  args.e4m3 = form != Form::kI8;
  args.grouped = form == Form::kE4M3Groups;
  args.codes = reinterpret_cast<uint8_t*>(fp16_.values);
  args.stride = round_up(input.cols, kGroup);
  args.scale = args.grouped ? group_scale_ : fp16_.factor;
  args.scale_stride = round_up(tokens, kLibraryGemmTokens);
  quantize(stream, args);
}

void LinearDispatch::prepare_parts(Stream& stream, SplitForm form, const LinearInput& input, int tokens) {
  if (prepared_parts_ == form) return;
  prepared_parts_ = form;
  split_.parts.stride = round_up(input.cols, kPad);
  SplitInputArgs args;
  set_input(args, input, tokens);
  args.form = form;
  args.out = split_.parts;
  split_to_fp16(stream, args);
}

bool LinearDispatch::takes_8_bits(const Matrix& m) {
  if (!gemm_ || activations_ != Activations::k8Bit) return false;
  std::optional<LibraryProduct> d = eight_bit_product(m, m.cols, kMostGemvTokens + 1);
  if (!d) return false;
  d->args.y = fp16_.values;
  d->args.y_stride = round_up(m.rows, kPad);
  return gemm_->can(d->args);
}

// Weights whose scales can stay outside of a sum of codes, and blocks of 128 x 128.
std::optional<LinearDispatch::LibraryProduct> LinearDispatch::eight_bit_product(const Matrix& m, int cols,
                                                                                int tokens) const {
  const bool blocks = m.kind == Codes::kE4M3 && m.group_rows == kGroup && m.group_cols == kGroup && m.row_origin == 0 &&
                      m.grid_cols % 4 == 0 && m.cols % kGroup == 0 && m.rows % 16 == 0;
  const bool rows = grid_kind(m) == GridKind::kRow && m.zero_point == nullptr;
  if (m.column_order != nullptr || m.scale == nullptr || m.nan_codes) return {};
  if (!(m.kind == Codes::kE4M3 && (blocks || rows)) && !(m.kind == Codes::kI8 && rows)) return {};
  LibraryProduct d;
  d.args.kind = m.kind == Codes::kI8 ? LibraryGemmKind::kI8
                : blocks             ? LibraryGemmKind::kE4M3Blocks
                                     : LibraryGemmKind::kE4M3;
  d.form = m.kind == Codes::kI8 ? Form::kI8 : blocks ? Form::kE4M3Groups : Form::kE4M3;
  d.row_scale = !blocks;
  d.args.w = m.codes;
  d.args.x = fp16_.values;
  d.args.rows = m.rows;
  d.args.cols = int(m.row_bytes);
  d.args.tokens = int(round_up(tokens, kLibraryGemmTokens));
  d.args.w_stride = m.row_bytes;
  d.args.x_stride = round_up(cols, kGroup);
  if (blocks) {
    d.args.w_scale = m.scale;
    d.args.x_scale = group_scale_;
    d.args.w_scale_stride = m.grid_cols;
  }
  return d;
}

// Weights of 16 bits as they are, those of 8 bits written out as F16.
std::optional<LinearDispatch::LibraryProduct> LinearDispatch::fp16_product(const Matrix& m, const LinearInput& input,
                                                                           int tokens) const {
  if (tokens < library_gemm_limits().fewest_tokens || copy_ == nullptr) return {};
  LibraryProduct d;
  d.args.x = fp16_.values;
  d.args.x_stride = round_up(input.cols, kPad);
  d.args.tokens = tokens;
  d.form = input.norm.weight != nullptr && input.norm_peak > 0 ? Form::kF16Ranged : Form::kF16;
  if (d.form == Form::kF16Ranged) d.args.factor = 1 / input_factor(input);
  if (code_bytes(m.kind) == 2 && m.scale == nullptr && m.zero_point == nullptr && m.column_order == nullptr) {
    if (m.kind == Codes::kBf16) {
      d.args.kind = LibraryGemmKind::kBf16;
      d.form = Form::kBf16;
      d.args.factor = 1;
    }
    d.args.w = m.codes;
    d.args.rows = m.rows;
    d.args.cols = int(m.row_bytes / 2);
    d.args.w_stride = m.row_bytes / 2;
    return d;
  }
  if (code_bytes(m.kind) != 1 || m.nan_codes) return {};
  d.copied = true;
  d.args.factor /= f16_factor(m.largest);
  d.args.w = copy_;
  d.args.w_stride = round_up(m.cols, kPad);
  d.args.cols = int(d.args.w_stride);
  // In pieces of the same size.
  const int64_t fit = std::min(kMostRows, copy_elements_ / d.args.w_stride / kPieceRows * kPieceRows);
  const int64_t pieces = (m.rows + fit - 1) / fit;
  d.args.rows = int(std::min({round_up((m.rows + pieces - 1) / pieces, kPieceRows), fit, int64_t{m.rows}}));
  return d;
}

std::optional<LinearDispatch::LibraryProduct> LinearDispatch::library_product(const Call& call, const Matrix& m,
                                                                              float* y, int64_t y_stride) {
  // The library may sum a token's products in another order among other tokens.
  if (!gemm_ || call.tokens <= kMostGemvTokens || call.choice != Kernels::kByCount) return {};
  const auto can = [&](std::optional<LibraryProduct>& d) {
    if (!d) return false;
    d->args.y = y;
    d->args.y_stride = y_stride;
    LibraryGemmArgs last = d->args;  // of a copy, the rows that are left over
    last.rows = m.rows % d->args.rows;
    return gemm_->can(d->args) && (last.rows == 0 || gemm_->can(last));
  };
  if (activations_ == Activations::k8Bit) {
    if (std::optional<LibraryProduct> d = eight_bit_product(m, call.input.cols, call.tokens); can(d)) return d;
  }
  std::optional<LibraryProduct> d = fp16_product(m, call.input, call.tokens);
  return can(d) ? d : std::nullopt;
}

bool LinearDispatch::multiply_by_library(const LibraryGemmArgs& args) {
  ++library_products_;
  return gemm_->multiply(args);
}

// The first few projections as one product of the library, where their weights are written out for it and their results
// lie side by side: keys and values alone have too few rows to keep a GPU busy. Returns how many, none where there are
// not at least two; what they left in y is overwritten if the library failed.
size_t LinearDispatch::run_joined(Stream& stream, const Call& call, std::span<const DeviceProjection> projections) {
  const DeviceProjection& first = projections.front();
  const auto is_plain = [](const DeviceProjection& p) {
    return !p.gate && p.epilogue.stores_only() && p.weight.bias == nullptr && p.weight.rows <= kMostRows;
  };
  if (!is_plain(first)) return 0;
  std::optional<LibraryProduct> d = library_product(call, first.weight, first.y, first.y_stride);
  if (!d || !d->copied || d->form != Form::kF16Ranged) return 0;
  const int64_t room = copy_elements_ / d->args.w_stride;
  int64_t rows = 0;
  size_t count = 0;
  float largest = 0;
  for (const DeviceProjection& p : projections) {
    const Matrix& m = p.weight;
    if (!is_plain(p) || m.cols != first.weight.cols || p.y != first.y + rows || p.y_stride != first.y_stride ||
        rows + m.rows > room)
      break;
    const std::optional<LibraryProduct> own = fp16_product(m, call.input, call.tokens);
    if (!own || !own->copied) break;
    rows += m.rows;
    largest = std::max(largest, m.largest);
    ++count;
  }
  if (count < 2) return 0;
  // One power of two for all weights.
  d->args.factor *= f16_factor(first.weight.largest) / f16_factor(largest);
  d->args.rows = int(rows);
  if (!gemm_->can(d->args)) return 0;
  prepare(stream, d->form, call.input, call.tokens);
  uint16_t* to = copy_;
  for (const DeviceProjection& p : projections.first(count)) {
    dequantize_to_fp16(stream, {p.weight, 0, p.weight.rows, f16_factor(largest), to, d->args.w_stride});
    to += p.weight.rows * d->args.w_stride;
  }
  return multiply_by_library(d->args) ? count : 0;
}

int LinearDispatch::run_library(Stream& stream, const Call& call, const LibraryProduct& d, const Matrix& m,
                                const Target& target) {
  prepare(stream, d.form, call.input, call.tokens);
  const auto apply_factors = [&](bool divide) {
    if (d.form != Form::kF16 || factors_are_one_) return;
    auto* const y = static_cast<float*>(d.args.y);
    apply_token_factors(stream, {fp16_.factor, divide, y, d.args.y_stride, m.rows, call.tokens});
  };
  // What is there takes part in the product as the inputs do, so that one factor is right for both.
  if (d.args.add) apply_factors(true);
  int done = 0;
  while (done < m.rows) {
    LibraryGemmArgs args = d.args;
    args.rows = std::min(d.args.rows, m.rows - done);
    args.y = static_cast<float*>(d.args.y) + done;
    if (d.copied) dequantize_to_fp16(stream, {m, done, args.rows, f16_factor(m.largest), copy_, args.w_stride});
    if (!multiply_by_library(args)) break;
    done += args.rows;
  }
  if (done < m.rows && !d.args.add) return 0;
  const bool scaled = d.form == Form::kI8 || d.form == Form::kE4M3;
  const bool is_plain = target.gate == nullptr && (d.args.add || target.epilogue.stores_only());
  const bool is_whole = !scaled && m.bias == nullptr && (is_plain || target.leave_gate);
  if (is_whole) {
    apply_factors(false);
    if (target.leave_gate) left_gate_ = {target.y, target.epilogue.activation};
    return done;
  }
  EpilogueArgs args;
  args.raw = d.args.y;
  args.raw_stride = d.args.y_stride;
  args.integers = d.args.kind == LibraryGemmKind::kI8;
  args.token_scale = scaled || d.form == Form::kF16 ? fp16_.factor : nullptr;
  args.row_scale = d.row_scale ? m.scale : nullptr;
  args.f16_scales = m.f16_scales;
  args.group_rows = m.group_rows;
  args.row_origin = m.row_origin;
  args.bias = m.bias;
  args.gate = target.gate;
  args.gate_stride = round_up(m.rows, kPad);
  args.y = target.y;
  args.y_stride = target.stride;
  args.epilogue = target.epilogue;
  args.rows = m.rows;
  args.tokens = call.tokens;
  apply_epilogue(stream, args);
  return done;
}

void LinearDispatch::run_gemv(Stream& stream, const Call& call, GemvArgs args) {
  args.x = call.input.x;
  args.x_stride = call.input.stride;
  args.norm = call.input.norm.weight;
  args.norm_eps = call.input.norm.eps;
  args.token_gate = call.input.token_gate;
  args.token_gate_stride = call.input.token_gate_stride;
  args.beside = call.beside;
  const auto is_ordered = [](const Matrix& m) { return m.column_order != nullptr; };
  const bool together = call.tokens > kGemvTokens && split_.parts.values != nullptr &&
                        std::none_of(args.part, args.part + args.parts, is_ordered);
  if (together) prepare_parts(stream, split_form(args.part[0]), call.input, call.tokens);
  const int at_once = together ? SplitGemmArgs::kMostTokens : kGemvTokens;
  for (int first = 0; first < call.tokens; first += at_once) {
    GemvArgs some = args;
    some.x += first * args.x_stride;
    for (int i = 0; i < (args.gated ? 1 : args.parts); ++i) some.y[i] += first * args.y_stride[i];
    some.tokens = std::min(at_once, call.tokens - first);
    if (together) {
      SplitGemmArgs split = split_;
      split.products = some;
      split.parts.values += 2 * first * split_.parts.stride;
      split.parts.inverse += first * kInputSlices;
      split.parts.norm += first;
      split_gemm(stream, split);
    } else {
      gemv(stream, some);
    }
  }
}

// Several projections without gates, or one with a gate, in one launch.
void LinearDispatch::run_gemv(Stream& stream, const Call& call, std::span<const DeviceProjection> parts) {
  GemvArgs args;
  args.epilogue = parts[0].epilogue;
  args.gated = parts[0].gate.has_value();
  args.parts = args.gated ? 2 : int(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    args.part[i] = parts[i].weight;
    args.y[i] = parts[i].y;
    args.y_stride[i] = parts[i].y_stride;
  }
  if (args.gated) {
    args.part[0] = *parts[0].gate;
    args.part[1] = parts[0].weight;
  }
  run_gemv(stream, call, args);
}

void LinearDispatch::run_gemv_any(Stream& stream, const Call& call, const Matrix& m, const Target& target) {
  Call plain = call;
  if (call.input.norm.kind != Norm::Kind::kNone) normalize(stream, plain);
  for (int first = 0; first < call.tokens; first += kGemvTokens) {
    GemvArgs args;
    args.part[0] = m;
    args.x = plain.input.x + first * plain.input.stride;
    args.x_stride = plain.input.stride;
    args.y[0] = target.y + first * target.stride;
    args.y_stride[0] = target.stride;
    args.epilogue = target.epilogue;
    args.tokens = std::min(kGemvTokens, call.tokens - first);
    gemv_any(stream, args);
  }
}

// The epilogue of a product that kernels have not done themselves.
void LinearDispatch::apply(Stream& stream, const Call& call, const float* raw, int64_t raw_stride, int rows,
                           const Target& target) {
  EpilogueArgs args;
  args.raw = raw;
  args.raw_stride = raw_stride;
  args.gate = target.gate;
  args.gate_stride = round_up(rows, kPad);
  args.y = target.y;
  args.y_stride = target.stride;
  args.epilogue = target.epilogue;
  args.rows = rows;
  args.tokens = call.tokens;
  apply_epilogue(stream, args);
}

void LinearDispatch::multiply(Stream& stream, const Call& call, const Matrix& m, const Target& target) {
  // The library adds to y itself where that is all there is to do. (Of 8-bit codes in blocks it is not known to.)
  const bool only_adds = target.epilogue == Epilogue{.add = true} && m.bias == nullptr && target.gate == nullptr;
  if (only_adds && activations_ == Activations::k16Bit) {
    if (std::optional<LibraryProduct> d = library_product(call, m, target.y, target.stride)) {
      d->args.add = true;
      const int done = run_library(stream, call, *d, m, target);
      if (done == m.rows) return;
      return multiply_here(stream, call, rows_from(m, done), {target.y + done, target.stride, target.epilogue});
    }
  }
  // cuBLASLt may have no algorithm for this product, or its call may fail.
  const auto [raw, raw_stride] = raw_product(m, target);
  if (const std::optional<LibraryProduct> d = library_product(call, m, raw, raw_stride)) {
    if (run_library(stream, call, *d, m, target) == m.rows) return;
  }
  multiply_here(stream, call, m, target);
}

void LinearDispatch::multiply_here(Stream& stream, const Call& call, const Matrix& m, const Target& target) {
  const auto [raw, raw_stride] = raw_product(m, target);
  const Target product{raw, raw_stride, {}};
  if (!call.few && has_mma_kernels(m) && m.column_order == nullptr) {
    const Epilogue only_add{.add = target.epilogue.add};
    const bool whole = target.gate == nullptr && target.epilogue == only_add;
    prepare(stream, m.kind == Codes::kBf16 ? Form::kBf16 : Form::kF16, call.input, call.tokens);
    const Target& to = whole ? target : product;
    gemm(stream, {m, fp16_, to.y, to.stride, to.epilogue.add, call.tokens});
    if (!whole) apply(stream, call, raw, raw_stride, m.rows, target);
    return;
  }
  const Target& to = target.gate == nullptr ? target : product;
  if (has_mma_kernels(m)) {
    GemvArgs args;
    args.part[0] = m;
    args.y[0] = to.y;
    args.y_stride[0] = to.stride;
    args.epilogue = to.epilogue;
    run_gemv(stream, call, args);
  } else {
    run_gemv_any(stream, call, m, to);
  }
  if (target.gate != nullptr) apply(stream, call, raw, raw_stride, m.rows, target);
}

// Where a product goes before its epilogue: to y itself, or to scratch if the epilogue adds it to y, whose values are
// needed until then.
std::pair<float*, int64_t> LinearDispatch::raw_product(const Matrix& m, const Target& target) const {
  if (!target.epilogue.add) return {target.y, target.stride};
  return {added_, round_up(m.rows, kPad)};
}

void LinearDispatch::normalize(Stream& stream, Call& call) {
  const int64_t stride = round_up(call.input.cols, kPad);
  if (!is_normalized_) {
    CombineArgs args;
    args.y = call.input.x;
    args.y_stride = call.input.stride;
    args.norm = call.input.norm;
    args.out = normalized_;
    args.out_stride = stride;
    args.cols = call.input.cols;
    args.zeros = int(stride) - call.input.cols;
    args.tokens = call.tokens;
    combine(stream, args);
  }
  is_normalized_ = true;
  call.input = {normalized_, stride, call.input.cols, true, {}, 0};
}

size_t LinearDispatch::joined_by_gemv(std::span<const DeviceProjection> projections) const {
  const DeviceProjection& first = projections.front();
  if (!has_mma_kernels(first.weight)) return 0;
  if (first.gate) return has_mma_kernels(*first.gate) && alike(*first.gate, first.weight) ? 1 : 0;
  size_t count = 0;
  while (count < projections.size() && count < size_t{GemvArgs::kMostParts}) {
    const DeviceProjection& p = projections[count];
    if (p.gate || !has_mma_kernels(p.weight) || !alike(p.weight, first.weight) || p.epilogue != first.epilogue) break;
    ++count;
  }
  return count;
}

bool LinearDispatch::can_run_beside(std::span<const DeviceProjection> projections, const LinearInput& input, int tokens,
                                    Kernels choice) const {
  if (!are_few(tokens, choice) || tokens > kGemvTokens || !is_fused(input.norm, input.cols) || !is_aligned(input))
    return false;
  for (size_t i = 0, count; i < projections.size(); i += count) {
    count = joined_by_gemv(projections.subspan(i));
    // Two that add to the same row would meet there.
    if (count == 0 || (count < projections.size() && projections[i].epilogue.add)) return false;
  }
  return true;
}

bool LinearDispatch::takes_gate(std::span<const DeviceProjection> projections, const LinearInput& input, int tokens,
                                Kernels choice) const {
  return activations_ == Activations::k16Bit && !are_few(tokens, choice) && input.norm.kind == Norm::Kind::kNone &&
         is_aligned(input) && std::all_of(projections.begin(), projections.end(), [&](const DeviceProjection& p) {
           return !p.gate && has_mma_kernels(p.weight) && p.weight.column_order == nullptr;
         });
}

Rounded LinearDispatch::takes_rounded(std::span<const DeviceProjection> projections, const LinearInput& input,
                                      int tokens, Kernels choice) const {
  if (!takes_gate(projections, input, tokens, choice) || input.cols % kPad != 0) return Rounded::kNo;
  const auto bf16 = std::count_if(projections.begin(), projections.end(),
                                  [](const DeviceProjection& p) { return p.weight.kind == Codes::kBf16; });
  return bf16 == 0 ? Rounded::kF16 : bf16 == std::ssize(projections) ? Rounded::kBf16 : Rounded::kNo;
}

Fp16Rows LinearDispatch::leave_rounded(const LinearInput& input, Rounded to) {
  left_rounded_ = {input.x, to == Rounded::kBf16 ? Form::kBf16 : Form::kF16};
  fp16_.stride = input.cols;
  return fp16_;
}

bool LinearDispatch::takes_token_gate(const DeviceProjection& projection, const LinearInput& input, int tokens,
                                      Kernels choice) const {
  return are_few(tokens, choice) && tokens <= kGemvTokens && input.norm.kind == Norm::Kind::kNone &&
         is_aligned(input) && joined_by_gemv({&projection, 1}) > 0 && projection.weight.bias == nullptr;
}

LinearInput LinearDispatch::input_of_gemv(Stream& stream, const LinearInput& input, int tokens) {
  Call call{input, tokens, Kernels::kByCount, true, {}};
  is_normalized_ = false;
  if (!is_fused(input.norm, input.cols) || !is_aligned(input)) normalize(stream, call);
  return call.input;
}

void LinearDispatch::run(Stream& stream, std::span<const DeviceProjection> projections, LinearInput input, int tokens,
                         Kernels choice, Beside beside, bool leave_gate) {
  if (left_gate_ && left_gate_->x == input.x) {
    input.gate = gates_;
    input.activation = left_gate_->activation;
  }
  factors_are_one_ = left_rounded_ && left_rounded_->x == input.x;
  prepared_ = factors_are_one_ ? left_rounded_->form : Form::kNone;
  forget_left();
  prepared_parts_.reset();
  const bool few = are_few(tokens, choice);
  Call call{input_of_gemv(stream, input, tokens), tokens, choice, few, {}};
  const bool side_by_side = beside.previous || beside.next || can_run_beside(projections, input, tokens, choice);
  for (size_t i = 0; i < projections.size();) {
    const std::span<const DeviceProjection> left = projections.subspan(i);
    if (const size_t count = few ? joined_by_gemv(left) : 0; count > 0) {
      if (side_by_side) call.beside = {i > 0 || beside.previous, i + count < projections.size() || beside.next};
      run_gemv(stream, call, left.first(count));
      i += count;
    } else if (const size_t joined = run_joined(stream, call, left); joined > 0) {
      i += joined;
    } else {
      const DeviceProjection& p = left.front();
      Target target{p.y, p.y_stride, p.epilogue};
      if (p.gate) {
        multiply(stream, call, *p.gate, {gates_, round_up(p.gate->rows, kPad), {}});
        target.gate = gates_;
        const Epilogue only_gated{.activation = p.epilogue.activation};
        target.leave_gate = leave_gate && left.size() == 1 && p.epilogue == only_gated;
      }
      multiply(stream, call, p.weight, target);
      ++i;
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
