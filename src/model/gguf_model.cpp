// Keys to config.json: what llama.cpp's converter does is undone here (conversion/base.py, llama.py).
#include "model/gguf_model.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "model/families/table.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxCount = int64_t{1} << 31;
constexpr std::string_view kRopeFactors = "rope_freqs.weight", kLongRopeFactors = "rope_factors_long.weight";

const Family& family_of(const Gguf& keys) {
  const auto name = keys.text("general.architecture");
  if (!name) keys.fail_key("general.architecture", "missing");
  std::string known;
  for (const Family& family : families()) {
    if (family.gguf.empty()) continue;
    if (family.gguf == *name) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.gguf);
  }
  keys.fail_key("general.architecture", fmt::format("{} is not supported", json_quote(*name)), "supported: " + known);
}

int64_t required(const Gguf& keys, const std::string& key) {
  const auto value = keys.integer(key, 1, kMaxCount);
  if (!value) keys.fail_key(key, "missing");
  return *value;
}

// A number for the whole model, also where the file has one for each layer, if they agree.
std::optional<int64_t> same_for_all_layers(const Gguf& keys, const std::string& key) {
  const GgufValue* value = keys.find(key);
  if (value == nullptr || value->type != GgufValue::Type::kArray) return keys.integer(key, 1, kMaxCount);
  const auto list = *keys.integers(key);
  if (list.empty() || list.front() < 1 || list.front() > kMaxCount) keys.fail_key(key, "empty or out of range");
  if (std::any_of(list.begin(), list.end(), [&](int64_t n) { return n != list.front(); })) {
    keys.fail_key(key, "differs between layers, which is not supported");
  }
  return list.front();
}

// Keys with a number that config.json has by another name, where a family knows it (several families by commas).
struct Number {
  std::string_view key;  // after the architecture
  std::string_view families;
  std::string_view config_key;
};
constexpr Number kNumbers[] = {{"attn_logit_softcapping", "gemma2", "attn_logit_softcapping"},
                               {"final_logit_softcapping", "gemma2", "final_logit_softcapping"},
                               {"logit_scale", "granite", "logits_scaling"},
                               {"embedding_scale", "granite", "embedding_multiplier"},
                               {"residual_scale", "granite", "residual_multiplier"},
                               {"attention.scale", "granite", "attention_multiplier"},
                               {"logit_scale", "cohere,cohere2", "logit_scale"}};

const Number* number_of(std::string_view key, std::string_view family) {
  for (const Number& row : kNumbers) {
    if (row.key != key) continue;
    for (size_t at = 0; at < row.families.size();) {
      const size_t end = std::min(row.families.find(',', at), row.families.size());
      if (row.families.substr(at, end - at) == family) return &row;
      at = end + 1;
    }
  }
  return nullptr;
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
  if (key == "rope.scaling.attn_factor") return model.has_tensor(kLongRopeFactors);
  return family == "ministral3" && (key == "attention.temperature_scale" || key == "rope.scaling.yarn_log_multiplier");
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
  for (const char* name : {"attention.causal"}) {
    const std::string key = fmt::format("{}.{}", arch, name);
    if (const auto causal = keys.flag(key); causal && !*causal) keys.fail_key(key, "false is not supported");
  }
}

}  // namespace

std::shared_ptr<const GgufModel> GgufModel::open(const std::vector<fs::path>& paths, bool headers_only) {
  return std::make_shared<GgufModel>(GgufParts::open(paths, headers_only));
}

std::string GgufModel::arch() const { return std::string(family_of(keys()).gguf); }

std::vector<TensorView> GgufModel::tensors() const {
  std::vector<TensorView> out;
  for (const Gguf& part : parts_.all()) out.insert(out.end(), part.tensors().begin(), part.tensors().end());
  return out;
}

bool GgufModel::has_tensor(std::string_view name) const {
  const auto parts = parts_.all();
  return std::any_of(parts.begin(), parts.end(), [&](const Gguf& part) {
    const auto& tensors = part.tensors();
    return std::any_of(tensors.begin(), tensors.end(), [&](const TensorView& tensor) { return tensor.name == name; });
  });
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
  // Ministral 3: what its config.json calls mscale_all_dim, which its mscale equals.
  add("mscale", "scaling.yarn_log_multiplier");
  add("mscale_all_dim", "scaling.yarn_log_multiplier");
  if (const auto beta = file.decimal(arch() + ".attention.temperature_scale"))
    out += fmt::format(R"(,"llama_4_scaling_beta":{})", *beta);
  return out + "}";
}

// The sliding window in the words of the family's config.json, with a comma in front; "" without one.
std::string GgufModel::window_json(const std::string& family, int64_t layers) const {
  const std::string key = arch() + ".attention.sliding_window", pattern_key = key + "_pattern";
  const int64_t window = keys().integer(key, 0, kMaxCount).value_or(0);
  if (window == 0) return family == "mistral" ? R"(,"sliding_window":null)" : "";
  std::string types;
  if (keys().has(pattern_key)) {
    const auto pattern = *keys().flags(pattern_key);
    if (int64_t(pattern.size()) != layers) {
      keys().fail_key(pattern_key, fmt::format("expected {} layers, found {}", layers, pattern.size()));
    }
    for (const bool sliding : pattern) {
      if (!sliding && family == "mistral") keys().fail_key(pattern_key, "layers without window are not supported here");
      types += fmt::format(R"({}"{}")", types.empty() ? "" : ",", sliding ? "sliding_attention" : "full_attention");
    }
  }
  std::string out = fmt::format(R"(,"sliding_window":{})", window);
  if (family != "mistral") out += R"(,"use_sliding_window":true,"max_window_layers":0)";
  if (!types.empty()) out += fmt::format(R"(,"layer_types":[{}])", types);
  return out;
}

std::string GgufModel::config_json() const {
  const Gguf& file = keys();
  const Family& row = family_of(file);
  const std::string name(row.gguf);
  const auto key = [&](const char* rest) { return fmt::format("{}.{}", name, rest); };
  // Llama with a sliding window is called Mistral.
  const bool window = file.integer(key("attention.sliding_window"), 0, kMaxCount).value_or(0) > 0;
  const int64_t experts = file.integer(key("expert_count"), 0, kMaxCount).value_or(0);
  const std::string family(name == "llama" && experts > 0 ? "mixtral"
                           : name == "llama" && window    ? "mistral"
                                                          : row.name);
  if (experts > 0 && family != "mixtral" && family != "qwen3_moe")
    file.fail_key(key("expert_count"), fmt::format("{} is not supported for this architecture", experts));
  check_neutral(*this, name, family);

  const int64_t layers = required(file, key("block_count")), hidden = required(file, key("embedding_length"));
  const auto heads = same_for_all_layers(file, key("attention.head_count"));
  if (!heads) file.fail_key(key("attention.head_count"), "missing");
  const int64_t kv_heads = same_for_all_layers(file, key("attention.head_count_kv")).value_or(*heads);
  const auto inner = same_for_all_layers(file, key("feed_forward_length"));
  if (!inner) file.fail_key(key("feed_forward_length"), "missing");
  const auto key_length = file.integer(key("attention.key_length"), 1, kMaxCount);
  if (!key_length && hidden % *heads != 0) {
    file.fail_key(key("attention.key_length"), fmt::format("missing, and {} elements are no {} heads", hidden, *heads));
  }
  const int64_t head_dim = key_length.value_or(hidden / *heads);
  if (const auto value = file.integer(key("attention.value_length"), 0, kMaxCount); value && *value != head_dim) {
    file.fail_key(key("attention.value_length"),
                  fmt::format("not supported (expected {}, the length of a key, found {})", head_dim, *value));
  }
  const int64_t rotated = file.integer(key("rope.dimension_count"), 0, kMaxCount).value_or(head_dim);
  if (rotated > head_dim) {
    file.fail_key(key("rope.dimension_count"),
                  fmt::format("not supported (expected at most {}, the length of a key, found {})", head_dim, rotated));
  }
  auto vocab = file.integer(key("vocab_size"), 1, kMaxCount);
  if (!vocab) {
    if (const GgufValue* tokens = file.find("tokenizer.ggml.tokens")) vocab = int64_t(tokens->count);
  }
  if (!vocab) file.fail_key(key("vocab_size"), "missing");
  auto epsilon = file.decimal(key("attention.layer_norm_rms_epsilon"));
  if (!epsilon) epsilon = file.decimal(key("attention.layer_norm_epsilon"));
  if (!epsilon) file.fail_key(key("attention.layer_norm_rms_epsilon"), "missing");

  std::string out = fmt::format(
      R"({{"model_type":"{}","num_hidden_layers":{},"hidden_size":{},"num_attention_heads":{},"num_key_value_heads":{},)"
      R"("head_dim":{},"intermediate_size":{},"vocab_size":{},"rms_norm_eps":{},"rope_theta":{},"rope_scaling":{})",
      family, layers, hidden, *heads, kv_heads, head_dim, *inner, *vocab, *epsilon,
      file.decimal(key("rope.freq_base")).value_or("10000"), rope_scaling_json());
  if (const auto context = file.integer(key("context_length"), 1, kMaxCount)) {
    out += fmt::format(R"(,"max_position_embeddings":{})", *context);
  }
  out += fmt::format(R"(,"rope_adjacent_pairs":{})", row.gguf_adjacent_pairs);
  // Models without rotation say 0.
  if (rotated > 0) out += fmt::format(R"(,"rope.dimension_count":{})", rotated);
  // What Command R+ says by its tensors alone.
  if (family == "cohere" && has_tensor("blk.0.attn_q_norm.weight")) out += R"(,"use_qk_norm":true)";
  for (const Number& number : kNumbers) {
    const auto value = file.decimal(key(std::string(number.key).c_str()));
    if (value && number_of(number.key, family) == &number) out += fmt::format(R"(,"{}":{})", number.config_key, *value);
  }
  if (const auto base = file.decimal(key("rope.freq_base_swa")))
    out += fmt::format(R"(,"rope_local_base_freq":{})", *base);
  out += window_json(family, layers);
  if (experts > 0) {
    // llama.cpp divides the weights of both families by their sum.
    out += fmt::format(R"(,"num_local_experts":{0},"num_experts":{0},"num_experts_per_tok":{1},)"
                       R"("moe_intermediate_size":{2},"norm_topk_prob":true)",
                       experts, required(file, key("expert_used_count")),
                       file.integer(key("expert_feed_forward_length"), 1, kMaxCount).value_or(*inner));
  }
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
    case GgufTokenizer::kUnsupported: add("tokenizer.json", gguf_tokenizer_json); break;
  }
  add("tokenizer_config.json", gguf_tokenizer_config_json);
  add("generation_config.json", gguf_generation_config_json);
  return ModelFiles(fs::path(model->keys().file_name()), std::move(texts));
}

}  // namespace qgen
