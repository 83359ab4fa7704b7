// Mixtures of experts: the choice of experts (experts.cuh: their products), and layers of separate heads, a warp a
// row of a weight.
#pragma once

#include "kernels/device/row_product.cuh"

namespace qgen::QGEN_BACKEND {

constexpr float kNoRank = 1e38f;  // beyond what any rank is
constexpr float kKept = 2e38f;    // marks a group that has been chosen

// The highest value and where it first is, in all lanes of the warp; NaN counts as nothing.
struct Highest {
  float value;
  int index;
};
QGEN_DEVICE Highest highest_of(const float* values, int count) {
  Highest best{-kNoRank, count};
  for (int i = lane_index(); i < count; i += kWarp) {
    if (values[i] > best.value) best = {values[i], i};
  }
  // Numbers in the order of their bits: those below zero the other way round.
  const uint32_t bits = float_bits(best.value + 0.0f), key = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t largest = largest_lane_bits(key);
  best.index = int(smallest_lane_bits(key == largest ? uint32_t(best.index) : ~0u));
  best.value = bits_float(largest >> 31 != 0 ? largest & 0x7FFFFFFFu : ~largest);
  return best;
}

// A warp a token. shared: scores and ranks of the experts, then ranks of the groups.
QGEN_KERNEL(kWarp, 1) route_kernel(const RouteArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  const float* const logits = args.logits + token * args.stride;
  float* const score = shared_memory<float>();
  float* const rank = score + args.experts;
  float* const group_rank = rank + args.experts;
  float highest = -kNoRank, sum = 0;
  for (int e = lane_index(); e < args.experts; e += kWarp) highest = larger(highest, logits[e]);
  highest = largest_lane(highest);
  for (int e = lane_index(); e < args.experts; e += kWarp) {
    const float x = logits[e];
    score[e] = args.score == RouteStep::Score::kSoftmax   ? exp_fast(x - highest)
               : args.score == RouteStep::Score::kSigmoid ? sigmoid(x)
                                                          : root_exact(softplus(x));
    sum += score[e];
  }
  sum = sum_lanes(sum);
  for (int e = lane_index(); e < args.experts; e += kWarp) {
    if (args.score == RouteStep::Score::kSoftmax) score[e] /= sum;
    const float value = score[e] + (args.bias != nullptr ? args.bias[e] : 0);
    rank[e] = value == value ? value : -kNoRank;
  }
  warp_barrier();
  if (args.kept_groups < args.groups) {
    const int size = args.experts / args.groups;
    for (int g = 0; g < args.groups; ++g) {
      float* const members = rank + g * size;
      const Highest first = highest_of(members, size);
      float total = first.value;
      if (args.two_best && size > 1 && first.index < size) {
        warp_barrier();
        if (lane_index() == 0) members[first.index] = -kNoRank;
        warp_barrier();
        total += highest_of(members, size).value;
        warp_barrier();
        if (lane_index() == 0) members[first.index] = first.value;
      }
      if (lane_index() == 0) group_rank[g] = total;
      warp_barrier();
    }
    for (int kept = 0; kept < args.kept_groups; ++kept) {
      const Highest best = highest_of(group_rank, args.groups);
      warp_barrier();
      if (lane_index() == 0 && best.index < args.groups) group_rank[best.index] = -kKept;
      warp_barrier();
    }
    for (int e = lane_index(); e < args.experts; e += kWarp) {
      if (group_rank[e / size] != -kKept) rank[e] = -kNoRank;
    }
    warp_barrier();
  }
  float* const out = args.out + token * args.out_stride;
  float total = args.least_sum;
  for (int i = 0; i < args.chosen; ++i) {
    const Highest best = highest_of(rank, args.experts);
    // Where all that is left is NaN, any expert will do: its weight is NaN.
    const int expert = best.index < args.experts ? best.index : i;
    total += score[expert];
    warp_barrier();
    if (lane_index() == 0) {
      out[i] = score[expert];
      out[args.chosen + i] = float(expert);
      rank[expert] = -kNoRank;
    }
    warp_barrier();
  }
  if (lane_index() != 0) return;
  for (int i = 0; i < args.chosen; ++i) {
    const float weight = (args.normalized ? out[i] / total : out[i]) * args.scale;
    out[i] = args.expert_scale != nullptr ? weight * args.expert_scale[int(out[args.chosen + i])] : weight;
  }
}

// A product for row x of a warp, token y and head z of the grid; behind the rows are the columns that are kept.
template <Codes kCodes>
QGEN_KERNEL(kRowWarps* kWarp, 1)
head_linear_kernel(const HeadLinearArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int row = int(block_index().x) * kRowWarps + warp_index();
  if (row >= args.rows + args.kept) return;
  const int64_t token = block_index().y, head = block_index().z;
  const float* const x = args.x + token * args.x_stride + head * args.x_head_stride;
  float* const y = args.y + token * args.y_stride + head * args.y_head_stride;
  const float value = row < args.rows ? row_product<kCodes>(args.weight[head], row, x) : x[args.cols + row - args.rows];
  if (lane_index() == 0) y[row] = value;
}

}  // namespace qgen::QGEN_BACKEND
