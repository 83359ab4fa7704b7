// Kernels over rows of activations: norms, gates and sums of rows (combine_kernel), rows of a table (look_up_kernel).
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kRowThreads = 256;

// The mean of a group of columns, which is subtracted, and the factor that follows.
struct GroupNorm {
  float mean, factor;
};
// `sum`: of all values of a group, in those that share it. `count`: how many take part, `first`: which one this is.
template <typename Sum>
QGEN_DEVICE GroupNorm group_norm(const DeviceNorm& norm, const float* x, int first, int count, const Sum& sum) {
  float mean = 0, squares = 0;
  if (norm.kind == Norm::Kind::kScale) return {0, 1};
  if (norm.kind == Norm::Kind::kLayer) {
    for (int c = first; c < norm.group; c += count) mean += x[c];
    mean = sum(mean) / float(norm.group);
  }
  for (int c = first; c < norm.group; c += count) squares = fused_product(x[c] - mean, x[c] - mean, squares);
  return {mean, rsqrt_exact(sum(squares) / float(norm.group) + norm.eps)};
}
// Column `c` of a group that begins at column `begin` of the weight.
QGEN_DEVICE float normalized(const DeviceNorm& norm, const GroupNorm& group, float x, int begin, int c) {
  float value = rounded_product(x - group.mean, group.factor);
  if (norm.weight != nullptr) value = rounded_product(value, norm.weight[norm.wide_weight ? begin + c : c]);
  return norm.bias != nullptr ? value + norm.bias[norm.wide_bias ? begin + c : c] : value;
}

// A block a token. shared: two floats for each warp.
QGEN_KERNEL(kRowThreads, 1) combine_kernel(const CombineArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  const float* const y = args.y + (args.from != nullptr ? args.from[token] : token) * args.y_stride;
  const float* const x = args.x != nullptr ? args.x + token * args.x_stride : nullptr;
  const float* const gate = args.gate != nullptr ? args.gate + token * args.gate_stride : nullptr;
  float* const out = args.out + token * args.out_stride;
  const auto put = [&](int c, float value) {
    value *= args.y_scale;
    if (gate != nullptr) value *= activated(args.activation, gate[args.one_gate ? 0 : c]);
    out[c] = x != nullptr ? args.x_scale * x[c] + value : value;
  };
  if (args.norm.kind == Norm::Kind::kNone) {
    for (int c = thread_index(); c < args.cols; c += kRowThreads) put(c, y[c]);
  } else if (args.norm.group == args.cols) {
    float* const shared = shared_memory<float>();
    const GroupNorm group = group_norm(args.norm, y, thread_index(), kRowThreads, [&](float value) {
      float unused = 0;
      barrier();  // the sum before this one has been read
      reduce<kRowThreads / kWarp>(value, unused, shared);
      return value;
    });
    for (int c = thread_index(); c < args.cols; c += kRowThreads) put(c, normalized(args.norm, group, y[c], 0, c));
  } else {
    for (int begin = warp_index() * args.norm.group; begin < args.cols;
         begin += kRowThreads / kWarp * args.norm.group) {
      const GroupNorm group =
          group_norm(args.norm, y + begin, lane_index(), kWarp, [](float value) { return sum_lanes(value); });
      for (int c = lane_index(); c < args.norm.group; c += kWarp)
        put(begin + c, normalized(args.norm, group, y[begin + c], begin, c));
    }
  }
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
