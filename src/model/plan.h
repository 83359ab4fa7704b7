// The plan: a model as rows, states and steps with canonical weights. The planner writes it once; the memory account,
// `inspect`, `bench` and every engine read the same lists.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"
#include "checkpoint/checkpoint.h"
#include "model/context_limit.h"
#include "model/rope.h"
#include "model/step.h"
#include "quant/binder.h"
#include "quant/weight.h"

namespace qgen {

// What programs around an engine want to know of a model.
struct ModelInfo {
  std::string family;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t vocab = 0;
  // Tokens the model was made for, with the factor of those rotary scalings that extend it and within the limit.
  int64_t context = 0;
  ContextLimit context_limit;
  std::vector<TokenId> end_tokens;  // of config.json
};

// Steps behind those of the model that guess a token: a layer for multi-token prediction (MTP, DeepSeek-V3). They read
// a token and the hidden row of the token before it, which is what the output head reads, and write the hidden row that
// goes with the guess. Keys and values of the layer lie at the position of the token before. Table and head are the
// model's.
struct DraftHead {
  size_t first_step = 0;
  RowId hidden = -1;
};

struct Plan {
  ModelInfo model;
  std::vector<Row> rows;
  std::vector<State> states;
  std::vector<Rope> ropes;
  std::vector<Step> steps;  // of the model, then those of the draft head
  std::optional<DraftHead> draft;
  RowId scores = -1;           // the row with a score for every token of the vocabulary
  std::deque<Weight> weights;  // what the steps point to
  std::deque<Vector> vectors;
  int64_t repeated_parameters = 0;        // of matrices that are held twice, in two types
  std::vector<Binder::Binding> bindings;  // where each weight comes from
  std::vector<Binder::Ignored> ignored;   // tensors in the files that no step needs
  Checkpoint checkpoint;                  // keeps the mapped files alive

  // Of the model itself: the first so many.
  size_t main_steps() const { return draft ? draft->first_step : steps.size(); }
  // The method of most of the quantized bytes ("fp8 block 128x128"), else of the plain ones ("bf16").
  std::string method() const;
  int64_t parameters() const;  // elements of all matrices and vectors, without repeated ones
  size_t weight_bytes() const;
  // Bytes of weights that one decoded token reads: of a table one row, of a mixture the chosen experts.
  size_t bytes_per_token() const;
  // Likewise of a token that the draft head guesses; 0 without one.
  size_t bytes_per_guess() const;
  int64_t nan_codes() const;  // in all weights, known after a WeightScan
  // How long drafts may make a sequence of `context` tokens: where a rotation depends on the length, a token must not
  // be run in the same call as one that changes it.
  int64_t longest_with_draft(int64_t context) const;
};

// How the key-value cache stores an element.
enum class KvType : uint8_t { kF16, kBf16, kF32, kFp8, kInt8 };  // fp8 (E4M3) and int8 with an F32 scale a head's row
std::string_view kv_name(KvType type);
int64_t kv_element_bytes(KvType type);
// Of one head's key or value of `dim` elements, its scale included.
int64_t kv_row_bytes(KvType type, int64_t dim);
// Keys and values of one token in a state.
int64_t state_bytes_per_token(const State& state, KvType type);
// Of a sequence's states that do not grow with it.
size_t fixed_state_bytes(const Plan& plan);
// Bytes of states that the token at `position` reads; windows read less.
double kv_bytes_read(const Plan& plan, int64_t position, KvType type);
// Multiplications and additions for the token at `position`, its scores aside; and those of a token's scores.
double operations(const Plan& plan, int64_t position);
double score_operations(const Plan& plan);

// Bytes that running a plan takes.
struct MemoryUse {
  size_t weights = 0;
  size_t kv = 0;
  size_t work = 0;
  size_t total() const { return weights + kv + work; }
};

}  // namespace qgen
