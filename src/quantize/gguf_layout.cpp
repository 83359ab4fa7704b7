#include "quantize/gguf_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/table.h"
#include "model/planner.h"
#include "quant/transpose.h"
#include "quantize/gguf_tokenizer.h"

namespace qgen::quantize {
namespace {

// general.file_type of llama.cpp (llama.h, enum llama_ftype) and the version of its block types.
constexpr int64_t kMostlyQ8_0 = 7, kQuantizationVersion = 2;

constexpr int64_t kMaxSection = 4096;

// A plain matrix of the files as a weight, or its own weight.
Weight as_weight(const SourceMatrix& matrix) {
  if (matrix.weight != nullptr) return slice_rows(*matrix.weight, 0, matrix.rows);
  Weight out;
  out.name = matrix.name;
  out.rows = matrix.rows;
  out.cols = matrix.cols;
  out.codes = matrix.type == Dtype::kF32 ? Codes::kF32 : matrix.type == Dtype::kF16 ? Codes::kF16 : Codes::kBf16;
  out.data = matrix.plain;
  out.row_bytes = matrix.cols * code_bytes(out.codes);
  return out;
}

constexpr std::string_view kNotText = "not text", kDraft = "for drafts", kBuffer = "no weights";

// The architecture of llama.cpp, which has one for several families.
std::string_view architecture_of(const Family& family) {
  if (family.name == "mistral" || family.name == "mixtral") return "llama";
  return family.name == "olmo3" ? "olmo2" : family.gguf;
}

class Layout {
 public:
  Layout(const Source& source, std::span<const std::string_view> reasons)
      : source_(source), reasons_(reasons), name_(source.checkpoint.location().name) {}

  GgufLayout run() {
    const Json config = source_.checkpoint.config();
    model_ = describe(config);
    family_ = find_family(config);
    arch_ = architecture_of(*family_);
    if (arch_.empty()) refuse(fmt::format("llama.cpp's files of family {} are not written", family_->name));
    if (arch_ == "ernie4_5-moe") refuse("ERNIE's mixtures are not written to GGUF files");
    if (model_.transposed) refuse("matrices that are stored (inputs, outputs) are not written to GGUF files");
    const auto has = [&](const std::string& tensor) { return source_.checkpoint.find(tensor) != nullptr; };
    if (model_.names.prefix() != "") find_place(model_, has);
    for (const auto& layer : model_.layers) check_mixer(layer.front().mixer);
    if ((attention_ == nullptr) == (latent_ == nullptr))
      refuse("models without attention, or with two kinds of it, are not written to GGUF files");
    for (const auto& layer : model_.layers) recurrent_.push_back(std::holds_alternative<DeltaSpec>(layer[0].mixer));
    for (const auto& [role, name] : model_.gguf_names) names_.set(role, name);
    find_roles();
    write_keys(config);
    for (size_t i = 0; i < source_.matrices.size(); ++i) add_matrix(source_.matrices[i], reasons_[i]);
    for (const TensorView* tensor : source_.copied) add_vector(*tensor);
    check_stacks();
    add_rope_factors();
    add_tokenizer(out_.keys, source_.checkpoint.files(), config, model_.vocab);
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail(ErrorKind::kModel, fmt::format("{}: {}", name_, problem), "other formats: --to fp8-channel, --to int8");
  }

  void check_mixer(const decltype(BlockSpec::mixer)& mixer) {
    if (const auto* delta = std::get_if<DeltaSpec>(&mixer)) {
      if (delta->by_key_head) refuse("projections fused by key head are not written to GGUF files");
      // llama.cpp has one key for both.
      if (delta->key_dim != delta->value_dim)
        refuse("a delta net whose keys and values differ in size is not written to GGUF files");
      delta_ = delta;
      return;
    }
    if (const auto* latent = std::get_if<LatentSpec>(&mixer); latent != nullptr && arch_ == "deepseek2") {
      const bool halves = !model_.ropes.empty() && model_.ropes[0].pairs == Rope::Pairs::kHalfSplit;
      if (halves) refuse("latents whose halves are rotated together are not written to GGUF files");
      // llama.cpp knows models without a latent of queries by these numbers of layers (deepseek2, is_lite).
      if (latent->q_rank == 0 && model_.layers.size() != 26 && model_.layers.size() != 27)
        refuse("latent attention without q_lora_rank is written to GGUF files of 26 or 27 layers only");
      if (latent->bias) refuse("biases of latents are not written to GGUF files");
      // llama.cpp normalizes latents with the epsilon of all norms, transformers with one of their own.
      constexpr double kNegligible = 1e-4;
      if (std::fabs(latent->norm.eps - model_.final_norm.eps) > kNegligible)
        refuse("latents whose norms have another epsilon are not written to GGUF files");
      latent_ = latent;
      return;
    }
    const auto* attention = std::get_if<AttentionSpec>(&mixer);
    if (attention == nullptr || attention->sinks || (attention->output_gate && !arch_.starts_with("qwen35")))
      refuse("recurrent layers and other kinds of attention are not written to GGUF files");
    if (attention->output_gate && attention->out_bias)
      refuse("biases of gated attention are not written to GGUF files");
    if (attention_ == nullptr) attention_ = attention;
    if (attention->heads != attention_->heads || attention->kv_heads != attention_->kv_heads ||
        attention->head_dim != attention_->head_dim)
      refuse("layers with heads of different sizes are not written to GGUF files");
  }

  struct Place {
    Role role;
    int64_t layer = 0;
    int64_t expert = -1;
  };

  // The modules of the checkpoint, by name.
  void find_roles() {
    constexpr std::pair<Role, Role> kStacks[] = {{Role::kExpertGate, Role::kExpertGates},
                                                 {Role::kExpertUp, Role::kExpertUps},
                                                 {Role::kExpertDown, Role::kExpertDowns}};
    for (int64_t layer = 0; layer < int64_t(model_.layers.size()); ++layer) {
      const auto& blocks = model_.layers[size_t(layer)];
      for (int r = 0; r < int(Role::kCount); ++r) {
        const Role role = Role(r);
        if (!may_have(blocks, role) || names_.of(role, layer).empty()) continue;
        const std::string module = model_.names.of(role, layer);
        if (!module.empty()) roles_.try_emplace(module, Place{role, layer});
      }
      for (const BlockSpec& block : blocks) {
        const auto* mixture = std::get_if<MixtureSpec>(&block.mixer);
        for (int64_t e = 0; mixture != nullptr && e < mixture->experts; ++e) {
          for (const auto& [role, stack] : kStacks)
            roles_.try_emplace(model_.names.of(role, layer, e), Place{stack, layer, e});
        }
      }
    }
  }

  // The GGUF place of a module; none for modules outside the text model. Throws a model Error for a part of the text
  // model that has no name in GGUF.
  std::optional<Place> place_of(const std::string& module, const std::string& tensor) {
    if (const auto found = roles_.find(module); found != roles_.end()) return found->second;
    const auto begins = [&](const std::string& prefix) { return tensor.starts_with(prefix); };
    for (int64_t i = model_.drafting_layers.first; i < model_.drafting_layers.second; ++i) {
      if (begins(model_.names.layer_prefix(i))) return left(kDraft);
    }
    if (std::ranges::any_of(model_.unused_parts, [&](const UnusedPart& unused) { return unused.is_in(tensor); }) ||
        tensor.ends_with("rotary_emb.inv_freq")) {
      return left(kBuffer);
    }
    const auto own = model_.names.own_prefixes();
    if (std::ranges::none_of(own, begins)) return left(tensor.starts_with("mtp.") ? kDraft : kNotText);
    refuse(fmt::format("tensor {} has no place in a GGUF file of {}", tensor, arch_));
  }
  std::optional<Place> left(std::string_view reason) {
    ++out_.left[std::string(reason)];
    return {};
  }

  // Where the rows of a matrix or vector go; empty: they stay.
  std::vector<int64_t> row_order(Role role, int64_t rows) const {
    if (swaps_halves(role)) {
      if (rows % attention_->head_dim != 0) refuse("rows of queries or keys that are no whole heads");
      std::vector<int64_t> out;
      for (int64_t n = 0; n < rows; ++n) out.push_back(adjacent_row(n, attention_->head_dim));
      return out;
    }
    if (delta_ == nullptr) return {};
    switch (role) {
      case Role::kDeltaQkv:
      case Role::kDeltaConv: return value_heads_order(2 * delta_->key_heads * delta_->key_dim, delta_->value_dim);
      case Role::kDeltaZ: return value_heads_order(0, delta_->value_dim);
      case Role::kDeltaDecay:
      case Role::kDeltaRate:
      case Role::kDeltaALog:
      case Role::kDeltaDecayBias: return value_heads_order(0, 1);
      default: return {};
    }
  }

  // Behind `first` elements the value heads, `size` elements each.
  std::vector<int64_t> value_heads_order(int64_t first, int64_t size) const {
    if (delta_->value_heads == delta_->key_heads) return {};
    std::vector<int64_t> out;
    for (int64_t n = 0; n < first; ++n) out.push_back(n);
    for (int64_t h = 0; h < delta_->value_heads; ++h) {
      const int64_t to = gguf_value_head(h, delta_->value_heads, delta_->key_heads);
      for (int64_t i = 0; i < size; ++i) out.push_back(first + to * size + i);
    }
    return out;
  }

  bool swaps_halves(Role role) const {
    const bool rotated = role == Role::kAttnQ || role == Role::kAttnK;
    const bool half_split = !model_.ropes.empty() && model_.ropes[0].pairs == Rope::Pairs::kHalfSplit;
    if (!rotated || !half_split || !family_->gguf_adjacent_pairs) return false;
    if (model_.ropes[0].dim != attention_->head_dim)
      refuse("heads that are rotated in part are not written to such files");
    return true;
  }

  void add_matrix(const SourceMatrix& matrix, std::string_view reason) {
    const auto place = place_of(matrix.name, matrix.name + ".weight");
    if (!place) return;
    const std::string name = names_.of(place->role, place->layer) + ".weight";
    const bool exact =
        place->role == Role::kRouter || place->role == Role::kSharedScore || place->role == Role::kPositions;
    GgufContent content;
    content.matrices = {&matrix};
    if (place->role == Role::kDeltaOut) content.cols = value_heads_order(0, delta_->value_dim);
    // Blocks of 32 columns stay whole where columns move.
    const bool blocks = reason.empty() && (content.cols.empty() || delta_->value_dim % kQ8_0BlockElements == 0);
    const Dtype type = exact ? Dtype::kF32 : blocks ? Dtype::kQ8_0 : Dtype::kF16;
    if (place->expert >= 0) return add_expert(name, type, matrix, place->expert);
    if (place->role == Role::kLatentKvUp) return add_latent(matrix, type, place->layer);
    content.rows = row_order(place->role, matrix.rows);
    // One row of numbers is a vector there.
    std::vector<int64_t> shape = {matrix.rows, matrix.cols};
    if (place->role == Role::kSharedScore && matrix.rows == 1) shape = {matrix.cols};
    add(name, type, std::move(shape), std::move(content));
  }

  SourceMatrix& add_part(const SourceMatrix& whole, int64_t rows, int64_t cols) {
    SourceMatrix& part = out_.parts.emplace_back();
    part.name = whole.name;
    part.rows = rows;
    part.cols = cols;
    part.type = whole.type;
    part.tensors = whole.tensors;
    return part;
  }

  // kv_b_proj, rows [key, value] of each head, becomes two stacks over the heads: attn_k_b, which is transposed, and
  // attn_v_b.
  void add_latent(const SourceMatrix& matrix, Dtype type, int64_t layer) {
    if (matrix.multipliers != nullptr) refuse(fmt::format("{}: multipliers of its input", matrix.name));
    const Weight whole = as_weight(matrix);
    const int64_t rows = latent_->plain_dim + latent_->value_dim;
    const auto fitting = [&](int64_t cols) {
      return type == Dtype::kQ8_0 && cols % kQ8_0BlockElements != 0 ? Dtype::kF16 : type;
    };
    for (int64_t h = 0; h < latent_->heads; ++h) {
      SourceMatrix& keys = add_part(matrix, latent_->kv_rank, latent_->plain_dim);
      keys.weight = std::make_shared<Weight>(
          transposed_rows(slice_rows(whole, h * rows, latent_->plain_dim), 0, latent_->kv_rank));
      add_expert(names_.of(Role::kLatentKUp, layer) + ".weight", fitting(keys.cols), keys, h);
      SourceMatrix& values = add_part(matrix, latent_->value_dim, latent_->kv_rank);
      values.weight = std::make_shared<Weight>(slice_rows(whole, h * rows + latent_->plain_dim, latent_->value_dim));
      out_.wholes[&values] = &matrix;
      add_expert(names_.of(Role::kLatentVUp, layer) + ".weight", fitting(values.cols), values, h);
    }
  }

  // Experts, and heads of latents, are stacked in their order, whatever that of the files is.
  void add_expert(const std::string& name, Dtype type, const SourceMatrix& matrix, int64_t expert) {
    const auto [found, added] = stacks_.try_emplace(name, out_.shapes.size());
    if (added) add(name, type, {0, matrix.rows, matrix.cols}, {});
    GgufTensorShape& shape = out_.shapes[found->second];
    auto& matrices = out_.contents[found->second].matrices;
    if (int64_t(matrices.size()) <= expert) matrices.resize(size_t(expert + 1), nullptr);
    matrices[size_t(expert)] = &matrix;
    shape.shape[0] = int64_t(matrices.size());
    // A stack has one type.
    if (type != shape.type) shape.type = Dtype::kF16;
    if (matrix.rows != shape.shape[1] || matrix.cols != shape.shape[2])
      refuse(fmt::format("{}: experts of different shapes", matrix.name));
  }

  void check_stacks() const {
    for (const auto& [name, index] : stacks_) {
      if (std::ranges::count(out_.contents[index].matrices, nullptr) > 0)
        refuse(fmt::format("{}: not all experts are there", name));
    }
  }

  void add_vector(const TensorView& tensor) {
    const size_t dot = tensor.name.rfind('.');
    if (dot == tensor.name.npos) return;
    const bool whole = roles_.contains(tensor.name);  // its role is that of a tensor, not of a module
    const auto place = place_of(whole ? tensor.name : tensor.name.substr(0, dot), tensor.name);
    if (!place) return;
    std::vector<int64_t> shape = tensor.shape;
    const bool convolution = place->role == Role::kDeltaConv && shape.size() == 3 && shape[1] == 1;
    if (convolution) shape.erase(shape.begin() + 1);
    if ((shape.size() != 1 && !convolution) || !is_float(tensor.dtype))
      refuse(fmt::format("tensor {} ({} {}) is not written to GGUF files", tensor.name, dtype_name(tensor.dtype),
                         tensor.shape_text()));
    GgufContent content;
    content.vector = tensor_values(tensor);
    if (const std::vector<int64_t> order = row_order(place->role, shape[0]); !order.empty()) {
      std::vector<float> moved(content.vector.size());
      const size_t row = moved.size() / size_t(shape[0]);
      for (size_t n = 0; n < order.size(); ++n)
        std::copy_n(content.vector.begin() + int64_t(n * row), row, moved.begin() + order[n] * int64_t(row));
      content.vector = std::move(moved);
    }
    if (place->role == Role::kDeltaALog) {
      for (float& value : content.vector) value = -std::exp(value);
    }
    if (model_.final_norm.plus_one && !convolution && place->role != Role::kDeltaNorm &&
        tensor.name.ends_with(".weight")) {
      for (float& value : content.vector) value += 1;
    }
    add(names_.of(place->role, place->layer) + (whole ? "" : tensor.name.substr(dot)), Dtype::kF32, std::move(shape),
        std::move(content));
  }

  void add(std::string name, Dtype type, std::vector<int64_t> shape, GgufContent content) {
    out_.shapes.push_back({std::move(name), type, std::move(shape)});
    out_.contents.push_back(std::move(content));
  }
  void add_numbers(std::string name, std::vector<float> values) {
    GgufContent content;
    content.vector = std::move(values);
    const auto size = int64_t(content.vector.size());
    add(std::move(name), Dtype::kF32, {size}, std::move(content));
  }

  void add_rope_factors() {
    if (!model_.rope_factors.empty()) {
      add_numbers("rope_factors_short.weight", model_.rope_factors[0].factors);
      add_numbers("rope_factors_long.weight", model_.rope_factors[0].long_factors);
    }
    if (model_.ropes.empty() || model_.ropes[0].scaling != Rope::Scaling::kLlama3) return;
    Rope plain;
    plain.dim = model_.ropes[0].dim;
    plain.theta = model_.ropes[0].theta;
    const auto scaled = inverse_frequencies(model_.ropes[0], 0), unscaled = inverse_frequencies(plain, 0);
    std::vector<float> factors;
    for (size_t i = 0; i < scaled.size(); ++i) factors.push_back(float(unscaled[i] / scaled[i]));
    add_numbers("rope_freqs.weight", std::move(factors));
  }

  std::string key(std::string_view rest) const { return fmt::format("{}.{}", arch_, rest); }
  void number(std::string_view rest, int64_t value) { out_.keys.number(key(rest), value); }
  void real(std::string_view rest, double value) { out_.keys.real(key(rest), value); }

  void write_keys(const Json& config) {
    out_.keys.text("general.architecture", arch_);
    out_.keys.text("general.type", "model");
    const auto path = config.get("_name_or_path");
    out_.keys.text("general.name", path && !path->as_string().empty() ? path->as_string() : std::string_view(name_));
    out_.keys.number("general.file_type", kMostlyQ8_0);
    out_.keys.number("general.quantization_version", kQuantizationVersion);
    number("block_count", int64_t(model_.layers.size()));
    number("context_length", model_.context);
    number("embedding_length", model_.hidden);
    number("vocab_size", model_.vocab);
    write_attention();
    const bool layer_norm = model_.final_norm.kind == Norm::Kind::kLayer;
    real(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", model_.final_norm.eps);
    write_feed_forward();
    write_recurrence(config);
    write_scales();
    write_windows();
    write_rope(config);
  }

  void write_attention() {
    if (latent_ == nullptr) {
      number("attention.head_count", attention_->heads);
      number("attention.head_count_kv", attention_->kv_heads);
      number("attention.key_length", attention_->head_dim);
      number("attention.value_length", attention_->head_dim);
      return;
    }
    number("attention.head_count", latent_->heads);
    number("attention.head_count_kv", 1);
    number("attention.key_length", latent_->kv_rank + latent_->rotated_dim);
    number("attention.value_length", latent_->kv_rank);
    number("attention.key_length_mla", latent_->plain_dim + latent_->rotated_dim);
    number("attention.value_length_mla", latent_->value_dim);
    if (latent_->q_rank > 0) number("attention.q_lora_rank", latent_->q_rank);
    number("attention.kv_lora_rank", latent_->kv_rank);
  }

  void write_feed_forward() {
    const MixtureSpec* mixture = nullptr;
    const FeedForwardSpec* network = nullptr;
    int64_t dense = 0;  // layers before the first with a mixture
    for (const auto& layer : model_.layers) {
      const auto* const mixer = layer.size() == 2 ? &layer.back().mixer : nullptr;
      const auto* of_layer = mixer != nullptr ? std::get_if<MixtureSpec>(mixer) : nullptr;
      const auto* plain = mixer != nullptr ? std::get_if<FeedForwardSpec>(mixer) : nullptr;
      if ((of_layer == nullptr && plain == nullptr) || (plain != nullptr && mixture != nullptr))
        refuse("layers of different kinds are not written to GGUF files");
      if (of_layer != nullptr) mixture = of_layer;
      if (plain != nullptr) network = plain;
      dense += plain != nullptr;
    }
    number("feed_forward_length", network != nullptr ? network->width : mixture->width);
    if (mixture != nullptr) write_mixture(*mixture, dense);
  }

  void write_mixture(const MixtureSpec& mixture, int64_t dense) {
    if (mixture.biased) refuse("experts with biases are not written to GGUF files");
    // llama.cpp ranks groups of experts by their two best (build_moe_ffn).
    if (mixture.groups > 1 && mixture.rank != RouteStep::Rank::kTwoBest)
      refuse("groups of experts that are ranked by their best one are not written to GGUF files");
    number("expert_feed_forward_length", mixture.width);
    number("expert_count", mixture.experts);
    number("expert_used_count", mixture.chosen);
    const bool always = arch_ == "deepseek2" || arch_ == "glm4moe";  // where no key does not mean 0
    if (dense > 0 && !always)
      refuse("dense layers before those with experts are not written to GGUF files of this kind");
    if (always) number("leading_dense_block_count", dense);
    if (mixture.shared_width == 0 && always) number("expert_shared_count", 0);
    if (mixture.shared_width > 0 && mixture.shared_score) {
      number("expert_shared_feed_forward_length", mixture.shared_width);
    } else if (mixture.shared_width > 0) {
      if (mixture.shared_width % mixture.width != 0) refuse("a shared expert of this width has no place in GGUF files");
      number("expert_shared_count", mixture.shared_width / mixture.width);
    }
    if (mixture.groups > 1) {
      number("expert_group_count", mixture.groups);
      number("expert_group_used_count", mixture.kept_groups);
    }
    if (mixture.score == RouteStep::Score::kSigmoid) {
      constexpr int64_t kSigmoid = 2;  // llama.cpp, enum llama_expert_gating_func_type
      number("expert_gating_func", kSigmoid);
      out_.keys.flag(key("expert_weights_norm"), mixture.normalized);
    }
    if (mixture.scale != 1) real("expert_weights_scale", mixture.scale);
  }

  void write_recurrence(const Json& config) {
    if (delta_ == nullptr) return;
    number("ssm.conv_kernel", delta_->taps);
    number("ssm.state_size", delta_->key_dim);
    number("ssm.group_count", delta_->key_heads);
    number("ssm.time_step_rank", delta_->value_heads);
    number("ssm.inner_size", delta_->value_heads * delta_->value_dim);
    out_.keys.flags(key("attention.recurrent_layers"), recurrent_);
    number("full_attention_interval", std::ranges::find(recurrent_, false) - recurrent_.begin() + 1);
    // Of the positions of images, which text has none of; llama.cpp asks for them. The default is transformers' for
    // Qwen3.5.
    std::vector<int32_t> sections = {11, 11, 10};
    const auto rope = config.get("rope_parameters");
    if (const auto list = rope && rope->is_object() ? rope->get("mrope_section") : std::nullopt) {
      sections.clear();
      if (list->elements().size() > 4) list->fail("more than 4 sections");
      for (const Json& section : list->elements()) sections.push_back(int32_t(section.as_integer(0, kMaxSection)));
    }
    sections.resize(4);
    const int64_t all = std::accumulate(sections.begin(), sections.end(), int64_t{0});
    if (all == 0 || all > attention_->head_dim) sections = {int32_t(model_.ropes[0].dim / 2), 0, 0, 0};
    out_.keys.integers(key("rope.dimension_sections"), sections);
  }

  void write_scales() {
    if (attention_ == nullptr) return;
    if (attention_->softcap > 0) real("attn_logit_softcapping", attention_->softcap);
    if (model_.logit_softcap > 0) real("final_logit_softcapping", model_.logit_softcap);
    if (arch_ == "granite") {
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
    out_.keys.flags(key("attention.sliding_window_pattern"), pattern);
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

  void write_rope(const Json& config) {
    if (model_.ropes.empty()) return;
    const Rope& rope = model_.ropes[0];
    number("rope.dimension_count", rope.dim);
    real("rope.freq_base", rope.theta);
    if (model_.ropes.size() > 1) real("rope.freq_base_swa", model_.ropes[1].theta);
    if (!model_.rope_factors.empty()) {
      number("rope.scaling.original_context_length", rope.original_context);
      real("rope.scaling.attn_factor", rope.attention_factor);
    } else if (rope.scaling == Rope::Scaling::kLinear) {
      out_.keys.text(key("rope.scaling.type"), "linear");
      real("rope.scaling.factor", rope.factor);
    } else if (rope.scaling == Rope::Scaling::kYarn) {
      out_.keys.text(key("rope.scaling.type"), "yarn");
      real("rope.scaling.factor", rope.factor);
      number("rope.scaling.original_context_length", rope.original_context);
      real("rope.scaling.yarn_beta_fast", rope.beta_fast);
      real("rope.scaling.yarn_beta_slow", rope.beta_slow);
      if (latent_ != nullptr) return write_yarn_of_latent(config);
      real(arch_ == "mistral3" ? "rope.scaling.yarn_log_multiplier" : "rope.scaling.yarn_attn_factor",
           arch_ == "mistral3" ? 1 : rope.attention_factor);
    } else if (rope.scaling == Rope::Scaling::kDynamic) {
      refuse("llama.cpp knows no dynamic rotation");
    }
  }

  const Source& source_;
  std::span<const std::string_view> reasons_;
  const std::string name_;
  Description model_;
  Names names_ = Names::gguf();
  const Family* family_ = nullptr;
  std::string_view arch_;
  const AttentionSpec* attention_ = nullptr;  // of the first layer that has one
  const DeltaSpec* delta_ = nullptr;          // of the others
  const LatentSpec* latent_ = nullptr;        // in place of attention_
  std::vector<bool> recurrent_;               // layers
  std::unordered_map<std::string, Place> roles_;
  std::map<std::string, size_t> stacks_;  // by name, the index of their tensors
  GgufLayout out_;
};

}  // namespace

GgufLayout lay_out_gguf(const Source& source, std::span<const std::string_view> reasons) {
  return Layout(source, reasons).run();
}

}  // namespace qgen::quantize
