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
  // Of the headers of the matrix of shortlist_step(); nothing is allocated.
  Shortlist(const Projection& head, const IsaTarget& target, int workers);
  Shortlist(const Shortlist&) = delete;

  void allocate();
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

  // kFind, in this order, each once all workers are done with the one before. Rows go by multiples of kRows.
  static constexpr int64_t kRows = 32;
  // Norms of the groups of an input, and what of it is multiplied with the norm of a row.
  struct InputNorms {
    float groups[kMostShortlistCols / kShortlistGroup + 1];
  };
  InputNorms norms_of(const float* x) const;
  // The product with the copy, and from it bounds, of rows [begin, end).
  void bound(const Input& x, const InputNorms& norms, int64_t begin, int64_t end, void* scratch);
  void choose_rows();
  // multiply(row, end): rows of the shortlist that lie side by side, of [begin, end). It says where their scores are.
  template <typename Multiply>
  void for_each_run(int64_t begin, int64_t end, int worker, const Multiply& multiply) {
    for (int64_t row = begin; row < end; ++row) {
      if (is_below(row)) continue;
      const int64_t first = row;
      while (row < end && !is_below(row)) ++row;
      const float* const scores = multiply(first, row);
      for (int64_t n = first; n < row; ++n) found_[size_t(worker)].push_back({TokenId(n), scores[n - first]});
    }
  }
  size_t count() const { return count_; }
  // What was found, best first: all whose scores are above a limit that at least `count` of the batch's choice reach.
  // With a softcap they may be fewer, or none: then all scores are needed.
  std::vector<ScoredToken> best() const;
  bool all_finite() const;

 private:
  bool is_below(int64_t row) const { return upper_[row] < least_; }
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
  float* upper_ = nullptr;       // (padded rows): the most that a score can be
  float* best_lower_ = nullptr;  // of each kRows: the largest of what their scores are at least
  std::vector<float> scales_;
  std::vector<float> sorted_;  // of best_lower_
  int64_t waited_ = 0;         // batches that could have used the copy until it was there
  int64_t added_ = 0;          // rows of the copy
  size_t count_ = 1;           // of the best scores that are wanted
  float least_ = 0;            // what the last of them reaches at least
  ShortlistRest rest_;
  std::vector<std::vector<ScoredToken>> found_;  // by each worker
};

}  // namespace qgen::cpu
