// Kernels of a shortlist of the best scores (engine/shortlist_bounds.h, where its names are explained).
#pragma once

#include "engine/shortlist_bounds.h"
#include "kernels/device/gemv.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kCopyWarps = 8;  // of a block, a row each

constexpr uint32_t kInfinityBits = 0x7F800000, kMinusInfinityBits = 0xFF800000;

// A warp makes the copy of a row, four columns of each group to a lane.
template <Codes kCodes>
QGEN_KERNEL(kCopyWarps* kWarp, 1)
copy_head_kernel(const HeadCopyArgs args, const LaunchTimes) {
  static_assert(kShortlistGroup == 4 * kWarp && kCodeBytes<kCodes> == 2);
  const Matrix& head = args.head;
  const int64_t row = int64_t(block_index().x) * kCopyWarps + warp_index();
  if (row >= head.rows) return;
  const int groups = int(shortlist_groups(head.cols)), lane_column = 4 * lane_index();
  const auto load = [&](int g) {
    const int column = g * int(kShortlistGroup) + lane_column;
    Floats4 out = {};
    if (2 * column >= head.row_bytes) return out;
    const Bytes8 two = load_once8(head.codes + row * head.row_bytes + 2 * column);
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const auto bits = uint16_t(two.word[j / 2] >> (j % 2 * 16));
      out.at[j] = kCodes == Codes::kBf16 ? bf16_value(bits) : f16_value(bits);
    }
    return out;
  };
  uint32_t peak = 0;
  QGEN_UNROLL_BY(4)
  for (int g = 0; g < groups; ++g) {
    const Floats4 values = load(g);
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) peak = larger_bits(peak, float_bits(values.at[j]) & 0x7FFFFFFF);
  }
  const float largest = bits_float(largest_lane_bits(peak));
  // A row with NaN or infinity is on every shortlist.
  const bool is_number = finite(largest), scaled = is_number && largest > kLeastShortlistPeak;
  const float scale = scaled ? largest / 127 : 0, inverse = scaled ? 127 / largest : 0;
  if (lane_index() == 0) args.scale[row] = scale;
  const auto bound = [&](int g, float squares) {
    const float norm = is_number ? shortlist_norm(root_exact(squares)) : bits_float(kInfinityBits);
    if (lane_index() == 0) args.bounds[g * args.padded_rows + row] = bf16_upwards(float_bits(norm));
  };
  float of_row = 0;
  QGEN_UNROLL_BY(2)
  for (int g = 0; g < groups; ++g) {
    Floats4 values = load(g);
    float squares = 0, left = 0;
    uint32_t codes = 0;
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float value = is_number ? values.at[j] : 0, code = round_to_even(value * inverse);
      codes |= uint32_t(uint8_t(int(code))) << (8 * j);
      squares = fused_product(value, value, squares);
      const float rest = fused_product(-code, scale, value);
      left = fused_product(rest, rest, left);
    }
    of_row += sum_lanes(squares);
    bound(g, sum_lanes(left));
    const int column = g * int(kShortlistGroup) + lane_column;
    if (column < args.row_bytes) *reinterpret_cast<uint32_t*>(args.codes + row * args.row_bytes + column) = codes;
  }
  bound(groups, of_row);
}

// Floats as keys, integers in the same order; NaN is below all.
QGEN_DEVICE uint32_t ordered_bits(float value) {
  const uint32_t bits = float_bits(value);
  if (!(value == value)) return 0;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}
// Keys below that of minus infinity, of NaN and of nothing, become minus infinity.
QGEN_DEVICE float of_ordered_bits(uint32_t bits) {
  const uint32_t least = ~kMinusInfinityBits;
  if (bits < least) bits = least;
  return bits_float(bits >> 31 != 0 ? bits & 0x7FFFFFFF : ~bits);
}

constexpr int kBoundThreads = int(kBoundBlockRows) / 2, kBoundWarps = kBoundThreads / kWarp;
static_assert(kBoundWarpRows == 2 * kWarp);
// Bits of a limit that are looked for: its sign, its exponent and 12 of its fraction. The others are zero, which lists
// a few rows more.
constexpr int kLimitBits = 21;
// Shared memory before the best bounds: the norms of an input, and what reduce() takes, twice.
constexpr int kInputNorms = int(kMostListedCols / kShortlistGroup) + 1;
constexpr int kBoundFloats = kInputNorms + 2 * 2 * kBoundWarps;

// The norms of the groups of a token's input, normalized, and what goes with the norm of a row. All threads. Returns
// what errors below the range of numbers are multiplied with when the input is normalized, 1 at least.
QGEN_DEVICE float measure_input(const BoundScoresArgs& args, int token, float* norms, float* sums) {
  const int groups = int(shortlist_groups(args.cols));
  const float* const all = args.x + token * args.x_stride;
  float* const kept = args.kept + token * padded_cols(args.cols);
  const auto for_group = [&](int g, const auto& use) {
    const int column = g * int(kShortlistGroup) + 4 * lane_index();
    if (column < padded_cols(args.cols)) use(column, load_floats4(all + column));
  };
  float factor = 1;
  if (args.norm != nullptr) {
    float squares = 0, unused = 0;
    QGEN_UNROLL_BY(2)
    for (int g = warp_index(); g < groups; g += kBoundWarps) {
      for_group(g, [&](int, const Floats4& x) {
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) squares = fused_product(x.at[j], x.at[j], squares);
      });
    }
    reduce<kBoundWarps>(squares, unused, sums);
    factor = rsqrt_exact(squares / float(args.cols) + args.norm_eps);
  }
  QGEN_UNROLL_BY(2)
  for (int g = warp_index(); g < groups; g += kBoundWarps) {
    float squares = 0;
    for_group(g, [&](int column, const Floats4& x) {
      if (block_index().x == 0) store_floats4(kept + column, x);
      const Floats4 by = args.norm != nullptr ? load_floats4(args.norm + column) : Floats4{{1, 1, 1, 1}};
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float value = x.at[j] * by.at[j] * factor;
        squares = fused_product(value, value, squares);
      }
    });
    squares = sum_lanes(squares);
    if (lane_index() == 0) norms[g] = shortlist_norm(root_exact(squares), larger(1, factor));
  }
  barrier();
  if (warp_index() == 0) {
    float squares = 0;
    QGEN_UNROLL_BY(1)
    for (int g = lane_index(); g < groups; g += kWarp) squares = fused_product(norms[g], norms[g], squares);
    squares = sum_lanes(squares);
    if (lane_index() == 0) norms[groups] = kShortlistRounding * root_exact(squares);
  }
  barrier();
  return larger(1, factor);
}

// In the block that ends last, all threads: the `wanted`-th largest of the best bounds, of several rounded down to
// kLimitBits. The largest of kBoundWarpRows rows each are different rows: what `wanted` of these reach is no more than
// what as many of all rows reach.
QGEN_DEVICE float common_limit(const uint32_t* best, int count, int wanted, uint32_t* keys, float* sums) {
  uint32_t largest = 0;
  QGEN_UNROLL_BY(2)
  for (int i = thread_index(); i < count; i += kBoundThreads) {
    keys[i] = best[i];
    largest = larger_bits(largest, keys[i]);
  }
  uint32_t* const of_warps = reinterpret_cast<uint32_t*>(sums);
  largest = largest_lane_bits(largest);
  if (lane_index() == 0) of_warps[warp_index()] = largest;
  barrier();
  for (int w = 0; w < kBoundWarps; ++w) largest = larger_bits(largest, of_warps[w]);
  if (wanted == 1) return of_ordered_bits(largest);
  barrier();
  uint32_t limit = 0;
  QGEN_UNROLL_BY(1)
  for (int bit = 31; bit > 31 - kLimitBits; --bit) {
    const uint32_t trial = limit | uint32_t{1} << bit;
    float reach = 0, unused = 0;  // fewer than 2^24
    QGEN_UNROLL_BY(4)
    for (int i = thread_index(); i < count; i += kBoundThreads) reach += keys[i] >= trial;
    reduce<kBoundWarps>(reach, unused, sums + bit % 2 * 2 * kBoundWarps);
    if (reach >= float(wanted)) limit = trial;
  }
  return of_ordered_bits(limit);
}

// What a limit of lower bounds is for the scores, behind scale and softcap. Minus infinity, all rows, where capped
// scores are too close together.
QGEN_DEVICE ScoreLimit score_limit(float limit, float scale, float softcap) {
  if (!(softcap > 0)) return {limit, limit * scale};
  // Rows that set the limit are kShortlistCapMargin above it.
  const float caps = limit * scale / softcap - kShortlistCapMargin;
  if (!(caps < kMostShortlistCaps && caps > -kMostShortlistCaps))
    return {bits_float(kMinusInfinityBits), bits_float(kMinusInfinityBits)};
  return {caps * softcap / scale, softcap * (tanh_exact(caps) + kShortlistCapError)};
}

// Two rows to a thread, a token to each row of blocks.
QGEN_KERNEL(kBoundThreads, 4) bound_scores_kernel(const BoundScoresArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  const int groups = int(shortlist_groups(args.cols));
  const int64_t row = (int64_t(block_index().x) * kBoundThreads + thread_index()) * 2;
  const int token = int(block_index().y), warps = int(args.padded_rows / kBoundWarpRows);
  // Into L2 while the copy is multiplied: a warp's bounds of a group are a line.
  static_assert(kBoundWarpRows * sizeof(uint16_t) == 128);
  QGEN_UNROLL_BY(1)
  for (int g = lane_index(); g <= groups; g += kWarp)
    fetch_line(args.bounds + g * args.padded_rows + row - 2 * lane_index());
  scope.wait_for_inputs();
  float* const norms = shared_memory<float>();
  float* const sums = norms + kInputNorms;
  uint32_t* const flag = reinterpret_cast<uint32_t*>(norms + kBoundFloats);
  uint32_t* const keys = flag + 1;
  const float flushed = kShortlistFlushed * measure_input(args, token, norms, sums);
  scope.inputs_are_staged();
  float error[2] = {flushed, flushed};
  const uint32_t* bounds = reinterpret_cast<const uint32_t*>(args.bounds + row);
  QGEN_UNROLL_BY(8)
  for (int g = 0; g <= groups; ++g, bounds += args.padded_rows / 2) {
    const uint32_t two = *bounds;
    error[0] = fused_product(bits_float(two << 16), norms[g], error[0]);
    error[1] = fused_product(bits_float(two & 0xFFFF0000), norms[g], error[1]);
  }
  uint32_t best = 0;
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (row + i >= args.rows) continue;
    float& score = args.scores[token * args.padded_rows + row + i];
    // The product with codes may be beyond the range of F32 where the score is not, and says nothing then.
    const bool is_number = finite(score);
    best = larger_bits(best, is_number ? ordered_bits(score - error[i]) : 0);
    score = is_number ? score + error[i] : bits_float(kInfinityBits);
  }
  best = largest_lane_bits(best);
  uint32_t* const of_warps = args.best + token * warps;
  if (lane_index() == 0) of_warps[int(block_index().x) * kBoundWarps + warp_index()] = best;
  if (!ends_last(args.counter + token, grid_size().x, flag)) return;
  const int wanted = args.draw != nullptr ? args.draw[token].count : 1;
  const float limit = common_limit(of_warps, warps, wanted, keys, sums);
  if (thread_index() == 0) args.limit[token] = score_limit(limit, args.scale, args.softcap);
}

// A product as gemv_kernel has it, of the rows on a block's own list. Half of its ring, so that kMostListedCols inputs
// and the list have room together on every GPU.
template <typename Grid>
struct ListedTraits : GemvTraits<Grid, 2> {
  using Base = GemvTraits<Grid, 2>;
  static constexpr int kStages = Base::kStages / 2;
  static constexpr int kWarpRing = kStages * Base::kWarpStage, kRingBytes = Base::kWarps * kWarpRing;
};
constexpr int kMostBlockRows = 2048;  // whose bounds a block looks at
struct ListedRows {
  static constexpr bool kInOrder = false;
  const uint16_t* offsets;  // (listed), from `first`
  int first, listed;

  QGEN_DEVICE int tiles(const GemvKernelArgs&) const { return (listed + kMmaRows - 1) / kMmaRows; }
  QGEN_DEVICE int count(const Matrix&) const { return listed; }
  QGEN_DEVICE int row(int place) const { return first + int(offsets[place]); }
};
struct ListedShared {
  uint16_t offsets[kMostBlockRows];
  uint32_t count, flag, unused[2];
};

struct ListedKernelArgs {
  ListedArgs list;
  GemvKernelArgs gemv;
  int block_rows;  // that a block looks at, at most kMostBlockRows
};

// A token to each row of blocks.
template <typename Traits>
QGEN_KERNEL(Traits::kThreads, Traits::kBlocks)
multiply_listed_kernel(const ListedKernelArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  const ListedArgs& list = args.list;
  const GemvArgs& linear = args.gemv.linear;
  ListedShared& shared = *shared_memory<ListedShared>();
  if (thread_index() == 0) shared.count = 0;
  barrier();
  scope.wait_for_inputs();
  const int64_t token = block_index().y;
  const ScoreLimit limit = list.limit[token];
  const float* const upper = list.upper + token * list.padded_rows;
  float* const y = linear.y[0] + token * linear.y_stride[0];
  const int first = int(block_index().x) * args.block_rows, rows = linear.part[0].rows,
            end = rows - first < args.block_rows ? rows : first + args.block_rows;
  for (int row = first + thread_index(); row < end; row += Traits::kThreads) {
    if (upper[row] < limit.bound) {
      y[row] = kNotListed;
    } else {
      shared.offsets[add_to(&shared.count, 1)] = uint16_t(row - first);
    }
  }
  barrier();
  const int listed = int(shared.count);
  if (listed > 0) {
    GemvBlock<Traits, ListedRows> block(args.gemv, 0, 1, linear.part, {shared.offsets, first, listed});
    GemvWindow<Traits> window;
    block.place_shared_memory(int(sizeof(ListedShared)));
    block.keep_weights();
    block.ask_first();
    block.load_first_groups(window, 0);
    block.stage_inputs(linear.x + token * linear.x_stride);
    scope.inputs_are_staged();
    block.multiply_tiles(window, [&](int tile) {
      block.for_result(tile, [&](int, int, int row, const float(&result)[2]) {
        const float score = stored_product(linear.epilogue, result[0], 0);
        y[row] = score <= limit.score && finite(score) ? kNotListed : score;
      });
    });
    if (thread_index() == 0) add_to(list.total + token, uint32_t(listed));
  }
  if (!ends_last(list.counter + token, grid_size().x, &shared.flag) || thread_index() != 0) return;
  list.host_total[token] = list.total[token];
  list.total[token] = 0;
}

}  // namespace qgen::QGEN_BACKEND
