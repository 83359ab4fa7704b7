// Attention steps on the CPU: keys and values into the pages of the cache, and queries over them.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cpu/arena.h"
#include "cpu/isa/kernels.h"
#include "cpu/thread_pool.h"
#include "engine/backend.h"

namespace qgen::cpu {

// Activations of a batch: rows of tokens, `stride` floats apart, zero behind the row's columns.
struct RowBuffer {
  float* data = nullptr;
  int64_t stride = 0;
  float* at(int64_t token, int64_t column = 0) const { return data + token * stride + column; }
};

// The memory of all states' caches.
class KvCache {
 public:
  KvCache(const Plan& plan, const CacheLayout& layout, KvType type);
  void lay_out(Arena& arena);

  CacheView view(StateId state, const Segment& segment) const;
  float* key_scales(StateId state) { return states_[size_t(state)].key_scales; }
  float* value_scales(StateId state) { return states_[size_t(state)].value_scales; }
  void copy_page(int32_t group, int32_t from, int32_t to) const;
  int64_t element_bytes() const { return element_bytes_; }

 private:
  struct StateCache {
    uint8_t* keys = nullptr;
    uint8_t* values = nullptr;
    float* key_scales = nullptr;
    float* value_scales = nullptr;
  };
  const Plan& plan_;
  const CacheLayout& layout_;
  int64_t element_bytes_;
  bool scaled_;
  std::vector<StateCache> states_;
};

// Values of a head are padded to a multiple of this.
constexpr int64_t kHeadPad = 16;

class Attention {
 public:
  // For batches of up to `tokens` tokens.
  Attention(const Plan& plan, const CacheLayout& layout, const EngineOptions& options, const IsaTarget& target,
            int workers, int64_t tokens);
  void lay_out_work(Arena& arena);
  void lay_out_cache(Arena& arena) { cache_.lay_out(arena); }
  // Once there is memory: copies the vectors of the steps.
  void load();
  int64_t scratch_bytes() const;

  // The rotations of a batch, as floats; before its steps.
  void start(const Batch& batch);
  // Called by all workers of the pool. `rows`: the buffers of the plan's rows.
  void run(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool,
           std::byte* scratch);
  void copy_page(int32_t group, int32_t from, int32_t to) const { cache_.copy_page(group, from, to); }
  bool take_overflow(std::span<StateId> of_tokens);  // Backend::take_overflow()

 private:
  // A page of the keys that a segment of one token sees: its sums lie in partial_ at its index.
  struct Part {
    int32_t segment;
    int64_t first, last;  // keys
  };
  // Parts of a batch for steps of one window and chunk.
  struct Split {
    int64_t window, chunk;
    std::vector<Part> parts;
    std::vector<int32_t> first_part;  // of each segment of one token, and the end
    std::vector<int32_t> segments;
  };
  using Kernel = void (*)(AttendArguments& arguments);
  Kernel few_rows_kernel(const AttendStep& step) const;
  const Split& split_of(const AttendStep& step) const;
  const float* vector(const Vector* v) const;
  void normalize_rows(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows,
                      ThreadPool& pool) const;
  void normalize_head(const Norm& norm, int64_t head, int64_t dim, float* x) const;
  void prepare_head(const AttendStep& step, const Norm& norm, int64_t head, int64_t token, float* x) const;
  void store(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool);
  void attend_one(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool,
                  std::byte* scratch);
  void attend_many(const AttendStep& step, const Batch& batch, const Segment& segment,
                   const std::vector<RowBuffer>& rows, ThreadPool& pool, std::byte* scratch);
  void finish_head(const AttendStep& step, const std::vector<RowBuffer>& rows, int64_t token, int64_t head,
                   float highest, float sum, const float* mixed, bool divide) const;
  int64_t first_key(const AttendStep& step, int64_t position) const;
  AttendArguments arguments(const AttendStep& step, const Segment& segment, int64_t kv_head, Kernels kernels,
                            std::byte* scratch) const;

  const Plan& plan_;
  const CacheLayout& layout_;
  const KvType type_;
  const bool f32_activations_;
  const IsaTarget& target_;
  const int workers_;
  const int64_t tokens_;
  KvCache cache_;
  std::unordered_map<const Vector*, std::vector<float>> vectors_;
  std::vector<std::pair<float*, float*>> rotations_;  // cos and sin of each rope, (tokens, dim / 2)
  std::vector<Split> splits_;
  float* partial_ = nullptr;  // (parts, heads, padded value_dim + 2)
  int64_t most_parts_ = 0, most_part_floats_ = 0;
  std::atomic<bool> overflowed_{false};
  std::vector<StateId> overflow_of_tokens_;  // the first state of each token that overflowed; -1: none
};

}  // namespace qgen::cpu
