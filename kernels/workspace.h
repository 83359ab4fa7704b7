// All the memory that the backend takes: weights, caches and work space, laid out by the plan and the options alone.
// The account of memory asks it what that will be; the backend lets it have it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/backend.h"
#include "kernels/call_inputs.h"
#include "kernels/device_layout.h"
#include "kernels/experts_dispatch.h"
#include "kernels/kv_cache.h"
#include "kernels/launches.h"
#include "kernels/linear_dispatch.h"
#include "kernels/shortlist.h"
#include "kernels/weight_store.h"

namespace qgen::QGEN_BACKEND {

// A row of the plan, for all tokens of a call.
struct RowBuffer {
  float* data = nullptr;
  int64_t stride = 0;
  bool scored = false;
};

// The banks of an ExpertsStep on the device: the matrices of its gates, ups and downs.
struct ExpertBanks {
  Matrix *gate = nullptr, *up = nullptr, *down = nullptr;  // (experts) each; of a HeadLinearStep `up` alone, (heads)
  Matrix up_like, down_like;                               // one of them each
  bool on_tensor_cores = false;                            // see ExpertsLayer
};

// Norms of several heads together come before heads are taken apart.
inline bool is_wide(const Norm& norm, int64_t dim) { return norm && norm.group > dim; }

class Workspace {
 public:
  static constexpr int kMostSplits = 64;  // of a sequence's keys

  // Lays everything out; nothing is allocated. A device Error where the plan has something that kernels have not.
  Workspace(const Plan& plan, const EngineOptions& options);
  Workspace(const Workspace&) = delete;
  MemoryUse use() const { return use_; }
  // From now on the pointers below are those of memory. The weights are loaded already.
  void allocate(Device& device);

  bool is_scored(const Step& step) const { return plan_.rows[size_t(result_of(step).row)].scored; }
  // Whether what lies behind a view, up to a multiple of kPad columns, is zero.
  bool ends_in_zeros(const View& view) const {
    return view.first % kPad == 0 && view.first + view.cols == plan_.rows[size_t(view.row)].cols;
  }
  // The first token's columns of a view, and what lies between tokens.
  float* at(const View& view) const { return rows[size_t(view.row)].data + view.first; }
  int64_t stride(const View& view) const { return rows[size_t(view.row)].stride; }
  // What a step reads of the rows, all tokens.
  LinearInput input_of(const View& in, const Norm& norm) const;
  // Step `index` of the plan.
  ExpertsLayer experts_layer(const ExpertsStep& step, size_t index) const;
  // What every run sends back: the best scores of the scored tokens, then whether the cache has overflowed, and which
  // token is likely to follow the first of them.
  size_t report_bytes() const { return size_t(scored_tokens) * sizeof(BestScore) + 2 * sizeof(uint32_t); }
  // Whether a recurrence has work space for chunks of its tokens.
  bool has_chunks(const RecurStep& step) const {
    return options_.activations != Activations::kF32 && can_recur_in_chunks(step.key_dim);
  }

 private:
  const Plan& plan_;

 public:
  const int64_t batch_tokens, scored_tokens;  // at most
  const CacheLayout layout;
  KvCache cache;
  CallInputs inputs;
  WeightStore weights;
  Shortlist shortlist;
  LinearDispatch linear;
  ExpertsDispatch experts_dispatch;

  std::vector<RowBuffer> rows;  // of the plan
  // Scores of the token that is begun before it is asked for: one row, as one token never goes through the library.
  float* next_scores = nullptr;
  std::vector<ExpertBanks> experts;  // one a step
  std::vector<float*> fixed;         // (slots, elements) of each state of fixed size
  float *keys = nullptr, *queries = nullptr, *rates = nullptr, *key_products = nullptr,
        *solved = nullptr;  // see RecurArgs
  uint32_t* recur_counter = nullptr;
  float* gathered = nullptr;  // inputs of scored tokens that are no neighbours
  float *wide_q = nullptr, *wide_k = nullptr, *wide_v = nullptr;
  float* partial = nullptr;  // see AttendArgs
  uint32_t* counter = nullptr;
  std::byte* report = nullptr;
  uint32_t* overflow_of_tokens = nullptr;  // (batch_tokens), see Cache
  FoundScores* found = nullptr;
  ScoreArgs::Scratch* score_scratch = nullptr;

 private:
  void lay_out_cache(DeviceLayout& layout);
  void lay_out_work(DeviceLayout& layout);
  void lay_out_attention(DeviceLayout& layout);
  void lay_out_experts(DeviceLayout& layout);
  void lay_out_linear(DeviceLayout& layout);
  void place_experts(Device& device);

  const EngineOptions options_;
  MemoryUse use_;
  size_t cache_bytes_ = 0, work_bytes_ = 0;
  DeviceMemory work_memory_, cache_memory_;
};

}  // namespace qgen::QGEN_BACKEND
