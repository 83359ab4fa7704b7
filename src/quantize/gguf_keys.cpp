// The keys that llama.cpp's converter writes for an architecture (conversion/base.py, llama.py, gemma.py and others).
#include <algorithm>
#include <numeric>
#include <optional>
#include <variant>

#include <fmt/format.h>

#include "quantize/expert_matrices.h"
#include "quantize/gguf_architecture.h"

namespace qgen::quantize {
namespace {

// general.file_type of llama.cpp (llama.h, enum llama_ftype) and the version of its block types.
constexpr int64_t kMostlyQ8_0 = 7, kQuantizationVersion = 2;

constexpr int64_t kMaxSection = 4096;

class KeysWriter {
 public:
  KeysWriter(const GgufArchitecture& of, const std::string& name, GgufKeys& keys)
      : of_(of),
        model_(of.model),
        arch_(of.name),
        attention_(of.attention),
        delta_(of.delta),
        mamba_(of.mamba),
        latent_(of.latent),
        name_(name),
        keys_(keys) {}

  void run(const Json& config) {
    keys_.text("general.architecture", arch_);
    keys_.text("general.type", "model");
    const auto path = config.get("_name_or_path");
    keys_.text("general.name", path && !path->as_string().empty() ? path->as_string() : std::string_view(name_));
    keys_.number("general.file_type", kMostlyQ8_0);
    keys_.number("general.quantization_version", kQuantizationVersion);
    number("block_count", int64_t(model_.layers.size()));
    number("context_length", model_.context);
    number("embedding_length", model_.hidden);
    number("vocab_size", model_.vocab);
    write_attention();
    const bool layer_norm = model_.final_norm.kind == Norm::Kind::kLayer;
    real(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", model_.final_norm.eps);
    // Its loader asks for this one, the norms for the other.
    if (is_nemotron()) real("attention.layer_norm_epsilon", model_.final_norm.eps);
    write_feed_forward();
    write_recurrence();
    write_sections(config);
    write_mamba();
    if (of_.convolution != nullptr) number("shortconv.l_cache", of_.convolution->taps);
    write_scales();
    write_windows();
    write_rope(config);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { refuse_gguf(name_, problem); }

  std::string key(std::string_view rest) const { return fmt::format("{}.{}", arch_, rest); }
  void number(std::string_view rest, int64_t value) { keys_.number(key(rest), value); }
  void real(std::string_view rest, double value) { keys_.real(key(rest), value); }

  void write_attention() {
    if (latent_ != nullptr) return write_latent();
    number("attention.head_count", attention_->heads);
    if (arch_ == "gemma4") return write_both_kinds();
    if (of_.is_mixed()) {
      // None in layers without attention.
      keys_.integers(key("attention.head_count_kv"), of_layers([](const BlockSpec& block) {
                       const auto* attention = std::get_if<AttentionSpec>(&block.mixer);
                       return attention != nullptr ? attention->kv_heads : 0;
                     }));
    } else {
      number("attention.head_count_kv", attention_->kv_heads);
    }
    number("attention.key_length", attention_->head_dim);
    number("attention.value_length", attention_->head_dim);
  }

  // A number of each layer, which one of its branches has.
  template <typename Of>
  std::vector<int32_t> of_layers(const Of& number_of) const {
    std::vector<int32_t> out;
    for (const auto& layer : model_.layers) {
      int64_t most = 0;
      for (const BlockSpec& block : layer) most = std::max(most, number_of(block));
      out.push_back(int32_t(most));
    }
    return out;
  }

  // Keys in _swa are of layers with a window.
  void write_both_kinds() {
    const AttentionSpec& global = *of_.global;
    std::vector<int32_t> heads, widths;
    for (const auto& layer : model_.layers) {
      heads.push_back(int32_t(std::get<AttentionSpec>(layer[0].mixer).kv_heads));
      widths.push_back(int32_t(network_of(layer)->width));
    }
    keys_.integers(key("attention.head_count_kv"), heads);
    keys_.integers(key("feed_forward_length"), widths);
    for (const char* part : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      number(part, global.head_dim);
      number(fmt::format("{}_swa", part), attention_->head_dim);
    }
    number("embedding_length_per_layer_input", model_.per_layer_width);
    number("attention.shared_kv_layers", std::ranges::count_if(model_.layers, [](const auto& layer) {
             return std::get<AttentionSpec>(layer[0].mixer).shares_layer >= 0;
           }));
  }

  void write_latent() {
    number("attention.head_count", latent_->heads);
    number("attention.head_count_kv", 1);
    number("attention.key_length", latent_->kv_rank + latent_->rotated_dim);
    number("attention.value_length", latent_->kv_rank);
    number("attention.key_length_mla", latent_->plain_dim + latent_->rotated_dim);
    number("attention.value_length_mla", latent_->value_dim);
    if (latent_->q_rank > 0) number("attention.q_lora_rank", latent_->q_rank);
    number("attention.kv_lora_rank", latent_->kv_rank);
  }

  static const FeedForwardSpec* network_of(const std::vector<BlockSpec>& layer) {
    if (const auto* both = std::get_if<DoubleFeedForwardSpec>(&layer[1].mixer)) return &both->network;
    return std::get_if<FeedForwardSpec>(&layer[1].mixer);
  }

  bool is_nemotron() const { return arch_.starts_with("nemotron_h"); }
  bool is_granite() const { return arch_.starts_with("granite"); }

  // A layer is one branch there.
  void write_feed_forward_of_nemotron() {
    const MixtureSpec* mixture = nullptr;
    keys_.integers(key("feed_forward_length"), of_layers([&](const BlockSpec& block) {
                     const auto* network = std::get_if<FeedForwardSpec>(&block.mixer);
                     if (mixture_of(block) != nullptr) mixture = mixture_of(block);
                     return network != nullptr ? network->width : mixture_of(block) != nullptr ? mixture->width : 0;
                   }));
    if (mixture != nullptr) write_mixture(*mixture);
  }

  // A shared network in every layer, with a mixture beside it or not.
  void write_feed_forward_of_granite() {
    const auto& layer = model_.layers.front();
    const FeedForwardSpec* const network = network_of(layer);
    const MixtureSpec* const mixture = mixture_of(layer.back());
    number("feed_forward_length", mixture != nullptr ? mixture->width : network->width);
    if (mixture == nullptr) return;
    write_mixture(*mixture);
    if (network != nullptr) number("expert_shared_feed_forward_length", network->width);
  }

  void write_feed_forward() {
    if (is_nemotron()) return write_feed_forward_of_nemotron();
    if (is_granite()) return write_feed_forward_of_granite();
    const MixtureSpec* mixture = nullptr;
    const FeedForwardSpec* network = nullptr;
    std::vector<bool> mixtures;
    for (const auto& layer : model_.layers) {
      if (layer.size() < 2 || (layer.size() > 2 && arch_ != "gemma4"))
        refuse("layers of different kinds are not written to GGUF files");
      const auto* const of_layer = mixture_of(layer[1]);
      const auto* const plain = network_of(layer);
      if (of_layer == nullptr && plain == nullptr) refuse("layers of different kinds are not written to GGUF files");
      if (of_layer != nullptr) mixture = of_layer;
      if (plain != nullptr) network = plain;
      mixtures.push_back(of_layer != nullptr);
    }
    if (arch_ != "gemma4") number("feed_forward_length", network != nullptr ? network->width : mixture->width);
    if (mixture == nullptr) return;
    write_mixture(*mixture);
    write_mixture_layers(mixtures);
  }

  // Which layers have experts: all but leading dense ones, or every n-th.
  void write_mixture_layers(const std::vector<bool>& mixtures) {
    const int64_t first = std::ranges::find(mixtures, true) - mixtures.begin();
    const bool every = arch_ == "llama4";
    const int64_t step = every ? first + 1 : 1;
    for (int64_t i = 0; i < int64_t(mixtures.size()); ++i) {
      // llama.cpp's loaders ask for experts in every layer behind the first dense ones, ERNIE's too, whose key of a
      // step says otherwise.
      if (mixtures[size_t(i)] != ((i + 1) % step == 0 && i >= first))
        refuse("layers of different kinds are not written to GGUF files");
    }
    if (first > 0 && !every && !has_leading_layers())
      refuse("dense layers before those with experts are not written to GGUF files of this kind");
    if (every || is_ernie()) number("interleave_moe_layer_step", step);
    if (has_leading_layers()) number("leading_dense_block_count", first);
  }

  bool is_ernie() const { return arch_ == "ernie4_5-moe"; }
  // Where no key does not mean none.
  bool has_leading_layers() const { return arch_ == "deepseek2" || arch_ == "glm4moe" || is_ernie(); }

  void write_mixture(const MixtureSpec& mixture) {
    if (mixture.biased && arch_ != "gpt-oss") refuse("experts with biases are not written to GGUF files");
    // llama.cpp ranks groups of experts by their two best (build_moe_ffn).
    if (mixture.groups > 1 && mixture.rank != RouteStep::Rank::kTwoBest)
      refuse("groups of experts that are ranked by their best one are not written to GGUF files");
    number("expert_feed_forward_length", mixture.width);
    number("expert_count", mixture.experts);
    number("expert_used_count", mixture.chosen);
    if (mixture.latent > 0) number("moe_latent_size", mixture.latent);
    if (mixture.shared_width == 0 && has_leading_layers()) number("expert_shared_count", 0);
    if (mixture.shared_width > 0 && mixture.shared_score) {
      number("expert_shared_feed_forward_length", mixture.shared_width);
    } else if (is_nemotron()) {
      number("expert_shared_count", mixture.shared_width > 0 ? 1 : 0);
      if (mixture.shared_width > 0) number("expert_shared_feed_forward_length", mixture.shared_width);
    } else if (mixture.shared_width > 0) {
      if (mixture.shared_width % mixture.width != 0) refuse("a shared expert of this width has no place in GGUF files");
      number("expert_shared_count", mixture.shared_width / mixture.width);
      if (is_ernie() || arch_ == "hunyuan-moe") number("expert_shared_feed_forward_length", mixture.shared_width);
    }
    if (mixture.groups > 1) {
      number("expert_group_count", mixture.groups);
      number("expert_group_used_count", mixture.kept_groups);
    }
    if (mixture.score == RouteStep::Score::kSigmoid) {
      constexpr int64_t kSigmoid = 2;  // llama.cpp, enum llama_expert_gating_func_type
      number("expert_gating_func", kSigmoid);
      keys_.flag(key("expert_weights_norm"), mixture.normalized);
    }
    if (mixture.scale != 1) real("expert_weights_scale", mixture.scale);
  }

  void write_recurrence() {
    if (delta_ == nullptr) return;
    number("ssm.conv_kernel", delta_->taps);
    number("ssm.state_size", delta_->key_dim);
    number("ssm.group_count", delta_->key_heads);
    number("ssm.time_step_rank", delta_->value_heads);
    number("ssm.inner_size", delta_->value_heads * delta_->value_dim);
    keys_.flags(key("attention.recurrent_layers"), of_.recurrent);
    number("full_attention_interval", std::ranges::find(of_.recurrent, false) - of_.recurrent.begin() + 1);
  }

  // Of the positions of images, which text has none of; llama.cpp asks for them.
  void write_sections(const Json& whole) {
    constexpr std::string_view kArchitectures[] = {"qwen35", "qwen35moe", "qwen3vl", "qwen3vlmoe", "qwen2vl"};
    if (std::ranges::count(kArchitectures, arch_) == 0) return;
    const auto text = whole.get("text_config");
    const Json config = text && text->is_object() ? *text : whole;
    const auto vision = whole.get("vision_config");
    const auto deep = vision && vision->is_object() ? vision->get("deepstack_visual_indexes") : std::nullopt;
    if (deep && deep->is_array()) number("n_deepstack_layers", int64_t(deep->count()));
    std::vector<int32_t> sections = {11, 11, 10};  // the default of transformers for Qwen3.5
    for (const char* parameters : {"rope_parameters", "rope_scaling"}) {
      const auto rope = config.get(parameters);
      const auto list = rope && rope->is_object() ? rope->get("mrope_section") : std::nullopt;
      if (!list) continue;
      sections.clear();
      if (list->elements().size() > 4) list->fail("more than 4 sections");
      for (const Json& section : list->elements()) sections.push_back(int32_t(section.as_integer(0, kMaxSection)));
    }
    sections.resize(4);
    const int64_t all = std::accumulate(sections.begin(), sections.end(), int64_t{0});
    if (all == 0 || all > attention_->head_dim) sections = {int32_t(model_.ropes[0].dim / 2), 0, 0, 0};
    keys_.integers(key("rope.dimension_sections"), sections);
  }

  void write_mamba() {
    if (mamba_ == nullptr) return;
    number("ssm.conv_kernel", mamba_->taps);
    number("ssm.state_size", mamba_->state_dim);
    number("ssm.group_count", mamba_->groups);
    number("ssm.time_step_rank", mamba_->heads);
    number("ssm.inner_size", mamba_->heads * mamba_->head_dim);
    // Whether attention rotates.
    if (arch_ == "granitehybrid") keys_.flag(key("rope.scaling.finetuned"), attention_->rope >= 0);
  }

  void write_scales() {
    if (attention_ == nullptr) return;
    if (attention_->softcap > 0) real("attn_logit_softcapping", attention_->softcap);
    if (model_.logit_softcap > 0) real("final_logit_softcapping", model_.logit_softcap);
    if (is_granite()) {
      real("logit_scale", 1 / model_.logit_scale);
      real("embedding_scale", model_.embed_scale);
      real("residual_scale", model_.layers[0][0].scale);
      real("attention.scale", attention_->scale);
    } else if (model_.logit_scale != 1) {
      real("logit_scale", model_.logit_scale);
    }
    if (attention_->temperature_beta > 0) real("attention.temperature_scale", attention_->temperature_beta);
  }

  void write_windows() {
    std::vector<bool> pattern;
    int64_t window = 0;
    for (const auto& layer : model_.layers) {
      const auto* attention = std::get_if<AttentionSpec>(&layer[0].mixer);
      const int64_t own = attention != nullptr ? attention->window : 0;
      pattern.push_back(own > 0);
      window = std::max(window, own);
    }
    if (window == 0) return;
    number("attention.sliding_window", window);
    keys_.flags(key("attention.sliding_window_pattern"), pattern);
  }

  // llama.cpp's loader divides the key by 0.1; without it scores would be multiplied by the rotation's factor once
  // more.
  void write_yarn_of_latent(const Json& config) {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      const auto scaling = config.get(name);
      const auto all = scaling && scaling->is_object() ? scaling->get("mscale_all_dim") : std::nullopt;
      if (all && all->as_number() > 0) return real("rope.scaling.yarn_log_multiplier", 0.1 * all->as_number());
    }
    refuse("YaRN without mscale_all_dim is not written to GGUF files of latent attention");
  }

  // llama.cpp's other loaders read neither betas nor the converter's key for the factor of scores, but one that
  // multiplies what it takes for that factor (llama-context.cpp).
  void write_yarn_factor(const Rope& rope) {
    constexpr double kFast = 32, kSlow = 1, kNegligible = 1e-6;
    if (rope.beta_fast != kFast || rope.beta_slow != kSlow)
      refuse(fmt::format("llama.cpp knows YaRN with betas of {} and {} only (found {} and {})", kFast, kSlow,
                         rope.beta_fast, rope.beta_slow));
    real("rope.scaling.yarn_attn_factor", rope.attention_factor);
    const double more = rope.attention_factor / (1 + 0.1 * std::log(rope.factor));
    if (std::fabs(more - 1) > kNegligible) real("rope.scaling.attn_factor", more);
  }

  void write_rope(const Json& config) {
    if (model_.ropes.empty() || is_nemotron()) return;
    const Rope& rope = model_.ropes[0];
    if (arch_ != "gemma4") number("rope.dimension_count", rope.dim);
    real("rope.freq_base", rope.theta);
    if (model_.ropes.size() > 1) real("rope.freq_base_swa", model_.ropes[1].theta);
    if (!model_.rope_factors.empty()) {
      if (arch_ == "llama") keys_.text(key("rope.scaling.type"), "longrope");  // asked for there only
      number("rope.scaling.original_context_length", rope.original_context);
      real("rope.scaling.attn_factor", rope.attention_factor);
    } else if (rope.scaling == Rope::Scaling::kLinear) {
      keys_.text(key("rope.scaling.type"), "linear");
      real("rope.scaling.factor", rope.factor);
    } else if (rope.scaling == Rope::Scaling::kYarn) {
      keys_.text(key("rope.scaling.type"), "yarn");
      real("rope.scaling.factor", rope.factor);
      number("rope.scaling.original_context_length", rope.original_context);
      real("rope.scaling.yarn_beta_fast", rope.beta_fast);
      real("rope.scaling.yarn_beta_slow", rope.beta_slow);
      if (latent_ != nullptr) return write_yarn_of_latent(config);
      if (arch_ == "mistral3") return real("rope.scaling.yarn_log_multiplier", 1);
      write_yarn_factor(rope);
    } else if (rope.scaling == Rope::Scaling::kDynamic) {
      refuse("llama.cpp knows no dynamic rotation");
    }
  }

  const GgufArchitecture& of_;
  const Description& model_;
  const std::string_view arch_;
  const AttentionSpec* const attention_;
  const DeltaSpec* const delta_;
  const MambaSpec* const mamba_;
  const LatentSpec* const latent_;
  const std::string& name_;
  GgufKeys& keys_;
};

}  // namespace

void write_gguf_keys(const GgufArchitecture& architecture, const Checkpoint& checkpoint, GgufKeys& keys) {
  KeysWriter(architecture, checkpoint.location().name, keys).run(checkpoint.config());
}

}  // namespace qgen::quantize
