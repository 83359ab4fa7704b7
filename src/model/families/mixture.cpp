#include "model/families/mixture.h"

#include <fmt/format.h>

#include "model/families/common.h"

namespace qgen {
namespace {

constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxExpertsOfAllLayers = 100'000;

}  // namespace

int64_t read_same_size(const Json& config, std::string_view key, int64_t lowest, int64_t most) {
  const Json value = config.at(key);
  if (!value.is_array()) return value.as_integer(lowest, most);
  const auto list = value.elements();
  if (list.empty()) value.fail("is empty (expected a number, or one for each layer)");
  const int64_t first = list.front().as_integer(lowest, most);
  for (const Json& of_layer : list) {
    if (of_layer.as_integer(lowest, most) != first)
      of_layer.fail(fmt::format("layers of different sizes are not supported (expected {})", first));
  }
  return first;
}

MixtureSpec read_mixture(const Json& config, int64_t layers, const MixtureKeys& keys) {
  MixtureSpec out;
  // transformers 5 writes another key than the files that were published before.
  std::string_view experts = keys.experts;
  for (const std::string_view other : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (!config.get(experts) && config.get(other)) experts = other;
  }
  out.experts = read_same_size(config, experts, 1, kMaxExperts);
  if (out.experts * layers > kMaxExpertsOfAllLayers)
    config.fail(
        fmt::format("{}: {} experts in each of {} layers are absurdly many", keys.experts, out.experts, layers));
  const std::string_view chosen =
      !config.get(keys.chosen) && config.get("num_experts_per_tok") ? "num_experts_per_tok" : keys.chosen;
  out.chosen = keys.default_chosen > 0 && !config.get(chosen) ? keys.default_chosen
                                                              : read_same_size(config, chosen, 1, out.experts);
  if (out.chosen > out.experts) {
    config.fail(fmt::format("{}: missing, and {} experts are fewer than the {} that this family chooses", keys.chosen,
                            out.experts, out.chosen));
  }
  out.width = read_same_size(config, keys.width, 1, kMaxWidth);
  if (out.width * out.chosen > kMaxWidth)
    config.fail(fmt::format("{}: {} experts of {} for a token are absurdly many", keys.chosen, out.chosen, out.width));
  out.activation = read_activation(config, "hidden_act", out.activation);
  return out;
}

bool read_normalized(const Json& config, bool fallback) {
  const auto value = config.get("norm_topk_prob");
  return value ? value->as_bool() : fallback;
}

void read_sigmoid_choice(const Json& config, MixtureSpec& mixture) {
  mixture.score = RouteStep::Score::kSigmoid;
  mixture.ranking_bias = true;
  mixture.rank = RouteStep::Rank::kTwoBest;
  mixture.groups = read_size(config, "n_group", 1, mixture.experts, 1);
  mixture.kept_groups = read_size(config, "topk_group", 1, mixture.groups, 1);
  if (mixture.experts % mixture.groups != 0 ||
      mixture.experts / mixture.groups * mixture.kept_groups < mixture.chosen) {
    config.fail(fmt::format("n_group: {} of {} groups of {} experts have no {} to choose", mixture.kept_groups,
                            mixture.groups, mixture.experts, mixture.chosen));
  }
  mixture.normalized = read_normalized(config, true);
  mixture.least_sum = 1e-20;
  mixture.scale = read_number(config, "routed_scaling_factor", mixture.scale);
  const auto shared = config.get("n_shared_experts");
  mixture.shared_width = (shared ? shared->as_integer(0, kMaxWidth / mixture.width) : 0) * mixture.width;
}

void read_shared_experts(const Json& config, MixtureSpec& mixture, int64_t fallback) {
  mixture.shared_width =
      read_size(config, "num_shared_experts", 0, kMaxWidth / mixture.width, fallback) * mixture.width;
}

void name_shared_experts(Names& names) {
  names.set(Role::kSharedGate, "@layers.#.mlp.shared_experts.gate_proj");
  names.set(Role::kSharedUp, "@layers.#.mlp.shared_experts.up_proj");
  names.set(Role::kSharedDown, "@layers.#.mlp.shared_experts.down_proj");
}

std::vector<bool> read_mixture_layers(const Json& config, int64_t layers) {
  const auto step = config.get("decoder_sparse_step");
  const int64_t every = step ? step->as_integer(1, kMaxLayers) : 1;
  std::vector<bool> out;
  for (int64_t i = 0; i < layers; ++i) out.push_back((i + 1) % every == 0);
  if (const auto dense = config.get("mlp_only_layers")) {
    for (const Json& layer : dense->elements()) out[size_t(layer.as_integer(0, layers - 1))] = false;
  }
  return out;
}

std::vector<bool> read_sparse_layers(const Json& config, int64_t layers, int64_t dense) {
  if (const auto every = config.get("moe_layer_freq"); every && every->as_integer(1, kMaxLayers) != 1)
    every->fail("is not supported (expected 1)");
  if (const auto first = config.get("first_k_dense_replace")) dense = first->as_integer(0, layers);
  std::vector<bool> out(size_t(layers), true);
  std::fill_n(out.begin(), std::min(dense, layers), false);
  const auto types = config.get("mlp_layer_types");
  if (!types) return out;
  const auto list = types->elements();
  if (int64_t(list.size()) != layers) types->fail(fmt::format("names {} layers (expected {})", list.size(), layers));
  for (size_t i = 0; i < list.size(); ++i) out[i] = list[i].as_string() == "sparse";
  return out;
}

void set_mixtures(Description& model, const MixtureSpec& mixture, const std::vector<bool>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]) model.layers[i].back().mixer = mixture;
  }
}

}  // namespace qgen
