// What the CPU backend makes of a plan before it runs: the kernels of each step, and the memory beside the weights
// (keys and values, rows, scratch), laid out by headers and options alone. The account of memory asks it what that will
// be; the backend lets it have it.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cpu/arena.h"
#include "cpu/attention.h"
#include "cpu/head_linear.h"
#include "cpu/isa/targets.h"
#include "cpu/linear.h"
#include "cpu/mixture.h"
#include "cpu/recurrence.h"
#include "cpu/shortlist.h"
#include "engine/backend.h"

namespace qgen::cpu {

// A LinearStep's kernels: those of its projections, gates before them, and the forms of their common input.
struct LinearState {
  struct Part {
    size_t layer;           // of `layers`
    int gate_layer = -1;    // likewise; -1: no gate
    int64_t first_row = 0;  // of the step's rows, which are those of all projections one after the other
  };
  std::vector<const LinearKernel*> layers;
  std::vector<Part> parts;
  int copy = -1;  // of `layers`, the shortlist's; -1: none
  std::unique_ptr<InputForms> input;
  int64_t rows = 0;
};

class Workspace {
 public:
  // Nothing is allocated, and of the weights only headers are read.
  Workspace(const Plan& plan, const EngineOptions& options);
  Workspace(const Workspace&) = delete;
  MemoryUse use() const;
  // Once the weights are loaded. From now on there is memory behind what follows.
  void allocate();

  bool is_scored(const Step& step) const { return plan_.rows[size_t(result_of(step).row)].scored; }
  // Rows of a task: whole panels, several tasks a worker so that a slow one does not hold up the rest; one of a
  // token's where weights have column groups.
  int64_t task_rows(const LinearState& state, int64_t tokens) const;
  // Of each worker.
  std::byte* scratch(int worker) const { return scratch_ + worker * scratch_stride_; }
  float* temporary(int worker) const { return temporary_ + worker * temporary_stride_; }
  // Whether is(kernel) holds of some weight's kernels.
  template <typename Is>
  bool any_kernel(const Is& is) const {
    return std::ranges::any_of(kernels_, [&](const auto& entry) { return is(entry.second); });
  }

 private:
  const Plan& plan_;
  const EngineOptions options_;
  const IsaTarget& target_;

 public:
  const int workers;
  const int64_t batch_tokens, scored_tokens;  // at most
  const CacheLayout layout;
  Attention attention;
  Recurrence recurrence;
  std::vector<LinearState> linear;                      // one a step
  std::vector<std::unique_ptr<ExpertsKernel>> experts;  // likewise; null for other steps
  std::vector<std::unique_ptr<HeadLinearKernel>> heads;
  std::vector<RowBuffer> rows;           // of the plan
  ShortlistHead shortlist_head;          // whose best scores `shortlist` finds
  std::unique_ptr<Shortlist> shortlist;  // where there is such a head

 private:
  struct KernelKey {
    const Weight* weight;
    Activations activations;
    bool operator==(const KernelKey&) const = default;
  };
  struct KernelHash {
    size_t operator()(const KernelKey& key) const {
      return std::hash<const void*>()(key.weight) * 4 + size_t(key.activations);
    }
  };

  const LinearKernel* kernel_of(const Weight& weight, Activations activations);
  LinearState make_linear(const Step& step);
  std::unique_ptr<ExpertsKernel> make_experts(const Step& step);
  std::unique_ptr<HeadLinearKernel> make_heads(const Step& step);
  void lay_out();
  int64_t lookup_bytes() const;

  std::unordered_map<KernelKey, LinearKernel, KernelHash> kernels_;
  Arena work_, cache_;
  std::byte* scratch_ = nullptr;
  float* temporary_ = nullptr;
  int64_t scratch_bytes_ = 0, scratch_stride_ = 0, temporary_floats_ = 0, temporary_stride_ = 0;
};

}  // namespace qgen::cpu
