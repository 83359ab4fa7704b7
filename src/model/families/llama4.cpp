// Llama 4, text: attention within chunks, rotated in adjacent pairs with norms without weights behind the rotation, but
// on every fourth layer over everything, without a rotation, with queries that grow with their position; a mixture of
// one expert, whose input is weighted, and a shared one. transformers: models/llama4.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

std::vector<bool> read_rotated_layers(const Json& config, int64_t layers) {
  std::vector<bool> out;
  const auto listed = config.get("no_rope_layers");  // despite its name 1 where there is a rotation
  if (listed && !listed->elements().empty()) {
    for (const Json& layer : listed->elements()) out.push_back(layer.as_integer(0, 1) == 1);
    if (int64_t(out.size()) != layers) listed->fail(fmt::format("names {} layers (expected {})", out.size(), layers));
    return out;
  }
  const int64_t every = read_size(config, "no_rope_layer_interval", 1, kMaxLayers, 4);
  for (int64_t i = 0; i < layers; ++i) out.push_back((i + 1) % every != 0);
  return out;
}

// Where layer_types does not say otherwise, as far as a layer is rotated.
std::vector<bool> read_chunked_layers(const Json& config, const std::vector<bool>& rotated) {
  const auto types = config.get("layer_types");
  if (!types) return rotated;
  std::vector<bool> out;
  for (const Json& type : types->elements()) {
    const std::string_view name = type.as_string();
    if (name != "chunked_attention" && name != "full_attention")
      type.fail(fmt::format("'{}' is not supported", name), "supported: chunked_attention, full_attention");
    out.push_back(name == "chunked_attention");
  }
  if (out.size() != rotated.size())
    types->fail(fmt::format("names {} layers (expected {})", out.size(), rotated.size()));
  return out;
}

std::vector<bool> read_moe_layers(const Json& config, int64_t layers) {
  std::vector<bool> out(size_t(layers), false);
  if (const auto listed = config.get("moe_layers")) {
    for (const Json& layer : listed->elements()) out[size_t(layer.as_integer(0, layers - 1))] = true;
    return out;
  }
  const int64_t every = read_size(config, "interleave_moe_layer_step", 1, kMaxLayers, 1);
  for (int64_t i = every - 1; i < layers; i += every) out[size_t(i)] = true;
  return out;
}

}  // namespace

Description describe_llama4(const Json& config) {
  DecoderKeys keys;
  keys.intermediate = "intermediate_size_mlp";
  DecoderParts parts = read_decoder(
      config, "llama4", {.kv_heads = 8, .context = 131072, .rope_theta = 500000, .epsilon = 1e-5, .keys = keys});
  parts.attention.qkv_bias = parts.attention.out_bias = config.flag_or("attention_bias", false);
  parts.model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  const int64_t count = parts.layers;
  const std::vector<bool> rotated = read_rotated_layers(config, count), chunked = read_chunked_layers(config, rotated);
  const auto chunk = config.find("attention_chunk_size");
  const int64_t chunk_size = !chunk ? 8192 : chunk->is_null() ? 0 : chunk->as_integer(1, kMaxContext);
  const bool norms = config.flag_or("use_qk_norm", true), grows = config.flag_or("attn_temperature_tuning", true);
  const double beta = read_number(config, "attn_scale", 0.1);
  const auto floor = config.get("floor_scale");
  NormSpec head_norm = parts.norm;
  head_norm.weighted = false;

  MixtureSpec mixture =
      read_mixture(config, count, {.experts = "num_local_experts", .width = "intermediate_size", .default_chosen = 1});
  mixture.score = RouteStep::Score::kSigmoid;
  mixture.weighted_input = true;
  mixture.transposed = !is_from_gguf(config);
  mixture.shared_width = mixture.width;
  const std::vector<bool> moe = read_moe_layers(config, count);

  Description model = finish_decoder(std::move(parts));
  for (size_t i = 0; i < rotated.size(); ++i) {
    AttentionSpec& attention = attention_of(model.layers[i]);
    if (chunked[i]) attention.chunk = chunk_size;
    if (rotated[i]) {
      if (norms) attention.q_norm = attention.k_norm = head_norm;
      attention.norm_after_rotation = true;
    } else {
      attention.rope = -1;
      attention.temperature_beta = grows ? beta : 0;
      attention.temperature_interval = floor ? floor->as_integer(1, kMaxContext) : 8192;
      attention.temperature_offset = 1;
    }
  }
  set_mixtures(model, mixture, moe);
  model.names.set({{Role::kFfnGate, "@layers.#.feed_forward.gate_proj"},
                   {Role::kFfnUp, "@layers.#.feed_forward.up_proj"},
                   {Role::kFfnDown, "@layers.#.feed_forward.down_proj"},
                   {Role::kRouter, "@layers.#.feed_forward.router"},
                   {Role::kExpertGate, "@layers.#.feed_forward.experts.*.gate_proj"},
                   {Role::kExpertUp, "@layers.#.feed_forward.experts.*.up_proj"},
                   {Role::kExpertDown, "@layers.#.feed_forward.experts.*.down_proj"},
                   {Role::kExpertGateUps, "@layers.#.feed_forward.experts.gate_up_proj"},
                   {Role::kExpertDowns, "@layers.#.feed_forward.experts.down_proj"},
                   {Role::kSharedGate, "@layers.#.feed_forward.shared_expert.gate_proj"},
                   {Role::kSharedUp, "@layers.#.feed_forward.shared_expert.up_proj"},
                   {Role::kSharedDown, "@layers.#.feed_forward.shared_expert.down_proj"}});
  return model;
}

}  // namespace qgen
