// The inputs of products of many tokens, rounded to the 16-bit floats or the 8-bit codes that the products take.
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/split.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kInputThreads = 256;

QGEN_DEVICE const float* input_row(const Fp16Args& args, int64_t row) {
  if (args.parts == 1) return args.x + row * args.x_stride;
  return args.x + row / args.parts * args.x_stride + row % args.parts * args.part_stride;
}
QGEN_DEVICE const float* input_row(const QuantizeArgs& args, int64_t row) { return args.x + row * args.x_stride; }
// A row of inputs before it is rounded: x or x * norm, without the factor that normalizes it.
template <typename Args>
QGEN_DEVICE float raw_input(const Args& args, const float* row, int c) {
  return args.norm != nullptr ? row[c] * args.norm[c] : row[c];
}
QGEN_DEVICE float raw_input(const Fp16Args& args, const float* row, int c) {
  if (args.norm != nullptr) return row[c] * args.norm[c];
  if (args.gate == nullptr) return row[c];
  return row[c] * activated(args.activation, args.gate[block_index().x * args.gate_stride + c]);
}
// That factor, and the largest input after it; for all threads of a block. shared: two floats for each warp.
struct InputRange {
  float norm, peak;
};
template <typename Args>
QGEN_DEVICE InputRange input_range(const Args& args, float squares, float peak) {
  reduce<kInputThreads / kWarp>(squares, peak, shared_memory<float>());
  const float norm = args.norm != nullptr ? rsqrt_exact(squares / float(args.cols) + args.norm_eps) : 1;
  return {norm, peak * norm};
}
template <typename Args>
QGEN_DEVICE InputRange input_range(const Args& args, const float* row) {
  float squares = 0, peak = 0;
  for (int c = thread_index(); c < args.cols; c += kInputThreads) {
    const float x = row[c], v = raw_input(args, row, c);
    squares += x * x;
    peak = larger(peak, v < 0 ? -v : v);
  }
  return input_range(args, squares, peak);
}
// What a row is multiplied by to become F16. Most rows need no factor, nor do products of theirs then: where the
// largest input is 2^-6 or more, subnormal ones are off by less than 2^-18 of it.
QGEN_DEVICE PowerOfTwo power_of_row(const Fp16Args& args, const InputRange& row) {
  constexpr float kLeastNear = 0x1p-6f, kNoMoreNear = 0x1p15f, kLeast = 0x1p-47f;
  if (args.bf16) return {1, 1};
  if (args.range > 0) return {args.range, 1 / args.range};
  if (row.peak >= kLeastNear && row.peak < kNoMoreNear) return {1, 1};
  // From 2^-114 to 2^60, by which rows are multiplied that products are added to.
  return f16_range(row.peak > 0 && row.peak < kLeast ? kLeast : row.peak);
}

// A block a token.
QGEN_KERNEL(kInputThreads, 1) fp16_kernel(const Fp16Args args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  const float* const x = input_row(args, token);
  const InputRange row = input_range(args, x);
  const PowerOfTwo range = power_of_row(args, row);
  uint16_t* out = args.out.values + token * args.out.stride;
  for (int c = thread_index(); c < int(args.out.stride); c += kInputThreads) {
    const float v = c < args.cols ? raw_input(args, x, c) * row.norm * range.factor : 0;
    out[c] = args.bf16 ? bf16_bits(v) : f16_bits(v);
  }
  if (thread_index() == 0) args.out.factor[token] = range.inverse;
}

// The same where columns are whole pieces of four, which are read once: those of a row stay in registers. kSilu: gated
// by that activation, the usual one. Code for any of them, unrolled, would be longer than the cache of instructions.
enum class InputGate { kNone, kSilu, kOther };
template <bool kBf16, InputGate kGate>
QGEN_KERNEL(kInputThreads, 1)
fp16_pieces_kernel(const Fp16Args args, const LaunchTimes times) {
  // Of a thread: of 12288 columns, or 1024; a longer row's others are read and gated again.
  constexpr int kKept = kGate == InputGate::kOther ? 1 : 12;
  // Loads before the first of them is used: no load passes the branches of a division.
  constexpr int kAtOnce = kGate == InputGate::kSilu ? 6 : kKept;
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  const float* const x = input_row(args, token);
  const int pieces = args.cols / 4, all = int(args.out.stride / 4);
  struct Piece {
    Floats4 x, gate;
  };
  const auto load = [&](int c) {
    Piece piece;
    piece.x = load_floats4(x + 4 * c);
    if constexpr (kGate != InputGate::kNone) piece.gate = load_floats4(args.gate + token * args.gate_stride + 4 * c);
    return piece;
  };
  const auto gated = [&](const Piece& piece) {
    Floats4 out = piece.x;
    if constexpr (kGate != InputGate::kNone) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float gate = piece.gate.at[j];
        const float by = kGate == InputGate::kSilu ? silu(gate) : activated(args.activation, gate);
        out.at[j] = rounded_product(out.at[j], by);
      }
    }
    return out;
  };
  const auto read = [&](int c) { return gated(load(c)); };
  const auto weighted = [&](int c, const Floats4& of_x) {
    return args.norm != nullptr ? product(of_x, load_floats4(args.norm + 4 * c)) : of_x;
  };
  InputMeasure measure;
  Floats4 kept[kKept];
  QGEN_UNROLL
  for (int first = 0; first < kKept; first += kAtOnce) {
    Piece piece[kAtOnce];
    QGEN_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      if (const int c = thread_index() + (first + u) * kInputThreads; c < pieces) piece[u] = load(c);
    }
    QGEN_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      if (thread_index() + (first + u) * kInputThreads < pieces) kept[first + u] = gated(piece[u]);
    }
  }
  QGEN_UNROLL
  for (int u = 0; u < kKept; ++u) {
    const int c = thread_index() + u * kInputThreads;
    if (c >= pieces) continue;
    const Floats4 values = weighted(c, kept[u]);
    measure.add(kept[u], values);
    kept[u] = values;
  }
  for (int c = thread_index() + kKept * kInputThreads; c < pieces; c += kInputThreads) {
    const Floats4 of_x = read(c);
    measure.add(of_x, weighted(c, of_x));
  }
  const InputRange row = input_range(args, measure.squares, bits_float(measure.peak));
  const PowerOfTwo range = power_of_row(args, row);
  const float factor = row.norm * range.factor;
  uint16_t* const out = args.out.values + token * args.out.stride;
  const auto put = [&](int c, const Floats4& values) {
    Bytes8 four;
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float first = rounded_product(values.at[2 * i], factor),
                  second = rounded_product(values.at[2 * i + 1], factor);
      four.word[i] = kBf16 ? bf16_pair(first, second) : f16_pair(first, second);
    }
    *reinterpret_cast<Bytes8*>(out + 4 * c) = four;
  };
  QGEN_UNROLL
  for (int u = 0; u < kKept; ++u) {
    if (const int c = thread_index() + u * kInputThreads; c < pieces) put(c, kept[u]);
  }
  for (int c = thread_index() + kKept * kInputThreads; c < pieces; c += kInputThreads) put(c, weighted(c, read(c)));
  for (int c = pieces + thread_index(); c < all; c += kInputThreads) put(c, {});
  if (thread_index() == 0) args.out.factor[token] = range.inverse;
}

// A block a token, whose warps have a slice each, as in gemv().
template <bool kBf16, int kWindow>
QGEN_KERNEL(kGemvThreads, 1)
split_kernel(const SplitInputArgs args, const LaunchTimes times) {
  using Slice = InputSlice<kWindow>;
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  const float* const row = args.x + token * args.x_stride;
  const auto x = [&](int, int column) { return load_floats4(row + column); };
  const auto weights = [&](int column, int) {
    return args.norm != nullptr ? load_floats4(args.norm + column) : Floats4{{1, 1, 1, 1}};
  };
  uint16_t* const highs = args.out.values + 2 * token * args.out.stride;
  const auto put = [&](int column, const Floats4& values, float factor) {
    store_split<kBf16>(values, factor, highs + column, highs + args.out.stride + column);
  };
  InputMeasure measure[1];
  measure_slice<Slice, 1, 4>(args.cols, 1, measure, x, weights,
                             [&](int, int u, const Floats4& values) { put(Slice::column(u), values, 1); });
  const PowerOfTwo range = measure[0].template range<kBf16>();
  const float squares = sum_lanes(measure[0].squares);
  float* const of_warps = shared_memory<float>();
  if (lane_index() == 0) {
    of_warps[warp_index()] = squares;
    args.out.inverse[token * kInputSlices + warp_index()] = range.inverse;
  }
  if (range.factor != 1) [[unlikely]] {  // read once more: few slices are
    QGEN_UNROLL_BY(1)
    for (int column = Slice::column(0); column < padded_cols(args.cols); column += Slice::kStep)
      put(column, product(x(0, column), weights(column, 0)), range.factor);
  }
  barrier();
  if (thread_index() == 0)
    args.out.norm[token] = args.norm != nullptr ? norm_factor<kGemvWarps>(of_warps, args.cols, args.norm_eps) : 1;
}

constexpr int kInputGroup = 128;

// A block a token.
template <bool kE4M3>
QGEN_KERNEL(kInputThreads, 1)
quantize_kernel(const QuantizeArgs args, const LaunchTimes times) {
  constexpr float kLargest = kE4M3 ? 448 : 127;
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  const float* const x = input_row(args, token);
  const InputRange row = input_range(args, x);
  uint8_t* const codes = args.codes + token * args.stride;
  const auto code = [&](int c, float inverse) {
    const float v = c < args.cols ? raw_input(args, x, c) * row.norm * inverse : 0;
    if (!(v == v)) return uint8_t(0);  // NaN inputs are stored as zero; the scale carries the NaN
    return kE4M3 ? e4m3_bits(v) : uint8_t(int8_t(round_to_even(v)));
  };
  const auto inverse_of = [&](float peak) { return peak > 0 ? kLargest / peak : 0; };
  if (!args.grouped) {
    const float inverse = inverse_of(row.peak);
    for (int c = thread_index(); c < int(args.stride); c += kInputThreads) codes[c] = code(c, inverse);
    if (thread_index() == 0) args.scale[token] = row.peak / kLargest;
    return;
  }
  for (int group = warp_index(); group < int(args.stride) / kInputGroup; group += kInputThreads / kWarp) {
    const int first = group * kInputGroup + lane_index();
    float peak = 0;
    for (int c = first; c < first - lane_index() + kInputGroup; c += kWarp) {
      const float v = c < args.cols ? raw_input(args, x, c) * row.norm : 0;
      peak = larger(peak, v < 0 ? -v : v);
    }
    peak = largest_lane(peak);
    const float inverse = inverse_of(peak);
    for (int c = first; c < first - lane_index() + kInputGroup; c += kWarp) codes[c] = code(c, inverse);
    if (lane_index() == 0) args.scale[group * args.scale_stride + token] = peak / kLargest;
  }
}

}  // namespace qgen::QGEN_BACKEND
