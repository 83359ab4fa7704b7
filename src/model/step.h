// The vocabulary of plans: rows, states and steps. A step names what it reads, what it writes and which state it keeps;
// it knows nothing of its neighbours, and variants of a block are fields. Plain data, without JSON.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "quant/weight.h"

namespace qgen {

// Activations of the tokens that run together, (tokens, cols) in F32. Steps that come later may write a row again.
using RowId = int32_t;
struct Row {
  std::string name;
  int64_t cols = 0;
  bool scored = false;  // only for tokens whose scores are wanted
};

// Columns [first, first + cols) of a row.
struct View {
  RowId row = -1;
  int64_t first = 0;
  int64_t cols = 0;

  explicit operator bool() const { return row >= 0; }
};

// Heads in a row: head h begins at column first + h * stride.
struct Heads {
  RowId row = -1;
  int64_t first = 0;
  int64_t stride = 0;

  explicit operator bool() const { return row >= 0; }
};

// What a sequence keeps from token to token.
using StateId = int32_t;
struct State {
  enum class Kind : uint8_t {
    kKv,  // keys (kv_heads, key_dim) and values (kv_heads, value_dim) of every token, or of the last `window`
  };
  Kind kind = Kind::kKv;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;  // tokens that are looked at, the newest included; 0: all
};

// y = normalize(x) * weight + bias over groups of columns (a head, or a whole row).
struct Norm {
  enum class Kind : uint8_t {
    kNone,
    kRms,    // x / sqrt(mean(x^2) + eps)
    kLayer,  // (x - mean(x)) / sqrt(variance(x) + eps)
  };
  Kind kind = Kind::kNone;
  const Vector* weight = nullptr;  // (group), or one for every column; null: 1
  const Vector* bias = nullptr;    // likewise; null: 0
  double eps = 0;
  int64_t group = 0;  // columns that are normalized together

  explicit operator bool() const { return kind != Kind::kNone; }
};

enum class Activation : uint8_t {
  kNone,
  kSilu,         // x sigmoid(x)
  kGelu,         // x Phi(x)
  kGeluTanh,     // the approximation of it by tanh (Hendrycks and Gimpel 2016)
  kRelu,         // max(x, 0)
  kReluSquared,  // max(x, 0)^2
  kSigmoid,
};
double activate(Activation activation, double x);
std::string_view activation_name(Activation activation);

// row = table[token] * scale (+ positions[position], which bounds the context)
struct LookupStep {
  const Weight* table = nullptr;  // (vocab, cols)
  double scale = 1;
  const Weight* positions = nullptr;  // (context, cols) or null
  View out;
};

// One product of a LinearStep: y = W x + bias; then
//   with a gate      y = activation(gate x + gate_bias) * y
//   without          y = activation(y)
// and out = softcap(y * scale), softcap(y) = c tanh(y / c), or out += that.
struct Projection {
  const Weight* weight = nullptr;  // (rows, cols)
  const Vector* bias = nullptr;    // (rows) or null
  const Weight* gate = nullptr;    // (rows, cols) or null
  const Vector* gate_bias = nullptr;
  Activation activation = Activation::kNone;
  double scale = 1;
  double softcap = 0;  // 0: none
  View out;
  bool add = false;
};

// Products of one input, which is normalized first.
struct LinearStep {
  View in;
  Norm norm;
  std::vector<Projection> projections;
};

// out = x_scale * x + y_scale * norm(y) * activation(gate)
struct CombineStep {
  View x;  // none: 0
  double x_scale = 1;
  View y;
  double y_scale = 1;
  Norm norm;
  View gate;  // none: 1
  Activation activation = Activation::kNone;
  View out;  // may be x or y
};

// Attention over a state: norms of the heads of q, k and v, rotation of q and k, keys and values into the state, then
//   out = softmax(scale * q k^T, sinks) v
// with everything between said by the fields.
struct AttendStep {
  StateId state = -1;
  bool stores = true;  // false: another step has stored this token's keys and values
  int64_t heads = 0, kv_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
  Heads q, k, v;
  Norm q_norm, k_norm, v_norm;
  bool norm_after_rotation = false;
  int32_t rope = -1;   // of the plan's; -1: no rotation
  double scale = 1;    // of the scores
  double softcap = 0;  // scores become c tanh(score / c); 0: not
  int64_t window = 0;  // a query sees itself and window - 1 tokens before it; 0: all
  int64_t chunk = 0;   // a query sees the tokens of its own chunk; 0: all
  // Queries of the token at position p are multiplied by 1 + beta * ln(1 + floor((p + offset) / interval)).
  double temperature_beta = 0;
  int64_t temperature_interval = 1, temperature_offset = 0;
  const Vector* sinks = nullptr;  // (heads): one more score of each head, without a value
  Heads gate;                     // out is multiplied by sigmoid(gate)
  View out;                       // (heads * value_dim)
};

struct Step {
  int32_t layer = -1;  // -1: before or behind the layers
  std::variant<LookupStep, LinearStep, CombineStep, AttendStep> op;
};

// What planners write beside the steps for engines that look ahead.
struct Link {
  const Weight* next_weight = nullptr;  // the first weight that a later step reads; null at the end
};

// How much of a weight a token reads.
enum class WeightUse : uint8_t { kAll, kOneRow };

// Calls use(weight, WeightUse) for every weight of a step, in the order in which it is read.
template <typename Use>
void for_each_weight(const Step& step, const Use& use) {
  struct Visitor {
    const Use& use;
    void operator()(const LookupStep& s) const {
      use(*s.table, WeightUse::kOneRow);
      if (s.positions != nullptr) use(*s.positions, WeightUse::kOneRow);
    }
    void operator()(const LinearStep& s) const {
      for (const Projection& p : s.projections) {
        if (p.gate != nullptr) use(*p.gate, WeightUse::kAll);
        use(*p.weight, WeightUse::kAll);
      }
    }
    void operator()(const CombineStep&) const {}
    void operator()(const AttendStep&) const {}
  };
  std::visit(Visitor{use}, step.op);
}

// Calls use(norm) for every norm of a step.
template <typename Use>
void for_each_norm(const Step& step, const Use& use) {
  struct Visitor {
    const Use& use;
    void operator()(const LookupStep&) const {}
    void operator()(const LinearStep& s) const { use(s.norm); }
    void operator()(const CombineStep& s) const { use(s.norm); }
    void operator()(const AttendStep& s) const {
      use(s.q_norm);
      use(s.k_norm);
      use(s.v_norm);
    }
  };
  std::visit(Visitor{use}, step.op);
}

// Calls use(vector) for every vector of a step.
template <typename Use>
void for_each_vector(const Step& step, const Use& use) {
  const auto one = [&](const Vector* vector) {
    if (vector != nullptr) use(*vector);
  };
  for_each_norm(step, [&](const Norm& norm) {
    one(norm.weight);
    one(norm.bias);
  });
  if (const auto* linear = std::get_if<LinearStep>(&step.op)) {
    for (const Projection& p : linear->projections) {
      one(p.gate_bias);
      one(p.bias);
    }
  } else if (const auto* attend = std::get_if<AttendStep>(&step.op)) {
    one(attend->sinks);
  }
}

// The rows that a step reads and writes, each once, in the order of its fields.
std::vector<RowId> rows_read(const Step& step);
std::vector<RowId> rows_written(const Step& step);
// The view that a step writes first, which a trace shows.
View result_of(const Step& step);
// What a step does, in words: "norm+linear", "attend".
std::string step_name(const Step& step);

}  // namespace qgen
