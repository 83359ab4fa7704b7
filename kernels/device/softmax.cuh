// Softmax over keys that come in parts: what a part weighs, and how parts come together. (Running maximum and sum:
// Milakov and Gimelshein 2018.)
#pragma once

#include "kernels/device/primitives.cuh"

namespace qgen::QGEN_BACKEND {

// Of a part of the keys: the largest score, the sum of exp(score - largest) and so weighted values.
struct Running {
  float largest, sum;
};
constexpr float kLowest = -3.0e38f;
// The factor that rescales the sums of a part with `part` as largest score to those with `all`.
QGEN_DEVICE float worth(float part, float all) { return exp_fast(part - all); }

}  // namespace qgen::QGEN_BACKEND
