// A shortlist on the device (engine/shortlist.h): the copy of the head, which is made when the weights are there, and
// what finding the best scores by it leaves behind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rounding.h"
#include "engine/backend.h"
#include "engine/shortlist.h"
#include "kernels/device_layout.h"
#include "kernels/linear_dispatch.h"
#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {

class Shortlist {
 public:
  // Of so many tokens together at most.
  static constexpr size_t kTokens = kGemvTokens;
  // The head of a plan whose best scores kernels can find.
  static ShortlistHead head_of(const Plan& plan);
  // Without a head it does nothing. Lays the copy out; nothing is allocated.
  explicit Shortlist(ShortlistHead head);
  size_t bytes() const { return bytes_; }
  // Allocates and makes the copy. `head`: of the steps, once it is loaded.
  void load(Device& device, const Matrix& head);
  const ShortlistHead& head() const { return head_; }

  // What of a batch is found by it: the scores of a step, so many of the best of each scored token.
  struct Use {
    size_t step = 0;
    std::vector<size_t> counts;  // none: not by it

    explicit operator bool() const { return !counts.empty(); }
  };
  // Of a batch that runs steps [first, last). None where all scores are needed, or where it rests.
  Use begin(const Batch& batch, size_t first, size_t last);
  // Writes the scores that rows on the shortlist of each token keep; all others become kNotListed. `input`: as gemv()
  // takes it; `draw`: (tokens), null where one is wanted of each; `side`: of the two that a backend has.
  void find(Stream& stream, size_t step, const DeviceProjection& head, const LinearInput& input, int tokens,
            const DrawSettings* draw, int side);
  // Once a batch of a side has ended that begin() and find() were called for.
  void end(const Use& use, int side) {
    rest_.look_at(rows_multiplied(side, use.counts.size()), int64_t(use.counts.size()) * copy_.rows);
  }
  // For so many tokens together.
  int64_t rows_multiplied(int side, size_t tokens) const;
  // The input that find() had last of a step on a side.
  LinearInput input(size_t step, int side) const;
  // To be called where all scores were wanted in the end.
  void rest() { rest_.begin(); }

 private:
  void lay_out(DeviceLayout& layout);
  int64_t kept_stride() const { return round_up(copy_.cols, kPad); }
  size_t number_of(size_t step) const { return size_t(std::ranges::find(head_.steps, step) - head_.steps.begin()); }

  ShortlistHead head_;
  size_t bytes_ = 0;
  int64_t padded_rows_ = 0;
  DeviceMemory memory_;
  Matrix copy_;
  int8_t* codes_ = nullptr;  // of the copy
  float* scale_ = nullptr;
  uint16_t* bounds_ = nullptr;  // see HeadCopyArgs
  float* upper_ = nullptr;      // (kTokens, padded rows): the most that a score can be
  uint32_t* best_ = nullptr;    // see BoundScoresArgs
  ScoreLimit* limit_ = nullptr;
  uint32_t* counters_ = nullptr;  // (3, kTokens): of the two kernels, and the rows that are multiplied
  // Of each step, as all batches have it, but for where it is.
  std::vector<LinearInput> inputs_;
  // (kTokens, kept_stride()) of each side: a row is the next token's by the time all scores are wanted.
  float* kept_[2] = {};
  PinnedMemory totals_;  // (2, kTokens) uint32: rows that were multiplied, of each side
  ShortlistRest rest_;
};

}  // namespace qgen::QGEN_BACKEND
