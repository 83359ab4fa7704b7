// Kernels over rows of activations: norms, gates and sums of rows (combine_kernel), rows of a table (look_up_kernel).
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kRowThreads = 256;

// The mean of a group of columns, which is subtracted, and the factor that follows.
struct GroupNorm {
  float mean, factor;
};
// for_values(use): calls use(value) for those of a group that this thread has; `sum`: of all that share it.
template <typename ForValues, typename Sum>
QGEN_DEVICE GroupNorm group_norm(const DeviceNorm& norm, const ForValues& for_values, const Sum& sum) {
  float mean = 0, squares = 0;
  if (norm.kind == Norm::Kind::kScale) return {0, 1};
  if (norm.kind == Norm::Kind::kLayer) {
    for_values([&](float x) { mean += x; });
    mean = sum(mean) / float(norm.group);
  }
  for_values([&](float x) { squares = fused_product(x - mean, x - mean, squares); });
  return {mean, rsqrt_exact(sum(squares) / float(norm.group) + norm.eps)};
}
// The weight and the bias of column `c` of a group that begins at column `begin` of the weight.
struct NormColumn {
  float weight = 1, bias = 0;

  QGEN_DEVICE void load(const DeviceNorm& norm, int begin, int c) {
    if (norm.weight != nullptr) weight = norm.weight[norm.wide_weight ? begin + c : c];
    if (norm.bias != nullptr) bias = norm.bias[norm.wide_bias ? begin + c : c];
  }
  QGEN_DEVICE float normalized(const DeviceNorm& norm, const GroupNorm& group, float x) const {
    float value = rounded_product(x - group.mean, group.factor);
    if (norm.weight != nullptr) value = rounded_product(value, weight);
    return norm.bias != nullptr ? value + bias : value;
  }
};

constexpr int kLineFloats = 32;  // of 128 bytes
constexpr int kRowHeld = 8;      // values of a group that a thread loads at once and keeps

// Token x of the grid; columns or groups of them by turns for the blocks y, a warp a group. One group of all columns is
// for one block. shared: two floats for each warp.
QGEN_KERNEL(kRowThreads, 1) combine_kernel(const CombineArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  const bool normalizes = args.norm.kind != Norm::Kind::kNone, whole = args.norm.group == args.cols;
  const int64_t token = block_index().x;
  const int block = int(block_index().y), blocks = int(grid_size().y);
  // The norm's weights, which no kernel writes, come into L2 before the inputs are there.
  if (normalizes && args.norm.weight != nullptr) {
    const int count = args.norm.wide_weight ? args.cols : args.norm.group;
    for (int c = (block * kRowThreads + thread_index()) * kLineFloats; c < count;
         c += blocks * kRowThreads * kLineFloats)
      fetch_line(args.norm.weight + c);
  }
  scope.wait_for_inputs();
  const float* const y = args.y + (args.from != nullptr ? args.from[token] : token) * args.y_stride;
  const float* const x = args.x != nullptr ? args.x + token * args.x_stride : nullptr;
  const float* const gate = args.gate != nullptr ? args.gate + token * args.gate_stride : nullptr;
  float* const out = args.out + token * args.out_stride;
  const auto gate_at = [&](int c) { return gate != nullptr ? gate[args.one_gate ? 0 : c] : 0; };
  const auto x_at = [&](int c) { return x != nullptr ? args.x_scale * x[c] : 0; };
  const auto result = [&](float value, float of_gate, float of_x) {
    value *= args.y_scale;
    if (gate != nullptr) value *= activated(args.activation, of_gate);
    return of_x + value;
  };
  // What threads that share a group add up: warps, or all.
  const auto sum = [&](float value) {
    if (!whole) return sum_lanes(value);
    float unused = 0;
    barrier();  // the sum before this one has been read
    reduce<kRowThreads / kWarp>(value, unused, shared_memory<float>());
    return value;
  };
  // `cols` columns that begin at `begin`, of which this thread has every count-th from `first` on. All loads come
  // before the first store, behind which they would have to wait.
  const auto put_group = [&](int begin, int cols, int first, int count) {
    const int behind = first + kRowHeld * count;
    float held[kRowHeld], gates[kRowHeld], of_x[kRowHeld];
    NormColumn columns[kRowHeld];
    const auto for_held = [&](const auto& use) {
      QGEN_UNROLL
      for (int u = 0; u < kRowHeld; ++u) {
        if (first + u * count < cols) use(u, first + u * count);
      }
    };
    for_held([&](int u, int c) {
      held[u] = y[begin + c];
      gates[u] = gate_at(begin + c);
      of_x[u] = x_at(begin + c);
      if (normalizes) columns[u].load(args.norm, begin, c);
    });
    GroupNorm norm{0, 1};
    if (normalizes) {
      const auto for_values = [&](const auto& use) {
        for_held([&](int u, int) { use(held[u]); });
        for (int c = behind; c < cols; c += count) use(y[begin + c]);
      };
      norm = group_norm(args.norm, for_values, sum);
      for_held([&](int u, int) { held[u] = columns[u].normalized(args.norm, norm, held[u]); });
    }
    for_held([&](int u, int c) { out[begin + c] = result(held[u], gates[u], of_x[u]); });
    for (int c = begin + behind; c < begin + cols; c += count) {
      float value = y[c];
      if (normalizes) {
        NormColumn column;
        column.load(args.norm, begin, c - begin);
        value = column.normalized(args.norm, norm, value);
      }
      out[c] = result(value, gate_at(c), x_at(c));
    }
  };
  if (!normalizes || whole) {
    put_group(0, args.cols, block * kRowThreads + thread_index(), blocks * kRowThreads);
  } else {
    constexpr int kWarps = kRowThreads / kWarp;
    const int group = args.norm.group;
    for (int begin = (block * kWarps + warp_index()) * group; begin < args.cols; begin += blocks * kWarps * group)
      put_group(begin, group, lane_index(), kWarp);
  }
  if (block > 0) return;
  for (int c = args.cols + thread_index(); c < args.cols + args.zeros; c += kRowThreads) out[c] = 0;
}

template <Codes kCodes>
QGEN_KERNEL(kRowThreads, 1)
look_up_kernel(const LookupArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int c = int(block_index().x) * kRowThreads + thread_index();
  if (c >= args.table.cols) return;
  float* const y =
      args.y + block_index().y * args.y_stride + (args.table.column_order != nullptr ? args.table.column_order[c] : c);
  const float value = element<kCodes>(args.table, args.index[block_index().y], c) * args.scale;
  *y = args.add ? *y + value : value;
}

}  // namespace qgen::QGEN_BACKEND
