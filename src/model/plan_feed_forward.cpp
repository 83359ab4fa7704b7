// Feed-forward networks, and mixtures of them with a router and a shared expert.
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "model/plan_builder.h"

namespace qgen {

View PlanBuilder::begin(const BlockSpec& block, const FeedForwardSpec& spec) {
  const View out = row("inner", spec.width);
  Projection up;
  if (spec.gated && spec.gate_scale != 1) {  // the activation stands between factor and product
    Projection gate = to(linear(Role::kFfnGate, spec.width, model_.hidden, spec.bias), row("gate", spec.width));
    gate.scale = spec.gate_scale;
    add_inputs(block, {gate, to(linear(Role::kFfnUp, spec.width, model_.hidden, spec.bias), out)});
    return out;
  }
  if (!spec.gated) {
    up = linear(Role::kFfnUp, spec.width, model_.hidden, spec.bias);
  } else if (is_fused(Role::kFfnGateUp, Role::kFfnGate, spec.fused)) {
    const auto parts = fused(Role::kFfnGateUp, {spec.width, spec.width}, model_.hidden, spec.bias);
    up = gated(parts[0], parts[1]);
  } else {
    const Projection gate = linear(Role::kFfnGate, spec.width, model_.hidden, spec.bias);
    up = gated(gate, linear(Role::kFfnUp, spec.width, model_.hidden, spec.bias));
  }
  if (!spec.xielu) up.activation = spec.activation;
  add_inputs(block, {to(up, out)});
  return out;
}

// Each sum is one more step: out = beta x, + a x relu(x), + b x ratio(x).
View PlanBuilder::add_xielu(const View& inner) {
  const auto softplus = [](float x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  const Vector positive = source_.vector(module(Role::kXieluPositive), 1),
               negative = source_.vector(module(Role::kXieluNegative), 1);
  std::optional<Vector> beta;  // a constant that some files have
  if (source_.has_tensor(module(Role::kXieluBeta))) beta = source_.vector(module(Role::kXieluBeta), 1);
  // Keeps exp(x) - 1 - x from what is next to 0, and changes nothing in it.
  if (source_.has_tensor(module(Role::kXieluEpsilon))) source_.vector(module(Role::kXieluEpsilon), 1);
  const auto beta_value = [beta] { return beta ? beta->values().front() : 0.5F; };
  const View out = row("activated", inner.cols);
  CombineStep sum;
  sum.y = inner;
  sum.out = out;
  sum.norm = times((beta ? *beta : positive).name, inner.cols, beta_value);
  add(sum);
  sum.x = out;
  sum.gate = inner;
  sum.activation = Activation::kRelu;
  sum.norm = times(positive.name, inner.cols, [=] { return softplus(positive.values().front()); });
  add(sum);
  sum.activation = Activation::kExpm1Ratio;
  sum.norm = times(negative.name, inner.cols, [=] { return beta_value() + softplus(negative.values().front()); });
  add(sum);
  return out;
}

void PlanBuilder::end(const BlockSpec& block, const FeedForwardSpec& spec, const View& inner) {
  if (spec.gated && spec.gate_scale != 1) {
    CombineStep product;
    product.y = product.out = inner;
    product.gate = row("gate", spec.width);
    product.activation = spec.activation;
    add(product);
  }
  add_output(block, linear(Role::kFfnDown, model_.hidden, spec.width, spec.bias),
             spec.xielu ? add_xielu(inner) : inner);
}

// Router, experts and the shared expert read the same normed row.
View PlanBuilder::begin(const BlockSpec& block, const MixtureSpec&) {
  return normalized(residual_, norm_before(block), "normed");
}

void PlanBuilder::end(const BlockSpec& block, const MixtureSpec& spec, const View& normed) {
  const View target = block.after || block.scale != 1 ? row("branch", model_.hidden) : residual_;
  const bool adds = target.row == residual_.row;
  LinearStep router;
  router.in = normed;
  const View shared_score = spec.shared_score ? row("shared_score", 1) : View();
  if (spec.shared_score)
    router.projections.push_back(to(linear(Role::kSharedScore, 1, model_.hidden, false), shared_score));
  const View logits = add_router(spec, std::move(router));
  // All that reads the normed row comes before anything is added to the row that it was made of; and what does not wait
  // for the router comes right behind it, so that a backend can run both side by side.
  const View inner = spec.shared_width > 0 ? add_shared_inner(spec, normed) : View();
  const View latent = spec.latent > 0 ? add_latent(spec, normed) : View();
  const View route = add_route(spec, logits);
  if (latent) {
    add_latent_experts(spec, latent, route, target, adds);
  } else {
    add_experts(spec, normed, route, target, adds);
  }
  if (inner) add_shared_output(spec, inner, shared_score, target);
  if (!adds) add_branch(block, target);
}

View PlanBuilder::add_router(const MixtureSpec& spec, LinearStep router) {
  const View logits = row("router", spec.experts);
  Projection scores = linear(Role::kRouter, spec.experts, model_.hidden, spec.biased);
  scores.scale = spec.logit_scale;
  scores.softcap = spec.logit_softcap;
  router.projections.insert(router.projections.begin(), to(scores, logits));
  add(std::move(router));
  return logits;
}

View PlanBuilder::add_route(const MixtureSpec& spec, const View& logits) {
  RouteStep route;
  route.logits = logits;
  route.chosen = spec.chosen;
  route.score = spec.score;
  if (spec.ranking_bias) route.bias = keep(source_.vector(module(Role::kRouterBias), spec.experts));
  route.groups = spec.groups;
  route.kept_groups = spec.kept_groups;
  route.rank = spec.rank;
  route.normalized = spec.normalized;
  route.least_sum = spec.least_sum;
  route.scale = spec.scale;
  if (spec.expert_scale) route.expert_scale = keep(source_.vector(module(Role::kExpertScale), spec.experts));
  route.out = row("route", 2 * spec.chosen);
  const View chosen = route.out;
  add(route);
  return chosen;
}

void PlanBuilder::add_experts(const MixtureSpec& spec, const View& in, const View& route, const View& target,
                              bool adds) {
  ExpertsStep experts;
  experts.in = in;
  experts.route = route;
  bind_experts(spec, experts);
  if (spec.biased) bind_expert_biases(spec, experts);
  experts.activation = spec.activation;
  experts.limit = spec.limit;
  experts.up_offset = spec.up_offset;
  experts.weighted_input = spec.weighted_input;
  experts.out = target;
  experts.add = adds;
  add(std::move(experts));
}

// What the experts read where they work on a latent of the row.
View PlanBuilder::add_latent(const MixtureSpec& spec, const View& normed) {
  const View latent = row("latent", spec.latent);
  LinearStep down;
  down.in = normed;
  down.projections = {to(linear(Role::kExpertsIn, spec.latent, model_.hidden, spec.latent_biased), latent)};
  add(std::move(down));
  return latent;
}

// The experts, and the projection of their sum to the row.
void PlanBuilder::add_latent_experts(const MixtureSpec& spec, const View& latent, const View& route, const View& target,
                                     bool adds) {
  const View sum = row("experts", spec.latent);
  add_experts(spec, latent, route, sum, false);
  LinearStep up;
  up.in = sum;
  Projection projection = linear(Role::kExpertsOut, model_.hidden, spec.latent, spec.latent_biased);
  projection.add = adds;
  up.projections = {to(projection, target)};
  add(std::move(up));
}

View PlanBuilder::begin(const BlockSpec& block, const DoubleFeedForwardSpec& spec) {
  return begin(block, spec.network);
}

void PlanBuilder::end(const BlockSpec& block, const DoubleFeedForwardSpec& spec, const View& inner) {
  const View branch = row("branch", model_.hidden), experts = row("experts", model_.hidden);
  LinearStep down;
  down.in = inner;
  down.projections = {to(linear(Role::kFfnDown, model_.hidden, spec.network.width, spec.network.bias), branch)};
  add(std::move(down));

  LinearStep router;
  router.in = residual_;
  router.norm = {Norm::Kind::kRms, keep(source_.vector(module(Role::kRouterNorm), model_.hidden)), nullptr,
                 spec.norm.eps, model_.hidden};
  const View route = add_route(spec.mixture, add_router(spec.mixture, std::move(router)));
  const View normed = normalized(residual_, norm(spec.norm, module(Role::kExpertsNorm), model_.hidden), "normed");
  add_experts(spec.mixture, normed, route, experts, false);

  normalized(branch, norm(spec.norm, module(Role::kSharedPostNorm), model_.hidden), "branch");
  CombineStep sum;
  sum.x = sum.out = branch;
  sum.y = experts;
  sum.norm = norm(spec.norm, module(Role::kExpertsPostNorm), model_.hidden);
  add(sum);
  add_branch(block, branch);
}

View PlanBuilder::begin(const BlockSpec& block, const PerLayerInputSpec& spec) {
  const View gate = row("per_layer_gate", spec.width);
  add_inputs(block, {to(linear(Role::kPerLayerGate, spec.width, model_.hidden, false), gate)});
  return gate;
}

void PlanBuilder::end(const BlockSpec& block, const PerLayerInputSpec& spec, const View& gate) {
  CombineStep combine;
  combine.y = {per_layer_.row, layer_ * spec.width, spec.width};
  combine.gate = gate;
  combine.activation = spec.activation;
  combine.out = row("per_layer_inner", spec.width);
  const View inner = combine.out;
  add(combine);
  add_output(block, linear(Role::kPerLayerOut, model_.hidden, spec.width, false), inner);
}

void PlanBuilder::bind_experts(const MixtureSpec& spec, ExpertsStep& out) {
  const int64_t cols = spec.inputs(model_.hidden);
  if (source_.has_stack(module(Role::kExpertDowns))) {
    ExpertWeights experts = unstacked_experts(source_, spec, names_, layer_ - first_named_, model_.hidden);
    for (Weight& weight : experts.gate) out.gate.push_back(keep(std::move(weight)));
    for (Weight& weight : experts.up) out.up.push_back(keep(std::move(weight)));
    for (Weight& weight : experts.down) out.down.push_back(keep(std::move(weight)));
    return;
  }
  for (int64_t e = 0; e < spec.experts; ++e) {
    if (spec.gated) out.gate.push_back(keep(source_.matrix(module(Role::kExpertGate, e), spec.width, cols)));
    out.up.push_back(keep(source_.matrix(module(Role::kExpertUp, e), spec.width, cols)));
    out.down.push_back(keep(source_.matrix(module(Role::kExpertDown, e), cols, spec.width)));
  }
}

void PlanBuilder::bind_expert_biases(const MixtureSpec& spec, ExpertsStep& out) {
  // Of each expert's gates and ups, those from `first` on.
  const auto half = [&](const Vector& both, int64_t first, int64_t step) {
    Vector part;
    part.name = both.name;
    part.size = spec.experts * spec.width;
    part.derived = std::make_shared<const std::function<std::vector<float>()>>([=, width = spec.width] {
      const std::vector<float> all = both.values();
      std::vector<float> values;
      for (size_t e = 0; e < all.size(); e += size_t(2 * width)) {
        for (int64_t i = 0; i < width; ++i) values.push_back(all[e + size_t(first + i * step)]);
      }
      return values;
    });
    return keep(std::move(part));
  };
  // Those of experts one by one, one behind the other.
  const auto joined = [&](Role role, int64_t rows, int64_t cols) {
    std::vector<Vector> parts;
    for (int64_t e = 0; e < spec.experts; ++e) {
      auto bias = source_.bias(module(role, e), rows, cols);
      if (!bias) fail(ErrorKind::kModel, fmt::format("{}: tensor {}.bias is missing", name_, module(role, e)));
      parts.push_back(std::move(*bias));
    }
    return keep_joined(std::move(parts));
  };
  if (source_.has_matrix(module(Role::kExpertDown, 0)) &&
      source_.bias(module(Role::kExpertDown, 0), model_.hidden, spec.width)) {
    out.down_bias = joined(Role::kExpertDown, model_.hidden, spec.width);
    out.gate_bias = joined(Role::kExpertGate, spec.width, model_.hidden);
    out.up_bias = joined(Role::kExpertUp, spec.width, model_.hidden);
    return;
  }
  out.down_bias = keep(source_.vector(module(Role::kExpertDownsBias), spec.experts * model_.hidden));
  if (!module(Role::kExpertUpsBias).empty()) {
    out.gate_bias = keep(source_.vector(module(Role::kExpertGatesBias), spec.experts * spec.width));
    out.up_bias = keep(source_.vector(module(Role::kExpertUpsBias), spec.experts * spec.width));
    return;
  }
  const Vector both = source_.vector(module(Role::kExpertGateUpsBias), spec.experts * 2 * spec.width);
  out.gate_bias = half(both, 0, spec.interleaved ? 2 : 1);
  out.up_bias = half(both, spec.interleaved ? 1 : spec.width, spec.interleaved ? 2 : 1);
}

// target += sigmoid(score) * the shared expert's result
View PlanBuilder::add_shared_inner(const MixtureSpec& spec, const View& normed) {
  LinearStep inner;
  inner.in = normed;
  const View out = row("inner", spec.shared_width);
  Projection up = linear(Role::kSharedUp, spec.shared_width, model_.hidden, false);
  if (spec.gated) up = gated(linear(Role::kSharedGate, spec.shared_width, model_.hidden, false), up);
  up.activation = spec.activation;
  inner.projections = {to(up, out)};
  add(std::move(inner));
  return out;
}

void PlanBuilder::add_shared_output(const MixtureSpec& spec, const View& inner, const View& score, const View& target) {
  LinearStep down;
  down.in = inner;
  Projection projection = linear(Role::kSharedDown, model_.hidden, spec.shared_width, false);
  projection.add = !score;
  const View result = score ? row("shared", model_.hidden) : target;
  down.projections = {to(projection, result)};
  add(std::move(down));
  if (!score) return;
  CombineStep sum;
  sum.x = sum.out = target;
  sum.y = result;
  sum.gate = score;
  sum.activation = Activation::kSigmoid;
  add(sum);
}

}  // namespace qgen
