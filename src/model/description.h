// A model as data: what config.json says, in one vocabulary for all families. A family fills it in and contains no
// arithmetic; the planner turns it into steps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/token.h"
#include "model/context_limit.h"
#include "model/names.h"
#include "model/rope.h"
#include "model/step.h"
#include "quant/binder.h"

namespace qgen {

// A norm of a model; what it is called is said where it is used.
struct NormSpec {
  Norm::Kind kind = Norm::Kind::kRms;
  double eps = 1e-6;
  bool weighted = true;    // multiplied by a weight of its own
  bool plus_one = false;   // by 1 + the stored weight
  bool biased = false;     // plus a bias of its own
  bool whole_row = false;  // of heads: over all heads together, with a weight for every column
  bool per_head = false;   // of heads: each for itself, with weights of its own
};

// Biases are bound where the files have them, and required where a family always has them. `fused`: several matrices
// are stored as one; what the files have decides where both are possible.
struct AttentionSpec {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, out_bias = false;
  bool fused = false;                      // q, k and v
  std::optional<NormSpec> q_norm, k_norm;  // of the heads, before the rotation
  std::optional<NormSpec> v_norm;          // without weights
  bool values_from_keys = false;           // values are what keys are before their norm and rotation
  int64_t shares_layer = -1;               // a layer before whose keys and values are read in place of own ones
  bool norm_after_rotation = false;
  bool sinks = false;  // one more score of each head, without a value
  // A product of the same input, an activation of which the results are multiplied by: its rows lie behind those of
  // each head in q_proj, or are a matrix of their own, with a row for each element of the heads, or for each head.
  enum class Gate : uint8_t { kNone, kInQueries, kElements, kHeads };
  Gate gate = Gate::kNone;
  Activation gate_activation = Activation::kSigmoid;
  int32_t rope = 0;  // of Description::ropes; -1: none
  double scale = 0;  // of the scores; 0: 1 / sqrt(head_dim)
  double softcap = 0;
  int64_t window = 0;  // tokens, itself included, that a query sees; 0: all
  int64_t chunk = 0;
  // Queries of the token at position p are multiplied by 1 + beta * ln(1 + floor((p + offset) / interval)).
  double temperature_beta = 0;
  int64_t temperature_interval = 1, temperature_offset = 0;
};

// Multi-head latent attention (DeepSeek-V2): keys and values of all heads follow from one latent a token, which is all
// that is kept of it beside the part of the keys that is rotated.
struct LatentSpec {
  int64_t heads = 0;
  int64_t q_rank = 0;  // of the latent of queries; 0: none
  int64_t kv_rank = 0;
  int64_t plain_dim = 0, rotated_dim = 0;  // of a query and a key
  int64_t value_dim = 0;
  NormSpec norm;  // of the latents
  bool bias = false;
  int32_t rope = 0;
  double scale = 0;
  double temperature_beta = 0;  // see AttentionSpec
  int64_t temperature_interval = 1;
};

struct FeedForwardSpec {
  int64_t width = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;  // activation(gate x) * (up x); else activation(up x)
  bool bias = false;
  bool fused = false;     // gate and up
  double gate_scale = 1;  // of what the activation is computed of
  // xIELU in place of the activation, without a gate (Huang and Schlag 2024), with a > 0, b > beta and beta of its own:
  //   beta x + a x^2 where x > 0, else beta x + b (exp(x) - 1 - x)
  bool xielu = false;
};

// A mixture of experts, with one that all tokens go to beside them where `shared_width` is above 0.
struct MixtureSpec {
  int64_t experts = 0, chosen = 0;
  int64_t width = 0;   // of an expert
  int64_t latent = 0;  // columns of what experts read and write, between two projections; 0: the layer's row itself
  bool latent_biased = false;
  Activation activation = Activation::kSilu;
  bool gated = true;                // of the experts
  bool biased = false;              // the router and the experts
  double limit = 0, up_offset = 0;  // see ExpertsStep
  bool weighted_input = false;      // see ExpertsStep
  bool transposed = false;          // stacks are stored (inputs, outputs)
  bool interleaved = false;         // their gates and ups in turn
  bool only_stacked = false;        // no program reads files that have them one by one
  RouteStep::Score score = RouteStep::Score::kSoftmax;
  bool ranking_bias = false;  // the choice, and not the weights, is by score + bias
  int64_t groups = 1, kept_groups = 1;
  RouteStep::Rank rank = RouteStep::Rank::kBest;
  bool normalized = false;  // weights are divided by their sum
  double least_sum = 0;
  double scale = 1;           // of the weights
  double logit_scale = 1;     // of the router's logits
  double logit_softcap = 0;   // of them: c tanh(logit / c); 0: none
  bool expert_scale = false;  // weights are multiplied by a number of each expert
  int64_t shared_width = 0;
  bool shared_score = false;  // the shared expert's result is multiplied by a sigmoid

  // Columns that an expert reads and writes.
  int64_t inputs(int64_t hidden) const { return latent > 0 ? latent : hidden; }
};

// A feed-forward network and a mixture side by side, each between norms of its own; the router normalizes the residual
// for itself (Gemma 4):  x += after(norm_1(network(before(x))) + norm_2(mixture(norm_0(x))))
struct DoubleFeedForwardSpec {
  FeedForwardSpec network;
  MixtureSpec mixture;
  NormSpec norm;
};

// What each layer gets of the token beside the residual (Gemma 3n and 4): e = (table[token] + norm(P embedding)) /
// sqrt(2), of which a layer has its own columns:  x += after(W (activation(G x) * e))
struct PerLayerInputSpec {
  int64_t width = 0;
  Activation activation = Activation::kGeluTanh;
};

// A gated delta net: a linear attention with a short convolution before it and a gated norm behind it.
struct DeltaSpec {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t taps = 4;                            // of the convolution
  NormSpec norm;                               // of each head's result
  Activation output_gate = Activation::kSilu;  // of the row that multiplies it
  bool by_key_head = false;        // stored as two matrices, [q, k, v, z] and [rate, decay] of each key head
  bool rates_by_key_head = false;  // the second one only
  bool key_heads_repeat = false;   // value head h takes key head h % key_heads
  bool folded_decay = false;       // stored -exp(a_log) (GGUF)
};

// Mamba-2: a convolution, a linear recurrence and a norm behind the gate.
struct MambaSpec {
  int64_t heads = 0, head_dim = 0;
  int64_t groups = 1, state_dim = 0;  // keys (B) and queries (C), shared by the heads of a group
  int64_t taps = 4;
  bool conv_bias = true, bias = false, out_bias = false;
  NormSpec norm;
  bool normed = true;
  bool norm_before_gate = false;
  bool folded_decay = false;  // stored -exp(a_log) (GGUF)
  int64_t norm_groups = 1;    // of the row, each normalized for itself
  // What the parts of the projection are multiplied by: gate, input, B, C, step sizes.
  std::array<double, 5> factors = {1, 1, 1, 1, 1};
};

// A short convolution between two gates (LFM2): out = W (c * conv(b * u)), all three from one matrix.
struct ShortConvSpec {
  int64_t taps = 3;
  bool bias = false;
};

// One branch of a layer: x += scale * after(mixer(before(x))). A parallel one reads the x that the branch before it
// read, and without a norm of its own also shares that one's.
struct BlockSpec {
  struct NormUse {
    Role role;
    NormSpec spec;
  };
  std::optional<NormUse> before, after;
  std::variant<AttentionSpec, FeedForwardSpec, MixtureSpec, DoubleFeedForwardSpec, PerLayerInputSpec, DeltaSpec,
               LatentSpec, MambaSpec, ShortConvSpec>
      mixer;
  double scale = 1;
  bool parallel = false;
};

// The branch of a layer that is one of these; null: none.
template <typename Mixer>
const Mixer* mixer_of(const std::vector<BlockSpec>& layer) {
  for (const BlockSpec& block : layer) {
    if (const auto* mixer = std::get_if<Mixer>(&block.mixer)) return mixer;
  }
  return nullptr;
}
template <typename Mixer>
bool has_mixer(const std::vector<BlockSpec>& layer) {
  return mixer_of<Mixer>(layer) != nullptr;
}

// Whether a layer of these branches may have a part. A norm behind a branch is one that the branch names, parts of a
// mixer are those of a branch that is one: other families and layers have others by their names.
inline bool may_have(const std::vector<BlockSpec>& layer, Role role) {
  const auto among = [&](Role first, Role last) { return role >= first && role <= last; };
  if (role == Role::kAttnQkv) return has_mixer<AttentionSpec>(layer);
  if (role == Role::kAttnGate) {
    const auto* attention = mixer_of<AttentionSpec>(layer);
    return attention != nullptr && attention->gate > AttentionSpec::Gate::kInQueries;
  }
  if (among(Role::kLatentQDown, Role::kLatentVUp)) return has_mixer<LatentSpec>(layer);
  if (among(Role::kDeltaQkv, Role::kDeltaOut)) return has_mixer<DeltaSpec>(layer);
  if (among(Role::kMambaIn, Role::kMambaOut)) return has_mixer<MambaSpec>(layer);
  if (among(Role::kConvIn, Role::kConvOut)) return has_mixer<ShortConvSpec>(layer);
  if (role != Role::kAttnPostNorm && role != Role::kFfnPostNorm) return true;
  for (const BlockSpec& block : layer) {
    if (block.after && block.after->role == role) return true;
  }
  return false;
}

// A layer that drafts tokens (Plan::draft):
//   x = join [norm(table[token]), norm(hidden of the token before)], then the blocks; hidden = norm(x)
struct DraftSpec {
  std::vector<BlockSpec> blocks;
  NormSpec norm;
  // The prefix of its names ("mtp.") if its layers are numbered from 0; empty: if their numbers follow the model's.
  std::string_view prefix = {};
};

// Names that roles may have instead, together.
using OtherNames = std::vector<std::pair<Role, std::string_view>>;

struct Description {
  std::string family;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t context = 0;  // tokens the model was made for (max_position_embeddings)
  ContextLimit context_limit;
  double embed_scale = 1;
  int64_t per_layer_width = 0;  // of PerLayerInputSpec; 0: none
  NormSpec per_layer_norm;
  bool layer_scales = false;  // the residual is multiplied by a number behind each layer
  int64_t positions = 0;      // rows of a table of learned positions; 0: none
  std::vector<Rope> ropes;
  std::vector<std::vector<BlockSpec>> layers;  // the branches of each, in their order
  NormSpec final_norm;
  double logit_scale = 1;
  double logit_softcap = 0;
  std::optional<bool> tied_head;  // what config.json says; not set: the files decide
  std::vector<TokenId> end_tokens;
  Names names = Names::hugging_face();
  std::vector<std::pair<Role, std::string_view>> gguf_names;  // where GGUF files have others than most
  // Names that the language model may have instead, deep in a multimodal checkpoint; the first one that is there
  // counts.
  struct NamePlace {
    std::string_view prefix, head;
  };
  std::vector<NamePlace> places;
  // Of these sets the first whose first role is there counts.
  std::vector<OtherNames> other_names;
  // Layers [first, second) that draft tokens for speculation; their tensors are ignored where they are not asked for.
  std::pair<int64_t, int64_t> drafting_layers = {0, 0};
  std::optional<DraftSpec> draft;  // the first of them, where it can be run
  std::string no_draft;            // else why, where config.json says so
  bool folded_norms = false;       // the files hold 1 + weight where plus_one asks for it (GGUF)
  bool transposed = false;         // the layers' matrices are stored (inputs, outputs)
  // The divisors of the frequencies of a rope, where config.json has them; the long ones are for contexts beyond the
  // original one.
  struct RopeFactors {
    size_t rope = 0;
    std::vector<float> factors, long_factors;  // (dim / 2)
  };
  std::vector<RopeFactors> rope_factors;
  std::vector<UnusedPart> unused_parts;
};

}  // namespace qgen
