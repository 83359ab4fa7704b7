#include "model/mistral_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "model/families/common.h"

namespace qgen {
namespace {

constexpr size_t kMaxParamsBytes = 16 << 20;

// yarn of params.json as rope_parameters. Without apply_scale cos and sin carry no factor.
std::string rope_json(const Json& params, double theta) {
  const auto yarn = params.get("yarn");
  if (!yarn) return fmt::format(R"({{"rope_type":"default","rope_theta":{}}})", theta);
  std::string out =
      fmt::format(R"({{"rope_type":"yarn","rope_theta":{},"factor":{})", theta, yarn->at("factor").as_number());
  const auto add = [&](const char* key, const char* name) {
    if (const auto value = yarn->get(key)) out += fmt::format(R"(,"{}":{})", name, value->as_number());
  };
  add("original_max_position_embeddings", "original_max_position_embeddings");
  add("beta", "beta_fast");
  add("alpha", "beta_slow");
  if (!yarn->flag_or("apply_scale", true)) out += R"(,"attention_factor":1)";
  if (const auto scaling = params.get("llama_4_scaling"))
    out += fmt::format(R"(,"llama_4_scaling_beta":{})", scaling->at("beta").as_number());
  return out + "}";
}

// sliding_window, or the windows of some layers that the others repeat, null for none (Ministral 8B). Without either
// there is none: transformers' default for an absent key is no reader's of these files.
std::string windows_json(const Json& params, int64_t layers) {
  auto windows = params.get("sliding_window");
  if (!windows) windows = params.get("_sliding_window");
  if (!windows) return R"(,"sliding_window":null)";
  if (!windows->is_array()) return fmt::format(R"(,"sliding_window":{})", windows->as_integer(1, kMaxContext));
  const std::vector<Json> pattern = windows->elements();
  if (pattern.empty() || layers % int64_t(pattern.size()) != 0)
    windows->fail(fmt::format("{} windows (expected a part of the {} layers)", pattern.size(), layers));
  std::optional<int64_t> window;
  std::vector<std::string> types;
  for (int64_t i = 0; i < layers; ++i) {
    const Json& of_layer = pattern[size_t(i) % pattern.size()];
    types.emplace_back(of_layer.is_null() ? R"("full_attention")" : R"("sliding_attention")");
    if (of_layer.is_null()) continue;
    const int64_t tokens = of_layer.as_integer(1, kMaxContext);
    if (window.value_or(tokens) != tokens)
      of_layer.fail(fmt::format("another window than {} is not supported", *window));
    window = tokens;
  }
  if (!window) return R"(,"sliding_window":null)";
  return fmt::format(R"(,"sliding_window":{},"layer_types":{})", *window, json_list(types));
}

// Source of the keys: mistral-inference, args.py (TransformerArgs), and vLLM, transformers_utils/configs/mistral.py.
std::string config_json(const Json& params) {
  const auto refuse = [&](const char* key, std::string_view what) {
    const auto value = params.get(key);
    if (value && !(value->is_number() && value->as_number() == 0))
      value->fail(fmt::format("{} in Mistral's own layout are not supported", what),
                  "take the Hugging Face layout of the same model");
  };
  refuse("moe", "mixtures of experts");
  refuse("q_lora_rank", "latent attention and its ranks");
  refuse("lora", "adapters");
  const auto count = [&](const char* key, int64_t most) { return params.at(key).as_integer(1, most); };
  const int64_t heads = count("n_heads", kMaxWidth);
  const auto kv_heads = params.get("n_kv_heads");
  const auto theta = params.get("rope_theta");
  const std::string windows = windows_json(params, count("n_layers", kMaxLayers));
  const bool by_layer = windows.find("layer_types") != windows.npos;
  std::string out = fmt::format(
      R"({{"model_type":"{}","hidden_size":{},"num_hidden_layers":{},"num_attention_heads":{},"num_key_value_heads":{},)"
      R"("intermediate_size":{},"vocab_size":{},"rms_norm_eps":{},"rope_parameters":{})",
      params.get("llama_4_scaling") ? "ministral3"
      : by_layer                    ? "ministral"
                                    : "mistral",
      count("dim", kMaxWidth), count("n_layers", kMaxLayers), heads, kv_heads ? kv_heads->as_integer(1, heads) : heads,
      count("hidden_dim", kMaxWidth), count("vocab_size", kMaxVocab), params.at("norm_eps").as_number(),
      rope_json(params, theta ? theta->as_number() : 10000));
  out += windows;
  if (params.get("head_dim")) out += fmt::format(R"(,"head_dim":{})", count("head_dim", kMaxWidth));
  for (const char* key : {"max_position_embeddings", "max_seq_len"}) {
    if (!params.get(key)) continue;
    out += fmt::format(R"(,"max_position_embeddings":{})", count(key, kMaxContext));
    break;
  }
  if (const auto tied = params.get("tied_embeddings"))
    out += fmt::format(R"(,"tie_word_embeddings":{})", tied->as_bool());
  return out + R"(,"eos_token_id":2})";  // in all of Mistral's tokenizers
}

}  // namespace

bool is_mistral_native(const Checkpoint& checkpoint) {
  return checkpoint.find("tok_embeddings.weight") != nullptr && checkpoint.find("model.embed_tokens.weight") == nullptr;
}

std::unique_ptr<JsonDocument> mistral_config(const ModelLocation& location) {
  const auto config = location.folder / "config.json", params = location.folder / "params.json";
  if (is_there(config) || !is_there(params)) return nullptr;
  const auto document = JsonDocument::parse(read_file(params, kMaxParamsBytes), params.string());
  return JsonDocument::parse(config_json(document->root()), params.string());
}

}  // namespace qgen
