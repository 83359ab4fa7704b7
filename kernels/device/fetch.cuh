// Weights of a later kernel on their way into L2, by blocks that have read all of their own.
#pragma once

#include "kernels/device/primitives.cuh"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

constexpr int64_t kFetch = 2048;  // bytes that a thread asks for at once

// Part `index` of `parts`, by all threads of a block.
template <int kThreads>
QGEN_DEVICE void fetch_share(const NextWeights& next, unsigned index, unsigned parts) {
  if (next.bytes == 0) return;
  const unsigned pieces = unsigned((next.bytes + kFetch - 1) / kFetch), share = (pieces + parts - 1) / parts;
  for (unsigned i = index * share + unsigned(thread_index()); i < (index + 1) * share && i < pieces; i += kThreads) {
    const int64_t from = int64_t{i} * kFetch;
    prefetch(next.codes + from, int(from + kFetch < next.bytes ? kFetch : next.bytes - from));
  }
}

}  // namespace qgen::QGEN_BACKEND
