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
  bool network = false, head = false;
};

// Null for a family without any.
const Biases* biases_of(std::string_view family) {
  static const std::vector<Biases> all = {
      {{"llama", "granite", "smollm3", "ernie4_5", "ernie4_5_moe", "starcoder2"}, OutputBias::kWith, true},
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
    check_parts(stored);
    out_.float_type = stored_float_type();
    std::string config = config_text(stored);
    auto document = JsonDocument::parse(config, from.files().subject(kConfig));
    model_ = describe(document->root());
    find_roles();
    check_biases();
    for (const TensorView& tensor : from.tensors()) add(tensor);
    ModelFiles files = files_with(std::move(config));
    ModelLocation location = from.location();
    location.gguf_files.clear();
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

  bool has(Role role, std::string_view suffix) const {
    return original_->checkpoint.find(names_.of(role) + std::string(suffix)) != nullptr;
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
    const bool qkv_bias = has(Role::kAttnQ, ".bias"), qk_norm = has(Role::kAttnQNorm, kWeight);
    say("attention_bias", qkv_bias);
    say("mlp_bias", has(Role::kFfnUp, ".bias"));
    if (family_->name == "starcoder2" || family_->name.starts_with("ernie4_5")) say("use_bias", qkv_bias);
    if (family_->name == "seed_oss") say("attention_out_bias", has(Role::kAttnOut, ".bias"));
    if (family_->name == "stablelm") {
      say("use_qkv_bias", qkv_bias);
      say("qk_layernorm", qk_norm);
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

  // GGUF files keep Llama 3's scaling as the divisors of frequencies that follow from it. The factor is the largest of
  // them; of its limits all models say 1 and 4, and the original context is a power of two (8192 of Meta's).
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
    scaled.high_frequency_factor = 4;
    const auto unscaled = inverse_frequencies(plain, 0);
    const auto fits = [&](int64_t context) {
      constexpr double kRounding = 1e-5;
      scaled.original_context = context;
      const auto wanted = inverse_frequencies(scaled, 0);
      bool same = divisors.size() == wanted.size();
      for (size_t i = 0; same && i < wanted.size(); ++i)
        same = std::fabs(unscaled[i] / wanted[i] / double(divisors[i]) - 1) < kRounding;
      return same;
    };
    // From the largest on: where several fit, none of them scales a frequency otherwise.
    int64_t context = int64_t{1} << 20;
    while (context > 1 && !fits(context)) context /= 2;
    if (!fits(context)) refuse("its rotation has divisors that are not those of Llama 3, which config.json cannot say");
    return fmt::format(
        R"({{"factor":{},"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":{},)"
        R"("rope_type":"llama3"}})",
        double(scaled.factor), scaled.original_context);
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
        const auto* attention = std::get_if<AttentionSpec>(&block.mixer);
        const auto* mixture = std::get_if<MixtureSpec>(&block.mixer);
        // Of recurrent layers those of Qwen3.5; Qwen3-Next's files have lost the order of its projections.
        const bool delta = std::holds_alternative<DeltaSpec>(block.mixer) && is_qwen3_5();
        if (attention == nullptr && mixture == nullptr && !delta &&
            !std::holds_alternative<FeedForwardSpec>(block.mixer))
          refuse("recurrent layers and latent attention in this layout cannot be converted");
        if (attention != nullptr && (attention->sinks || (attention->output_gate && !is_qwen3_5())))
          refuse("attention with sinks or gates in this layout cannot be converted");
        if (mixture != nullptr && model.names.of(Role::kExpertDown).empty())
          refuse("experts that transformers stacks cannot be converted from this layout");
      }
    }
    if (model.transposed) refuse("matrices that transformers stores (inputs, outputs) cannot be converted");
  }

  bool is_qwen3_5() const { return family_->name.starts_with("qwen3_5"); }

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
        check({Role::kAttnQ, Role::kAttnK, Role::kAttnV, Role::kAttnQkv}, biases != nullptr, layer);
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
        const bool apart = role == Role::kFfnUp && std::ranges::any_of(blocks, [](const BlockSpec& b) {
                             const auto* network = std::get_if<FeedForwardSpec>(&b.mixer);
                             return network != nullptr && network->fused;
                           });
        // Nor do they tell projections of a recurrence from those of attention.
        const bool delta = std::holds_alternative<DeltaSpec>(blocks.front().mixer);
        const bool other = role == (delta ? Role::kAttnQkv : Role::kDeltaQkv);
        const std::string module = names_.of(role, layer);
        if (!module.empty() && !apart && !other && may_have(blocks, role))
          roles_.try_emplace(module, Place{role, layer});
      }
    }
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
    constexpr std::pair<Role, Role> kStacks[] = {{Role::kExpertGates, Role::kExpertGate},
                                                 {Role::kExpertUps, Role::kExpertUp},
                                                 {Role::kExpertDowns, Role::kExpertDown}};
    for (const auto& [stack, expert] : kStacks) {
      if (role == stack && tensor.shape.size() == 3) return add_experts(tensor, expert, layer, suffix);
    }
    const std::string name = model_.names.of(role, layer);
    if (name.empty()) refuse(fmt::format("tensor {} has no name in transformers' files", tensor.name));
    TensorView view = tensor;
    view.name = name + suffix;
    if (swaps_halves(role)) {
      const int64_t rows = std::get<AttentionSpec>(model_.layers[size_t(layer)].front().mixer).head_dim;
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

  void add_experts(const TensorView& stack, Role expert, int64_t layer, const std::string& suffix) {
    const int64_t count = stack.shape[0];
    const size_t bytes = stack.bytes.size() / size_t(std::max<int64_t>(count, 1));
    for (int64_t e = 0; e < count; ++e) {
      TensorView view = stack;
      view.name = model_.names.of(expert, layer, e) + suffix;
      view.shape = {stack.shape[1], stack.shape[2]};
      view.bytes = stack.bytes.subspan(size_t(e) * bytes, bytes);
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

  // What the converter does to the parts of Qwen3.5's recurrences: value heads in another order, -exp(a_log), and a
  // convolution without its dimension of one.
  void move_back(TensorView& view, const Place& place) {
    const auto* delta = std::get_if<DeltaSpec>(&model_.layers[size_t(place.layer)].front().mixer);
    if (delta == nullptr) return;
    const std::vector<int64_t> rows = gguf_rows_of(*delta, place.role), cols = gguf_cols_of(*delta, place.role);
    const bool numbers = view.shape.size() == 1 || place.role == Role::kDeltaConv;
    if (numbers && !is_float(view.dtype))
      refuse(fmt::format("tensor {}: {} cannot be converted", view.name, dtype_name(view.dtype)));
    if (numbers && !rows.empty()) put_back(view, rows);
    if (!numbers && (!rows.empty() || !cols.empty())) {
      const std::string module = view.name.substr(0, view.name.rfind('.'));
      out_.orders[module] = {rows, cols};
    }
    if (place.role == Role::kDeltaALog) {
      std::vector<float> values = tensor_values(view);
      for (float& value : values) value = std::log(-value);
      own(view, std::move(values));
    }
    if (place.role == Role::kDeltaConv && view.shape.size() == 2) view.shape.insert(view.shape.begin() + 1, 1);
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
  Description model_;
  Names names_ = Names::gguf();
  std::unordered_map<std::string, Place> roles_;
  std::vector<TensorView> tensors_;
  HuggingFaceView out_;
};

}  // namespace

bool has_other_layout(const Checkpoint& checkpoint) {
  return !checkpoint.location().gguf_files.empty() || is_mistral_native(checkpoint);
}

HuggingFaceView as_hugging_face(Checkpoint checkpoint) { return View(std::move(checkpoint)).run(); }

}  // namespace qgen::quantize
