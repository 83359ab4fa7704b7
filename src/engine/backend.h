// What an engine is on a device: the steps of a plan for a batch of tokens. Sequences, pages, batches, observing and
// tracing are the same for all and written once, in Engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"
#include "engine/cache_pages.h"
#include "engine/options.h"
#include "engine/rope_rows.h"
#include "engine/token_choice.h"

namespace qgen {

// Tokens of one sequence in a batch, side by side.
struct Segment {
  int32_t first = 0;  // of the batch's tokens
  int32_t count = 0;
  int64_t position = 0;  // of the first one in its sequence
  int32_t slot = 0;      // where the sequence's states of fixed size are
  // The sequence's page table of every group of the cache, (ring).
  std::span<const std::vector<int32_t>> pages;
  // Behind so many of its tokens the states of fixed size are copied to another slot; 0: they are not.
  int32_t marked = 0;
  int32_t mark_slot = 0;
  // The slot where these states are behind all of its tokens, where Backend::begins_ahead(), so that those before them
  // are still there; -1: `slot`.
  int32_t new_slot = -1;
};

struct Batch {
  std::span<const TokenId> tokens;
  std::span<const Segment> segments;
  std::span<const int32_t> scored;  // tokens whose scores are wanted, ascending
  const RopeRows* ropes = nullptr;
  Kernels kernels = Kernels::kByCount;
  // (scored): how the token that follows each scored one is likely chosen; empty: not known.
  std::span<const TokenChoice> choices = {};
  // The batch that is likely to be run next, of a batch with one segment, one scored token and one choice: one token,
  // which that choice will find and `next->tokens` does not have yet. Where Backend::begins_ahead(), it may be on its
  // way when run() returns; then read() and read_row() have nothing of this batch. Where another batch is run, it ends
  // unused.
  const Batch* next = nullptr;
};

// The segment of a batch's token.
inline const Segment& segment_of(const Batch& batch, int64_t token) {
  // Most batches have one segment, or one for each token.
  size_t i = batch.segments.size() == batch.tokens.size() ? size_t(token) : 0;
  while (batch.segments[i].first + batch.segments[i].count <= token) ++i;
  return batch.segments[i];
}

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;
  virtual Activations activations() const = 0;
  virtual MemoryUse memory() const = 0;
  // Tokens at most of a batch, and scored ones at most.
  virtual int64_t batch_tokens() const = 0;
  virtual int64_t scored_tokens() const = 0;
  // Whether a batch may be run in several calls, each of some of the steps, at no great cost.
  virtual bool runs_in_parts() const = 0;
  // Whether it takes note of Batch::next, and of more in Batch::choices than a shortlist (engine/shortlist.h) needs.
  virtual bool begins_ahead() const { return false; }

  // Runs steps [first, last) for a batch. Throws a runtime Error.
  virtual void run(const Batch& batch, size_t first, size_t last) = 0;
  // What the steps have written for a token of the batch; in rows that are scored, for scored token `token`.
  virtual void read(int64_t token, const View& view, std::span<float> out) = 0;
  // The first tokens of a row that is not scored, (tokens, cols): out of it and into it.
  virtual void read_row(RowId row, std::span<float> out) = 0;
  virtual void write_row(RowId row, std::span<const float> values) = 0;
  // Copies a page of a group of the cache.
  virtual void copy_page(int32_t group, int32_t from, int32_t to) = 0;
  // Copies the states of fixed size from one slot to another, or sets those of a slot to zero.
  virtual void copy_slot(int32_t from, int32_t to) = 0;
  virtual void clear_slot(int32_t slot) = 0;
  // Overflows of the cache's type since the last call: false where there were none, else for each token of the batch
  // the first state whose keys or values were beyond the range, -1 for tokens without.
  virtual bool take_overflow(std::span<StateId> /*of_tokens*/) { return false; }

  // Of scored token `index` of the last batch, until the next one: all scores; whether all are finite; and the best
  // ones (engine/scores.h).
  virtual std::span<const float> scores(int64_t index) = 0;
  virtual bool scores_finite(int64_t index) = 0;
  virtual TopScores top_scores(int64_t /*index*/, size_t /*count*/, double /*temperature*/) { return {}; }
};

}  // namespace qgen
