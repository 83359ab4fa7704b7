// A shortlist on the device (engine/shortlist.h): the copy of the head, which is made when the weights are there, and
// what finding the best scores by it leaves behind.
#pragma once

#include <cstdint>

#include "engine/backend.h"
#include "engine/shortlist.h"
#include "kernels/device_layout.h"
#include "kernels/linear_dispatch.h"
#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {

class Shortlist {
 public:
  // The step of a plan that kernels can find the best scores of: a LinearStep of one projection.
  static std::optional<size_t> step_of(const Plan& plan);
  // Of such a step; none: without a shortlist. Lays the copy out; nothing is allocated.
  Shortlist(const Plan& plan, std::optional<size_t> step);
  size_t bytes() const { return bytes_; }
  // Allocates and makes the copy. `head`: of the step, once it is loaded.
  void load(Device& device, const Matrix& head);

  std::optional<size_t> step() const { return step_; }

  // How many of the best scores are found by it in a batch that runs steps [first, last): 0 where all scores are
  // needed, or where it rests.
  size_t begin(const Batch& batch, size_t first, size_t last);
  // Writes the scores that rows on the shortlist keep; all others become kNotListed. `input`: of one token, as gemv()
  // takes it; `draw`: null where one is wanted; `side`: of the two that a backend has.
  void find(Stream& stream, const DeviceProjection& head, const LinearInput& input, const DrawSettings* draw, int side);
  // Once a batch of a side has ended that begin() and find() were called for.
  void end(int side) { rest_.look_at(rows_multiplied(side), copy_.rows); }
  int64_t rows_multiplied(int side) const { return reinterpret_cast<const uint32_t*>(totals_.data())[side]; }
  // The input that find() had last on a side.
  LinearInput input(int side) const;
  // To be called where all scores were wanted in the end.
  void rest() { rest_.begin(); }

 private:
  void lay_out(DeviceLayout& layout);

  std::optional<size_t> step_;
  size_t bytes_ = 0;
  int64_t padded_rows_ = 0;
  DeviceMemory memory_;
  Matrix copy_;
  int8_t* codes_ = nullptr;  // of the copy
  float* scale_ = nullptr;
  uint16_t* bounds_ = nullptr;  // see HeadCopyArgs
  float* upper_ = nullptr;      // (padded rows): the most that a score can be
  uint32_t* best_ = nullptr;    // see BoundScoresArgs
  ScoreLimit* limit_ = nullptr;
  uint32_t* counters_ = nullptr;  // (3): of the two kernels, and the rows that are multiplied
  LinearInput input_;             // as all batches have it, but for where it is
  float* kept_[2] = {};           // inputs, of each side: the row is the next token's by the time all scores are wanted
  PinnedMemory totals_;           // (2) uint32: rows that were multiplied, of each side
  ShortlistRest rest_;
};

}  // namespace qgen::QGEN_BACKEND
