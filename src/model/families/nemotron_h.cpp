// Nemotron-H: one branch a layer, by a pattern: Mamba-2, attention without rotation, a feed-forward network with a
// squared ReLU and no gate, or a mixture of such networks, between two projections where the experts work on a latent.
// transformers: models/nemotron_h.
#include <algorithm>

#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mamba.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// The kind of each layer as a letter of hybrid_override_pattern: M Mamba-2, * attention, - feed-forward, E mixture.
std::string read_pattern(const Json& config) {
  const auto check = [](const Json& value, size_t count) {
    if (count == 0 || count > size_t(kMaxLayers))
      value.fail(fmt::format("{} layers (expected 1 to {})", count, kMaxLayers));
  };
  if (const auto types = config.get("layers_block_type")) {
    constexpr std::pair<std::string_view, char> kTypes[] = {
        {"mamba", 'M'},          {"linear_attention", 'M'},  // as transformers 5 writes them
        {"full_attention", '*'}, {"attention", '*'},        {"mlp", '-'}, {"moe", 'E'}};
    std::string out;
    for (const Json& type : types->elements()) {
      const auto known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                      [&](const auto& kind) { return kind.first == type.as_string(); });
      if (known == std::end(kTypes))
        type.fail(fmt::format("'{}' is not supported", type.as_string()), "supported: mamba, attention, mlp, moe");
      out += known->second;
    }
    check(*types, out.size());
    return out;
  }
  const Json pattern = config.at("hybrid_override_pattern");
  std::string out(pattern.as_string());
  if (const size_t odd = out.find_first_not_of("M*-E"); odd != out.npos)
    pattern.fail(fmt::format("'{}' is not supported", out.substr(odd, 1)), "supported: M, *, -, E");
  check(pattern, out.size());
  return out;
}

MixtureSpec read_nemotron_mixture(const Json& config, const DecoderParts& parts) {
  MixtureSpec out = read_mixture(config, parts.layers, {.experts = "n_routed_experts"});
  read_sigmoid_choice(config, out);
  out.activation = parts.feed_forward.activation;
  out.gated = false;
  out.latent = read_size(config, "moe_latent_size", 1, kMaxWidth, 0);
  out.latent_biased = parts.feed_forward.bias;
  if (out.shared_width > 0)
    out.shared_width = config.at("moe_shared_expert_intermediate_size").as_integer(1, kMaxWidth);
  return out;
}

}  // namespace

Description describe_nemotron_h(const Json& config) {
  const std::string pattern = read_pattern(config);
  DecoderKeys keys;
  keys.activation = "mlp_hidden_act";
  keys.epsilon = "layer_norm_epsilon";
  DecoderParts parts = read_decoder(config, "nemotron_h",
                                    {.layers = int64_t(pattern.size()),
                                     .head_dim = 128,
                                     .context = 4096,
                                     .epsilon = 1e-5,
                                     .activation = Activation::kReluSquared,
                                     .keys = keys});
  if (parts.layers != int64_t(pattern.size())) {
    config.fail(fmt::format("num_hidden_layers: {} layers (expected {}, as hybrid_override_pattern has them)",
                            parts.layers, pattern.size()));
  }
  expect_silu(config, "mamba_hidden_act");
  parts.attention.rope = -1;
  parts.feed_forward.gated = false;
  parts.feed_forward.bias = config.flag_or("mlp_bias", false);
  MambaSpec mamba = read_mamba(config,
                               {.heads = "mamba_num_heads",
                                .head_dim = "mamba_head_dim",
                                .groups = "n_groups",
                                .state_dim = "ssm_state_size",
                                .taps = "conv_kernel",
                                .conv_bias = "use_conv_bias",
                                .bias = "use_bias",
                                .default_groups = 8,
                                .default_state_dim = 128},
                               64);
  mamba.norm = parts.norm;
  MixtureSpec mixture;
  if (pattern.find('E') != pattern.npos) mixture = read_nemotron_mixture(config, parts);

  const BlockSpec::NormUse before{Role::kAttnNorm, parts.norm};
  const AttentionSpec attention = parts.attention;
  const FeedForwardSpec feed_forward = parts.feed_forward;
  Description model = finish_decoder(std::move(parts));
  for (size_t i = 0; i < pattern.size(); ++i) {
    BlockSpec block{before, std::nullopt, attention};
    if (pattern[i] == 'M') block.mixer = mamba;
    if (pattern[i] == '-') block.mixer = feed_forward;
    if (pattern[i] == 'E') block.mixer = mixture;
    model.layers[i] = {block};
  }
  // The converter appends the head for drafts as one more layer; elsewhere its names begin with "mtp.".
  const int64_t count = int64_t(pattern.size());
  if (is_from_gguf(config)) model.drafting_layers = {count, count + 1};
  model.names.set_prefix("backbone.");
  model.names.set({{Role::kEmbed, "@embeddings"},
                   {Role::kFinalNorm, "@norm_f"},
                   {Role::kAttnNorm, "@layers.#.norm"},
                   {Role::kAttnQ, "@layers.#.mixer.q_proj"},
                   {Role::kAttnK, "@layers.#.mixer.k_proj"},
                   {Role::kAttnV, "@layers.#.mixer.v_proj"},
                   {Role::kAttnOut, "@layers.#.mixer.o_proj"},
                   {Role::kFfnUp, "@layers.#.mixer.up_proj"},
                   {Role::kFfnDown, "@layers.#.mixer.down_proj"},
                   {Role::kRouter, "@layers.#.mixer.gate"},
                   {Role::kRouterBias, "@layers.#.mixer.gate.e_score_correction_bias"},
                   {Role::kExpertUp, "@layers.#.mixer.experts.*.up_proj"},
                   {Role::kExpertDown, "@layers.#.mixer.experts.*.down_proj"},
                   {Role::kExpertUps, "@layers.#.mixer.experts.up_proj"},
                   {Role::kExpertDowns, "@layers.#.mixer.experts.down_proj"},
                   {Role::kExpertGateUps, "@layers.#.mixer.experts.gate_up_proj"},
                   {Role::kExpertsIn, "@layers.#.mixer.fc1_latent_proj"},
                   {Role::kExpertsOut, "@layers.#.mixer.fc2_latent_proj"},
                   {Role::kSharedUp, "@layers.#.mixer.shared_experts.up_proj"},
                   {Role::kSharedDown, "@layers.#.mixer.shared_experts.down_proj"},
                   {Role::kMambaIn, "@layers.#.mixer.in_proj"},
                   {Role::kMambaConv, "@layers.#.mixer.conv1d"},
                   {Role::kMambaALog, "@layers.#.mixer.A_log"},
                   {Role::kMambaStepBias, "@layers.#.mixer.dt_bias"},
                   {Role::kMambaSkip, "@layers.#.mixer.D"},
                   {Role::kMambaNorm, "@layers.#.mixer.norm"},
                   {Role::kMambaOut, "@layers.#.mixer.out_proj"}});
  return model;
}

}  // namespace qgen
