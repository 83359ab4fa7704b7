// Mixtures of experts: the choice of experts (experts.cuh: their products), and layers of separate heads, a warp a
// row of a weight.
#pragma once

#include "kernels/device/row_product.cuh"

namespace qgen::QGEN_BACKEND {

constexpr float kNoRank = 1e38f;  // beyond what any rank is
constexpr float kKept = 2e38f;    // marks a group that has been chosen

// The highest value and where it first is; NaN counts as nothing, and where there is nothing else the index is that of
// none.
struct Highest {
  float value;
  int index;
};
// Of every 32nd value, beginning with that of the lane.
QGEN_DEVICE Highest highest_of_lane(const float* values, int count) {
  Highest best{-kNoRank, count};
  QGEN_UNROLL_BY(4)
  for (int i = lane_index(); i < count; i += kWarp) {
    if (values[i] > best.value) best = {values[i], i};
  }
  return best;
}
// Of all lanes, in all lanes.
QGEN_DEVICE Highest highest_of_warp(Highest best) {
  // Numbers in the order of their bits: those below zero the other way round.
  const uint32_t bits = float_bits(best.value + 0.0f), key = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t largest = largest_lane_bits(key);
  best.index = int(smallest_lane_bits(key == largest ? uint32_t(best.index) : ~0u));
  best.value = bits_float(largest >> 31 != 0 ? largest & 0x7FFFFFFFu : ~largest);
  return best;
}
QGEN_DEVICE Highest highest_of(const float* values, int count) {
  return highest_of_warp(highest_of_lane(values, count));
}

// Takes the experts that are not in one of the best groups out of the choice. `rank`: of the experts, which the lanes
// wrote; `group_rank`: room for those of the groups.
QGEN_DEVICE void keep_best_groups(const RouteArgs& args, float* rank, float* group_rank) {
  const int size = args.experts / args.groups;
  warp_barrier();
  QGEN_UNROLL_BY(1)
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
  QGEN_UNROLL_BY(1)
  for (int kept = 0; kept < args.kept_groups; ++kept) {
    const Highest best = highest_of(group_rank, args.groups);
    warp_barrier();
    if (lane_index() == 0 && best.index < args.groups) group_rank[best.index] = -kKept;
    warp_barrier();
  }
  for (int e = lane_index(); e < args.experts; e += kWarp) {
    if (group_rank[e / size] != -kKept) rank[e] = -kNoRank;
  }
}

inline size_t route_bytes(const RouteArgs& args) {
  return size_t(2 * args.experts + args.groups + 2 * args.chosen) * sizeof(float);
}

// A warp a token, a lane every 32nd expert. shared: scores and ranks of the experts, ranks of the groups, then the
// scores and the numbers of those that are chosen.
QGEN_KERNEL(kWarp, 1) route_kernel(const RouteArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  const int64_t token = block_index().x;
  const float* const logits = args.logits + token * args.stride;
  float* const score = shared_memory<float>();
  float* const rank = score + args.experts;
  float* const group_rank = rank + args.experts;
  float* const chosen_score = group_rank + args.groups;
  float* const chosen = chosen_score + args.chosen;
  const auto for_experts = [&](const auto& use) {
    QGEN_UNROLL_BY(4)
    for (int e = lane_index(); e < args.experts; e += kWarp) use(e);
  };
  // What no kernel writes.
  for_experts([&](int e) { rank[e] = args.bias != nullptr ? args.bias[e] : 0; });
  scope.wait_for_inputs();
  float highest = -kNoRank, sum = 0;
  for_experts([&](int e) {
    score[e] = logits[e];
    highest = larger(highest, score[e]);
  });
  highest = largest_lane(highest);
  QGEN_UNROLL_BY(1)
  for (int e = lane_index(); e < args.experts; e += kWarp) {
    const float x = score[e];
    score[e] = args.score == RouteStep::Score::kSoftmax   ? exp_fast(x - highest)
               : args.score == RouteStep::Score::kSigmoid ? sigmoid(x)
                                                          : root_exact(softplus(x));
    sum += score[e];
  }
  const float by = args.score == RouteStep::Score::kSoftmax ? sum_lanes(sum) : 1;
  for_experts([&](int e) {
    score[e] /= by;
    const float value = score[e] + rank[e];
    rank[e] = value == value ? value : -kNoRank;
  });
  if (args.kept_groups < args.groups) keep_best_groups(args, rank, group_rank);
  warp_barrier();  // scores are read by all lanes from here on, ranks only by their own
  Highest own = highest_of_lane(rank, args.experts);
  float total = args.least_sum;
  QGEN_UNROLL_BY(1)
  for (int i = 0; i < args.chosen; ++i) {
    const Highest best = highest_of_warp(own);
    // Where all that is left is NaN, any expert will do: its weight is NaN.
    const bool there = best.index < args.experts;
    const int expert = there ? best.index : i;
    const float of_expert = there ? score[expert] : bits_float(0x7FC00000);
    total += of_expert;
    if (lane_index() == 0) {
      chosen_score[i] = of_expert;
      chosen[i] = float(expert);
    }
    if (expert % kWarp == lane_index()) {
      rank[expert] = -kNoRank;
      own = highest_of_lane(rank, args.experts);
    }
  }
  warp_barrier();
  float* const out = args.out + token * args.out_stride;
  for (int i = lane_index(); i < args.chosen; i += kWarp) {
    const float weight = (args.normalized ? chosen_score[i] / total : chosen_score[i]) * args.scale;
    out[i] = args.expert_scale != nullptr ? weight * args.expert_scale[int(chosen[i])] : weight;
    out[args.chosen + i] = chosen[i];
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
