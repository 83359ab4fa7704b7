// The vocabulary of plans: rows, states and steps. A step names what it reads, what it writes and which state it keeps;
// it knows nothing of its neighbours, and variants of a block are fields. Plain data, without JSON.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/overloaded.h"
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
  bool operator==(const View&) const = default;
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
    kKv,     // keys (kv_heads, key_dim) and values (kv_heads, value_dim) of every token, or of the last `window`
    kFixed,  // `elements` F32 values, however long the sequence is: recurrent states and the last rows of convolutions
  };
  Kind kind = Kind::kKv;
  int64_t kv_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;  // tokens that are looked at, the newest included; 0: all
  int64_t elements = 0;
  bool values_in_keys = false;  // values are the first value_dim elements of the keys and not kept beside them
};

// y = normalize(x) * weight + bias over groups of columns (a head, or a whole row).
struct Norm {
  enum class Kind : uint8_t {
    kNone,
    kRms,    // x / sqrt(mean(x^2) + eps)
    kLayer,  // (x - mean(x)) / sqrt(variance(x) + eps)
    kScale,  // x: only weight and bias follow
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
  kQuickGelu,  // x sigmoid(1.702 x)
  // These are of gates of a CombineStep alone.
  kSoftplus,    // ln(1 + exp(x))
  kExpm1Ratio,  // (exp(x) - 1 - x) / x where x < 0, else 0
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

// A product with a block-diagonal matrix: each head's columns with a weight of their own. Head h of `out` is
//   W[h] in[h][0..cols), followed by in[h][cols..cols + kept)
// `out` is no part of the row that is read.
struct HeadLinearStep {
  Heads in, out;
  std::vector<const Weight*> weights;  // (rows, cols), of each head
  int64_t kept = 0;                    // columns that follow as they are

  int64_t heads() const { return int64_t(weights.size()); }
  int64_t rows() const { return weights.front()->rows; }
  int64_t cols() const { return weights.front()->cols; }
};

// out = x_scale * x + y_scale * norm(y) * activation(gate)
struct CombineStep {
  View x;  // none: 0
  double x_scale = 1;
  View y;
  double y_scale = 1;
  Norm norm;
  // None: 1. Of as many columns as out, or of fewer, each for as many of out's in turn (a head, or all of them).
  View gate;
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
  Heads q, k, v;  // no v where the state has values in its keys
  Norm q_norm, k_norm, v_norm;
  bool norm_after_rotation = false;
  int32_t rope = -1;          // of the plan's; -1: no rotation
  int64_t rotated_first = 0;  // the first element of a head that is rotated
  double scale = 1;           // of the scores
  double softcap = 0;         // scores become c tanh(score / c); 0: not
  int64_t window = 0;         // a query sees itself and window - 1 tokens before it; 0: all
  int64_t chunk = 0;          // a query sees the tokens of its own chunk; 0: all
  // Queries of the token at position p are multiplied by 1 + beta * ln(1 + floor((p + offset) / interval)).
  double temperature_beta = 0;
  int64_t temperature_interval = 1, temperature_offset = 0;
  const Vector* sinks = nullptr;  // (heads): one more score of each head, without a value
  Heads gate;                     // out is multiplied by sigmoid(gate)
  View out;                       // (heads * value_dim)
};

// Which experts of a mixture a token goes to, and with what weights: from the router's logits,
//   s = softmax(logits), sigmoid(logits) or sqrt(softplus(logits)); the `chosen` experts with the largest s + bias, of
//   those groups whose rank is among the `kept_groups` best; their weights w = s, divided by their sum where
//   `normalized`, times `scale` and the expert's own scale.
struct RouteStep {
  enum class Score : uint8_t { kSoftmax, kSigmoid, kRootSoftplus };
  enum class Rank : uint8_t { kBest, kTwoBest };  // of a group: its largest s + bias, or the sum of its two largest
  View logits;                                    // (experts)
  int64_t chosen = 0;
  Score score = Score::kSoftmax;
  const Vector* bias = nullptr;  // (experts), for the choice alone; null: 0
  int64_t groups = 1, kept_groups = 1;
  Rank rank = Rank::kBest;
  bool normalized = false;
  double least_sum = 0;  // added to the sum that weights are divided by
  double scale = 1;
  const Vector* expert_scale = nullptr;  // (experts) or null
  View out;                              // (2 * chosen): the weights, then the experts' numbers, the best one first
};

// The feed-forward networks of the experts that a RouteStep has chosen:
//   out (+)= sum over them of w * (down (activation(gate x) * (up x + up_offset)) + down_bias)
// or, without gates, of w * (down activation(up x)). Where `limit` is above 0, gate x is at most that, and up x within
// it on both sides. Each bank has a weight for every expert; the biases are (experts, rows of a weight).
struct ExpertsStep {
  View in;
  View route;                                 // what a RouteStep wrote
  std::vector<const Weight*> gate, up, down;  // gate may be empty
  const Vector *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  Activation activation = Activation::kSilu;
  double limit = 0;
  double up_offset = 0;
  bool weighted_input = false;  // w multiplies x instead (Llama 4)
  View out;
  bool add = false;

  int64_t experts() const { return int64_t(up.size()); }
  int64_t chosen() const { return route.cols / 2; }
  int64_t width() const { return up.front()->rows; }
};

// A causal convolution of each column by itself, over the last `taps` tokens of a sequence; tokens before its first
// are 0:
//   out[t] = activation(sum over i of weight[i] * in[t - taps + 1 + i] + bias)
struct ConvStep {
  StateId state = -1;  // (taps - 1, cols): the rows of `in` before the next token, the oldest first
  int64_t taps = 0;
  View in;
  const Vector* weight = nullptr;  // (cols, taps)
  const Vector* bias = nullptr;    // (cols) or null
  Activation activation = Activation::kNone;
  View out;  // may be in
};

// A linear recurrence: each of `heads` has a matrix S (key_dim, value_dim), which starts at 0. For every token
//   g = exp(-exp(a_log) * softplus(decay + decay_bias))
//   kGatedDelta:  S = g S + k (sigmoid(rate) (v - g S^T k))^T    (Yang, Kautz and Hatamizadeh 2024, gated delta rule)
//   kSsd:         S = g S + k (softplus(decay + decay_bias) v)^T (Dao and Gu 2024, Mamba-2)
//   out = scale * S^T q + skip * v
// with k and q divided by their lengths, sqrt(sum of squares + eps), where `unit_keys`. Value head h takes the key head
// h / (heads / key_heads), or h % key_heads where `key_heads_repeat`.
struct RecurStep {
  enum class Kind : uint8_t { kGatedDelta, kSsd };
  Kind kind = Kind::kGatedDelta;
  StateId state = -1;  // (heads, key_dim, value_dim)
  int64_t heads = 0, key_heads = 0, key_dim = 0, value_dim = 0;
  Heads q, k, v;
  View decay, rate;                                      // (heads); kSsd has no rate
  const Vector *a_log = nullptr, *decay_bias = nullptr;  // (heads)
  const Vector* skip = nullptr;                          // (heads) or null: 0
  bool key_heads_repeat = false;
  bool unit_keys = false;
  double eps = 0;
  double scale = 1;
  View out;  // (heads * value_dim)

  int64_t key_head(int64_t head) const { return key_heads_repeat ? head % key_heads : head / (heads / key_heads); }
};

struct Step {
  int32_t layer = -1;  // -1: before or behind the layers
  std::variant<LookupStep, LinearStep, HeadLinearStep, CombineStep, AttendStep, RouteStep, ExpertsStep, ConvStep,
               RecurStep>
      op;
};

// How a step uses a weight: as a matrix that multiplies, or row by row; and how much of it a token reads in the mean.
struct WeightUse {
  bool multiplies = true;
  double share = 1;
};

// Calls use(weight, WeightUse) for every weight of a step, in the order in which it is read.
template <typename Use>
void for_each_weight(const Step& step, const Use& use) {
  std::visit(Overloaded{[&](const LookupStep& s) {
                          for (const Weight* table : {s.table, s.positions}) {
                            if (table != nullptr) use(*table, WeightUse{false, 1 / double(table->rows)});
                          }
                        },
                        [&](const LinearStep& s) {
                          for (const Projection& p : s.projections) {
                            if (p.gate != nullptr) use(*p.gate, WeightUse{});
                            use(*p.weight, WeightUse{});
                          }
                        },
                        [&](const HeadLinearStep& s) {
                          for (const Weight* weight : s.weights) use(*weight, WeightUse{});
                        },
                        [&](const ExpertsStep& s) {
                          const WeightUse chosen{true, double(s.chosen()) / double(s.experts())};
                          for (const auto* bank : {&s.gate, &s.up, &s.down}) {
                            for (const Weight* weight : *bank) use(*weight, chosen);
                          }
                        },
                        [](const auto&) {}},
             step.op);
}

// Calls use(norm) for every norm of a step.
template <typename Use>
void for_each_norm(const Step& step, const Use& use) {
  std::visit(Overloaded{[&](const LinearStep& s) { use(s.norm); }, [&](const CombineStep& s) { use(s.norm); },
                        [&](const AttendStep& s) {
                          use(s.q_norm);
                          use(s.k_norm);
                          use(s.v_norm);
                        },
                        [](const auto&) {}},
             step.op);
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
  const auto all = [&](std::initializer_list<const Vector*> vectors) {
    for (const Vector* vector : vectors) one(vector);
  };
  if (const auto* linear = std::get_if<LinearStep>(&step.op)) {
    for (const Projection& p : linear->projections) all({p.gate_bias, p.bias});
  } else if (const auto* attend = std::get_if<AttendStep>(&step.op)) {
    all({attend->sinks});
  } else if (const auto* route = std::get_if<RouteStep>(&step.op)) {
    all({route->bias, route->expert_scale});
  } else if (const auto* experts = std::get_if<ExpertsStep>(&step.op)) {
    all({experts->gate_bias, experts->up_bias, experts->down_bias});
  } else if (const auto* conv = std::get_if<ConvStep>(&step.op)) {
    all({conv->weight, conv->bias});
  } else if (const auto* recur = std::get_if<RecurStep>(&step.op)) {
    all({recur->a_log, recur->decay_bias, recur->skip});
  }
}

// The rows that a step reads and writes, each once, in the order of its fields.
std::vector<RowId> rows_read(const Step& step);
std::vector<RowId> rows_written(const Step& step);
bool contains(const std::vector<RowId>& rows, RowId row);
// The view that a step writes first, which a trace shows.
View result_of(const Step& step);
// What a step does, in words: "norm+linear", "attend".
std::string step_name(const Step& step);

}  // namespace qgen
