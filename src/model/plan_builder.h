// From a description to steps: what planner.cpp and the files of the kinds of blocks (plan_attention.cpp,
// plan_feed_forward.cpp, plan_recurrent.cpp) share. A block begins with products of the residual and ends by adding to
// it; the branches that stand side by side all begin before the first of them ends.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/description.h"
#include "model/plan.h"
#include "model/smoothing.h"
#include "model/weight_source.h"

namespace qgen {

// The names of a model's layer for drafts, and its number there.
std::pair<Names, int64_t> draft_names(const Description& model);

// Fills in rows, states, steps, weights and vectors of a plan.
class PlanBuilder {
 public:
  // `name` of the model is for messages.
  PlanBuilder(const Description& model, Plan& plan, WeightSource& source, const std::string& name)
      : model_(model), plan_(plan), source_(source), name_(name), names_(model.names) {}

  // `draft_head`: with the model's layer for drafts.
  void run(bool draft_head);

 private:
  void add_layer(const std::vector<BlockSpec>& blocks);
  void add_per_layer_inputs();
  void add_layer_scale();
  // Gives the product that makes the scores.
  Projection add_head(const Weight* embed, bool draft_head);
  void add_draft_head(const Weight* embed, const Projection& scores);

  // begin(): the steps of a block that read the residual; gives what they wrote. end(): the others.
  View begin(const BlockSpec& block, const AttentionSpec& spec);
  View begin(const BlockSpec& block, const FeedForwardSpec& spec);
  View begin(const BlockSpec& block, const MixtureSpec& spec);
  View begin(const BlockSpec& block, const DoubleFeedForwardSpec& spec);
  View begin(const BlockSpec& block, const PerLayerInputSpec& spec);
  View begin(const BlockSpec& block, const DeltaSpec& spec);
  View begin(const BlockSpec& block, const LatentSpec& spec);
  View begin(const BlockSpec& block, const MambaSpec& spec);
  View begin(const BlockSpec& block, const ShortConvSpec& spec);
  void end(const BlockSpec& block, const AttentionSpec& spec, const View& begun);
  void end(const BlockSpec& block, const FeedForwardSpec& spec, const View& begun);
  void end(const BlockSpec& block, const MixtureSpec& spec, const View& begun);
  void end(const BlockSpec& block, const DoubleFeedForwardSpec& spec, const View& begun);
  void end(const BlockSpec& block, const PerLayerInputSpec& spec, const View& begun);
  void end(const BlockSpec& block, const DeltaSpec& spec, const View& begun);
  void end(const BlockSpec& block, const LatentSpec& spec, const View& begun);
  void end(const BlockSpec& block, const MambaSpec& spec, const View& begun);
  void end(const BlockSpec& block, const ShortConvSpec& spec, const View& begun);

  // The weights of each head that take a query to the latent and the latent to a value.
  void split_latent_up(const LatentSpec& spec, std::vector<const Weight*>& keys, std::vector<const Weight*>& values);
  // out = norm(in)
  View normalized(const View& in, const Norm& norm, const std::string& out);
  // The logits of a router, whose step may have other products of its input already; and what a RouteStep makes of
  // them.
  View add_router(const MixtureSpec& spec, LinearStep router);
  View add_route(const MixtureSpec& spec, const View& logits);
  // target = or += the chosen experts' results
  void add_experts(const MixtureSpec& spec, const View& in, const View& route, const View& target, bool adds);
  View add_latent(const MixtureSpec& spec, const View& normed);
  void add_latent_experts(const MixtureSpec& spec, const View& latent, const View& route, const View& target,
                          bool adds);
  void bind_expert_biases(const MixtureSpec& spec, ExpertsStep& out);
  void bind_experts(const MixtureSpec& spec, ExpertsStep& out);
  // The inner row of the expert that all tokens go through, and what becomes of it.
  View add_xielu(const View& inner);
  View add_shared_inner(const MixtureSpec& spec, const View& normed);
  void add_shared_output(const MixtureSpec& spec, const View& inner, const View& score, const View& target);
  const Vector* a_log(const std::string& name, int64_t heads, bool folded);
  void add_by_head(Role role, int64_t heads, const std::vector<View>& views, std::vector<Projection>& out);

  // A row of this name and width: the same one for every layer.
  View row(const std::string& name, int64_t cols, bool scored = false);
  StateId fixed_state(int64_t elements);
  template <typename Op>
  void add(Op op) {
    plan_.steps.push_back({int32_t(layer_), std::move(op)});
  }
  void add(LinearStep step);
  // The norm before a block; of a parallel one without its own, that of the branch before it.
  Norm norm_before(const BlockSpec& block);
  // Products of the residual behind that norm.
  void add_inputs(const BlockSpec& block, std::vector<Projection> projections);
  // residual += scale * after(W in)
  void add_output(const BlockSpec& block, Projection projection, const View& in);
  // residual += scale * after(branch)
  void add_branch(const BlockSpec& block, const View& branch);

  std::string module(Role role, int64_t expert = 0) const { return names_.of(role, layer_ - first_named_, expert); }
  // Whether the files have a matrix for several, rather than one for each of which `single` is the first; where they
  // have neither, or nothing is known of them, what the family says.
  bool is_fused(Role several, Role single, bool by_family);
  // Whether its tensor is (inputs, outputs). Quantizers that replace a layer by one of their own store (outputs,
  // inputs).
  bool is_transposed(Role role) const;
  Projection linear(Role role, int64_t rows, int64_t cols, bool bias_required);
  // The parts of a matrix whose rows are those of several, one after the other.
  std::vector<Projection> fused(Role role, const std::vector<int64_t>& rows, int64_t cols, bool bias_required);
  const Vector* bias(const std::string& module, int64_t rows, int64_t cols, bool required);
  Norm norm(const NormSpec& spec, const std::string& module, int64_t n);
  Norm stored_norm(const NormSpec& spec, const std::string& module, int64_t n);
  Norm head_norm(const NormSpec& spec, Role role, int64_t heads, int64_t dim);
  // Of tensors for single heads, without a bias.
  Norm joined_norm(const NormSpec& spec, Role role, int64_t heads, int64_t dim);
  // That multiplies `cols` columns by one number, which is computed of tensors when they are loaded.
  Norm times(const std::string& name, int64_t cols, const std::function<float()>& number);
  // One vector, of one part behind the other.
  const Vector* keep_joined(std::vector<Vector> parts);
  // What frequencies are divided by: given by config.json, or tensors of a GGUF file.
  void bind_rope_factors();

  static Projection to(Projection projection, const View& out) {
    projection.out = out;
    return projection;
  }
  static Projection gated(const Projection& gate, Projection up) {
    up.gate = gate.weight;
    up.gate_bias = gate.bias;
    return up;
  }

  const Vector* part_of(const Vector& whole, int64_t first, int64_t size) { return keep(slice(whole, first, size)); }
  const Weight* matrix(const std::string& module, int64_t rows, int64_t cols) {
    return keep(source_.matrix(module, rows, cols));
  }
  const Weight* keep(Weight weight) {
    plan_.weights.push_back(std::move(weight));
    return &plan_.weights.back();
  }
  const Vector* keep(Vector vector) {
    plan_.vectors.push_back(std::move(vector));
    return &plan_.vectors.back();
  }

  const Description& model_;
  Plan& plan_;
  WeightSource& source_;
  const std::string& name_;
  Names names_;              // of the layers
  int64_t first_named_ = 0;  // the layer that is number 0 there
  View residual_;
  Smoothing smoothing_;
  View per_layer_;                  // what all layers get beside the residual
  std::vector<StateId> kv_states_;  // of each layer's attention; -1: none
  Norm shared_norm_;                // of the branch that others run beside
  int64_t layer_ = 0;
};

}  // namespace qgen
