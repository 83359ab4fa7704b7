// A model as data: what config.json says, in one vocabulary for all families. A family file fills it in and
// contains no arithmetic; the planner turns it into steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/token.h"

namespace qgen {

// Rotary position embedding. Element i of the first half of a head's rotated part pairs with element i of the
// second half ("half-split", as Hugging Face stores q and k). Formulas: transformers, modeling_rope_utils.py.
struct Rope {
  enum class Scaling { kNone, kLinear, kDynamic, kYarn, kLlama3, kFactors };
  Scaling scaling = Scaling::kNone;
  double theta = 10000;
  double factor = 1;
  int64_t original_context = 0;  // tokens the unscaled frequencies were trained for
  // llama3
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  // yarn
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 1;  // multiplies cos and sin
  bool truncate = true;
  // factors: what each frequency is divided by (head_dim / 2), as GGUF files of llama3 scaling have it
  std::vector<double> factors;
};

// Inverse frequencies (head_dim / 2) for a sequence of `length` tokens; only dynamic scaling depends on it.
std::vector<double> inverse_frequencies(const Rope& rope, int64_t head_dim, int64_t length);

// How tensors are called; {} is the layer.
struct Names {
  std::string embed = "model.embed_tokens";
  std::string final_norm = "model.norm";
  std::string head = "lm_head";
  std::string input_norm = "model.layers.{}.input_layernorm";
  std::string q = "model.layers.{}.self_attn.q_proj";
  std::string k = "model.layers.{}.self_attn.k_proj";
  std::string v = "model.layers.{}.self_attn.v_proj";
  std::string o = "model.layers.{}.self_attn.o_proj";
  std::string q_norm = "model.layers.{}.self_attn.q_norm";
  std::string k_norm = "model.layers.{}.self_attn.k_norm";
  std::string post_norm = "model.layers.{}.post_attention_layernorm";
  std::string gate = "model.layers.{}.mlp.gate_proj";
  std::string up = "model.layers.{}.mlp.up_proj";
  std::string down = "model.layers.{}.mlp.down_proj";
};

struct Description {
  std::string family;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t vocab = 0;
  int64_t context = 0;  // tokens the model was made for
  double norm_eps = 1e-6;
  Rope rope;
  bool qk_norm = false;  // RMS norm over each head of q and k before the rotation
  // Biases are bound where the files have them and required where the family always has them.
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  std::optional<bool> tied_head;  // what config.json says; not set: the files decide
  // Per layer: how many tokens, itself included, a query sees; 0: all.
  std::vector<int64_t> window;
  std::vector<TokenId> end_tokens;  // of config.json
  Names names;
};

// The parts that families share, each reading and checking its keys. All throw a model Error naming the key.
Description describe_decoder(const Json& config, std::string_view family);  // sizes, norm, rope, head, end tokens
Rope read_rope(const Json& config, int64_t context);
std::vector<TokenId> read_end_tokens(const Json& config);  // eos_token_id: a number, a list or null

}  // namespace qgen
