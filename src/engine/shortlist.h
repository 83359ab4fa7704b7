// The best scores without reading all of the output head, where its matrix is not quantized. A copy of the matrix in
// INT8 gives each score to within a bound; only the rows whose scores may be among the best, the shortlist, are then
// multiplied as they are. So the best scores are those of the matrix itself, to the last bit, for half of its bytes.
#pragma once

#include <cstddef>
#include <optional>

#include "engine/options.h"
#include "engine/shortlist_bounds.h"
#include "engine/token_choice.h"
#include "model/plan.h"

namespace qgen {

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
