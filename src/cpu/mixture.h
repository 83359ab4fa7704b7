// Mixtures of experts on the CPU: the choice, and the feed-forward networks of the experts that were chosen. The tokens
// of a batch are grouped by expert, so that each expert's weights are read once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cpu/arena.h"
#include "cpu/attention.h"
#include "cpu/linear.h"
#include "cpu/thread_pool.h"
#include "engine/backend.h"

namespace qgen::cpu {

// One ExpertsStep, ready to be run.
class ExpertsKernel {
 public:
  // `kernel_of` gives the kernels of a weight. For batches of up to `tokens` tokens.
  ExpertsKernel(const ExpertsStep& step, const IsaTarget& target, int64_t tokens, int workers,
                const std::function<const LinearKernel*(const Weight&)>& kernel_of);

  // Forms of inputs, which hold nothing from one step to the next.
  void lay_out(Arena& arena);
  // Floats of temporary() that each worker needs.
  int64_t temporary_floats() const;

  struct Biases {
    const float *gate = nullptr, *up = nullptr, *down = nullptr;
  };
  // Called by all workers of the pool, each with scratch and temporary memory of its own.
  void run(const Batch& batch, const std::vector<RowBuffer>& rows, const Biases& biases, ThreadPool& pool,
           std::byte* scratch, float* temporary);

 private:
  // The tokens of an expert: entries [first, first + count) of order_.
  struct Group {
    int32_t expert, first, count;
  };
  void group(const Batch& batch, const std::vector<RowBuffer>& rows);
  void prepare_input(const Batch& batch, const std::vector<RowBuffer>& rows, int64_t entry);
  void bound(float* gate, float* up, int64_t count) const;
  // The first of an expert's matrices of its input.
  size_t first_in(int32_t expert) const { return in_.size() / down_.size() * size_t(expert); }
  const Group& group_of(int64_t entry) const { return groups_[size_t(group_of_[size_t(entry)])]; }

  const ExpertsStep& step_;
  const IsaTarget& target_;
  const int64_t entries_;  // tokens times chosen experts, at most
  const int workers_;
  bool column_groups_;                          // of some weight
  std::vector<const LinearKernel*> in_, down_;  // in_: a gate where there are any, then an up, of each expert
  InputForms input_, inner_;
  std::vector<Group> groups_;      // of the experts that have tokens
  std::vector<int32_t> order_;     // token * chosen + choice, by expert
  std::vector<int32_t> group_of_;  // of each entry
};

}  // namespace qgen::cpu
