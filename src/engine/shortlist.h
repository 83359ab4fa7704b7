// The best scores without reading all of the output head, where its matrix is not quantized. A copy of the matrix in
// INT8 gives each score to within a bound; only the rows whose scores may be among the best, the shortlist, are then
// multiplied as they are. So the best scores are those of the matrix itself, to the last bit, for half of its bytes.
//
// A row w is q s + r, with codes q, a scale s for the row, and what rounding left over, r. With the groups g of
// kShortlistGroup columns, by Cauchy and Schwarz,
//   |w x - s q x| <= sum over g of |r_g| |x_g|
// to which comes what the products themselves round. With L the `count`-th largest of the scores' lower bounds, a row
// whose upper bound is below L is not among the `count` best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/options.h"
#include "engine/token_choice.h"
#include "model/plan.h"

namespace qgen {

inline constexpr int64_t kShortlistGroup = 128;        // columns
inline constexpr int64_t kMostShortlistCols = 16384;   // for more, sums in F32 may be off by more
inline constexpr float kShortlistRounding = 0x1p-12f;  // of |w| |x|: twice what sums in F32 can be off

// The step that writes the scores, where they can be found by a shortlist: one product with a large matrix that is not
// quantized, without a bias.
std::optional<size_t> shortlist_step(const Plan& plan);
// Of the copy, with its scales and bounds; 0 where a plan has none with these options.
size_t shortlist_bytes(const Weight& head);
size_t shortlist_bytes(const Plan& plan, const EngineOptions& options);
// Whether the token behind such a choice is found by a shortlist: the best scores are all that is wanted.
inline bool takes_shortlist(const TokenChoice& choice) { return choice.count > 0 && choice.mass_temperature == 0; }
// Bytes of weights that one decoded token reads with these options, where it takes_shortlist(); the rows of the
// shortlist, which are few, aside.
size_t bytes_per_token(const Plan& plan, const EngineOptions& options);

}  // namespace qgen
