// What is done to rows of activations between the products.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kRowThreads = 256;

// A block a token. shared: two floats for each warp.
QGEN_KERNEL(kRowThreads, 1) normalize_kernel(const NormArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const float* x = args.x + block_index().x * args.stride;
  float squares = 0, unused = 0;
  for (int c = thread_index(); c < args.cols; c += kRowThreads) squares += x[c] * x[c];
  reduce<kRowThreads / kWarp>(squares, unused, shared_memory<float>());
  const float factor = rsqrt_exact(squares / float(args.cols) + args.eps);
  float* y = args.y + block_index().x * args.stride;
  for (int c = thread_index(); c < args.cols; c += kRowThreads) y[c] = x[c] * factor * args.norm[c];
}

struct SiluArgs {
  float* gate;
  const float* up;
  int64_t stride;
  int cols;
};
QGEN_KERNEL(kRowThreads, 1) silu_mul_kernel(const SiluArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int c = int(block_index().x) * kRowThreads + thread_index();
  if (c >= args.cols) return;
  const int64_t at = block_index().y * args.stride + c;
  args.gate[at] = silu(args.gate[at]) * args.up[at];
}

template <Codes kCodes>
QGEN_KERNEL(kRowThreads, 1)
embed_kernel(const EmbedArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int c = int(block_index().x) * kRowThreads + thread_index();
  if (c >= args.table.cols) return;
  const int to = args.table.column_order != nullptr ? args.table.column_order[c] : c;
  args.y[block_index().y * args.y_stride + to] = element<kCodes>(args.table, args.call.tokens[block_index().y], c);
}

}  // namespace qgen::QGEN_BACKEND
