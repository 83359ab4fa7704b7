#include "quantize/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "model/families/table.h"
#include "model/mistral_files.h"
#include "quant/weight.h"
#include "quantize/expert_matrices.h"
#include "quantize/gguf_layout.h"
#include "quantize/source.h"

namespace qgen::quantize {
namespace {

constexpr std::string_view kWeight = ".weight", kConfig = "config.json";

std::string_view torch_name(Dtype type) {
  return type == Dtype::kF32 ? "float32" : type == Dtype::kF16 ? "float16" : "bfloat16";
}

// A JSON object with one more member.
std::string with_member(const std::string& object, std::string_view key, std::string_view value) {
  const size_t end = object.rfind('}');
  const bool first = object.find('"') == object.npos;
  return fmt::format("{}{}{}:{}{}", object.substr(0, end), first ? "" : ",", json_quote(key), value,
                     object.substr(end));
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
      {{"llama", "granite", "smollm3", "ernie4_5", "ernie4_5_moe", "starcoder2", "falcon_h1"}, OutputBias::kWith, true},
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

// The files that the view reads, and vectors with other values than theirs.
struct Original {
  Checkpoint checkpoint;
  std::deque<std::vector<float>> vectors;
};

class View {
 public:
  explicit View(Checkpoint checkpoint) : original_(std::make_shared<Original>()), name_(checkpoint.location().name) {
    original_->checkpoint = std::move(checkpoint);
  }

  HuggingFaceView run() {
    const Checkpoint& from = original_->checkpoint;
    mistral_ = from.location().gguf_files.empty();
    family_ = find_family(from.config());
    const Description stored = describe(from.config());
    names_ = mistral_ ? Names::mistral() : Names::gguf();
    for (const auto& [role, name] : stored.gguf_names) {
      if (!mistral_) names_.set(role, name);
    }
    layers_ = int64_t(stored.layers.size());
    check_parts(stored);
    out_.float_type = stored_float_type();
    std::string config = config_text(stored);
    auto document = JsonDocument::parse(config, from.files().subject(kConfig));
    model_ = describe(document->root());
    find_roles();
    check_biases();
    for (const TensorView& tensor : from.tensors()) add(tensor);
    for (auto& [place, joined] : joined_) out_.joined.push_back(finished(place, std::move(joined)));
    ModelFiles files = files_with(std::move(config));
    ModelLocation location = from.location();
    location.gguf_files.clear();
    out_.parts = Checkpoint::assemble(location, files_with("{}"),
                                      JsonDocument::parse("{}", from.files().subject(kConfig)), std::move(parts_));
    out_.checkpoint = Checkpoint::assemble(location, std::move(files), std::move(document), std::move(tensors_));
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail(ErrorKind::kModel, fmt::format("{}: {}", name_, problem), "start from the model's Hugging Face files");
  }

  Dtype stored_float_type() const {
    bool f16 = false, f32 = false;
    for (const TensorView& tensor : original_->checkpoint.tensors()) {
      if (tensor.shape.size() < 2) continue;
      if (tensor.dtype == Dtype::kBf16 || dtype_bits(tensor.dtype) == 0 || dtype_bits(tensor.dtype) == 8)
        return Dtype::kBf16;
      f16 |= tensor.dtype == Dtype::kF16;
      f32 |= tensor.dtype == Dtype::kF32;
    }
    return f16 ? Dtype::kF16 : f32 ? Dtype::kF32 : Dtype::kBf16;
  }

  // Whether some layer has such a tensor.
  bool has(Role role, std::string_view suffix) const {
    for (int64_t layer = 0; layer < layers_; ++layer) {
      if (original_->checkpoint.find(names_.of(role, layer) + std::string(suffix)) != nullptr) return true;
    }
    return false;
  }

  // The keys of config.json in transformers' words. Those that it was read with stay, but for what speaks of the
  // other layout.
  std::string config_text(const Description& stored) const {
    const Json config = original_->checkpoint.config();
    const std::set<std::string_view> gone = {
        "rope_adjacent_pairs", "rope.dimension_count", "_name_or_path", "architectures",
        "torch_dtype",         "tie_word_embeddings",  "rope_scaling",  "rope_theta"};
    std::map<std::string, std::string> members;
    for (const auto& [key, value] : config.members()) {
      if (!gone.contains(key)) members[std::string(key)] = simdjson::minify(value.raw());
    }
    // transformers takes no integer for these.
    for (const char* key :
         {"routed_scaling_factor", "embedding_multiplier", "logits_scaling", "residual_multiplier",
          "attention_multiplier", "logit_scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
      const auto found = members.find(key);
      if (found != members.end() && found->second.find_first_not_of("-0123456789") == std::string::npos)
        found->second += ".0";
    }
    members["architectures"] = fmt::format("[{}]", json_quote(family_->architecture));
    members["torch_dtype"] = json_quote(torch_name(out_.float_type));
    if (const auto end = config.get("eos_token_id"); end && end->is_array() && end->count() == 0)
      members["eos_token_id"] = "null";
    // Its configurations have defaults of their own, beyond the vocabulary of a smaller model.
    members.try_emplace("pad_token_id", "null");
    // What transformers asks config.json for and others see by the tensors: a head of its own, biases, norms of heads.
    // The keys of one family mean nothing to the others.
    const auto say = [&](const char* key, bool value) { members[key] = value ? "true" : "false"; };
    say("tie_word_embeddings", config.flag_or("tie_word_embeddings", !has(Role::kHead, kWeight)));
    const bool qkv_bias = has(Role::kAttnQ, ".bias") || has(Role::kAttnQkv, ".bias"),
               qk_norm = has(Role::kAttnQNorm, kWeight);
    say("attention_bias", qkv_bias);
    say("mlp_bias", has(Role::kFfnUp, ".bias"));
    if (family_->name == "starcoder2" || family_->name.starts_with("ernie4_5")) say("use_bias", qkv_bias);
    const bool mamba_bias = has(Role::kMambaIn, ".bias");
    if (family_->name == "granitemoehybrid" || family_->name == "falcon_h1") say("mamba_proj_bias", mamba_bias);
    if (family_->name == "falcon_h1") say("projectors_bias", has(Role::kMambaOut, ".bias"));
    if (family_->name == "nemotron_h") say("use_bias", mamba_bias);
    if (family_->name == "seed_oss") say("attention_out_bias", has(Role::kAttnOut, ".bias"));
    if (family_->name == "stablelm") {
      say("use_qkv_bias", qkv_bias);
      say("qk_layernorm", qk_norm);
    }
    // What families call the same.
    const auto also = [&](const char* key, const char* name) {
      if (members.contains(name)) members.try_emplace(key, members[name]);
    };
    if (family_->name == "lfm2") also("norm_eps", "rms_norm_eps");
    if (family_->name == "nemotron_h") {
      also("layer_norm_epsilon", "rms_norm_eps");
      // transformers, and no other program, takes smaller step sizes for this one, which is 0.001 unless it is said.
      members["time_step_min"] = members["time_step_floor"] = "1e-9";
    }
    if (family_->name == "gemma4_text") also("vocab_size_per_layer_input", "vocab_size");
    // Files without groups of experts may say nothing of them, where transformers has defaults.
    if (members.contains("n_routed_experts")) {
      for (const char* key : {"n_group", "topk_group"}) members.try_emplace(key, "1");
    }
    // A GGUF file counts the one latent in place of its heads.
    if (has_mixer<LatentSpec>(stored.layers.front())) {
      members["num_key_value_heads"] = members["num_attention_heads"];
      members.try_emplace("q_lora_rank", "null");
    }
    if (stored.final_norm.kind == Norm::Kind::kLayer) {
      for (const char* key : {"layer_norm_eps", "norm_epsilon"}) members[key] = members["rms_norm_eps"];
    }
    add_rope(config, stored, members);
    std::string out = "{";
    for (const auto& [key, value] : members)
      out += fmt::format("{}\n  {}: {}", out.size() == 1 ? "" : ",", json_quote(key), value);
    return out + "\n}\n";
  }

  void add_rope(const Json& config, const Description& stored, std::map<std::string, std::string>& members) const {
    if (stored.ropes.empty()) return;
    const Rope& rope = stored.ropes.front();
    if (family_->name == "gemma4_text") {
      members["rope_parameters"] = ropes_of_gemma4(rope, stored.ropes.back());
      return;
    }
    members["rope_theta"] = fmt::format("{}", rope.theta);
    members["rope_scaling"] = "null";
    if (const auto parameters = config.get("rope_parameters"); parameters && rope.scaling != Rope::Scaling::kNone)
      members["rope_scaling"] = simdjson::minify(parameters->raw());
    if (const auto dim = config.get("rope.dimension_count")) {
      const int64_t rotated = dim->as_integer(), head = config.at("head_dim").as_integer(1);
      if (rotated != head) members["partial_rotary_factor"] = fmt::format("{}", double(rotated) / double(head));
    }
    const auto scaling = config.get("rope_scaling");
    if (!scaling) return;
    const auto type = scaling->get("rope_type");
    if (type && type->as_string() == "factors") {
      members["rope_scaling"] = llama3_scaling(rope);
    } else if (type && type->as_string() == "longrope") {
      members["rope_scaling"] = long_factors(*scaling);
      members["original_max_position_embeddings"] =
          fmt::format("{}", scaling->at("original_max_position_embeddings").as_integer());
    } else {
      members["rope_scaling"] = simdjson::minify(scaling->raw());
    }
  }

  // Layers without a window rotate a part of their pairs, whose divisors are 1; those of the others leave nothing.
  std::string ropes_of_gemma4(const Rope& global, const Rope& local) const {
    const TensorView* const tensor = original_->checkpoint.find("rope_freqs.weight");
    if (tensor == nullptr) refuse("a rotation in part without a tensor rope_freqs.weight");
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
    const TensorView* const tensor = original_->checkpoint.find("rope_freqs.weight");
    if (tensor == nullptr) refuse("a rotation by factors without a tensor rope_freqs.weight");
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
    refuse("its rotation has divisors that are not those of Llama 3, which config.json cannot say");
  }

  std::string long_factors(const Json& scaling) const {
    const auto list = [&](const char* name) {
      const TensorView* const tensor = original_->checkpoint.find(name);
      if (tensor == nullptr) refuse(fmt::format("a rotation without a tensor {}", name));
      std::string out;
      for (const float value : tensor_values(*tensor)) out += fmt::format("{}{}", out.empty() ? "" : ",", value);
      return out;
    };
    return fmt::format(R"({{"attention_factor":{},"long_factor":[{}],"rope_type":"longrope","short_factor":[{}],)"
                       R"("original_max_position_embeddings":{}}})",
                       scaling.at("attention_factor").as_number(), list("rope_factors_long.weight"),
                       list("rope_factors_short.weight"), scaling.at("original_max_position_embeddings").as_integer());
  }

  // Parts whose tensors are stored in another way than their names alone say are left to other tools.
  void check_parts(const Description& model) const {
    if (family_->architecture.ends_with("ForConditionalGeneration"))
      refuse("the text part of a multimodal model in this layout cannot be converted");
    for (const auto& layer : model.layers) {
      for (const BlockSpec& block : layer) {
        const MixtureSpec* const mixture = mixture_of(block);
        if (mixture != nullptr && (mixture->biased || mixture->only_stacked))
          refuse("experts that transformers stacks cannot be converted from this layout");
        const auto* attention = std::get_if<AttentionSpec>(&block.mixer);
        if (attention != nullptr && attention->sinks) refuse("attention with sinks in this layout cannot be converted");
      }
    }
    if (family_->name == "nemotron_h" && !has(Role::kHead, kWeight))
      refuse("a head that is the embedding cannot be converted, which transformers does not know of this family");
    if (model.transposed) refuse("matrices that transformers stores (inputs, outputs) cannot be converted");
  }

  // transformers leaves out a bias that its class does not have, and fills one that is missing with zeros.
  void check_biases() const {
    const Biases* const biases = biases_of(family_->name);
    const OutputBias out = biases == nullptr ? OutputBias::kNone : biases->out;
    const bool network = biases != nullptr && biases->network, head = biases != nullptr && biases->head;
    const auto refuse_bias = [&](const std::string& tensor, std::string_view problem) {
      refuse(fmt::format("tensor {}: {}, which config.json cannot say of family {}", tensor, problem, family_->name));
    };
    const auto check = [&](std::initializer_list<Role> roles, bool may, int64_t layer) {
      std::string there, missing;
      for (const Role role : roles) {
        const std::string module = names_.of(role, layer);
        if (module.empty() || original_->checkpoint.find(module + std::string(kWeight)) == nullptr) continue;
        const std::string bias = module + ".bias";
        (original_->checkpoint.find(bias) != nullptr ? there : missing) = bias;
      }
      if (there.empty()) return;
      if (!may) refuse_bias(there, "a bias");
      if (!missing.empty()) refuse_bias(missing, "no such bias beside others");
    };
    for (int64_t layer = 0; layer < int64_t(model_.layers.size()); ++layer) {
      if (out == OutputBias::kWith) {
        check({Role::kAttnQ, Role::kAttnK, Role::kAttnV, Role::kAttnQkv, Role::kAttnOut}, true, layer);
      } else {
        check({Role::kAttnQ, Role::kAttnK, Role::kAttnV, Role::kAttnQkv}, biases != nullptr && biases->attention,
              layer);
        check({Role::kAttnOut}, out == OutputBias::kApart, layer);
      }
      check({Role::kFfnGate, Role::kFfnUp, Role::kFfnDown}, network, layer);
    }
    check({Role::kHead}, head, 0);
  }

  struct Place {
    Role role;
    int64_t layer = 0;
  };

  void find_roles() {
    for (int64_t layer = 0; layer < int64_t(model_.layers.size()); ++layer) {
      const auto& blocks = model_.layers[size_t(layer)];
      for (int r = 0; r < int(Role::kCount); ++r) {
        const Role role = Role(r);
        // GGUF files call gate and up as one matrix what they call up otherwise.
        const bool apart =
            role == Role::kFfnUp && is_fused(layer) &&
            original_->checkpoint.find(names_.of(Role::kFfnGate, layer) + std::string(kWeight)) == nullptr;
        const std::string module = names_.of(role, layer);
        if (!module.empty() && !apart && may_have(blocks, role)) roles_.try_emplace(module, Place{role, layer});
      }
    }
  }

  const std::vector<BlockSpec>& layer_of(const Place& place) const { return model_.layers[size_t(place.layer)]; }

  // Whether transformers has the gate and up of a layer as one matrix.
  bool is_fused(int64_t layer) const {
    const auto* network = mixer_of<FeedForwardSpec>(model_.layers[size_t(layer)]);
    return network != nullptr && network->fused;
  }

  // The matrix that a part of the files belongs to in transformers; nothing for matrices of their own.
  std::optional<Role> whole_of(const Place& place) const {
    const bool fused = place.role == Role::kFfnGate || place.role == Role::kFfnUp;
    if (fused && is_fused(place.layer)) return Role::kFfnGateUp;
    if (place.role == Role::kLatentKUp || place.role == Role::kLatentVUp) return Role::kLatentKvUp;
    const auto* delta = mixer_of<DeltaSpec>(layer_of(place));
    if (delta != nullptr && delta->by_key_head && (place.role == Role::kDeltaQkv || place.role == Role::kDeltaZ))
      return Role::kDeltaQkvz;
    return {};
  }

  using Joined = std::map<Role, std::string>;  // the modules of the parts

  void add_to_joined(const TensorView& tensor, const Place& place, Role whole, std::string_view suffix) {
    if (suffix == ".bias")
      refuse(fmt::format("tensor {}: a bias of a part of a matrix cannot be converted", tensor.name));
    joined_[{place.layer, whole}][place.role] = tensor.name.substr(0, tensor.name.size() - suffix.size());
    parts_.push_back(tensor);
  }

  JoinedMatrix finished(const std::pair<int64_t, Role>& place, Joined joined) {
    const auto& [layer, whole] = place;
    JoinedMatrix out;
    out.name = model_.names.of(whole, layer);
    out.cols = model_.hidden;
    if (whole != Role::kLatentKvUp) out_.file_modules[out.name] = joined.begin()->second;
    const auto add_part = [&](Role role, int64_t rows, int64_t cols) -> JoinedMatrix::Part& {
      if (!joined.contains(role)) refuse(fmt::format("{} is not there", names_.of(role, layer)));
      return out.parts.emplace_back(JoinedMatrix::Part{joined[role], rows, cols});
    };
    const auto add_rows = [&](int32_t part, int64_t first, int64_t count) {
      for (int64_t n = 0; n < count; ++n) out.rows.emplace_back(part, first + n);
    };
    const auto& blocks = model_.layers[size_t(layer)];
    if (whole == Role::kFfnGateUp) {
      const int64_t width = mixer_of<FeedForwardSpec>(blocks)->width;
      add_part(Role::kFfnGate, width, out.cols);
      add_part(Role::kFfnUp, width, out.cols);
      for (const int32_t part : {0, 1}) add_rows(part, 0, width);
    } else if (whole == Role::kDeltaQkvz) {
      const DeltaSpec& delta = *mixer_of<DeltaSpec>(blocks);
      const std::vector<int64_t> qkv = rows_in_key_heads(delta, Role::kDeltaQkv),
                                 gates = rows_in_key_heads(delta, Role::kDeltaZ);
      add_part(Role::kDeltaQkv, int64_t(qkv.size()), out.cols);
      add_part(Role::kDeltaZ, int64_t(gates.size()), out.cols);
      out.rows.resize(qkv.size() + gates.size());
      for (size_t n = 0; n < qkv.size(); ++n) out.rows[size_t(qkv[n])] = {0, n};
      for (size_t n = 0; n < gates.size(); ++n) out.rows[size_t(gates[n])] = {1, n};
    } else {
      const LatentSpec& latent = *mixer_of<LatentSpec>(blocks);
      out.cols = latent.kv_rank;
      JoinedMatrix::Part& key = add_part(Role::kLatentKUp, latent.kv_rank, latent.plain_dim);
      key.count = latent.heads;
      key.transposed = true;
      add_part(Role::kLatentVUp, latent.value_dim, latent.kv_rank).count = latent.heads;
      for (int64_t h = 0; h < latent.heads; ++h) {
        add_rows(int32_t(h), 0, latent.plain_dim);
        add_rows(int32_t(latent.heads + h), 0, latent.value_dim);
      }
    }
    return out;
  }

  void add(const TensorView& tensor) {
    if (tensor.name.starts_with("rope_f")) return;  // in config.json
    // Some roles are those of a tensor, not of a module.
    if (const auto whole = roles_.find(tensor.name); whole != roles_.end()) {
      TensorView view = tensor;
      view.name = model_.names.of(whole->second.role, whole->second.layer);
      if (view.name.empty()) refuse(fmt::format("tensor {} has no name in transformers' files", tensor.name));
      move_back(view, whole->second);
      tensors_.push_back(std::move(view));
      return;
    }
    const size_t dot = tensor.name.rfind('.');
    const std::string module = tensor.name.substr(0, dot == tensor.name.npos ? 0 : dot);
    const auto found = roles_.find(module);
    if (found == roles_.end()) {
      for (int64_t i = model_.drafting_layers.first; i < model_.drafting_layers.second; ++i) {
        if (!tensor.name.starts_with(names_.layer_prefix(i))) continue;
        ++out_.left["for drafts"];
        return;
      }
      refuse(fmt::format("tensor {} has no place in transformers' files of family {}", tensor.name, family_->name));
    }
    const auto& [role, layer] = found->second;
    const std::string suffix = tensor.name.substr(dot);
    if (tensor.shape.size() == 3 && add_stack(tensor, found->second, suffix)) return;
    if (role == Role::kAttnQkv && !mixer_of<AttentionSpec>(layer_of(found->second))->fused)
      return add_attention_parts(tensor, layer, suffix);
    if (const auto whole = whole_of(found->second)) return add_to_joined(tensor, found->second, *whole, suffix);
    const std::string name = model_.names.of(role, layer);
    if (name.empty()) refuse(fmt::format("tensor {} has no name in transformers' files", tensor.name));
    if (suffix == kWeight) out_.file_modules[name] = module;
    TensorView view = tensor;
    view.name = name + suffix;
    if (const auto* attention = mixer_of<AttentionSpec>(layer_of(found->second)); attention && swaps_halves(role)) {
      const int64_t rows = attention->head_dim;
      if (model_.ropes.front().dim != rows) refuse("heads that are rotated in part cannot be converted");
      // Scales of a whole matrix have no rows.
      std::vector<int64_t> order = adjacent_rows(tensor.shape.empty() ? 0 : tensor.shape[0], rows);
      if (tensor.shape.size() == 1 && tensor.shape[0] % rows == 0) put_back(view, order);
      if (tensor.shape.size() == 2) out_.orders[name].rows = std::move(order);
    }
    move_back(view, found->second);
    // Other tensors of a quantized matrix keep their values.
    const bool is_vector = tensor.shape.size() == 1 && is_float(tensor.dtype);
    const bool plus_one = model_.final_norm.plus_one && role != Role::kDeltaNorm && role != Role::kSharedScore;
    if (is_vector && !mistral_ && plus_one && suffix == kWeight) {
      std::vector<float> values = tensor_values(tensor);
      for (float& value : values) value -= 1;
      own(view, std::move(values));
    }
    if (is_vector && role == Role::kSharedScore) view.shape = {1, tensor.shape[0]};
    tensors_.push_back(std::move(view));
  }

  // q, k and v that lie in one matrix, or vector, where transformers has three.
  void add_attention_parts(const TensorView& tensor, int64_t layer, const std::string& suffix) {
    const AttentionSpec& attention = *mixer_of<AttentionSpec>(model_.layers[size_t(layer)]);
    const int64_t q = attention.heads * attention.head_dim * (attention.output_gate ? 2 : 1);
    const int64_t kv = attention.kv_heads * attention.head_dim;
    const int64_t rows = q + 2 * kv;
    if (tensor.shape.empty() || tensor.shape[0] != rows)
      refuse(fmt::format("tensor {}: {} (expected {} rows)", tensor.name, tensor.shape_text(), rows));
    const size_t row_bytes = tensor.bytes.size() / size_t(rows);
    int64_t first = 0;
    for (const auto& [role, count] : {std::pair(Role::kAttnQ, q), {Role::kAttnK, kv}, {Role::kAttnV, kv}}) {
      TensorView part = tensor;
      part.name = names_.of(role, layer) + suffix;
      part.shape[0] = count;
      part.bytes = tensor.bytes.subspan(size_t(first) * row_bytes, size_t(count) * row_bytes);
      first += count;
      add(part);
    }
  }

  // Whether the tensor is a stack of experts, which are added then.
  bool add_stack(const TensorView& tensor, const Place& place, const std::string& suffix) {
    switch (place.role) {
      case Role::kExpertGates: add_experts(tensor, Role::kExpertGate, place.layer, suffix, 0, 1); return true;
      case Role::kExpertUps: add_experts(tensor, Role::kExpertUp, place.layer, suffix, 0, 1); return true;
      case Role::kExpertDowns: add_experts(tensor, Role::kExpertDown, place.layer, suffix, 0, 1); return true;
      case Role::kExpertGateUps:
        add_experts(tensor, Role::kExpertGate, place.layer, suffix, 0, 2);
        add_experts(tensor, Role::kExpertUp, place.layer, suffix, 1, 2);
        return true;
      default: return false;
    }
  }

  // Of each expert its share `part` of `parts`, rows that lie together.
  void add_experts(const TensorView& stack, Role expert, int64_t layer, const std::string& suffix, int64_t part,
                   int64_t parts) {
    const int64_t count = stack.shape[0];
    if (stack.shape[1] % parts != 0) refuse(fmt::format("tensor {}: an odd number of rows", stack.name));
    const size_t bytes = stack.bytes.size() / size_t(std::max<int64_t>(count * parts, 1));
    const std::string module = stack.name.substr(0, stack.name.size() - suffix.size());
    const size_t dot = module.rfind('.');
    for (int64_t e = 0; e < count; ++e) {
      TensorView view = stack;
      const std::string name = model_.names.of(expert, layer, e);
      out_.file_modules[name] = fmt::format("{}.{}{}", module.substr(0, dot), e, module.substr(dot));
      view.name = name + suffix;
      view.shape = {stack.shape[1] / parts, stack.shape[2]};
      view.bytes = stack.bytes.subspan(size_t(e * parts + part) * bytes, bytes);
      tensors_.push_back(std::move(view));
    }
  }

  bool swaps_halves(Role role) const {
    const bool rotated = role == Role::kAttnQ || role == Role::kAttnK;
    const bool half_split = !model_.ropes.empty() && model_.ropes.front().pairs == Rope::Pairs::kHalfSplit;
    return rotated && half_split && (mistral_ || family_->gguf_adjacent_pairs);
  }

  // A vector, or rows of floats, in the order that transformers has: row n is at order[n].
  void put_back(TensorView& view, const std::vector<int64_t>& order) {
    const std::vector<float> stored = tensor_values(view);
    if (order.size() != size_t(view.shape[0]))
      refuse(fmt::format("tensor {}: {} rows, where the model has {}", view.name, view.shape[0], order.size()));
    std::vector<float> values;
    const size_t width = stored.size() / order.size();
    for (const int64_t row : order)
      values.insert(values.end(), stored.begin() + row * int64_t(width), stored.begin() + (row + 1) * int64_t(width));
    own(view, std::move(values));
  }

  // What the converter does to the parts of recurrences: value heads in another order, -exp(a_log), a convolution
  // without its dimension of one, numbers of heads and norms of groups in rows.
  void move_back(TensorView& view, const Place& place) {
    const bool convolution = is_convolution(place.role), decay = is_decay(place.role);
    const bool row = decay || place.role == Role::kMambaSkip || place.role == Role::kMambaNorm;
    const bool numbers = convolution || row || view.shape.size() == 1;
    const auto* delta = mixer_of<DeltaSpec>(layer_of(place));
    std::vector<int64_t> rows, cols;
    if (delta != nullptr) {
      rows = gguf_rows_of(*delta, place.role);
      cols = gguf_cols_of(*delta, place.role);
    }
    if ((convolution || row || !rows.empty()) && numbers && !is_float(view.dtype))
      refuse(fmt::format("tensor {}: {} cannot be converted", view.name, dtype_name(view.dtype)));
    if (numbers && !rows.empty()) put_back(view, rows);
    if (!numbers && (!rows.empty() || !cols.empty())) {
      const std::string module = view.name.substr(0, view.name.rfind('.'));
      out_.orders[module] = {rows, cols};
    }
    if (decay) {
      std::vector<float> values = tensor_values(view);
      for (float& value : values) value = std::log(-value);
      own(view, std::move(values));
    }
    if (row) view.shape = {view.elements()};
    if (convolution && view.shape.size() == 2) view.shape.insert(view.shape.begin() + 1, 1);
  }

  void own(TensorView& view, std::vector<float> values) {
    original_->vectors.push_back(std::move(values));
    view.dtype = Dtype::kF32;
    view.bytes = std::as_bytes(std::span(original_->vectors.back()));
  }

  ModelFiles files_with(std::string config) const {
    ModelFiles::Texts texts;
    for (const std::string& name : original_->checkpoint.files().names()) {
      if (mistral_ && !std::filesystem::is_regular_file(original_->checkpoint.location().folder / name)) continue;
      texts[name] = [original = original_, name] { return original->checkpoint.files().read(name); };
    }
    texts.erase("params.json");
    // The tensors' owner, too, whatever files there are.
    texts[std::string(kConfig)] = [original = original_, config = std::move(config)] { return config; };
    if (mistral_) return ModelFiles(original_->checkpoint.files().place(), std::move(texts));
    // Without these transformers takes a class by the family, which may split words in another way, and no end token.
    const bool pieces = texts.contains("tokenizer.model");
    const std::string_view tokenizer = !pieces                              ? "PreTrainedTokenizerFast"
                                       : family_->name.starts_with("gemma") ? "GemmaTokenizer"
                                                                            : "LlamaTokenizer";
    texts["tokenizer_config.json"] = [original = original_, tokenizer] {
      return with_member(original->checkpoint.files().read("tokenizer_config.json"), "tokenizer_class",
                         json_quote(tokenizer));
    };
    const auto end = original_->checkpoint.config().get("eos_token_id");
    const bool ends = end && end->is_array() && end->count() > 0;
    texts["generation_config.json"] = [original = original_, ends, ids = ends ? simdjson::minify(end->raw()) : ""] {
      const std::string text = original->checkpoint.files().read("generation_config.json");
      return ends ? with_member(text, "eos_token_id", ids) : text;
    };
    return ModelFiles(original_->checkpoint.files().place(), std::move(texts));
  }

  std::shared_ptr<Original> original_;
  const std::string name_;
  bool mistral_ = false;
  const Family* family_ = nullptr;
  int64_t layers_ = 0;
  Description model_;
  Names names_ = Names::gguf();
  std::unordered_map<std::string, Place> roles_;
  std::vector<TensorView> tensors_, parts_;
  std::map<std::pair<int64_t, Role>, Joined> joined_;  // by layer and what they become
  HuggingFaceView out_;
};

}  // namespace

bool has_other_layout(const Checkpoint& checkpoint) {
  return !checkpoint.location().gguf_files.empty() || is_mistral_native(checkpoint);
}

HuggingFaceView as_hugging_face(Checkpoint checkpoint) { return View(std::move(checkpoint)).run(); }

}  // namespace qgen::quantize
