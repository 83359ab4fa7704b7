#include "quantize/gguf_layout.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/table.h"
#include "model/planner.h"
#include "quantize/gguf_tokenizer.h"

namespace qgen::quantize {
namespace {

// general.file_type of llama.cpp (llama.h, enum llama_ftype) and the version of its block types.
constexpr int64_t kMostlyQ8_0 = 7, kQuantizationVersion = 2;

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
    if (model_.transposed) refuse("matrices that are stored (inputs, outputs) are not written to GGUF files");
    const auto has = [&](const std::string& tensor) { return source_.checkpoint.find(tensor) != nullptr; };
    if (model_.names.prefix() != "") find_place(model_, has);
    for (const auto& layer : model_.layers) {
      const auto* attention = std::get_if<AttentionSpec>(&layer.front().mixer);
      if (attention == nullptr || attention->sinks || attention->output_gate)
        refuse("recurrent layers and other kinds of attention are not written to GGUF files");
      if (attention_ == nullptr) attention_ = attention;
      if (attention->heads != attention_->heads || attention->kv_heads != attention_->kv_heads ||
          attention->head_dim != attention_->head_dim)
        refuse("layers with heads of different sizes are not written to GGUF files");
    }
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
    const Dtype type = exact ? Dtype::kF32 : reason.empty() ? Dtype::kQ8_0 : Dtype::kF16;
    if (place->expert >= 0) {
      add_expert(name, type, matrix, place->expert);
      return;
    }
    GgufContent content;
    content.matrices = {&matrix};
    if (swaps_halves(place->role)) content.head_rows = attention_->head_dim;
    // One row of numbers is a vector there.
    std::vector<int64_t> shape = {matrix.rows, matrix.cols};
    if (place->role == Role::kSharedScore && matrix.rows == 1) shape = {matrix.cols};
    add(name, type, std::move(shape), std::move(content));
  }

  // Experts are stacked in their order, whatever that of the files is.
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
    const auto place = place_of(tensor.name.substr(0, dot), tensor.name);
    if (!place) return;
    if (tensor.shape.size() != 1 || !is_float(tensor.dtype))
      refuse(fmt::format("tensor {} ({} {}) is not written to GGUF files", tensor.name, dtype_name(tensor.dtype),
                         tensor.shape_text()));
    GgufContent content;
    content.vector = tensor_values(tensor);
    if (swaps_halves(place->role)) {
      content.head_rows = attention_->head_dim;
      std::vector<float> moved(content.vector.size());
      for (size_t n = 0; n < moved.size(); ++n) moved[size_t(content.row_of(int64_t(n)))] = content.vector[n];
      content.vector = std::move(moved);
    }
    if (model_.final_norm.plus_one && tensor.name.ends_with(".weight")) {
      for (float& value : content.vector) value += 1;
    }
    add(names_.of(place->role, place->layer) + tensor.name.substr(dot), Dtype::kF32, tensor.shape, std::move(content));
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
    number("attention.head_count", attention_->heads);
    number("attention.head_count_kv", attention_->kv_heads);
    number("attention.key_length", attention_->head_dim);
    number("attention.value_length", attention_->head_dim);
    const bool layer_norm = model_.final_norm.kind == Norm::Kind::kLayer;
    real(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", model_.final_norm.eps);
    write_feed_forward();
    write_scales();
    write_windows();
    write_rope();
  }

  void write_feed_forward() {
    const auto& mixer = model_.layers.front().back().mixer;
    for (const auto& layer : model_.layers) {
      if (layer.size() != 2 || layer.back().mixer.index() != mixer.index())
        refuse("layers of different kinds are not written to GGUF files");
    }
    if (const auto* mixture = std::get_if<MixtureSpec>(&mixer)) {
      if (mixture->shared_width > 0 || mixture->score != RouteStep::Score::kSoftmax || mixture->biased)
        refuse("mixtures with shared experts, sigmoids or biases are not written to GGUF files");
      number("feed_forward_length", mixture->width);
      number("expert_feed_forward_length", mixture->width);
      number("expert_count", mixture->experts);
      number("expert_used_count", mixture->chosen);
    } else if (const auto* network = std::get_if<FeedForwardSpec>(&mixer)) {
      number("feed_forward_length", network->width);
    } else {
      refuse("its feed-forward networks are not written to GGUF files");
    }
  }

  void write_scales() {
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
      const int64_t own = std::get<AttentionSpec>(layer[0].mixer).window;
      pattern.push_back(own > 0);
      window = std::max(window, own);
    }
    if (window == 0) return;
    number("attention.sliding_window", window);
    out_.keys.flags(key("attention.sliding_window_pattern"), pattern);
  }

  void write_rope() {
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
  const AttentionSpec* attention_ = nullptr;  // of the first layer
  std::unordered_map<std::string, Place> roles_;
  std::map<std::string, size_t> stacks_;  // by name, the index of their tensors
  GgufLayout out_;
};

}  // namespace

int64_t GgufContent::row_of(int64_t n) const { return adjacent_row(n, head_rows); }

GgufLayout lay_out_gguf(const Source& source, std::span<const std::string_view> reasons) {
  return Layout(source, reasons).run();
}

}  // namespace qgen::quantize
