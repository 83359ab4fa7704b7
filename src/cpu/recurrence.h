// Convolutions and linear recurrences on the CPU, with the states of fixed size that they keep for each sequence.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cpu/arena.h"
#include "cpu/attention.h"
#include "cpu/isa/kernels.h"
#include "cpu/thread_pool.h"
#include "engine/backend.h"

namespace qgen::cpu {

class Recurrence {
 public:
  // For batches of up to `tokens` tokens and `slots` states of each kind.
  Recurrence(const Plan& plan, const IsaTarget& target, int64_t slots, int64_t tokens);
  void lay_out_work(Arena& arena);
  void lay_out_states(Arena& arena);
  // Once there is memory: copies the vectors of the steps.
  void load();

  // Called by all workers of the pool.
  void run(const ConvStep& step, const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool) const;
  void run(const RecurStep& step, const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool) const;
  void copy_slot(int32_t from, int32_t to) const;
  void clear_slot(int32_t slot) const;

 private:
  const float* vector(const Vector* v) const { return v == nullptr ? nullptr : vectors_.at(v).data(); }
  float* state(StateId id, int32_t slot) const {
    return states_[size_t(id)] + slot * plan_.states[size_t(id)].elements;
  }
  void prepare(const RecurStep& step, int64_t token, const std::vector<RowBuffer>& rows) const;

  const Plan& plan_;
  const IsaTarget& target_;
  const int64_t slots_, tokens_;
  int64_t key_floats_ = 0, heads_ = 0;  // of a token, at most
  std::vector<float*> states_;          // (slots, elements) each
  // Weights of convolutions as (taps, cols).
  std::unordered_map<const Vector*, std::vector<float>> vectors_;
  float* keys_ = nullptr;     // (tokens, key_floats)
  float* queries_ = nullptr;  // likewise, times the step's scale
  float* decays_ = nullptr;   // (tokens, heads)
  float* rates_ = nullptr;
};

}  // namespace qgen::cpu
