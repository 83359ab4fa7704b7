// The parts of a config.json that mixtures of experts share. All throw a model Error that names the key.
#pragma once

#include <string_view>

#include "base/json.h"
#include "model/description.h"

namespace qgen {

// What a family calls them.
struct MixtureKeys {
  std::string_view experts = "num_experts";
  std::string_view chosen = "num_experts_per_tok";
  std::string_view width = "moe_intermediate_size";
  int64_t default_chosen = 0;  // where the key may be absent
};
// An integer, or a list with the same one for each layer.
int64_t read_same_size(const Json& config, std::string_view key, int64_t lowest, int64_t most);
// Sizes, and hidden_act; `layers` of the model, for a limit on all experts together.
MixtureSpec read_mixture(const Json& config, int64_t layers, const MixtureKeys& keys = {});
// norm_topk_prob.
bool read_normalized(const Json& config, bool fallback);
// The choice of DeepSeek-V3, by sigmoid and bias among the best groups, with its scaling factor and shared experts.
void read_sigmoid_choice(const Json& config, MixtureSpec& mixture);
// num_shared_experts, `fallback` where it is absent, each as wide as one that is chosen.
void read_shared_experts(const Json& config, MixtureSpec& mixture, int64_t fallback);
// "shared_experts" in place of "shared_expert".
void name_shared_experts(Names& names);
// Whether layer i is a mixture: not in mlp_only_layers, and i + 1 a multiple of decoder_sparse_step.
std::vector<bool> read_mixture_layers(const Json& config, int64_t layers);
// The same by mlp_layer_types, else all but the first first_k_dense_replace, `dense` where that is absent.
std::vector<bool> read_sparse_layers(const Json& config, int64_t layers, int64_t dense);
// Puts the mixture in place of the feed-forward networks, which are the last blocks, of those layers.
void set_mixtures(Description& model, const MixtureSpec& mixture, const std::vector<bool>& layers);

}  // namespace qgen
