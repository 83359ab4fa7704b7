#include "quantize/hugging_face_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "quant/weight.h"

namespace qgen::quantize {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string_view torch_name(Dtype type) {
  return type == Dtype::kF32 ? "float32" : type == Dtype::kF16 ? "float16" : "bfloat16";
}

// Linear layers that have a bias in transformers' classes: q, k and v, and the others that are named, where config.json
// says so or always, and then all of them. kWith: the output of attention has one where q, k and v do; kApart: whether
// they do or not. Source: transformers 5.23, models/*/modeling_*.py.
enum class OutputBias : uint8_t { kNone, kWith, kApart };
struct Biases {
  std::vector<std::string_view> families;
  OutputBias out = OutputBias::kNone;
  bool network = false, head = false, attention = true;
};

// Null for a family without any.
const Biases* biases_of(std::string_view family) {
  static const std::vector<Biases> all = {
      {{"llama", "granite", "arcee", "nemotron", "smollm3", "ernie4_5", "ernie4_5_moe", "starcoder2", "falcon_h1"},
       OutputBias::kWith,
       true},
      {{"gemma4_text", "llama4_text", "granitemoehybrid", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"},
       OutputBias::kWith},
      {{"nemotron_h"}, OutputBias::kNone, true, false, false},
      {{"qwen3", "qwen3_moe", "cohere", "cohere2", "olmo2", "olmoe", "hunyuan_v1_dense"}, OutputBias::kWith},
      {{"gemma", "gemma2", "gemma3_text"}, OutputBias::kWith},
      {{"qwen2", "qwen2_moe", "glm4", "glm4_moe", "stablelm"}, OutputBias::kNone},
      {{"seed_oss"}, OutputBias::kApart, true},
      {{"phi"}, OutputBias::kWith, true, true}};
  const auto found =
      std::ranges::find_if(all, [&](const Biases& row) { return std::ranges::count(row.families, family) > 0; });
  return found == all.end() ? nullptr : &*found;
}

class ConfigWriter {
 public:
  ConfigWriter(const OtherLayout& files, Dtype float_type) : files_(files) {
    keep_members();
    set("architectures", fmt::format("[{}]", json_quote(files.family.architecture)));
    set("torch_dtype", json_quote(torch_name(float_type)));
    say_what_tensors_say();
    say_otherwise();
    say_rotation();
    say_score_scale();
    say_other_family();
    say_full_attention();
  }

  std::string text() const {
    std::string out = "{";
    for (const auto& [key, value] : members_)
      out += fmt::format("{}\n  {}: {}", out.size() == 1 ? "" : ",", json_quote(key), value);
    return out + "\n}\n";
  }

 private:
  void set(const char* key, std::string value) { members_[key] = std::move(value); }
  void set(const char* key, bool value) { set(key, std::string(value ? "true" : "false")); }
  void set_default(const char* key, const char* value) { members_.try_emplace(key, value); }
  bool has(const char* key) const { return members_.contains(key); }
  bool is_one_of(std::initializer_list<std::string_view> families) const {
    return std::ranges::count(families, family_) > 0;
  }

  void keep_members() {
    if (is_one_of({"glm", "glm4"}) && !config_.flag_or("rope_adjacent_pairs", true))
      config_.fail("rope.dimension_sections: a model of pictures cannot be converted");
    const std::set<std::string_view> gone = {
        "rope_adjacent_pairs", "rope.dimension_count", "_name_or_path", "architectures",
        "torch_dtype",         "tie_word_embeddings",  "rope_scaling",  "rope_theta"};
    for (const auto& [key, value] : config_.members()) {
      if (!gone.contains(key)) members_[std::string(key)] = simdjson::minify(value.raw());
    }
    // transformers takes no integer for these.
    for (const char* key :
         {"routed_scaling_factor", "embedding_multiplier", "logits_scaling", "residual_multiplier",
          "attention_multiplier", "logit_scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
      const auto found = members_.find(key);
      if (found != members_.end() && found->second.find_first_not_of("-0123456789") == std::string::npos)
        found->second += ".0";
    }
  }

  // What transformers asks config.json for and others see by the tensors: a head of its own, biases, norms of heads.
  // The keys of one family mean nothing to the others.
  void say_what_tensors_say() {
    set("tie_word_embeddings", config_.flag_or("tie_word_embeddings", !files_.has(Role::kHead, kWeight)));
    const bool qkv_bias = files_.has(Role::kAttnQ, ".bias") || files_.has(Role::kAttnQkv, ".bias");
    const bool mamba_bias = files_.has(Role::kMambaIn, ".bias");
    set("attention_bias", qkv_bias);
    set("mlp_bias", files_.has(Role::kFfnUp, ".bias"));
    if (is_one_of({"starcoder2", "ernie4_5", "ernie4_5_moe"})) set("use_bias", qkv_bias);
    if (is_one_of({"granitemoehybrid", "falcon_h1"})) set("mamba_proj_bias", mamba_bias);
    if (family_ == "falcon_h1") set("projectors_bias", files_.has(Role::kMambaOut, ".bias"));
    if (family_ == "nemotron_h") set("use_bias", mamba_bias);
    if (family_ == "seed_oss") set("attention_out_bias", files_.has(Role::kAttnOut, ".bias"));
    if (family_ == "stablelm") {
      set("use_qkv_bias", qkv_bias);
      set("qk_layernorm", files_.has(Role::kAttnQNorm, kWeight));
    }
  }

  // What families call otherwise, and defaults of transformers that the files do not have.
  void say_otherwise() {
    const auto also = [&](const char* key, const char* name) {
      if (has(name)) members_.try_emplace(key, members_[name]);
    };
    if (const auto end = config_.get("eos_token_id"); end && end->is_array() && end->count() == 0)
      set("eos_token_id", std::string("null"));
    set_default("pad_token_id", "null");  // or a number beyond the vocabulary of a smaller model
    if (family_ == "lfm2") also("norm_eps", "rms_norm_eps");
    if (family_ == "nemotron_h") {
      also("layer_norm_epsilon", "rms_norm_eps");
      // transformers, and no other program, takes smaller step sizes for this one, which is 0.001 unless it is said.
      for (const char* key : {"time_step_min", "time_step_floor"}) set(key, std::string("1e-9"));
    }
    if (family_ == "gemma4_text") also("vocab_size_per_layer_input", "vocab_size");
    // Files without groups of experts may say nothing of them.
    if (has("n_routed_experts")) {
      for (const char* key : {"n_group", "topk_group"}) set_default(key, "1");
      set_default("first_k_dense_replace", "0");
    }
    // A GGUF file counts the one latent in place of its heads.
    if (has_mixer<LatentSpec>(files_.model.layers.front())) {
      members_["num_key_value_heads"] = members_["num_attention_heads"];
      set_default("q_lora_rank", "null");
    }
    if (files_.model.final_norm.kind == Norm::Kind::kLayer) {
      for (const char* key : {"layer_norm_eps", "norm_epsilon"}) members_[key] = members_["rms_norm_eps"];
    }
  }

  // Families that share an architecture in GGUF.
  void say_other_family() {
    const auto is = [&](const char* type, const char* architecture) {
      set("model_type", json_quote(type));
      set("architectures", fmt::format("[{}]", json_quote(architecture)));
    };
    if (family_ == "olmo2" && has("sliding_window")) is("olmo3", "Olmo3ForCausalLM");
    if (family_ != "ministral3") return;
    // Ministral3Config takes another rotation for none, and asks for the factor of its temperature.
    std::string& scaling = members_["rope_scaling"];
    if (scaling == "null") {
      is("mistral", "MistralForCausalLM");
      set("sliding_window", std::string("null"));
    } else if (scaling.find("llama_4_scaling_beta") == std::string::npos) {
      scaling.insert(scaling.size() - 1, R"(,"llama_4_scaling_beta":0.0)");
    }
  }

  // transformers takes layers with windows for granted where nothing is said.
  void say_full_attention() {
    if (!is_one_of({"gemma3_text", "exaone4"})) return;
    if (has("sliding_window") && members_["sliding_window"] != "null") return;
    const std::vector<std::string_view> types(files_.model.layers.size(), R"("full_attention")");
    // Gemma 3 makes the mask of a window that no layer has.
    set("sliding_window", std::string(family_ == "gemma3_text" ? "4096" : "null"));
    set("layer_types", fmt::format("[{}]", fmt::join(types, ",")));
  }

  // GGUF files have it in no key: llama.cpp knows it by the model.
  void say_score_scale() {
    if (!is_one_of({"gemma2", "gemma3_text"})) return;
    const auto& attention = std::get<AttentionSpec>(files_.model.layers.front().front().mixer);
    set("query_pre_attn_scalar", fmt::format("{}", std::llround(1 / (attention.scale * attention.scale))));
  }

  void say_rotation() {
    if (files_.model.ropes.empty()) return;
    const Rope& rope = files_.model.ropes.front();
    if (family_ == "gemma4_text") return set("rope_parameters", ropes_of_gemma4(rope, files_.model.ropes.back()));
    set("rope_theta", fmt::format("{}", rope.theta));
    if (const auto dim = config_.get("rope.dimension_count")) {
      const int64_t rotated = dim->as_integer(), head = config_.at("head_dim").as_integer(1);
      // These rotate a part where nothing is said.
      const bool part = rotated != head || is_one_of({"glm", "glm4", "glm4_moe", "phi", "stablelm", "nemotron"});
      if (part) set("partial_rotary_factor", fmt::format("{}", double(rotated) / double(head)));
    }
    const auto parameters = config_.get("rope_parameters"), scaling = config_.get("rope_scaling");
    if (!scaling) {
      const bool scaled = parameters && rope.scaling != Rope::Scaling::kNone;
      return set("rope_scaling", scaled ? std::string(simdjson::minify(parameters->raw())) : "null");
    }
    const auto type = scaling->get("rope_type");
    const std::string_view name = type ? type->as_string() : std::string_view();
    if (name == "longrope") {
      set("original_max_position_embeddings",
          fmt::format("{}", scaling->at("original_max_position_embeddings").as_integer()));
    }
    set("rope_scaling", name == "factors"    ? llama3_scaling(rope)
                        : name == "longrope" ? long_factors(*scaling)
                                             : std::string(simdjson::minify(scaling->raw())));
  }

  // Layers without a window rotate a part of their pairs, whose divisors are 1; those of the others leave nothing.
  std::string ropes_of_gemma4(const Rope& global, const Rope& local) const {
    const TensorView* const tensor = files_.checkpoint.find("rope_freqs.weight");
    if (tensor == nullptr) files_.refuse("a rotation in part without a tensor rope_freqs.weight");
    const std::vector<float> divisors = tensor_values(*tensor);
    const int64_t rotated = std::ranges::find_if(divisors, [](float x) { return x != 1; }) - divisors.begin();
    return fmt::format(
        R"({{"full_attention":{{"partial_rotary_factor":{},"rope_theta":{},"rope_type":"proportional"}},)"
        R"("sliding_attention":{{"rope_theta":{},"rope_type":"default"}}}})",
        double(rotated) / double(divisors.size()), global.theta, local.theta);
  }

  // GGUF files keep Llama 3's scaling as the divisors of frequencies that follow from it. The factor is the largest of
  // them; of its limits Llama 3's models say 1 and 4, Llama 4's 1 and 1, and the original context is a power of two
  // (8192 of Meta's).
  std::string llama3_scaling(const Rope& rope) const {
    const TensorView* const tensor = files_.checkpoint.find("rope_freqs.weight");
    if (tensor == nullptr) files_.refuse("a rotation by factors without a tensor rope_freqs.weight");
    const std::vector<float> divisors = tensor_values(*tensor);
    Rope plain;
    plain.dim = rope.dim;
    plain.theta = rope.theta;
    Rope scaled = plain;
    scaled.scaling = Rope::Scaling::kLlama3;
    scaled.factor = divisors.empty() ? 1 : *std::ranges::max_element(divisors);
    scaled.low_frequency_factor = 1;
    const auto unscaled = inverse_frequencies(plain, 0);
    const auto fits = [&] {
      constexpr double kRounding = 1e-5;
      const auto wanted = inverse_frequencies(scaled, 0);
      bool same = divisors.size() == wanted.size();
      for (size_t i = 0; same && i < wanted.size(); ++i)
        same = std::fabs(unscaled[i] / wanted[i] / double(divisors[i]) - 1) < kRounding;
      return same;
    };
    // From the largest context on: where several fit, none of them scales a frequency otherwise.
    for (const double limit : {4, 1}) {
      scaled.high_frequency_factor = limit;
      for (scaled.original_context = int64_t{1} << 20; scaled.original_context > 1; scaled.original_context /= 2) {
        if (!fits()) continue;
        return fmt::format(
            R"({{"factor":{},"high_freq_factor":{:.1f},"low_freq_factor":1.0,"original_max_position_embeddings":{},)"
            R"("rope_type":"llama3"}})",
            double(scaled.factor), limit, scaled.original_context);
      }
    }
    files_.refuse("its rotation has divisors that are not those of Llama 3, which config.json cannot say");
  }

  std::string long_factors(const Json& scaling) const {
    const auto list = [&](const char* name) {
      const TensorView* const tensor = files_.checkpoint.find(name);
      if (tensor == nullptr) files_.refuse(fmt::format("a rotation without a tensor {}", name));
      std::string out;
      for (const float value : tensor_values(*tensor)) out += fmt::format("{}{}", out.empty() ? "" : ",", value);
      return out;
    };
    return fmt::format(R"({{"attention_factor":{},"long_factor":[{}],"rope_type":"longrope","short_factor":[{}],)"
                       R"("original_max_position_embeddings":{}}})",
                       scaling.at("attention_factor").as_number(), list("rope_factors_long.weight"),
                       list("rope_factors_short.weight"), scaling.at("original_max_position_embeddings").as_integer());
  }

  const OtherLayout& files_;
  const std::string_view family_ = files_.family.name;
  const Json config_ = files_.checkpoint.config();
  std::map<std::string, std::string> members_;  // of the object, their values as JSON
};

}  // namespace

void refuse_conversion(const std::string& name, const std::string& problem) {
  fail(ErrorKind::kModel, fmt::format("{}: {}", name, problem), "start from the model's Hugging Face files");
}

const TensorView* OtherLayout::find(Role role, int64_t layer, std::string_view suffix) const {
  return checkpoint.find(names.of(role, layer) + std::string(suffix));
}

bool OtherLayout::has(Role role, std::string_view suffix) const {
  for (int64_t layer = 0; layer < layers(); ++layer) {
    if (find(role, layer, suffix) != nullptr) return true;
  }
  return false;
}

void OtherLayout::refuse(const std::string& problem) const { refuse_conversion(checkpoint.location().name, problem); }

std::string hugging_face_config(const OtherLayout& files, Dtype float_type) {
  return ConfigWriter(files, float_type).text();
}

void check_biases(const OtherLayout& files) {
  const Biases* const biases = biases_of(files.family.name);
  const OutputBias out = biases == nullptr ? OutputBias::kNone : biases->out;
  const bool network = biases != nullptr && biases->network, head = biases != nullptr && biases->head;
  const auto refuse_bias = [&](const std::string& tensor, std::string_view problem) {
    files.refuse(
        fmt::format("tensor {}: {}, which config.json cannot say of family {}", tensor, problem, files.family.name));
  };
  const auto check = [&](std::initializer_list<Role> roles, bool may, int64_t layer) {
    std::string there, missing;
    for (const Role role : roles) {
      const std::string module = files.names.of(role, layer);
      if (module.empty() || files.checkpoint.find(module + std::string(kWeight)) == nullptr) continue;
      const std::string bias = module + ".bias";
      (files.checkpoint.find(bias) != nullptr ? there : missing) = bias;
    }
    if (there.empty()) return;
    if (!may) refuse_bias(there, "a bias");
    if (!missing.empty()) refuse_bias(missing, "no such bias beside others");
  };
  for (int64_t layer = 0; layer < files.layers(); ++layer) {
    if (out == OutputBias::kWith) {
      check({Role::kAttnQ, Role::kAttnK, Role::kAttnV, Role::kAttnQkv, Role::kAttnOut}, true, layer);
    } else {
      check({Role::kAttnQ, Role::kAttnK, Role::kAttnV, Role::kAttnQkv}, biases != nullptr && biases->attention, layer);
      check({Role::kAttnOut}, out == OutputBias::kApart, layer);
    }
    check({Role::kFfnGate, Role::kFfnUp, Role::kFfnDown}, network, layer);
  }
  check({Role::kHead}, head, 0);
}

}  // namespace qgen::quantize
