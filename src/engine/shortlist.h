// The best scores without reading all of the output head, where its matrix is not quantized. A copy of the matrix in
// INT8 gives each score to within a bound; only the rows whose scores may be among the best, the shortlist, are then
// multiplied as they are. So the best scores are those of the matrix itself, to the last bit, for half of its bytes.
#pragma once

#include <cstddef>
#include <optional>

#include "engine/backend.h"
#include "engine/options.h"
#include "engine/shortlist_bounds.h"
#include "engine/token_choice.h"
#include "model/plan.h"

namespace qgen {

// The step that writes the scores, where the best can be found by a shortlist: one product with a large matrix that is
// not quantized, without a bias. Of a plan with a draft head the step that writes the scores of its guesses: those of
// the model are of several tokens mostly.
std::optional<size_t> shortlist_step(const Plan& plan);
// Of the copy, with its scales and bounds, padding aside; 0 where there is none with these options.
size_t shortlist_bytes(const Weight& head);
size_t shortlist_bytes(const Plan& plan, const EngineOptions& options);
// Whether the token behind such a choice is found by a shortlist: the best scores are all that is wanted.
inline bool takes_shortlist(const TokenChoice& choice) { return choice.count > 0 && choice.mass_temperature == 0; }
// How many of the best scores are all that is wanted of a batch, which has one token that is scored; 0: more is wanted,
// or more than `most`.
size_t shortlist_count(const Batch& batch, size_t most);
// A shortlist of more than one row in eight is not worth its time, nor one whose token all scores are asked for: the
// whole head is multiplied for the next 32 tokens or so.
class ShortlistRest {
 public:
  static constexpr int64_t kTokens = 32;
  // Asked for each token that could have a shortlist.
  bool rests() { return left_ > 0 && left_-- > 0; }
  void look_at(int64_t listed, int64_t rows) {
    if (listed * 8 > rows) begin();
  }
  void begin() { left_ = kTokens; }

 private:
  int64_t left_ = 0;
};
// Bytes of weights that one decoded token reads with these options, where it takes_shortlist(), and that a guess of the
// draft head does; the rows of the shortlist, which are few, aside.
size_t bytes_per_token(const Plan& plan, const EngineOptions& options);
size_t bytes_per_guess(const Plan& plan, const EngineOptions& options);

}  // namespace qgen
