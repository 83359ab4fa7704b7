// Keys to config.json: what llama.cpp's converter does is undone here (conversion/base.py, llama.py).
#include "model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxCount = int64_t{1} << 31;
// Families whose mixtures are read.
constexpr std::string_view kMixtures =
    "mixtral,qwen3_moe,qwen2_moe,olmoe,qwen3_next,qwen3_5_moe_text,deepseek_v2,deepseek_v3,glm4_moe,gpt_oss,minimax_m2,"
    "qwen3_vl_moe_text,ernie4_5_moe,llama4_text,granitemoehybrid,nemotron_h,gemma4_text,deepseek_v32,glm_moe_dsa,"
    "mistral4,hunyuan_v1_moe,lfm2_moe,granitemoe,dots1,exaone_moe,afmoe,bailing_moe,mellum,hy_v3,laguna";
constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // llama.cpp, enum llama_expert_gating_func_type
constexpr std::string_view kRopeFactors = "rope_freqs.weight", kLongRopeFactors = "rope_factors_long.weight";

// Whether a list with commas, and perhaps spaces behind them, has a name.
bool is_among(std::string_view list, std::string_view name) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (list.substr(at, end - at) == name) return true;
    at = end + 1;
    while (at < list.size() && list[at] == ' ') ++at;
  }
  return false;
}

const Family& family_of(const Gguf& keys) {
  const auto name = keys.text("general.architecture");
  if (!name) keys.fail_key("general.architecture", "missing");
  std::string known;
  for (const Family& family : families()) {
    if (family.gguf.empty()) continue;
    if (is_among(family.gguf, *name)) return family;
    // Families that share an architecture stand side by side.
    if (!known.ends_with(family.gguf)) known += fmt::format("{}{}", known.empty() ? "" : ", ", family.gguf);
  }
  keys.fail_key("general.architecture", fmt::format("{} is not supported", json_quote(*name)), "supported: " + known);
}

int64_t required(const Gguf& keys, const std::string& key) {
  const auto value = keys.integer(key, 1, kMaxCount);
  if (!value) keys.fail_key(key, "missing");
  return *value;
}

// A number for the whole model, also where the file has an array with one for each layer, if they agree.
// `some_have_none`: elements of 0 are left out; nothing where all are 0.
std::optional<int64_t> same_for_all_layers(const Gguf& keys, const std::string& key, bool some_have_none) {
  const GgufValue* value = keys.find(key);
  if (value == nullptr || value->type != GgufValue::Type::kArray) return keys.integer(key, 1, kMaxCount);
  auto list = *keys.integers(key);
  if (some_have_none) {
    std::erase(list, 0);
    if (list.empty()) return {};
  }
  if (list.empty() || list.front() < 1 || list.front() > kMaxCount) keys.fail_key(key, "empty or out of range");
  if (std::any_of(list.begin(), list.end(), [&](int64_t n) { return n != list.front(); })) {
    keys.fail_key(key, "differs between layers, which is not supported");
  }
  return list.front();
}

// The numbers of a key that has one for all layers, or one for each.
std::vector<int64_t> of_each_layer(const Gguf& keys, const std::string& key, int64_t layers) {
  const GgufValue* value = keys.find(key);
  if (value == nullptr || value->type != GgufValue::Type::kArray)
    return std::vector<int64_t>(size_t(layers), required(keys, key));
  if (int64_t(value->count) != layers)
    keys.fail_key(key,
                  fmt::format("wrong number of elements (expected {}, one a layer, found {})", layers, value->count));
  std::vector<int64_t> out = *keys.integers(key);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] < 1 || out[i] > kMaxCount)
      keys.fail_key(key, fmt::format("element {}: {} is out of range (expected 1 to {})", i, out[i], kMaxCount));
  }
  return out;
}

// Keys with a number that config.json has by another name, where a family knows it (several families by commas).
constexpr std::string_view kHybrids = "qwen3_next,qwen3_5_text,qwen3_5_moe_text";
constexpr std::string_view kLatent = "deepseek_v2,deepseek_v3,deepseek_v32,glm_moe_dsa,mistral4";
constexpr std::string_view kFirstDense =
    "deepseek_v2,deepseek_v3,deepseek_v32,glm_moe_dsa,mistral4,glm4_moe,dots1,exaone_moe,bailing_moe,laguna";
constexpr std::string_view kGrouped =  // experts in groups
    "deepseek_v2,deepseek_v3,deepseek_v32,glm_moe_dsa,mistral4,glm4_moe,nemotron_h,dots1,exaone_moe,bailing_moe";
constexpr std::string_view kGranite = "granite,granitemoe,granitemoehybrid";
constexpr std::string_view kMixedLayers = "lfm2,lfm2_moe,granitemoehybrid,nemotron_h";  // not all have attention
constexpr std::string_view kMamba = "granitemoehybrid,falcon_h1,nemotron_h";
constexpr std::string_view kInnerMamba = "granitemoehybrid,falcon_h1";  // families/mamba.h, read_inner_mamba()
struct Number {
  std::string_view key;  // after the architecture
  std::string_view families;
  std::string_view config_key;
};
constexpr Number kNumbers[] = {
    {"attn_logit_softcapping", "gemma2", "attn_logit_softcapping"},
    {"final_logit_softcapping", "gemma2,gemma3_text,gemma4_text", "final_logit_softcapping"},
    {"attention.shared_kv_layers", "gemma4_text", "num_kv_shared_layers"},
    {"logit_scale", kGranite, "logits_scaling"},
    {"embedding_scale", kGranite, "embedding_multiplier"},
    {"residual_scale", kGranite, "residual_multiplier"},
    {"attention.scale", kGranite, "attention_multiplier"},
    {"logit_scale", "cohere,cohere2", "logit_scale"},
    {"expert_shared_feed_forward_length", "qwen2_moe,qwen3_next,qwen3_5_moe_text,laguna",
     "shared_expert_intermediate_size"},
    {"ssm.conv_kernel", kHybrids, "linear_conv_kernel_dim"},
    {"ssm.state_size", kHybrids, "linear_key_head_dim"},
    {"ssm.group_count", kHybrids, "linear_num_key_heads"},
    {"ssm.time_step_rank", kHybrids, "linear_num_value_heads"},
    {"full_attention_interval", kHybrids, "full_attention_interval"},
    {"attention.q_lora_rank", kLatent, "q_lora_rank"},
    {"attention.kv_lora_rank", kLatent, "kv_lora_rank"},
    {"rope.dimension_count", kLatent, "qk_rope_head_dim"},
    {"attention.value_length_mla", kLatent, "v_head_dim"},
    {"attention.indexer.top_k", "deepseek_v32,glm_moe_dsa", "index_topk"},
    {"leading_dense_block_count", kFirstDense, "first_k_dense_replace"},
    {"leading_dense_block_count", "afmoe", "num_dense_layers"},
    {"expert_weights_scale", "afmoe", "route_scale"},
    {"expert_weights_scale", "hy_v3", "router_scaling_factor"},
    {"expert_weights_scale", "laguna", "moe_routed_scaling_factor"},
    {"expert_shared_count", "exaone_moe,afmoe,bailing_moe", "num_shared_experts"},
    {"expert_shared_count", kGrouped, "n_shared_experts"},
    {"expert_weights_scale", kGrouped, "routed_scaling_factor"},
    {"expert_group_count", kGrouped, "n_group"},
    {"expert_group_used_count", kGrouped, "topk_group"},
    {"rope.dimension_count", "minimax_m2", "rotary_dim"},
    {"shortconv.l_cache", "lfm2,lfm2_moe", "conv_L_cache"},
    {"leading_dense_block_count", "lfm2_moe", "num_dense_layers"},
    {"expert_weights_scale", "lfm2_moe", "routed_scaling_factor"},
    {"ssm.time_step_rank", kInnerMamba, "mamba_n_heads"},
    {"ssm.group_count", kInnerMamba, "mamba_n_groups"},
    {"ssm.state_size", kInnerMamba, "mamba_d_state"},
    {"ssm.conv_kernel", kInnerMamba, "mamba_d_conv"},
    {"ssm.inner_size", "falcon_h1", "mamba_d_ssm"},
    {"expert_shared_feed_forward_length", "granitemoe,granitemoehybrid", "shared_intermediate_size"},
    {"ssm.time_step_rank", "nemotron_h", "mamba_num_heads"},
    {"ssm.group_count", "nemotron_h", "n_groups"},
    {"ssm.state_size", "nemotron_h", "ssm_state_size"},
    {"ssm.conv_kernel", "nemotron_h", "conv_kernel"},
    {"expert_shared_feed_forward_length", "nemotron_h", "moe_shared_expert_intermediate_size"},
    {"moe_latent_size", "nemotron_h", "moe_latent_size"},
    {"expert_count", "ernie4_5_moe", "moe_num_experts"},
    {"expert_used_count", "ernie4_5_moe", "moe_k"},
    {"expert_shared_count", "ernie4_5_moe", "moe_num_shared_experts"},
    {"leading_dense_block_count", "ernie4_5_moe", "moe_layer_start_index"},
    {"interleave_moe_layer_step", "ernie4_5_moe", "moe_layer_interval"},
    {"expert_shared_count", "hunyuan_v1_moe", "num_shared_expert"},
    {"feed_forward_length", "llama4_text", "intermediate_size_mlp"},
    {"interleave_moe_layer_step", "llama4_text", "interleave_moe_layer_step"}};

// Of these, 0 is the same as none.
constexpr std::string_view kZeroIsNone =
    "expert_group_count,expert_group_used_count,expert_weights_scale,moe_latent_size";

const Number* number_of(std::string_view key, std::string_view family) {
  for (const Number& row : kNumbers) {
    if (row.key == key && is_among(row.families, family)) return &row;
  }
  return nullptr;
}

// The bias of a router in the last layer, where no dense layers are.
std::string router_bias(const Gguf& keys) {
  return fmt::format("blk.{}.exp_probs_b.bias", keys.integer("deepseek2.block_count", 1, kMaxCount).value_or(1) - 1);
}

// The families that have the names of another one in GGUF.
std::string family_name(const GgufModel& model, const Family& row) {
  const Gguf& keys = model.keys();
  const auto has = [&](std::string_view rest) {
    return keys.integer(fmt::format("{}.{}", row.gguf, rest), 0, kMaxCount).value_or(0) > 0;
  };
  if (row.gguf == "llama" && has("expert_count")) return "mixtral";
  // Llama with a sliding window is called Mistral.
  if (row.gguf == "llama" && has("attention.sliding_window")) return "mistral";
  if (row.gguf == "deepseek2" &&
      (keys.integer("deepseek2.expert_gating_func", 0, kMaxCount) == kSigmoid || model.has_tensor(router_bias(keys))))
    return "deepseek_v3";
  return std::string(row.name);
}

// Keys that change what a layer computes, each with the value that changes nothing.
struct Neutral {
  std::string_view key;  // after the architecture
  double value;
};
constexpr Neutral kNeutral[] = {{"attention.clamp_kqv", 0},
                                {"attention.max_alibi_bias", 0},
                                {"attn_logit_softcapping", 0},
                                {"final_logit_softcapping", 0},
                                {"logit_scale", 1},
                                {"embedding_scale", 1},
                                {"residual_scale", 1},
                                {"attention.temperature_scale", 0},
                                {"attention.scale", 0},
                                {"rope.scaling.yarn_ext_factor", 1},
                                {"rope.scaling.yarn_log_multiplier", 0},
                                {"rope.scaling.attn_factor", 1}};

// Whether the family reads what this key says.
bool is_read(const GgufModel& model, std::string_view key, std::string_view family) {
  if (number_of(key, family) != nullptr) return true;
  const std::string prefix = fmt::format("{}.rope.scaling.", *model.keys().text("general.architecture"));
  const auto scaling = model.keys().text(prefix + "type");
  if (key == "rope.scaling.attn_factor") {
    const bool by_multiplier = model.keys().has(prefix + "yarn_log_multiplier");
    return (scaling == "yarn" && !by_multiplier) || model.has_tensor(kLongRopeFactors);
  }
  if (is_among(kLatent, family) && key == "rope.scaling.yarn_log_multiplier") return true;
  // Its length is YaRN's original context.
  if (key == "attention.temperature_scale") return is_among("ministral3,mistral4", family) && scaling == "yarn";
  return family == "ministral3" && key == "rope.scaling.yarn_log_multiplier";
}

void check_neutral(const GgufModel& model, const std::string& arch, std::string_view family) {
  const Gguf& keys = model.keys();
  for (const Neutral& row : kNeutral) {
    if (is_read(model, row.key, family)) continue;
    const std::string key = fmt::format("{}.{}", arch, row.key);
    const auto value = keys.decimal(key);
    if (value && std::strtod(value->c_str(), nullptr) != row.value) {
      keys.fail_key(key, fmt::format("{} is not supported (expected {})", *value, row.value));
    }
  }
  const std::string pooling = arch + ".pooling_type";
  if (keys.integer(pooling, 0, kMaxCount).value_or(0) > 0)
    keys.fail_key(pooling, "an embedding model, which generates no text");
  for (const char* name : {"attention.causal"}) {
    const std::string key = fmt::format("{}.{}", arch, name);
    if (const auto causal = keys.flag(key); causal && !*causal) keys.fail_key(key, "false is not supported");
  }
}

// What the experts of a family take for granted.
void check_experts(const Gguf& keys, const std::string& arch, std::string_view family) {
  const auto key = [&](std::string_view rest) { return fmt::format("{}.{}", arch, rest); };
  const auto check = [&](std::string_view rest, int64_t expected) {
    const auto found = keys.integer(key(rest), 0, kMaxCount);
    if (found && *found != expected)
      keys.fail_key(key(rest), fmt::format("{} is not supported (expected {})", *found, expected));
  };
  if (is_among("deepseek_v32,glm_moe_dsa,glm4_moe,minimax_m2,lfm2_moe,dots1,exaone_moe,afmoe,bailing_moe,hy_v3,laguna",
               family))
    check("expert_gating_func", kSigmoid);
  if (family == "mistral4") check("expert_gating_func", kSoftmax);
  if (family != "hunyuan_v1_moe") return;
  check("expert_gating_func", kSoftmax);
  check("leading_dense_block_count", 0);
  check("expert_shared_feed_forward_length", keys.integer(key("feed_forward_length"), 0, kMaxCount).value_or(0) *
                                                 keys.integer(key("expert_shared_count"), 0, kMaxCount).value_or(1));
  const auto scale = keys.decimal(key("expert_weights_scale"));
  if (scale && std::strtod(scale->c_str(), nullptr) != 1)
    keys.fail_key(key("expert_weights_scale"), fmt::format("{} is not supported (expected 1)", *scale));
}

// Whether is(name) holds of some tensor.
template <typename Is>
bool any_tensor(const GgufParts& parts, const Is& is) {
  return std::ranges::any_of(parts.all(), [&](const Gguf& part) {
    return std::ranges::any_of(part.tensors(), [&](const TensorView& tensor) { return is(tensor.name); });
  });
}

}  // namespace

std::shared_ptr<const GgufModel> GgufModel::open(const std::vector<fs::path>& paths, bool headers_only) {
  return std::make_shared<GgufModel>(GgufParts::open(paths, headers_only));
}

// config_json() begins with family_of(), so that it is there and known.
std::string GgufModel::arch() const { return std::string(keys().text("general.architecture").value_or("")); }

std::string GgufModel::key(std::string_view rest) const { return fmt::format("{}.{}", arch(), rest); }

std::vector<TensorView> GgufModel::tensors() const {
  std::vector<TensorView> out;
  for (const Gguf& part : parts_.all()) out.insert(out.end(), part.tensors().begin(), part.tensors().end());
  for (TensorView& tensor : out) {
    if (tensor.name.ends_with(".ffn_norm")) tensor.name += ".weight";  // as Falcon-H1's files call it
  }
  return out;
}

bool GgufModel::has_tensor(std::string_view name) const {
  return any_tensor(parts_, [&](std::string_view candidate) { return candidate == name; });
}

// Whether some layer has a tensor by this name: blk.N.REST.
bool GgufModel::some_layer_has(std::string_view rest) const {
  return any_tensor(parts_, [&](std::string_view name) {
    if (!name.starts_with("blk.") || !name.ends_with(rest)) return false;
    const std::string_view layer = name.substr(0, name.size() - rest.size());
    return layer.ends_with('.') && std::count(layer.begin(), layer.end(), '.') == 2;
  });
}

// The base of the rotation. Ollama's first Gemma 3 files have keys of their own, without which it takes other bases
// (model/models/gemma3/model_text.go).
std::string GgufModel::rope_base(std::string_view family, std::string_view name, std::string_view kind) const {
  auto base = keys().decimal(key(fmt::format("rope.{}", name)));
  if (!base) base = keys().decimal(key(fmt::format("rope.{}.freq_base", kind)));
  return base.value_or(family == "gemma3_text" && kind == "global" ? "1000000" : "10000");
}

std::string GgufModel::rope_scaling_json() const {
  const Gguf& file = keys();
  const std::string prefix = arch() + ".rope.";
  const auto type = file.text(prefix + "scaling.type");
  auto factor = file.decimal(prefix + "scaling.factor");
  if (!factor && !type) factor = file.decimal(prefix + "scale_linear");  // what the key was once called
  const std::string name(type ? *type : factor ? "linear" : "none");
  const TensorView* factors = nullptr;
  for (const Gguf& part : parts_.all()) {
    for (const TensorView& tensor : part.tensors()) {
      if (tensor.name == kRopeFactors) factors = &tensor;
    }
  }
  if (factors != nullptr) {
    if (name != "none" && !(name == "linear" && factor.value_or("1") == "1")) {
      file.fail_key(prefix + "scaling.type", fmt::format("'{}' together with {} is not supported", name, kRopeFactors));
    }
    if (factors->dtype != Dtype::kF32 || factors->shape.size() != 1) {
      fail(ErrorKind::kModel,
           fmt::format("{}: tensor {}: unexpected form (expected a vector of F32, found {} {})", factors->file,
                       kRopeFactors, dtype_name(factors->dtype), factors->shape_text()));
    }
    return R"({"rope_type":"factors"})";
  }
  if (has_tensor(kLongRopeFactors)) {
    // llama.cpp takes the type for none where it is not said, and the tensors by the context all the same.
    const auto original = file.integer(prefix + "scaling.original_context_length", 1, kMaxCount);
    if (!original) file.fail_key(prefix + "scaling.original_context_length", "missing");
    return fmt::format(R"({{"rope_type":"longrope","original_max_position_embeddings":{},"attention_factor":{}}})",
                       *original, file.decimal(prefix + "scaling.attn_factor").value_or("1"));
  }
  if (name == "none") return "null";
  if (name == "linear") return fmt::format(R"({{"rope_type":"linear","factor":{}}})", factor.value_or("1"));
  if (name != "yarn") {
    file.fail_key(prefix + "scaling.type", fmt::format("'{}' is not supported", name), "supported: none, linear, yarn");
  }
  std::string out = R"({"rope_type":"yarn")";
  const auto add = [&](std::string_view ours, std::string_view key) {
    if (const auto value = file.decimal(prefix + std::string(key))) out += fmt::format(R"(,"{}":{})", ours, *value);
  };
  add("factor", "scaling.factor");
  add("original_max_position_embeddings", "scaling.original_context_length");
  add("beta_fast", "scaling.yarn_beta_fast");
  add("beta_slow", "scaling.yarn_beta_slow");
  add("attention_factor", "scaling.yarn_attn_factor");
  // Else this one multiplies what follows from the context's factor (llama-context.cpp).
  const double more = std::strtod(file.decimal(prefix + "scaling.attn_factor").value_or("1").c_str(), nullptr);
  if (more != 1 && !file.has(prefix + "scaling.yarn_attn_factor")) {
    const double stretched = std::strtod(factor.value_or("1").c_str(), nullptr);
    const double usual = stretched > 1 ? 1 + 0.1 * std::log(stretched) : 1;
    out += fmt::format(R"(,"attention_factor":{:.9g})", usual * more);
  }
  // What config.json calls mscale_all_dim, which mscale equals; of DeepSeek's models the file has a tenth of it.
  if (const auto multiplier = file.decimal(prefix + "scaling.yarn_log_multiplier")) {
    const double all = std::strtod(multiplier->c_str(), nullptr) *
                       (is_among("deepseek2,deepseek32,glm-dsa,mistral4", arch()) ? 10 : 1);
    out += fmt::format(R"(,"mscale":{0:.9g},"mscale_all_dim":{0:.9g})", all);
  }
  const auto beta = file.decimal(arch() + ".attention.temperature_scale");
  if (beta && std::strtod(beta->c_str(), nullptr) != 0) {
    const std::string length = arch() + ".attention.temperature_length";
    const auto found = file.integer(length, 0, kMaxCount),
               original = file.integer(prefix + "scaling.original_context_length", 1, kMaxCount);
    if (!original) file.fail_key(prefix + "scaling.original_context_length", "missing");
    if (found.value_or(0) > 0 && found != original)
      file.fail_key(length, fmt::format("{} is not supported (expected the original context, {})", *found, *original));
    out += fmt::format(R"(,"llama_4_scaling_beta":{})", *beta);
  }
  // The converter leaves it out, and llama.cpp truncates.
  if (arch() == "gpt-oss") out += R"(,"truncate":false)";
  return out + "}";
}

// The sliding window in the words of the family's config.json, with a comma in front; "" without one.
std::string GgufModel::window_json(const std::string& family, int64_t layers) const {
  const std::string key = arch() + ".attention.sliding_window", pattern_key = key + "_pattern";
  const int64_t window = keys().integer(key, 0, kMaxCount).value_or(0);
  if (window == 0) return is_among("mistral,gemma3_text", family) ? R"(,"sliding_window":null)" : "";
  std::vector<bool> pattern;
  if (const GgufValue* value = keys().find(pattern_key); value != nullptr && value->type == GgufValue::Type::kArray) {
    pattern = *keys().flags(pattern_key);
    if (int64_t(pattern.size()) != layers) {
      keys().fail_key(pattern_key, fmt::format("expected {} layers, found {}", layers, pattern.size()));
    }
  } else if (const auto every = keys().integer(pattern_key, 0, kMaxCount)) {
    for (int64_t i = 0; i < layers; ++i) pattern.push_back(*every == 0 || (i + 1) % *every != 0);
  } else if (family == "laguna") {  // whose files have no key for it
    for (int64_t i = 0; i < layers; ++i) pattern.push_back(i % 4 != 0);
  }
  std::string types;
  for (const bool sliding : pattern)
    types += fmt::format(R"({}"{}")", types.empty() ? "" : ",", sliding ? "sliding_attention" : "full_attention");
  std::string out = fmt::format(R"(,"sliding_window":{})", window);
  if (family != "mistral") out += R"(,"use_sliding_window":true,"max_window_layers":0)";
  if (!types.empty()) out += fmt::format(R"(,"layer_types":[{}])", types);
  return out;
}

// Elements of a head of recurrent layers.
int64_t GgufModel::recurrent_head_dim() const {
  const int64_t heads = required(keys(), key("ssm.time_step_rank")), inner = required(keys(), key("ssm.inner_size"));
  if (inner % heads != 0)
    keys().fail_key(key("ssm.inner_size"), fmt::format("{} is not a multiple of the {} heads", inner, heads));
  return inner / heads;
}

// Settings of Mamba-2 that follow from several keys, or from the tensors that are there.
std::string GgufModel::mamba_json(const std::string& family) const {
  const int64_t head_dim = recurrent_head_dim();
  const bool conv_bias = some_layer_has("ssm_conv1d.bias");
  if (family == "nemotron_h") return fmt::format(R"(,"mamba_head_dim":{},"use_conv_bias":{})", head_dim, conv_bias);
  std::string out = fmt::format(R"(,"mamba_d_head":{},"mamba_conv_bias":{})", head_dim, conv_bias);
  // llama.cpp normalizes behind the gate whatever the file says. Factors lie in the weights already.
  if (family == "falcon_h1") {
    out += fmt::format(R"(,"mamba_rms_norm":{},"mamba_norm_before_gate":false)", some_layer_has("ssm_norm.weight"));
  }
  return out;
}

std::string GgufModel::granite_json() const {
  const Gguf& file = keys();
  const int64_t inner = required(file, key("ssm.inner_size")), hidden = required(file, key("embedding_length"));
  if (inner % hidden != 0)
    file.fail_key(key("ssm.inner_size"), fmt::format("{} is not a multiple of embedding_length, {}", inner, hidden));
  std::string out = fmt::format(R"(,"mamba_expand":{})", inner / hidden);
  if (file.flag(key("rope.scaling.finetuned")).value_or(true)) out += R"(,"position_embedding_type":"rope")";
  if (file.integer(key("expert_count"), 0, kMaxCount).value_or(0) == 0) out += R"(,"num_local_experts":0)";
  if (!file.has(key("expert_shared_feed_forward_length")))
    out += fmt::format(R"(,"shared_intermediate_size":{})", required(file, key("feed_forward_length")));
  return out;
}

// The kind of each layer, by the tensors that it has.
std::string GgufModel::layer_types_json(const std::string& family, int64_t layers) const {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{"attn_q", "full_attention"},
                                                                      {"shortconv.in_proj", "conv"},
                                                                      {"ssm_in", "mamba"},
                                                                      {"ffn_gate_inp", "moe"},
                                                                      {"ffn_up", "mlp"}};
  constexpr size_t kMixers = 3;  // the first rows; only Nemotron-H has layers of a network alone
  std::set<std::string, std::less<>> names;
  for (const TensorView& tensor : tensors()) names.insert(tensor.name);
  std::string out;
  for (int64_t i = 0; i < layers; ++i) {
    const auto has = [&](std::string_view name) { return names.contains(fmt::format("blk.{}.{}.weight", i, name)); };
    if (has("attn_qkv")) {
      fail(ErrorKind::kModel,
           fmt::format("{}: tensor blk.{}.attn_qkv.weight: q, k and v as one matrix are not supported "
                       "for this architecture",
                       keys().file_name(), i));
    }
    const auto last = std::begin(kTypes) + (family == "nemotron_h" ? std::size(kTypes) : kMixers);
    const auto type = std::find_if(std::begin(kTypes), last, [&](const auto& row) { return has(row.first); });
    if (type == last)
      fail(ErrorKind::kModel, fmt::format("{}: tensors of layer {} are missing", keys().file_name(), i));
    out += fmt::format(R"({}"{}")", out.empty() ? "" : ",", type->second);
  }
  return fmt::format(R"(,"{}":[{}])", family == "nemotron_h" ? "layers_block_type" : "layer_types", out);
}

// Whether each layer has a window, of a family whose layers without one have sizes of their own; empty for others.
std::vector<bool> GgufModel::windowed_layers(const std::string& family, int64_t layers) const {
  if (family != "gemma4_text") return {};
  const std::string name = key("attention.sliding_window_pattern");
  const auto pattern = keys().flags(name);
  if (!pattern) keys().fail_key(name, "missing");
  if (int64_t(pattern->size()) != layers)
    keys().fail_key(name, fmt::format("expected {} layers, found {}", layers, pattern->size()));
  if (pattern->back()) keys().fail_key(name, "a last layer with a window is not supported");
  return *pattern;
}

// What config.json has beside the sizes of layers with a window, which are those of keys in _swa and of these layers'
// elements of lists.
std::string GgufModel::gemma4_json(int64_t layers, const std::vector<bool>& windowed) const {
  const Gguf& file = keys();
  required(file, key("attention.sliding_window"));
  const int64_t head_dim = required(file, key("attention.key_length")),
                local_dim = required(file, key("attention.key_length_swa"));
  const auto check = [&](const char* rest, int64_t expected) {
    const int64_t found = file.integer(key(rest), 0, kMaxCount).value_or(expected);
    if (found != expected)
      file.fail_key(key(rest),
                    fmt::format("not supported (expected {}, the length of a key, found {})", expected, found));
  };
  check("attention.value_length", head_dim);
  check("rope.dimension_count", head_dim);
  check("rope.dimension_count_swa", local_dim);
  const size_t global = size_t(std::ranges::find(windowed, false) - windowed.begin());
  const auto has = [&](const char* name) { return has_tensor(fmt::format("blk.{}.{}.weight", global, name)); };
  std::string out = fmt::format(
      R"(,"global_head_dim":{},"num_global_key_value_heads":{},"attention_k_eq_v":{},"hidden_size_per_layer_input":{})",
      head_dim, of_each_layer(file, key("attention.head_count_kv"), layers)[global], !has("attn_v") && !has("attn_qkv"),
      file.integer(key("embedding_length_per_layer_input"), 0, kMaxCount).value_or(0));
  // Layers that share their keys and values may have networks of twice the width.
  const std::vector<int64_t> width = of_each_layer(file, key("feed_forward_length"), layers);
  const int64_t own = layers - file.integer(key("attention.shared_kv_layers"), 0, layers - 1).value_or(0);
  const bool wide = width.back() != width.front();
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t expected = (wide && i >= own ? 2 : 1) * width.front();
    if (width[size_t(i)] != expected)
      file.fail_key(key("feed_forward_length"),
                    fmt::format("element {} is not supported (expected {}, found {})", i, expected, width[size_t(i)]));
  }
  out += fmt::format(R"(,"use_double_wide_mlp":{})", wide);
  if (file.integer(key("expert_count"), 0, kMaxCount).value_or(0) > 0)
    out += fmt::format(R"(,"enable_moe_block":true,"top_k_experts":{})", required(file, key("expert_used_count")));
  if (!has_tensor(kRopeFactors))
    fail(ErrorKind::kModel, fmt::format("{}: tensor {} is missing", file.file_name(), kRopeFactors));
  return out + fmt::format(R"(,"rope_parameters":{{"full_attention":{{"rope_type":"factors","rope_theta":{}}},)"
                           R"("sliding_attention":{{"rope_type":"default","rope_theta":{}}}}})",
                           file.decimal(key("rope.freq_base")).value_or("10000"),
                           file.decimal(key("rope.freq_base_swa")).value_or("10000"));
}

// The heads of each layer, the gate's kind by its rows, and the two rotations.
std::string GgufModel::laguna_json(int64_t layers, int64_t head_dim) const {
  const Gguf& file = keys();
  const std::vector<int64_t> heads = of_each_layer(file, key("attention.head_count"), layers);
  const bool of_elements = rows_of("blk.0.attn_gate.weight").value_or(0) != heads.front();
  // llama.cpp scales the rotation of layers without a window alone.
  const std::string scaling = rope_scaling_json();
  const auto rotation = [&](std::string_view kind, std::string_view rest) {
    const auto rotated = file.integer(key(fmt::format("rope.dimension_count{}", kind)), 1, head_dim).value_or(head_dim);
    return fmt::format(R"({{{},"rope_theta":{},"partial_rotary_factor":{:.9g}}})", rest,
                       file.decimal(key(fmt::format("rope.freq_base{}", kind))).value_or("10000"),
                       double(rotated) / double(head_dim));
  };
  constexpr std::string_view kPlain = R"("rope_type":"default")";
  return fmt::format(R"(,"num_attention_heads_per_layer":[{}],"gating":"{}","rope_parameters":{{"full_attention":{},)"
                     R"("sliding_attention":{}}})",
                     fmt::join(heads, ","), of_elements ? "per-element" : "per-head",
                     rotation("", scaling == "null" ? kPlain : std::string_view(scaling).substr(1, scaling.size() - 2)),
                     rotation("_swa", kPlain));
}

// What needs more than another name.
std::string GgufModel::family_json(const std::string& family, int64_t layers) const {
  const Gguf& file = keys();
  std::string out;
  if (is_among(kHybrids, family)) {
    out += fmt::format(R"(,"linear_value_head_dim":{})", recurrent_head_dim());
    if (const auto recurrent = file.flags(key("attention.recurrent_layers"))) {
      std::string types;
      for (int64_t i = 0; i < std::min(layers, int64_t(recurrent->size())); ++i)
        types += fmt::format(R"({}"{}")", i == 0 ? "" : ",",
                             (*recurrent)[size_t(i)] ? "linear_attention" : "full_attention");
      out += fmt::format(R"(,"layer_types":[{}])", types);
    }
  }
  if (is_among(kLatent, family)) {
    const int64_t rotated = required(file, key("rope.dimension_count"));
    // Files from before llama.cpp absorbed latents have the lengths of whole heads.
    const bool old = !file.has(key("attention.key_length_mla")) && some_layer_has("attn_kv_b.weight");
    const std::string length_key = key(old ? "attention.key_length" : "attention.key_length_mla");
    const auto length = file.integer(length_key, rotated + 1, kMaxCount);
    if (!length) file.fail_key(length_key, "missing");
    out += fmt::format(R"(,"qk_nope_head_dim":{})", *length - rotated);
    if (old) out += fmt::format(R"(,"v_head_dim":{})", required(file, key("attention.value_length")));
    if (file.integer(key("expert_group_count"), 0, kMaxCount).value_or(1) > 1 && family == "deepseek_v2")
      out += R"(,"topk_method":"group_limited_greedy")";
  }
  if (family == "hy_v3") {  // dense layers are those without a router
    int64_t dense = 0;
    while (dense < layers && !has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", dense))) ++dense;
    const int64_t width = required(file, key("expert_feed_forward_length"));
    const int64_t shared = file.integer(key("expert_shared_feed_forward_length"), 0, kMaxCount).value_or(0);
    out += fmt::format(R"(,"first_k_dense_replace":{},"num_shared_experts":{})", dense, shared / width);
  }
  if (is_among(kMamba, family)) out += mamba_json(family);
  if (is_among(kMixedLayers, family)) out += layer_types_json(family, layers);
  if (is_among("lfm2,lfm2_moe", family)) {
    out += fmt::format(R"(,"block_auto_adjust_ff_dim":false,"conv_bias":{})", some_layer_has("shortconv.conv.bias"));
    if (file.integer(key("attention.sliding_window"), 0, kMaxCount).value_or(0) > 0)
      file.fail_key(key("attention.sliding_window"), "not supported for this architecture");
  }
  if (family == "granitemoehybrid") out += granite_json();
  if (const auto windowed = windowed_layers(family, layers); !windowed.empty()) out += gemma4_json(layers, windowed);
  // llama.cpp knows Maverick, the one without these norms, by its experts.
  constexpr int64_t kExpertsOfMaverick = 128;
  if (family == "llama4_text" && file.integer(key("expert_count"), 0, kMaxCount) == kExpertsOfMaverick)
    out += R"(,"use_qk_norm":false)";
  if (family == "glm4_moe" && has_tensor("blk.0.attn_q_norm.weight")) out += R"(,"use_qk_norm":true)";
  const bool biases = has_tensor("blk.0.attn_q.bias") || has_tensor("blk.0.attn_qkv.bias");
  if (is_among("glm4_moe,qwen2_moe,glm,glm4", family)) out += fmt::format(R"(,"attention_bias":{})", biases);
  if (family == "qwen2_moe") out += fmt::format(R"(,"qkv_bias":{})", biases);
  if (family == "starcoder2") out += fmt::format(R"(,"use_bias":{})", has_tensor("blk.0.attn_output.bias"));
  return out;
}

std::optional<int64_t> GgufModel::rows_of(std::string_view name) const {
  for (const Gguf& part : parts_.all()) {
    for (const TensorView& tensor : part.tensors()) {
      if (tensor.name == name && !tensor.shape.empty()) return tensor.shape.front();
    }
  }
  return {};
}

std::string GgufModel::config_json() const {
  const Gguf& file = keys();
  const Family& row = family_of(file);
  const int64_t experts = file.integer(key("expert_count"), 0, kMaxCount).value_or(0);
  const std::string family = family_name(*this, row);
  if (experts > 0 && !is_among(kMixtures, family))
    file.fail_key(key("expert_count"), fmt::format("{} is not supported for this architecture", experts));
  check_neutral(*this, arch(), family);
  if (experts > 0) check_experts(file, arch(), family);

  // Layers that draft tokens are counted there.
  const int64_t layers =
      required(file, key("block_count")) - file.integer(key("nextn_predict_layers"), 0, kMaxCount).value_or(0);
  if (layers < 1) file.fail_key(key("nextn_predict_layers"), "as many as block_count");
  if (layers > kMaxLayers)
    file.fail_key(key("block_count"), fmt::format("{} (expected at most {})", layers, kMaxLayers));
  const int64_t hidden = required(file, key("embedding_length"));
  const bool mixed = is_among(kMixedLayers, family);
  const std::string heads_key = key("attention.head_count");
  const std::optional<int64_t> heads =
      family == "laguna" ? of_each_layer(file, heads_key, layers).front() : same_for_all_layers(file, heads_key, mixed);
  if (!heads) file.fail_key(heads_key, "missing");
  // Where layers are of two kinds, the sizes of those with a window are read here.
  const std::vector<bool> windowed = windowed_layers(family, layers);
  const std::string_view kind = windowed.empty() ? "" : "_swa";
  const auto of_layers = [&](const std::string& name) {
    if (windowed.empty()) return same_for_all_layers(file, name, mixed);
    const size_t local = size_t(std::ranges::find(windowed, true) - windowed.begin());
    return std::optional(of_each_layer(file, name, layers)[local % windowed.size()]);
  };
  const int64_t kv_heads = of_layers(key("attention.head_count_kv")).value_or(*heads);
  auto inner = of_layers(key("feed_forward_length"));
  if (!inner && experts > 0) inner = file.integer(key("expert_feed_forward_length"), 1, kMaxCount);
  if (!inner) file.fail_key(key("feed_forward_length"), "missing");
  const bool latent = is_among(kLatent, family);
  // A latent's heads are described by keys of their own.
  const std::string length_key = key(latent ? "rope.dimension_count" : fmt::format("attention.key_length{}", kind));
  const auto key_length = file.integer(length_key, 1, kMaxCount);
  if (!key_length && !windowed.empty()) file.fail_key(length_key, "missing");
  if (!key_length && hidden % *heads != 0) {
    file.fail_key(key("attention.key_length"), fmt::format("missing, and {} heads do not divide {}", *heads, hidden));
  }
  const int64_t head_dim = key_length.value_or(hidden / *heads);
  if (const auto value = file.integer(key(fmt::format("attention.value_length{}", kind)), 0, kMaxCount);
      !latent && value && *value != head_dim) {
    file.fail_key(key(fmt::format("attention.value_length{}", kind)),
                  fmt::format("not supported (expected {}, the length of a key, found {})", head_dim, *value));
  }
  const int64_t rotated =
      !windowed.empty() ? head_dim : file.integer(key("rope.dimension_count"), 0, kMaxCount).value_or(head_dim);
  if (rotated > head_dim && family != "nemotron_h") {
    file.fail_key(key("rope.dimension_count"),
                  fmt::format("not supported (expected at most {}, the length of a key, found {})", head_dim, rotated));
  }
  auto vocab = file.integer(key("vocab_size"), 1, kMaxCount);
  if (!vocab) {
    if (const GgufValue* tokens = file.find("tokenizer.ggml.tokens")) vocab = int64_t(tokens->count);
  }
  if (!vocab) vocab = rows_of("token_embd.weight");
  if (!vocab) file.fail_key(key("vocab_size"), "missing");
  auto epsilon = file.decimal(key("attention.layer_norm_rms_epsilon"));
  if (!epsilon) epsilon = file.decimal(key("attention.layer_norm_epsilon"));
  if (!epsilon) file.fail_key(key("attention.layer_norm_rms_epsilon"), "missing");

  // What Llama 4 calls so is the width of an expert.
  if (family == "llama4_text") inner = file.integer(key("expert_feed_forward_length"), 1, kMaxCount).value_or(*inner);
  std::string out = fmt::format(
      R"({{"model_type":"{}","num_hidden_layers":{},"hidden_size":{},"num_attention_heads":{},"num_key_value_heads":{},)"
      R"("head_dim":{},"intermediate_size":{},"vocab_size":{},"rms_norm_eps":{},"rope_theta":{},"rope_scaling":{})",
      family, layers, hidden, *heads, kv_heads, head_dim, *inner, *vocab, *epsilon,
      rope_base(family, "freq_base", "global"), rope_scaling_json());
  if (const auto context = file.integer(key("context_length"), 1, kMaxCount)) {
    out += fmt::format(R"(,"max_position_embeddings":{})", *context);
  }
  // The converter puts the two halves of a head apart where positions have sections (GLM-4.1V).
  const std::vector<int64_t> sections = file.integers(key("rope.dimension_sections")).value_or(std::vector<int64_t>());
  const bool in_sections = std::ranges::any_of(sections, [](int64_t size) { return size != 0; });
  out += fmt::format(R"(,"rope_adjacent_pairs":{})", row.gguf_adjacent_pairs && !in_sections);
  // Models without rotation say 0; Nemotron-H has none, but its converter writes a number all the same.
  if (rotated > 0 && family != "nemotron_h" && windowed.empty())
    out += fmt::format(R"(,"rope.dimension_count":{})", rotated);
  // What Command R+ and StableLM 2 12B say by their tensors alone.
  if (has_tensor("blk.0.attn_q_norm.weight")) {
    if (family == "cohere") out += R"(,"use_qk_norm":true)";
    if (family == "stablelm") out += R"(,"qk_layernorm":true)";
  }
  if (family == "stablelm" && !has_tensor("blk.0.ffn_norm.weight")) out += R"(,"use_parallel_residual":true)";
  for (const Number& number : kNumbers) {
    if (number_of(number.key, family) != &number) continue;
    const auto value = file.decimal(key(number.key));
    if (!value || (is_among(kZeroIsNone, number.key) && std::strtod(value->c_str(), nullptr) == 0)) continue;
    out += fmt::format(R"(,"{}":{})", number.config_key, *value);
  }
  if (file.has(key("rope.freq_base_swa")) || family == "gemma3_text")
    out += fmt::format(R"(,"rope_local_base_freq":{})", rope_base(family, "freq_base_swa", "local"));
  out += window_json(family, layers);
  // Without this key scores are scaled as everywhere else, not by the 1 of an absent attention_multiplier.
  if (is_among(kGranite, family) && !file.has(key("attention.scale")))
    out += fmt::format(R"(,"attention_multiplier":{:.17g})", 1 / std::sqrt(double(head_dim)));
  if (experts > 0) {
    if (file.integer(key("expert_group_count"), 0, kMaxCount).value_or(0) > 1 &&
        !file.has(key("expert_group_used_count"))) {
      file.fail_key(key("expert_group_used_count"), "missing");
    }
    const int64_t width = file.integer(key("expert_feed_forward_length"), 1, kMaxCount).value_or(*inner);
    // llama.cpp divides the weights of most by their sum, whatever the file says.
    const bool normalized = is_among("qwen2_moe,olmoe", family) ? false
                            : is_among(kGrouped, family)        ? file.flag(key("expert_weights_norm")).value_or(false)
                                                                : true;
    out += fmt::format(R"(,"num_local_experts":{0},"num_experts":{0},"n_routed_experts":{0},"num_experts_per_tok":{1},)"
                       R"("moe_intermediate_size":{2},"norm_topk_prob":{3})",
                       experts, required(file, key("expert_used_count")), width, normalized);
  }
  out += family_json(family, layers);
  if (family == "laguna") out += laguna_json(layers, head_dim);
  std::string called;
  for (const char* part : {"name", "basename", "size_label", "finetune"}) {
    if (const auto text = file.text(fmt::format("general.{}", part)))
      called += fmt::format("{}{}", called.empty() ? "" : " ", *text);
  }
  if (!called.empty()) out += fmt::format(R"(,"_name_or_path":{})", json_quote(called));
  return out + fmt::format(R"(,"eos_token_id":[{}]}})", fmt::join(gguf_end_tokens(file), ","));
}

ModelFiles GgufModel::files(const std::shared_ptr<const GgufModel>& model) {
  ModelFiles::Texts texts;
  const auto add = [&](const char* name, std::string (*make)(const Gguf&)) {
    texts[name] = [model, make] { return make(model->keys()); };
  };
  texts["config.json"] = [model] { return model->config_json(); };
  switch (gguf_tokenizer(model->keys())) {
    case GgufTokenizer::kNone: break;
    case GgufTokenizer::kSentencePiece: add("tokenizer.model", gguf_sentencepiece_model); break;
    // Of a kind that is not supported the text says so.
    case GgufTokenizer::kByteLevel:
    case GgufTokenizer::kByteFallback:
    case GgufTokenizer::kUnsupported: add("tokenizer.json", gguf_tokenizer_json); break;
  }
  add("tokenizer_config.json", gguf_tokenizer_config_json);
  add("generation_config.json", gguf_generation_config_json);
  return ModelFiles(fs::path(model->keys().file_name()), std::move(texts));
}

}  // namespace qgen
