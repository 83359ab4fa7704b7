// DeepSeek-V2 and V3 and those that took over their block: latent attention, and after a few dense layers mixtures with
// shared experts. transformers: models/deepseek_v2, models/deepseek_v3, models/deepseek_v32, models/glm4_moe_lite,
// models/glm_moe_dsa, models/mistral4, models/sarvam_mla; without mixtures: models/youtu.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

constexpr double kLatentEpsilon = 1e-6;  // whatever rms_norm_eps says

LatentSpec read_latent(const Json& config, int64_t heads, Description& model) {
  LatentSpec out;
  out.heads = heads;
  if (const auto rank = config.get("q_lora_rank")) out.q_rank = rank->as_integer(1, kMaxWidth);
  out.kv_rank = config.at("kv_lora_rank").as_integer(1, kMaxWidth);
  out.plain_dim = config.at("qk_nope_head_dim").as_integer(1, kMaxWidth);
  out.rotated_dim = config.at("qk_rope_head_dim").as_integer(2, kMaxWidth);
  out.value_dim = config.at("v_head_dim").as_integer(1, kMaxWidth);
  if (heads * (out.kv_rank + out.plain_dim + out.rotated_dim + out.value_dim) > kMaxWidth)
    config.fail(fmt::format("num_attention_heads: {} heads of these sizes are absurdly many", heads));
  out.norm.eps = kLatentEpsilon;
  out.bias = config.flag_or("attention_bias", false);
  out.scale = read_yarn_score_scale(config) / std::sqrt(double(out.plain_dim + out.rotated_dim));
  model.ropes = {read_rope(config, model.context, out.rotated_dim, 10000, kWholeHead)};
  if (config.flag_or("rope_interleave", true)) model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  return out;
}

// Without mixtures.
Description describe_latent_decoder(const Json& config, std::string_view family, double epsilon = 1e-6) {
  DecoderParts parts =
      read_decoder(config, family, {.head_dim = 64, .context = 4096, .epsilon = epsilon, .partial_rotary = kWholeHead});
  const LatentSpec latent = read_latent(config, parts.attention.heads, parts.model);
  Description model = finish_decoder(std::move(parts));
  for (auto& layer : model.layers) layer[0].mixer = latent;
  return model;
}

// `dense`: layers before the first mixture, where nothing is said.
Description describe_latent(const Json& config, std::string_view family, const MixtureSpec& mixture, int64_t dense,
                            double temperature = 0, int64_t interval = 1, double epsilon = 1e-6) {
  Description model = describe_latent_decoder(config, family, epsilon);
  for (auto& layer : model.layers) {
    auto& latent = std::get<LatentSpec>(layer[0].mixer);
    latent.temperature_beta = temperature;
    latent.temperature_interval = interval;
  }
  set_mixtures(model, mixture, read_sparse_layers(config, int64_t(model.layers.size()), dense));
  name_shared_experts(model.names);
  set_draft(model, config, "num_nextn_predict_layers", {model.layers.back(), model.final_norm});
  return model;
}

// `default_scale`: routed_scaling_factor where config.json says nothing, as transformers' configuration has it; GGUF
// files that say nothing mean 1.
MixtureSpec read_experts(const Json& config, int64_t default_chosen, double default_scale = 1) {
  const int64_t layers = config.at("num_hidden_layers").as_integer(1, kMaxLayers);
  MixtureSpec out = read_mixture(config, layers, {.experts = "n_routed_experts", .default_chosen = default_chosen});
  read_sigmoid_choice(config, out);
  if (!config.get("routed_scaling_factor") && !is_from_gguf(config)) out.scale = default_scale;
  return out;
}

void check_word(const Json& config, std::string_view key, std::string_view expected) {
  const auto value = config.get(key);
  if (value && value->as_string() != expected)
    value->fail(fmt::format("'{}' is not supported (expected {})", value->as_string(), expected));
}

Description describe_sigmoid_mixture(const Json& config, std::string_view family) {
  check_word(config, "scoring_func", "sigmoid");
  check_word(config, "topk_method", "noaux_tc");
  return describe_latent(config, family, read_experts(config, 8, 2.5), 3);
}

// An indexer chooses the keys that a query sees: all of them while there are no more than it may choose, and so far the
// model goes.
void take_all_keys(const Json& config, Description& model) {
  model.context_limit = {read_size(config, "index_topk", 1, kMaxContext, 2048),
                         "what its sparse attention sees whole; choosing among more keys is not supported"};
  model.unused_parts.push_back({".indexer.", "chooses among more keys than are supported"});
}

}  // namespace

Description describe_deepseek_v2(const Json& config) {
  check_word(config, "scoring_func", "softmax");
  MixtureSpec mixture = read_experts(config, 6);
  mixture.score = RouteStep::Score::kSoftmax;
  mixture.ranking_bias = false;
  mixture.rank = RouteStep::Rank::kBest;
  mixture.normalized = false;
  mixture.least_sum = 0;
  const auto method = config.get("topk_method");
  if (!method || method->as_string() == "greedy") {
    mixture.groups = mixture.kept_groups = 1;
  } else {
    check_word(config, "topk_method", "group_limited_greedy");
  }
  return describe_latent(config, "deepseek_v2", mixture, 0);
}

Description describe_deepseek_v3(const Json& config) { return describe_sigmoid_mixture(config, "deepseek_v3"); }

Description describe_deepseek_v32(const Json& config) {
  Description model = describe_sigmoid_mixture(config, "deepseek_v32");
  take_all_keys(config, model);
  return model;
}

Description describe_glm_moe_dsa(const Json& config) {
  check_word(config, "topk_method", "noaux_tc");
  Description model = describe_latent(config, "glm_moe_dsa", read_experts(config, 8, 2.5), 3, 0, 1, 1e-5);
  take_all_keys(config, model);
  return model;
}

Description describe_glm4_moe_lite(const Json& config) {
  check_word(config, "topk_method", "noaux_tc");
  return describe_latent(config, "glm4_moe_lite", read_experts(config, 4, 1.8), 1, 0, 1, 1e-5);
}

Description describe_sarvam_mla(const Json& config) {
  return describe_latent(config, "sarvam_mla", read_experts(config, 8, 2.5), 1);
}

Description describe_youtu(const Json& config) {
  Description model = describe_latent_decoder(config, "youtu");
  if (!model.tied_head) model.tied_head = true;
  return model;
}

Description describe_mistral4(const Json& config) {
  MixtureSpec mixture = read_experts(config, 4);
  mixture.score = RouteStep::Score::kSoftmax;
  mixture.ranking_bias = false;
  double beta = 0;
  int64_t interval = 1;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = config.get(key);
    if (!rope || !rope->get("llama_4_scaling_beta")) continue;
    beta = rope->at("llama_4_scaling_beta").as_number();
    interval = rope->at("original_max_position_embeddings").as_integer(1, kMaxContext);
  }
  Description model = describe_latent(config, "mistral4", mixture, 0, beta, interval);
  return model;
}

}  // namespace qgen
