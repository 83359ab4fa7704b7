// The bounds of a shortlist of the best scores (engine/shortlist.h), the same on every engine. Plain: nvcc reads this
// too.
//
// A copy of a matrix in INT8 gives each score to within a bound. A row w is q s + r, with codes q, a scale s for the
// row, and what rounding left over, r. With the groups g of kShortlistGroup columns, by Cauchy and Schwarz,
//   |w x - s q x| <= sum over g of |r_g| |x_g|
// to which comes what the products themselves round. With L the `count`-th largest of the scores' lower bounds, a row
// whose upper bound is below L is not among the `count` best.
#pragma once

#include <cstdint>

namespace qgen {

inline constexpr int64_t kShortlistGroup = 128;       // columns
inline constexpr int64_t kMostShortlistCols = 16384;  // for more, sums in F32 may be off by more
constexpr int64_t shortlist_groups(int64_t cols) { return (cols + kShortlistGroup - 1) / kShortlistGroup; }
// Of |w| |x|: more than two products in F32 can be off, on tensor cores too, which cut off what they add, and with
// inputs that are split into two 16-bit floats (2^-15 of |w| |x| at most).
inline constexpr float kShortlistRounding = 0x1p-11f;
// Some products take numbers below 2^-126 for zero: 2^-111 at most of 16384 columns, in two parts each.
inline constexpr float kShortlistFlushed = 0x1p-110f;
// A row whose largest number is no larger has codes and a scale of zero, since the scale would underflow: all of it is
// left over.
inline constexpr float kLeastShortlistPeak = 0x1p-100f;
// Squares below the range of F32 are lost: of each element no more than 2^-70.
inline constexpr float kShortlistNormFlushed = 0x1p-66f;
// The Euclidean norm of a group from the root of its squares: a little more, by which sums in F32 may be off. `factor`:
// what the numbers were multiplied by before they were squared.
constexpr float shortlist_norm(float root, float factor = 1) {
  return root * (1 + 0x1p-16f) + kShortlistNormFlushed * factor;
}
// The next BF16 that is not smaller, of the bits of a number that is not negative.
constexpr uint16_t bf16_upwards(uint32_t bits) { return uint16_t((bits + 0xFFFF) >> 16); }
// How far off a capped score may be, as a share of the cap. Scores beyond kMostShortlistCaps caps are closer together
// than that: all rows are listed then. Up to there tanh rises by 0.0098 of a step at least, so that scores which lie
// kShortlistCapMargin caps apart differ by more than twice the error when they are capped. GPUs lower the limit by that
// margin; the CPU, which knows the capped scores of its list, may find fewer than were wanted.
inline constexpr float kShortlistCapError = 4e-6f, kMostShortlistCaps = 3, kShortlistCapMargin = 1e-3f;

}  // namespace qgen
