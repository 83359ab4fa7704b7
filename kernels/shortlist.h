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
  void end(int side);
  // Rows that were multiplied for it.
  int64_t listed(int side) const { return reinterpret_cast<const uint32_t*>(listed_.data())[side]; }
  // The input that find() had last on a side.
  LinearInput input(int side) const;
  void rest() { rests_ = kShortlistRest; }

 private:
  void lay_out(DeviceLayout& layout);

  std::optional<size_t> step_;
  int64_t rows_ = 0, cols_ = 0, padded_rows_ = 0;
  size_t bytes_ = 0;
  DeviceMemory memory_;
  PinnedMemory listed_;  // rows, of each side

  Matrix copy_;
  int8_t* codes_ = nullptr;
  float* scale_ = nullptr;
  uint16_t* bounds_ = nullptr;
  float* upper_ = nullptr;  // of the scores
  uint32_t* best_ = nullptr;
  ScoreLimit* limit_ = nullptr;
  uint32_t* counters_ = nullptr;  // of two kernels, and the listed rows
  float* kept_[2] = {};
  LinearInput input_[2];  // as find() had it, but for where it is
  int64_t rests_ = 0;     // batches that it is not used for
};

}  // namespace qgen::QGEN_BACKEND
