#include "quantize/gguf_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "quant/transpose.h"
#include "quantize/expert_matrices.h"
#include "quantize/gguf_architecture.h"
#include "quantize/gguf_tokenizer.h"
#include "quantize/matrix_quantizer.h"

namespace qgen::quantize {
namespace {

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

const std::string kWeight = ".weight";
constexpr std::string_view kNotText = "not text", kDraft = "for drafts", kBuffer = "no weights";

// Behind `first` elements the value heads, `size` elements each.
std::vector<int64_t> value_heads_order(const DeltaSpec& delta, int64_t first, int64_t size) {
  // Where they are stored by key head, they stay in that order.
  if (delta.value_heads == delta.key_heads || delta.by_key_head) return {};
  std::vector<int64_t> out;
  for (int64_t n = 0; n < first; ++n) out.push_back(n);
  for (int64_t h = 0; h < delta.value_heads; ++h) {
    const int64_t to = gguf_value_head(h, delta.value_heads, delta.key_heads);
    for (int64_t i = 0; i < size; ++i) out.push_back(first + to * size + i);
  }
  return out;
}

std::vector<float> finite_values(const TensorView& tensor) {
  if (!all_finite(tensor.bytes, tensor.dtype)) fail_values(tensor);
  return tensor_values(tensor);
}

class Layout {
 public:
  Layout(const Source& source, std::span<const std::string_view> reasons)
      : source_(source),
        reasons_(reasons),
        name_(source.checkpoint.location().name),
        of_(gguf_architecture(source.checkpoint)),
        model_(of_.model),
        names_(of_.names),
        attention_(of_.attention),
        delta_(of_.delta),
        latent_(of_.latent) {}

  GgufLayout run() {
    const Checkpoint& checkpoint = source_.checkpoint;
    find_roles();
    write_gguf_keys(of_, checkpoint, out_.keys);
    for (size_t i = 0; i < source_.matrices.size(); ++i) add_matrix(source_.matrices[i], reasons_[i]);
    for (const TensorView* tensor : source_.copied) add_vector(*tensor);
    check_stacks();
    add_rope_factors();
    add_tokenizer(out_.keys, of_.name, checkpoint.files(), checkpoint.config(), model_.vocab);
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { refuse_gguf(name_, problem); }

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
        // What becomes two tensors has no name of its own.
        const bool two = role == Role::kDeltaQkvz || role == Role::kExpertGateUpsBias || splits_gate_up(role);
        const bool named = two || !names_.of(role, layer).empty();
        if (!may_have(blocks, role) || !named) continue;
        const std::string module = model_.names.of(role, layer);
        if (!module.empty()) roles_.try_emplace(module, Place{role, layer});
      }
      for (const BlockSpec& block : blocks) {
        const MixtureSpec* const mixture = mixture_of(block);
        for (int64_t e = 0; mixture != nullptr && e < mixture->experts; ++e) {
          for (const auto& [role, stack] : kStacks)
            roles_.try_emplace(model_.names.of(role, layer, e), Place{stack, layer, e});
        }
      }
    }
  }

  // What Granite's mixtures and hybrids have as one matrix is two there.
  bool splits_gate_up(Role role) const {
    return role == Role::kFfnGateUp && of_.family->name.starts_with("granitemoe");
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
    refuse(fmt::format("tensor {} has no place in a GGUF file of {}", tensor, of_.name));
  }
  std::optional<Place> left(std::string_view reason) {
    ++out_.left[std::string(reason)];
    return {};
  }

  // Where the rows of a matrix or vector go; empty: they stay.
  std::vector<int64_t> row_order(Role role, int64_t rows) const {
    if (swaps_halves(role)) {
      if (rows % attention_->head_dim != 0) refuse("rows of queries or keys that are no whole heads");
      return adjacent_rows(rows, attention_->head_dim);
    }
    return delta_ == nullptr ? std::vector<int64_t>() : gguf_rows_of(*delta_, role);
  }

  bool swaps_halves(Role role) const {
    const bool rotated = role == Role::kAttnQ || role == Role::kAttnK;
    const bool half_split = !model_.ropes.empty() && model_.ropes[0].pairs == Rope::Pairs::kHalfSplit;
    if (!rotated || !half_split || !of_.family->gguf_adjacent_pairs) return false;
    if (model_.ropes[0].dim != attention_->head_dim)
      refuse("heads that are rotated in part are not written to such files");
    return true;
  }

  void add_matrix(const SourceMatrix& matrix, std::string_view reason) {
    const auto place = place_of(matrix.name, matrix.name + kWeight);
    if (!place) return;
    const std::string name = names_.of(place->role, place->layer) + kWeight;
    const bool exact =
        place->role == Role::kRouter || place->role == Role::kSharedScore || place->role == Role::kPositions;
    GgufContent content;
    content.matrices = {&matrix};
    if (delta_ != nullptr) content.cols = gguf_cols_of(*delta_, place->role);
    // Blocks of 32 columns stay whole where columns move.
    const bool blocks = reason.empty() && (content.cols.empty() || delta_->value_dim % kQ8_0BlockElements == 0);
    const Dtype type = exact ? Dtype::kF32 : blocks ? Dtype::kQ8_0 : Dtype::kF16;
    if (place->expert >= 0) return add_expert(name, type, matrix, place->expert);
    if (place->role == Role::kLatentKvUp) return add_latent(matrix, type, place->layer);
    if (place->role == Role::kDeltaQkvz) return add_parts_of_key_heads(matrix, type, place->layer);
    if (splits_gate_up(place->role)) {
      const int64_t half = matrix.rows / 2;
      add_rows(matrix, rows_from(0, half), type, names_.of(Role::kFfnGate, place->layer));
      add_rows(matrix, rows_from(half, half), type, names_.of(Role::kFfnUp, place->layer));
      return;
    }
    content.rows = row_order(place->role, matrix.rows);
    // One row of numbers is a vector there.
    std::vector<int64_t> shape = {matrix.rows, matrix.cols};
    if (place->role == Role::kSharedScore && matrix.rows == 1) shape = {matrix.cols};
    add(name, type, std::move(shape), std::move(content));
  }

  // One matrix becomes two: queries, keys and values of all heads, and the gates.
  void add_parts_of_key_heads(const SourceMatrix& matrix, Dtype type, int64_t layer) {
    for (const Role role : {Role::kDeltaQkv, Role::kDeltaZ})
      add_rows(matrix, rows_in_key_heads(*delta_, role), type, names_.of(role, layer));
  }

  // Some rows of a matrix, `rows` in their order, as one.
  void add_rows(const SourceMatrix& matrix, std::vector<int64_t> rows, Dtype type, const std::string& module) {
    for (int64_t& row : rows) row = matrix.stored_row(row);
    SourceMatrix& part = add_part(matrix, int64_t(rows.size()), matrix.cols);
    part.plain = matrix.plain;
    part.mapped = matrix.mapped;
    part.multipliers = matrix.multipliers;
    if (matrix.weight != nullptr) part.weight = std::make_shared<Weight>(as_weight(matrix));
    part.stored_rows = std::make_shared<const std::vector<int64_t>>(std::move(rows));
    out_.wholes[&part] = &matrix;
    GgufContent content;
    content.matrices = {&part};
    add(module + kWeight, type, {part.rows, part.cols}, std::move(content));
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
    // Of a joined one each part by itself: to slice it would put the whole together for each head.
    const auto part_of = [&](int64_t first, int64_t rows, int64_t part) {
      if (matrix.parts == nullptr) return slice_rows(whole, first, rows);
      return slice_rows((*matrix.parts)[size_t(part)], 0, rows);
    };
    const int64_t rows = latent_->plain_dim + latent_->value_dim;
    const auto fitting = [&](int64_t cols) {
      return type == Dtype::kQ8_0 && cols % kQ8_0BlockElements != 0 ? Dtype::kF16 : type;
    };
    for (int64_t h = 0; h < latent_->heads; ++h) {
      SourceMatrix& keys = add_part(matrix, latent_->kv_rank, latent_->plain_dim);
      keys.weight =
          std::make_shared<Weight>(transposed_rows(part_of(h * rows, latent_->plain_dim, h), 0, latent_->kv_rank));
      add_expert(names_.of(Role::kLatentKUp, layer) + kWeight, fitting(keys.cols), keys, h);
      SourceMatrix& values = add_part(matrix, latent_->value_dim, latent_->kv_rank);
      values.weight =
          std::make_shared<Weight>(part_of(h * rows + latent_->plain_dim, latent_->value_dim, latent_->heads + h));
      out_.wholes[&values] = &matrix;
      add_expert(names_.of(Role::kLatentVUp, layer) + kWeight, fitting(values.cols), values, h);
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
    if (place->role == Role::kExpertGateUpsBias || place->role == Role::kExpertDownsBias)
      return add_expert_biases(tensor, *place);
    const std::string name = names_.of(place->role, place->layer);
    if (name.empty()) refuse(fmt::format("tensor {} has no place in a GGUF file of {}", tensor.name, of_.name));
    std::vector<int64_t> shape = tensor.shape;
    const bool convolution = is_convolution(place->role) && shape.size() == 3 && shape[1] == 1;
    if (convolution) shape.erase(shape.begin() + 1);
    if (place->role == Role::kRouterBias && shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());
    if ((shape.size() != 1 && !convolution) || !is_float(tensor.dtype))
      refuse(fmt::format("tensor {} ({} {}) is not written to GGUF files", tensor.name, dtype_name(tensor.dtype),
                         tensor.shape_text()));
    if (place->role == Role::kMambaALog || place->role == Role::kMambaSkip) shape.push_back(1);
    if (place->role == Role::kMambaNorm) shape = {of_.mamba->groups, shape[0] / of_.mamba->groups};
    GgufContent content;
    content.vector = finite_values(tensor);
    if (const std::vector<int64_t> order = row_order(place->role, tensor.shape[0]); !order.empty()) {
      std::vector<float> moved(content.vector.size());
      const size_t row = moved.size() / order.size();
      for (size_t n = 0; n < order.size(); ++n)
        std::copy_n(content.vector.begin() + int64_t(n * row), row, moved.begin() + order[n] * int64_t(row));
      content.vector = std::move(moved);
    }
    if (is_decay(place->role)) {
      for (float& value : content.vector) value = -std::exp(value);
    }
    if (model_.final_norm.plus_one && !convolution && place->role != Role::kDeltaNorm &&
        tensor.name.ends_with(".weight")) {
      for (float& value : content.vector) value += 1;
    }
    add(name + (whole ? "" : tensor.name.substr(dot)), Dtype::kF32, std::move(shape), std::move(content));
  }

  // Of all experts of a layer, (experts, outputs), gates and ups apart.
  void add_expert_biases(const TensorView& tensor, const Place& place) {
    const MixtureSpec* const mixture = mixture_of(model_.layers[size_t(place.layer)].back());
    if (mixture == nullptr || !mixture->biased)
      refuse(fmt::format("tensor {} has no place in a GGUF file of {}", tensor.name, of_.name));
    const std::vector<float> values = finite_values(tensor);
    const auto add_part = [&](Role role, int64_t cols, int64_t first, int64_t step) {
      add_columns(values, names_.of(role, place.layer), mixture->experts, cols, first, step);
    };
    if (place.role == Role::kExpertDownsBias) return add_part(Role::kExpertDownsBias, model_.hidden, 0, 1);
    add_part(Role::kExpertGatesBias, mixture->width, 0, mixture->interleaved ? 2 : 1);
    add_part(Role::kExpertUpsBias, mixture->width, mixture->interleaved ? 1 : mixture->width,
             mixture->interleaved ? 2 : 1);
  }

  // Columns first, first + step, ... of a table of so many rows.
  void add_columns(std::span<const float> values, std::string name, int64_t rows, int64_t cols, int64_t first,
                   int64_t step) {
    const int64_t pitch = int64_t(values.size()) / rows;
    if (pitch * rows != int64_t(values.size()) || first + (cols - 1) * step >= pitch)
      refuse(fmt::format("{}: {} numbers for {} experts", name, values.size(), rows));
    GgufContent content;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col)
        content.vector.push_back(values[size_t(row * pitch + first + col * step)]);
    }
    add(std::move(name), Dtype::kF32, {rows, cols}, std::move(content));
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
    if (model_.ropes.empty()) return;
    if (of_.name == "gemma4") return add_partial_rotation(model_.ropes[0]);
    if (model_.ropes[0].scaling != Rope::Scaling::kLlama3) return;
    // Of the architectures that are written; others' loaders do not know the tensor.
    constexpr std::string_view kReaders[] = {"llama",         "llama4",  "mistral3",  "granite",
                                             "granitehybrid", "exaone4", "falcon-h1", "arcee"};
    if (std::ranges::count(kReaders, of_.name) == 0)
      refuse(fmt::format("Llama 3's scaling of rotations is not written to GGUF files of {}", of_.name));
    Rope plain;
    plain.dim = model_.ropes[0].dim;
    plain.theta = model_.ropes[0].theta;
    const auto scaled = inverse_frequencies(model_.ropes[0], 0), unscaled = inverse_frequencies(plain, 0);
    std::vector<float> factors;
    for (size_t i = 0; i < scaled.size(); ++i) factors.push_back(float(unscaled[i] / scaled[i]));
    add_numbers("rope_freqs.weight", std::move(factors));
  }

  // The pairs of dimensions that are not rotated have a divisor that leaves nothing of their frequency.
  void add_partial_rotation(const Rope& rope) {
    constexpr float kNoRotation = 1e30F;
    std::vector<float> factors(size_t(rope.dim / 2), 1.0F);
    if (rope.pairs_turned > 0) std::fill(factors.begin() + rope.pairs_turned, factors.end(), kNoRotation);
    add_numbers("rope_freqs.weight", std::move(factors));
  }

  const Source& source_;
  std::span<const std::string_view> reasons_;
  const std::string name_;
  const GgufArchitecture of_;
  const Description& model_;
  const Names& names_;
  const AttentionSpec* const attention_;
  const DeltaSpec* const delta_;
  const LatentSpec* const latent_;
  std::unordered_map<std::string, Place> roles_;
  std::map<std::string, size_t> stacks_;  // by name, the index of their tensors
  GgufLayout out_;
};

}  // namespace

std::vector<int64_t> rows_from(int64_t first, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

std::vector<int64_t> rows_in_key_heads(const DeltaSpec& delta, Role role) {
  const int64_t keys = delta.key_dim, values = delta.value_heads / delta.key_heads * delta.value_dim;
  std::vector<int64_t> out;
  const auto add = [&](int64_t first, int64_t count) {
    for (int64_t h = 0; h < delta.key_heads; ++h) {
      for (int64_t i = 0; i < count; ++i) out.push_back(h * 2 * (keys + values) + first + i);
    }
  };
  if (role == Role::kDeltaZ) {
    add(2 * keys + values, values);
  } else {
    add(0, keys);
    add(keys, keys);
    add(2 * keys, values);
  }
  return out;
}

std::vector<int64_t> adjacent_rows(int64_t rows, int64_t head_rows) {
  std::vector<int64_t> out;
  for (int64_t n = 0; n < rows; ++n) out.push_back(adjacent_row(n, head_rows));
  return out;
}

std::vector<int64_t> gguf_rows_of(const DeltaSpec& delta, Role role) {
  switch (role) {
    case Role::kDeltaQkv:
    case Role::kDeltaConv: return value_heads_order(delta, 2 * delta.key_heads * delta.key_dim, delta.value_dim);
    case Role::kDeltaZ: return value_heads_order(delta, 0, delta.value_dim);
    case Role::kDeltaDecay:
    case Role::kDeltaRate:
    case Role::kDeltaALog:
    case Role::kDeltaDecayBias: return value_heads_order(delta, 0, 1);
    default: return {};
  }
}

std::vector<int64_t> gguf_cols_of(const DeltaSpec& delta, Role role) {
  return role == Role::kDeltaOut ? value_heads_order(delta, 0, delta.value_dim) : std::vector<int64_t>();
}

GgufLayout lay_out_gguf(const Source& source, std::span<const std::string_view> reasons) {
  return Layout(source, reasons).run();
}

}  // namespace qgen::quantize
