// The parts of a config.json that families share, each read and checked. All throw a model Error that names the key.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/description.h"

namespace qgen {

// A decoder whose layers are an attention and a feed-forward network, as most are.
struct DecoderParts {
  Description model;  // without its layers
  int64_t layers = 0;
  NormSpec norm;
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  std::vector<int64_t> windows;  // of each layer; 0: none
};

// What a family calls the keys that most families share. What a GGUF file says goes by the common names, which are
// read where a family's own key is absent.
struct DecoderKeys {
  std::string_view layers = "num_hidden_layers", hidden = "hidden_size", heads = "num_attention_heads",
                   kv_heads = "num_key_value_heads", head_dim = "head_dim", intermediate = "intermediate_size",
                   activation = "hidden_act", vocab = "vocab_size", context = "max_position_embeddings",
                   epsilon = "rms_norm_eps";
};

// What absent keys mean: a family's defaults in transformers. 0: the key is required, or follows from others.
struct DecoderDefaults {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0, vocab = 0;
  int64_t context = 2048;
  double rope_theta = 10000;
  double epsilon = 1e-6;
  double partial_rotary = 0;  // the part of a head that is rotated; 0: the family rotates whole heads only
  Activation activation = Activation::kSilu;  // kNone: the family reads it
  DecoderKeys keys = {};
};

// Sizes, norm, rope, activation, tied head and end tokens.
DecoderParts read_decoder(const Json& config, std::string_view family, const DecoderDefaults& defaults = {});
// The layers: x += attention(norm(x)), x += feed_forward(norm(x)), each with its window.
Description finish_decoder(DecoderParts parts);
// The layers behind the others that draft tokens, `key` of them; the first can be run. Where config.json does not say,
// `unsaid`, as GGUF's keys do not, the files decide.
void set_draft(Description& model, const Json& config, std::string_view key, DraftSpec draft, bool unsaid = false);

// Norms behind the branches, before their results are added; with the other ones, or instead of them.
void add_post_norms(Description& model, bool instead = false);
// Attention and feed-forward network side by side: x += attention(norm(x)) + feed_forward(norm(x)), one norm for both.
void make_parallel(Description& model);
// LayerNorm instead of RMSNorm.
void use_layer_norm(DecoderParts& parts, bool biased);
// The attention of a layer whose first branch is one.
AttentionSpec& attention_of(std::vector<BlockSpec>& layer);
// What the keys attention_bias and mlp_bias say, and what they mean where they are absent.
void read_biases(const Json& config, DecoderParts& parts, bool qkv = false);
// An integer from `lowest` to `most`, `fallback` if absent or null.
int64_t read_size(const Json& config, std::string_view key, int64_t lowest, int64_t most, int64_t fallback);
// A number above 0, `fallback` if absent or null.
double read_number(const Json& config, std::string_view key, double fallback);
// The first class in architectures; empty where there is none.
std::string_view first_architecture(const Json& config);
// Whether config.json was made from a GGUF file's keys.
bool is_from_gguf(const Json& config);
// Sizes that the text_config of a multimodal checkpoint leaves out where they are as in the classes of Llama and
// Mistral 7B (LLaVA, Pixtral); config.json itself says them all.
void allow_class_sizes(const Json& config, DecoderDefaults& defaults, int64_t intermediate);
// Models whose tokens see those behind them, which no step does, are refused. Of images alone it does not matter.
void refuse_bidirectional(const Json& config);
// An activation under this key that is not SiLU, the only one there, is refused.
void expect_silu(const Json& config, std::string_view key);

// What YaRN multiplies the scale of scores with where mscale_all_dim says so, else 1. DeepSeek's modeling code,
// yarn_get_mscale.
double read_yarn_score_scale(const Json& config);
// rope_scaling or rope_parameters with their rope_theta (`theta` where there is none). `partial`: the part of a head
// that is rotated where partial_rotary_factor is absent, 0 if there may be none, kWholeHead if it counts for nothing.
constexpr double kWholeHead = -1;
Rope read_rope(const Json& config, int64_t context, int64_t head_dim, double theta = 10000, double partial = 0);
// Without scaling, of `dim` elements of a head.
Rope plain_rope(int64_t context, int64_t dim, double theta = 10000);
// One entry of rope_parameters where that is a map of layer types. "proportional": the frequencies of whole heads, of
// which all behind the first part are 0.
Rope read_rope_parameters(const Json& parameters, int64_t context, int64_t dim, double theta = 10000);
// Of layers that see everything, and of those with a window, where rope_parameters is such a map; rope_scaling
// beside it counts for the former (transformers, Gemma3TextConfig). Empty where it is no map.
std::vector<Rope> read_layer_ropes(const Json& config, int64_t context, int64_t dim, double theta, double local_theta);
std::vector<TokenId> read_end_tokens(const Json& config);  // eos_token_id: a number, a list or null
// An epsilon of norms, from 0 to 1.
double read_epsilon(const Json& config, std::string_view key, double fallback);
// hidden_act as an activation; a model Error for one that no step knows.
Activation read_activation(const Json& config, std::string_view key, Activation fallback);
// layer_types as a window for each layer: `window` where it says sliding_attention, 0 where full_attention.
std::vector<int64_t> read_layer_windows(const Json& types, int64_t layers, int64_t window);
// sliding_window (`fallback` if absent; null is none) on the layers that layer_types names, else on all but each
// `every`-th (sliding_window_pattern, if the file has it). every 0: on all layers.
std::vector<int64_t> read_windows(const Json& config, int64_t layers, int64_t fallback, int64_t every);

// sliding_window (4096 if absent; null is none) on the layers that layer_types names, else on those from
// max_window_layers on, `first` if absent.
std::vector<int64_t> read_last_windows(const Json& config, int64_t layers, int64_t first);

// Limits that no real model comes near, far below what would overflow or exhaust memory in arithmetic on sizes: a
// config.json beyond them is damaged or hostile.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxContext = int64_t{1} << 31;

}  // namespace qgen
