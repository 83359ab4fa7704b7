// The best scores without reading all of the output head, where its matrix is not quantized. A copy of the matrix in
// INT8 gives each score to within a bound; only the rows whose scores may be among the best, the shortlist, are then
// multiplied as they are. So the best scores are those of the matrix itself, to the last bit, for half of its bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/backend.h"
#include "engine/options.h"
#include "engine/shortlist_bounds.h"
#include "engine/token_choice.h"
#include "model/plan.h"

namespace qgen {

// The product whose best scores can be found by a shortlist: one with a large matrix that is not quantized, without a
// bias; and the steps that have it, of a plan with a draft head that of the model, of its guesses, or both. Where these
// are two matrices it is the draft head's, which is read more often.
struct ShortlistHead {
  const Projection* projection = nullptr;  // null: none
  std::vector<size_t> steps;

  explicit operator bool() const { return projection != nullptr; }
  const Weight& weight() const { return *projection->weight; }
  // That of steps [first, last).
  std::optional<size_t> step_in(size_t first, size_t last) const;
};
ShortlistHead shortlist_head(const Plan& plan);
// Of the copy, with its scales and bounds, padding aside; 0 where there is none with these options.
size_t shortlist_bytes(const Weight& head);
size_t shortlist_bytes(const Plan& plan, const EngineOptions& options);
// Whether the token behind such a choice is found by a shortlist: the best scores are all that is wanted.
inline bool takes_shortlist(const TokenChoice& choice) { return choice.count > 0 && choice.mass_temperature == 0; }
// How many of the best scores are all that is wanted of each scored token of a batch; none where more is wanted of one,
// or more than `most`, or where they are more than `tokens`.
std::vector<size_t> shortlist_counts(const Batch& batch, size_t most, size_t tokens);
// Shortlists of more than one row in eight are not worth their time, nor one where all scores of a token are asked for:
// the whole head is multiplied for the next 32 batches or so.
class ShortlistRest {
 public:
  static constexpr int64_t kBatches = 32;
  // Asked for each batch that could have a shortlist.
  bool rests() { return left_ > 0 && left_-- > 0; }
  void look_at(int64_t listed, int64_t rows) {
    if (listed * 8 > rows) begin();
  }
  void begin() { left_ = kBatches; }

 private:
  int64_t left_ = 0;
};
// Bytes of weights that a decoded token, or a few together, read with these options, where they takes_shortlist(), and
// that a guess of the draft head does; the rows of the shortlist, which are few, aside.
size_t bytes_per_token(const Plan& plan, const EngineOptions& options);
size_t bytes_per_guess(const Plan& plan, const EngineOptions& options);

}  // namespace qgen
