#include "quantize/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
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
#include "quantize/gguf_architecture.h"
#include "quantize/gguf_layout.h"
#include "quantize/hugging_face_config.h"
#include "quantize/source.h"

namespace qgen::quantize {
namespace {

constexpr std::string_view kWeight = ".weight", kConfig = "config.json";

// A JSON object with one more member.
std::string with_member(const std::string& object, std::string_view key, std::string_view value) {
  const size_t end = object.rfind('}');
  const bool first = object.find('"') == object.npos;
  return fmt::format("{}{}{}:{}{}", object.substr(0, end), first ? "" : ",", json_quote(key), value,
                     object.substr(end));
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
    OtherLayout files{from, *family_, describe(from.config()), mistral_ ? Names::mistral() : Names::gguf()};
    for (const auto& [role, name] : files.model.gguf_names) {
      if (!mistral_) files.names.set(role, name);
    }
    names_ = files.names;
    check_parts(files);
    out_.float_type = stored_float_type();
    std::string config = hugging_face_config(files, out_.float_type);
    auto document = JsonDocument::parse(config, from.files().subject(kConfig));
    model_ = describe(document->root());
    find_roles();
    check_biases(files);
    for (const TensorView& tensor : from.tensors()) add(tensor);
    for (auto& [place, joined] : joined_) out_.joined.push_back(finished(place, std::move(joined)));
    ModelFiles texts = files_with(std::move(config));
    ModelLocation location = from.location();
    location.gguf_files.clear();
    out_.parts = Checkpoint::assemble(location, files_with("{}"),
                                      JsonDocument::parse("{}", from.files().subject(kConfig)), std::move(parts_));
    out_.checkpoint = Checkpoint::assemble(location, std::move(texts), std::move(document), std::move(tensors_));
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { refuse_conversion(name_, problem); }

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

  // Parts whose tensors are stored in another way than their names alone say are left to other tools.
  void check_parts(const OtherLayout& files) const {
    if (is_only_read(*family_)) refuse("files of this family in this layout cannot be converted");
    if (family_->architecture.ends_with("ForConditionalGeneration"))
      refuse("the text part of a multimodal model in this layout cannot be converted");
    for (const auto& layer : files.model.layers) {
      for (const BlockSpec& block : layer) {
        const MixtureSpec* const mixture = mixture_of(block);
        if (mixture != nullptr && (mixture->biased || mixture->only_stacked))
          refuse("experts that transformers stacks cannot be converted from this layout");
        const auto* attention = std::get_if<AttentionSpec>(&block.mixer);
        if (attention != nullptr && attention->sinks) refuse("attention with sinks in this layout cannot be converted");
        if (family_->name == "stablelm" && attention != nullptr && attention->q_norm)
          refuse("norms of heads, which transformers has as tensors of single heads, cannot be converted");
      }
    }
    if (family_->name == "nemotron_h" && !files.has(Role::kHead, kWeight))
      refuse("a head that is the embedding cannot be converted, which transformers does not know of this family");
    const bool old = std::ranges::any_of(original_->checkpoint.tensors(), [&](const TensorView& tensor) {
      return tensor.name.find(".ffn_down.0.") != std::string::npos ||
             (tensor.name.find(".ssm_in.") != std::string::npos && family_->name == "qwen3_next");
    });
    if (old) refuse("tensors as files of former versions have them cannot be converted");
    if (files.model.context_limit.tokens > 0) refuse("an indexer of sparse attention cannot be converted");
    if (files.model.transposed) refuse("matrices that transformers stores (inputs, outputs) cannot be converted");
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
    const int64_t layer = place.first;  // no structured binding: Clang before 16 captures none
    const Role whole = place.second;
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
      undo_recurrence(view, whole->second);
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
      if (tensor.shape.size() == 1 && tensor.shape[0] % rows == 0) reorder_rows(view, order);
      if (tensor.shape.size() == 2) out_.orders[name].rows = std::move(order);
    }
    undo_recurrence(view, found->second);
    // Other tensors of a quantized matrix keep their values.
    const bool is_vector = tensor.shape.size() == 1 && is_float(tensor.dtype);
    const bool plus_one = model_.final_norm.plus_one && role != Role::kDeltaNorm && role != Role::kSharedScore;
    if (is_vector && !mistral_ && plus_one && suffix == kWeight) {
      std::vector<float> values = tensor_values(tensor);
      for (float& value : values) value -= 1;
      set_values(view, std::move(values));
    }
    if (is_vector && role == Role::kSharedScore) view.shape = {1, tensor.shape[0]};
    tensors_.push_back(std::move(view));
  }

  // q, k and v that lie in one matrix, or vector, where transformers has three.
  void add_attention_parts(const TensorView& tensor, int64_t layer, const std::string& suffix) {
    const AttentionSpec& attention = *mixer_of<AttentionSpec>(model_.layers[size_t(layer)]);
    const int64_t q =
        attention.heads * attention.head_dim * (attention.gate == AttentionSpec::Gate::kInQueries ? 2 : 1);
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
      if (suffix == kWeight) out_.file_modules[model_.names.of(role, layer)] = names_.of(Role::kAttnQkv, layer);
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
  void reorder_rows(TensorView& view, const std::vector<int64_t>& order) {
    const std::vector<float> stored = tensor_values(view);
    if (order.size() != size_t(view.shape[0]))
      refuse(fmt::format("tensor {}: {} rows, where the model has {}", view.name, view.shape[0], order.size()));
    std::vector<float> values;
    const size_t width = stored.size() / order.size();
    for (const int64_t row : order)
      values.insert(values.end(), stored.begin() + row * int64_t(width), stored.begin() + (row + 1) * int64_t(width));
    set_values(view, std::move(values));
  }

  // What the converter does to the parts of recurrences: value heads in another order, -exp(a_log), a convolution
  // without its dimension of one, numbers of heads and norms of groups in rows.
  void undo_recurrence(TensorView& view, const Place& place) {
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
    if (numbers && !rows.empty()) reorder_rows(view, rows);
    if (!numbers && (!rows.empty() || !cols.empty())) {
      const std::string module = view.name.substr(0, view.name.rfind('.'));
      out_.orders[module] = {rows, cols};
    }
    if (decay) {
      std::vector<float> values = tensor_values(view);
      for (float& value : values) {
        if (!(value < 0) || std::isinf(value))
          refuse(fmt::format("tensor {}: holds {} (expected -exp(A_log), below zero)",
                             names_.of(place.role, place.layer), value));
        value = std::log(-value);
      }
      set_values(view, std::move(values));
    }
    if (row) view.shape = {view.elements()};
    // With one tap it has none of its own.
    if (convolution && view.shape.size() == 1 && view.name.ends_with(kWeight)) view.shape.push_back(1);
    if (convolution && view.shape.size() == 2) view.shape.insert(view.shape.begin() + 1, 1);
  }

  void set_values(TensorView& view, std::vector<float> values) {
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
