// Kernels over rows of activations: norms, gates and sums of rows (combine_kernel), rows of a table (look_up_kernel).
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/norms.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kRowThreads = 256;

constexpr int kLineFloats = 32;  // of 128 bytes
constexpr int kRowHeld = 8;      // values of a group that a thread loads at once and keeps

// These two are no activations of products.
QGEN_DEVICE float gate_value(Activation activation, float x) {
  if (activation == Activation::kSoftplus) return softplus(x);
  if (activation == Activation::kExpm1Ratio) return x < 0 ? (expm1_exact(x) - x) / x : x >= 0 ? 0 : x;
  return activated(activation, x);
}

// An RMS norm of whole rows and nothing else, as most of the norms are that stand alone.
inline bool is_plain_norm(const CombineArgs& args) {
  return args.norm.kind == Norm::Kind::kRms && args.norm.group == args.cols && args.norm.weight != nullptr &&
         args.norm.bias == nullptr && args.x == nullptr && args.gate == nullptr && args.y_scale == 1 &&
         args.from == nullptr;
}

// Token x of the grid; columns or groups of them by turns for the blocks y, a warp a group. One group of all columns is
// for one block. kPlain: is_plain_norm(), for which a tenth of the instructions is enough: one token waits for each
// that has to be fetched. shared: two floats for each warp.
template <bool kPlain>
QGEN_KERNEL(kRowThreads, 1)
combine_kernel(const CombineArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  DeviceNorm norm = args.norm;
  if constexpr (kPlain) {
    norm.kind = Norm::Kind::kRms;
    norm.bias = nullptr;
    norm.group = args.cols;
  }
  const bool normalizes = norm.kind != Norm::Kind::kNone, whole = !normalizes || norm.group == args.cols;
  const int64_t token = block_index().x;
  const int block = int(block_index().y), blocks = int(grid_size().y);
  // The norm's weights, which no kernel writes, come into L2 before the inputs are there.
  if (normalizes && norm.weight != nullptr) {
    const int count = norm.wide_weight ? args.cols : norm.group;
    QGEN_UNROLL_BY(1)
    for (int c = (block * kRowThreads + thread_index()) * kLineFloats; c < count;
         c += blocks * kRowThreads * kLineFloats)
      fetch_line(norm.weight + c);
  }
  scope.wait_for_inputs();
  const float* const y = args.y + (!kPlain && args.from != nullptr ? args.from[token] : token) * args.y_stride;
  const float* const x = !kPlain && args.x != nullptr ? args.x + token * args.x_stride : nullptr;
  const float* const gate = !kPlain && args.gate != nullptr ? args.gate + token * args.gate_stride : nullptr;
  float* const out = args.out + token * args.out_stride;
  const auto gate_at = [&](int c) { return gate != nullptr ? gate[args.gate_span == 1 ? c : c / args.gate_span] : 0; };
  const auto x_at = [&](int c) { return x != nullptr ? args.x_scale * x[c] : 0; };
  const auto result = [&](float value, float of_gate, float of_x) {
    if constexpr (kPlain) return value;
    // Rounded before they are added, as a product does that has done this in passing (GemvArgs::token_gate).
    value = rounded_product(value, args.y_scale);
    if (gate != nullptr) value = rounded_product(value, gate_value(args.activation, of_gate));
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
  // Groups of columns, of which a thread has every count-th column from `first` on; without a norm as if all were one.
  constexpr int kWarps = kRowThreads / kWarp;
  const int group = whole ? args.cols : norm.group, count = !whole       ? kWarp
                                                            : normalizes ? kRowThreads
                                                                         : blocks * kRowThreads;
  const int first = !whole ? lane_index() : normalizes ? thread_index() : block * kRowThreads + thread_index();
  const int behind = first + kRowHeld * count;
  QGEN_UNROLL_BY(1)
  for (int begin = whole ? 0 : (block * kWarps + warp_index()) * group; begin < args.cols;
       begin += whole ? args.cols : blocks * kWarps * group) {
    // All loads come before the first store, behind which they would have to wait.
    float held[kRowHeld], gates[kRowHeld], of_x[kRowHeld];
    NormColumn columns[kRowHeld];
    const auto for_held = [&](const auto& use) {
      QGEN_UNROLL
      for (int u = 0; u < kRowHeld; ++u) {
        if (first + u * count < group) use(u, first + u * count);
      }
    };
    for_held([&](int u, int c) {
      held[u] = y[begin + c];
      gates[u] = gate_at(begin + c);
      of_x[u] = x_at(begin + c);
      if (normalizes) columns[u].load(norm, begin, c);
    });
    GroupNorm of_group{0, 1};
    if (normalizes) {
      const auto for_values = [&](const auto& use) {
        for_held([&](int u, int) { use(held[u]); });
        QGEN_UNROLL_BY(4)
        for (int c = behind; c < group; c += count) use(y[begin + c]);
      };
      of_group = group_norm(norm, for_values, sum);
      for_held([&](int u, int) { held[u] = columns[u].normalized(norm, of_group, held[u]); });
    }
    for_held([&](int u, int c) { out[begin + c] = result(held[u], gates[u], of_x[u]); });
    QGEN_UNROLL_BY(1)
    for (int c = behind; c < group; c += count) {
      float value = y[begin + c];
      if (normalizes) {
        NormColumn column;
        column.load(norm, begin, c);
        value = column.normalized(norm, of_group, value);
      }
      out[begin + c] = result(value, gate_at(begin + c), x_at(begin + c));
    }
  }
  if (block > 0) return;
  QGEN_UNROLL_BY(1)
  for (int c = args.cols + thread_index(); c < args.cols + args.zeros; c += kRowThreads) out[c] = 0;
}

// Columns of a row for each block x, token y; behind the first token's blocks that bring the inputs of the call.
template <Codes kCodes>
QGEN_KERNEL(kRowThreads, 1)
look_up_kernel(const LookupArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int row_blocks = (args.table.cols + kRowThreads - 1) / kRowThreads, block = int(block_index().x);
  if (block >= row_blocks) {
    const int64_t at = int64_t{(block - row_blocks) * kRowThreads + thread_index()} * int64_t{sizeof(Bytes16)};
    if (block_index().y == 0 && at < args.inputs.bytes)
      *reinterpret_cast<Bytes16*>(args.inputs.to + at) = *reinterpret_cast<const Bytes16*>(args.inputs.from + at);
    return;
  }
  const int c = block * kRowThreads + thread_index();
  if (c >= args.table.cols) return;
  float* const y =
      args.y + block_index().y * args.y_stride + (args.table.column_order != nullptr ? args.table.column_order[c] : c);
  const float value = element<kCodes>(args.table, args.index[block_index().y], c) * args.scale;
  *y = args.add ? *y + value : value;
}

}  // namespace qgen::QGEN_BACKEND
