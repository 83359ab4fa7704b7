// A shortlist on the CPU (engine/shortlist.h). Its copy of the head is made row by row while tokens are generated, so
// that loading a model and short answers take no longer; until all rows are there the head is multiplied as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "cpu/arena.h"
#include "cpu/linear.h"
#include "engine/backend.h"
#include "engine/shortlist.h"

namespace qgen::cpu {

class Shortlist {
 public:
  // Of so many tokens together at most.
  static constexpr size_t kTokens = 8;
  // Of the headers of the matrix of shortlist_head(); nothing is allocated.
  Shortlist(const Projection& head, const IsaTarget& target, int workers);
  Shortlist(const Shortlist&) = delete;

  void allocate();
  // What is of the last batch with scores.
  void lay_out_work(Arena& work);
  size_t bytes() const { return shortlist_bytes(head_); }
  // The copy, for InputForms; multiplies once all rows are there.
  const LinearKernel& kernel() const { return *kernel_; }

  // What a batch does with it: nothing; adds rows to the copy; or finds the best scores by it.
  enum class Use : uint8_t { kNone, kGrow, kFind };
  // Before the workers run the step of the head, and after it.
  Use begin(const Batch& batch);
  void end(Use use);
  // To be called where all scores were wanted in the end.
  void rest() { rest_.begin(); }

  // kGrow: rows [first, second) are to be added in any order, each with room for its columns up to a whole group.
  std::pair<int64_t, int64_t> rows_to_add() const { return {added_, std::min(head_.rows, added_ + rows_a_batch_)}; }
  void add_row(int64_t row, float* values);

  // kFind, in this order, each once all workers are done with the one before, for each token that is scored. Rows go by
  // multiples of kRows.
  static constexpr int64_t kRows = 32;
  // Keeps an input, the norms of its groups, and what of it is multiplied with the norm of a row.
  void measure(int64_t token, const float* x);
  std::span<const float> input(int64_t token) const { return {inputs_ + token * head_.cols, size_t(head_.cols)}; }
  // The products with the copy, and from them bounds, of rows [begin, end).
  void bound(const Input& x, Kernels kernels, int64_t begin, int64_t end, void* scratch);
  void choose_rows(int64_t token);
  // multiply(row, end): rows that lie side by side, of [begin, end), each on the shortlist of a token.
  template <typename Multiply>
  void for_each_run(int64_t begin, int64_t end, int worker, const Multiply& multiply) {
    for (int64_t row = begin; row < end; ++row) {
      if (is_below(row)) continue;
      const int64_t first = row;
      while (row < end && !is_below(row)) listed_[size_t(worker)].push_back(row++);
      multiply(first, row);
    }
  }
  size_t count(int64_t token) const { return counts_[size_t(token)]; }
  // What was found of a token's scores, best first: all above a limit that at least count() of them reach. With a
  // softcap they may be fewer, or none: then all scores are needed. `scores`: where multiply() has put them.
  std::vector<ScoredToken> best(int64_t token, const float* scores) const;
  bool all_finite(const float* scores) const;

 private:
  bool is_below(int64_t row) const {
    for (size_t t = 0; t < counts_.size(); ++t) {
      if (!(upper_[int64_t(t) * padded_rows_ + row] < least_[t])) return false;
    }
    return true;
  }
  void lay_out();

  const Weight& head_;
  const float scale_, softcap_;  // of scores; without a softcap 0
  const IsaTarget& target_;
  const int64_t groups_, padded_rows_, rows_a_batch_;
  Weight copy_;
  std::optional<LinearKernel> kernel_;
  Arena memory_;
  int8_t* codes_ = nullptr;      // (rows, cols)
  uint16_t* bounds_ = nullptr;   // (groups + 1, padded rows): norms of what rounding left over, then of the row; BF16
  float* inputs_ = nullptr;      // (kTokens, cols)
  float* norms_ = nullptr;       // (kTokens, groups + 1): see measure()
  float* upper_ = nullptr;       // (kTokens, padded rows): the most that a score can be
  float* best_lower_ = nullptr;  // (kTokens, padded rows / kRows): of so many the largest of what scores are at least
  std::vector<float> scales_;
  int64_t waited_ = 0;          // batches that could have used the copy until it was there
  int64_t added_ = 0;           // rows of the copy
  std::vector<size_t> counts_;  // of the best scores that are wanted of each token
  float least_[kTokens] = {};   // what the last of them reaches at least
  ShortlistRest rest_;
  std::vector<std::vector<int64_t>> listed_;  // rows, by each worker
};

}  // namespace qgen::cpu
