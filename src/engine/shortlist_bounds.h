// What a shortlist of the best scores (engine/shortlist.h) is made by, the same on every engine. Plain: nvcc reads this
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

inline constexpr int64_t kShortlistGroup = 128;        // columns
inline constexpr int64_t kMostShortlistCols = 16384;   // for more, sums in F32 may be off by more
inline constexpr float kShortlistRounding = 0x1p-12f;  // of |w| |x|: twice what sums in F32 can be off
// Some products take numbers below 2^-126 for zero: 2^-111 at most of 16384 columns, in two parts each.
inline constexpr float kShortlistFlushed = 0x1p-110f;
// A row whose largest number is no larger has codes and a scale of zero, since the scale would underflow: all of it is
// left over.
inline constexpr float kLeastShortlistPeak = 0x1p-100f;
// The Euclidean norm of a group, from its squares: times 1 + kNormShare, by which sums in F32 may be off, and
// kNormFlushed more. Squares below the range of F32 are lost: of each element no more than 2^-70.
inline constexpr float kNormShare = 0x1p-16f, kNormFlushed = 0x1p-66f;
// How far off a capped score may be, as a share of the cap. Scores beyond kMostCapped caps are closer together than
// that: all rows are listed then.
inline constexpr float kCapError = 4e-6f, kMostCapped = 3;
// A shortlist of more than one row in kWorthRows is not worth its time; there is none for the next kShortlistRest
// tokens then.
inline constexpr int64_t kWorthRows = 8, kShortlistRest = 32;

}  // namespace qgen
