// ChatGLM2, ChatGLM3 and GLM-4-9B: Llama with biases on q, k and v, which are one matrix, as gate and up are, few heads
// of keys and values, and a rotation of adjacent pairs in the first half of each head. Not in transformers: the keys
// are those of the checkpoints' own configuration_chatglm.py.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// Switches of the published program with the only value that any release has.
void check_switches(const Json& config) {
  constexpr struct {
    std::string_view key;
    bool expected;
  } kSwitches[] = {{"rmsnorm", true}, {"post_layer_norm", true}, {"apply_residual_connection_post_layernorm", false}};
  for (const auto& row : kSwitches) {
    if (config.flag_or(row.key, row.expected) != row.expected)
      config.at(row.key).fail(row.expected ? "false is not supported" : "true is not supported");
  }
}

}  // namespace

Description describe_chatglm(const Json& config) {
  const DecoderKeys keys = {.layers = "num_layers",
                            .kv_heads = "multi_query_group_num",
                            .head_dim = "kv_channels",
                            .intermediate = "ffn_hidden_size",
                            .vocab = "padded_vocab_size",
                            .context = "seq_length",
                            .epsilon = "layernorm_epsilon"};
  DecoderParts parts = read_decoder(config, "chatglm", {.epsilon = 1e-5, .partial_rotary = 0.5, .keys = keys});
  check_switches(config);
  if (!is_from_gguf(config) && !config.flag_or("multi_query_attention", false))
    parts.attention.kv_heads = parts.attention.heads;
  const bool biases = config.flag_or("add_bias_linear", false);
  parts.attention.qkv_bias = biases || config.flag_or("add_qkv_bias", false);
  parts.attention.out_bias = parts.feed_forward.bias = biases;
  parts.attention.fused = parts.feed_forward.fused = true;
  parts.model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  parts.model.ropes[0].theta *= read_number(config, "rope_ratio", 1);
  Description model = finish_decoder(std::move(parts));
  if (!model.tied_head) model.tied_head = false;
  if (is_from_gguf(config)) return model;
  model.unused_parts = {{".rotary_pos_emb.inv_freq", kProgramBuffer}};
  model.names.set_prefix("transformer.");
  model.names.set({{Role::kEmbed, "@embedding.word_embeddings"},
                   {Role::kFinalNorm, "@encoder.final_layernorm"},
                   {Role::kHead, "@output_layer"},
                   {Role::kAttnNorm, "@encoder.layers.#.input_layernorm"},
                   {Role::kAttnQkv, "@encoder.layers.#.self_attention.query_key_value"},
                   {Role::kAttnOut, "@encoder.layers.#.self_attention.dense"},
                   {Role::kFfnNorm, "@encoder.layers.#.post_attention_layernorm"},
                   {Role::kFfnGateUp, "@encoder.layers.#.mlp.dense_h_to_4h"},
                   {Role::kFfnDown, "@encoder.layers.#.mlp.dense_4h_to_h"}});
  return model;
}

}  // namespace qgen
