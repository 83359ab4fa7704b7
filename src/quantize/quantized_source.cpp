#include "quantize/quantized_source.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "model/families/table.h"
#include "model/open.h"
#include "model/planner.h"
#include "quant/binder.h"
#include "quantize/expert_matrices.h"
#include "quantize/matrix_quantizer.h"
#include "quantize/repacked.h"

namespace qgen::quantize {
namespace {

constexpr std::string_view kWeight = ".weight", kSmoothedWeight = ".module.weight", kSmoothedBias = ".module.bias";

// The type of a norm: what a quantized matrix is stored as when it is left alone.
Dtype plain_type(const Checkpoint& checkpoint) {
  for (const TensorView& tensor : checkpoint.tensors()) {
    if (is_float(tensor.dtype) && tensor.name.ends_with("norm.weight")) return tensor.dtype;
  }
  return Dtype::kBf16;
}

// Whether a tensor that no engine needs belongs to the quantization that is undone: scales of inputs and of the cache.
bool is_quantization_parameter(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view part : {"scale", "offset", "zero_point", "quant"}) {
    if (last.find(part) != last.npos) return true;
  }
  return false;
}

// Linear layers whose bias an unquantized model of a family may have: always, or where its config.json has a key that
// says so, and then all of them. Source: transformers' modeling files and vLLM's models of these names.
struct BiasRule {
  std::string_view model_type, key;
  std::vector<std::string_view> parts;
};
const std::vector<BiasRule>& bias_rules() {
  static const std::vector<BiasRule> rules = {{"llama", "attention_bias", {"q_proj", "k_proj", "v_proj", "o_proj"}},
                                              {"llama", "mlp_bias", {"gate_proj", "up_proj", "down_proj"}},
                                              {"qwen3", "attention_bias", {"q_proj", "k_proj", "v_proj", "o_proj"}},
                                              {"qwen3_moe", "attention_bias", {"q_proj", "k_proj", "v_proj", "o_proj"}},
                                              {"qwen2", "", {"q_proj", "k_proj", "v_proj"}},
                                              {"qwen2_moe", "", {"q_proj", "k_proj", "v_proj"}}};
  return rules;
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// W b, and the norm of each row of W.
struct Products {
  std::vector<double> sums, norms;
};
Products products(const SourceMatrix& matrix, std::span<const double> b) {
  const SourceMatrix* const one = &matrix;
  const Repacked repacked(std::span(&one, 1));
  Products out{std::vector<double>(size_t(matrix.rows)), std::vector<double>(size_t(matrix.rows))};
  const int64_t step = strip_rows(matrix);
  on_all_cores(size_t((matrix.rows + step - 1) / step), [&](size_t strip) {
    RowReader reader(matrix);
    const int64_t first = int64_t(strip) * step, count = std::min(step, matrix.rows - first);
    const std::span<const float> values = reader.tile(first, count, 0, matrix.cols);
    for (int64_t r = 0; r < count; ++r) {
      double sum = 0, squares = 0;
      for (int64_t k = 0; k < matrix.cols; ++k) {
        const double w = values[size_t(r * matrix.cols + k)];
        squares += w * w;
        if (!b.empty()) sum += w * b[size_t(k)];
      }
      out.sums[size_t(first + r)] = sum;
      out.norms[size_t(first + r)] = std::sqrt(squares);
    }
  });
  return out;
}

bool all_zeros(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return value == 0; });
}

std::vector<double> as_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class Undoing {
 public:
  explicit Undoing(Source& source)
      : source_(source),
        checkpoint_(source.checkpoint),
        plan_(plan_of_files(source)),
        binder_(checkpoint_, true),  // what is refused for its method has been refused by now
        biases_(checkpoint_, true),
        plain_(source.float_type.value_or(plain_type(checkpoint_))) {}

  void run() {
    add_matrices();
    find_biases();
    if (binder_.may_smooth_norms()) undo_norms();
    write_biases();
    copy_the_rest();
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail(ErrorKind::kModel, fmt::format("{}: {}", checkpoint_.location().name, problem),
         "start from the unquantized checkpoint");
  }
  bool has(const std::string& tensor) const { return checkpoint_.find(tensor) != nullptr; }

  // Those that the family's description asks for, bound as for a run; then those of layers that it does not run (that
  // draft tokens, say).
  void add_matrices() {
    stacks_ = add_stacked_experts(source_, plain_);
    Description model = describe(checkpoint_.config());
    transposed_ = model.transposed;
    const auto there = [&](const std::string& tensor) { return has(tensor); };
    if (model.names.prefix() != "") find_place(model, there);
    for (const TensorRequest& request : plan_requests(model, checkpoint_.location().name, there)) {
      if (request.stacked > 0) {
        check_stack(request.name);
        continue;
      }
      if (request.cols > 0 && binder_.has_matrix(request.name) && !by_module_.contains(request.name))
        add(request.name, request.rows, request.cols);
    }
    for (const TensorView& tensor : checkpoint_.tensors()) {
      if (!tensor.name.ends_with(kWeight) || tensor.shape.size() != 2) continue;
      const std::string module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
      if (!binder_.consumed().contains(tensor.name) && !stacks_.contains(tensor.name))
        add(module, tensor.shape[0], tensor.shape[1]);
    }
    for (const Binder::Binding& binding : binder_.bindings()) {
      for (const std::string& name : binding.tensors)
        by_module_.at(binding.module)->tensors.push_back(checkpoint_.find(name));
    }
  }

  // Stacks that did not become single experts are copied if they are plain.
  void check_stack(const std::string& name) const {
    if (std::ranges::any_of(stacks_, [&](const std::string& tensor) { return tensor.starts_with(name); })) return;
    for (const std::string& plain : {name, name + std::string(kWeight)}) {
      if (const TensorView* tensor = checkpoint_.find(plain); tensor != nullptr && is_float(tensor->dtype)) return;
    }
    refuse(fmt::format("{}: a stack of quantized experts of this family cannot be converted", name));
  }

  void add(const std::string& module, int64_t rows, int64_t cols) {
    SourceMatrix& matrix = source_.matrices.emplace_back();
    matrix.name = module;
    matrix.type = plain_;
    set_weight(matrix, binder_.matrix(module, rows, cols));
    if (const auto scale = binder_.input_scale(module, cols)) multiply(matrix, as_doubles(scale->values()));
    by_module_[module] = &matrix;
  }

  static void multiply(SourceMatrix& matrix, std::span<const double> factors) {
    std::vector<float> product(factors.begin(), factors.end());
    for (size_t k = 0; k < product.size() && matrix.multipliers != nullptr; ++k)
      product[k] = float(factors[k] * double((*matrix.multipliers)[k]));
    matrix.multipliers = std::make_shared<const std::vector<float>>(std::move(product));
  }

  // Those that follow from tensors of a method, or are called something else than X.bias.
  void find_biases() {
    if (transposed_) return;
    for (const SourceMatrix& matrix : source_.matrices) {
      const auto bias = biases_.bias(matrix.name, matrix.rows, matrix.cols);
      if (!bias) continue;
      if (bias->derived == nullptr && bias->name == matrix.name + ".bias") {
        stored_biases_[matrix.name] = bias->name;
        continue;
      }
      new_biases_[matrix.name] = as_doubles(bias->values());
    }
  }

  struct NormUse {
    std::string module;
    bool smoothed = false;
    bool keeps_bias = false;  // a norm of this kind has one of its own
  };

  // Norms for quantized layers only, and biases of RMS norms, which no config.json can say.
  void undo_norms() {
    for (const Step& step : plan_->steps) {
      for_each_norm(step, [&](const Norm& norm) {
        if (norm.weight != nullptr) undo_norm(step, norm);
      });
    }
    for (const TensorView& tensor : checkpoint_.tensors()) {
      if (tensor.name.ends_with(kSmoothedWeight) || tensor.name.ends_with(kSmoothedBias)) dropped_.insert(tensor.name);
    }
  }

  void undo_norm(const Step& step, const Norm& norm) {
    const std::string& name = norm.weight->name;
    NormUse use;
    use.smoothed = name.ends_with(kSmoothedWeight);
    use.keeps_bias = norm.kind == Norm::Kind::kLayer;
    const auto* linear = std::get_if<LinearStep>(&step.op);
    if (!name.ends_with(kWeight)) {  // a multiplier of the input, with or without a norm before it
      if (norm.kind != Norm::Kind::kScale && (norm.bias != nullptr || has_smoothed_norms()))
        refuse(fmt::format("{}: a multiplier of an input behind a smoothed norm cannot be converted", name));
      return;
    }
    use.module = name.substr(0, name.size() - (use.smoothed ? kSmoothedWeight : kWeight).size());
    if (!use.smoothed && (use.keeps_bias || norm.bias == nullptr)) return;
    const bool rename = use.smoothed && !has(use.module + std::string(kWeight));
    if (!use.keeps_bias) dropped_.insert(use.module + ".bias");
    if (rename && renamed_.insert(use.module).second) {
      rename_tensor(use.module + std::string(kSmoothedWeight), use.module + std::string(kWeight));
      if (use.keeps_bias && norm.bias != nullptr)
        rename_tensor(use.module + std::string(kSmoothedBias), use.module + ".bias");
    }
    if (rename && use.keeps_bias) return;
    std::vector<double> bias = norm.bias != nullptr ? as_doubles(norm.bias->values()) : std::vector<double>();
    const std::vector<double> factors =
        use.smoothed && !rename ? smoothing_factors(use, *norm.weight, bias) : std::vector<double>();
    if (factors.empty() && all_zeros(bias)) return;
    if (linear == nullptr || linear->in.cols != norm.group)
      refuse(fmt::format("{}: a norm with a bias before something else than linear layers cannot be converted", name));
    for (const Projection& projection : linear->projections) {
      for (const Weight* weight : {projection.weight, projection.gate}) {
        if (weight != nullptr) undo_norm_before(*weight, factors, bias);
      }
    }
  }

  bool has_smoothed_norms() const {
    return std::ranges::any_of(checkpoint_.tensors(),
                               [](const TensorView& tensor) { return tensor.name.ends_with(kSmoothedWeight); });
  }

  void rename_tensor(const std::string& from, const std::string& to) {
    TensorView tensor = *checkpoint_.find(from);
    const std::vector<float> values = tensor_values(tensor);
    tensor.name = to;
    source_.add_changed(std::move(tensor), values);
  }

  // What takes the columns of the norm that stays to those of the smoothed one, w' / w; `bias` becomes what is left of
  // its own: b' - w' / w * b.
  std::vector<double> smoothing_factors(const NormUse& use, const Vector& smoothed, std::vector<double>& bias) const {
    const TensorView& kept = *checkpoint_.find(use.module + std::string(kWeight));
    const std::vector<float> from = tensor_values(kept), to = smoothed.values();
    if (from.size() != to.size()) refuse(fmt::format("{}: not the size of the smoothed norm", kept.name));
    std::vector<double> factors(from.size(), 1.0);
    for (size_t k = 0; k < from.size(); ++k) {
      const double before = double(from[k]) + smoothed.add;
      if (before == 0 && to[k] != 0)
        refuse(fmt::format("{}: zero in column {} where the smoothed norm is not, which cannot be converted", kept.name,
                           k));
      if (before != 0) factors[k] = double(to[k]) / before;
    }
    if (const TensorView* own = checkpoint_.find(use.module + ".bias"); own != nullptr && use.keeps_bias) {
      const std::vector<float> values = tensor_values(*own);
      bias.resize(factors.size());
      for (size_t k = 0; k < factors.size(); ++k) bias[k] -= factors[k] * double(values[k]);
    }
    return factors;
  }

  void undo_norm_before(const Weight& weight, const std::vector<double>& factors, const std::vector<double>& bias) {
    const auto found = by_module_.find(weight.name);
    if (found == by_module_.end()) refuse(fmt::format("{}: the norm before it cannot be converted", weight.name));
    SourceMatrix& matrix = *found->second;
    if (!behind_norms_.insert(matrix.name).second) return;  // a part of one that was done
    if (!all_zeros(bias)) {
      const Products sums = products(matrix, bias);
      std::vector<double>& own = bias_of(matrix);
      for (size_t n = 0; n < own.size(); ++n) own[n] += sums.sums[n];
    }
    if (!factors.empty()) multiply(matrix, factors);
  }

  std::vector<double>& bias_of(const SourceMatrix& matrix) {
    const auto [found, added] = new_biases_.try_emplace(matrix.name, std::vector<double>(size_t(matrix.rows)));
    if (const auto stored = stored_biases_.find(matrix.name); added && stored != stored_biases_.end())
      found->second = as_doubles(tensor_values(*checkpoint_.find(stored->second)));
    return found->second;
  }

  // Where it is no more than what rounding leaves of none.
  bool is_negligible(const SourceMatrix& matrix, const std::vector<double>& bias) const {
    constexpr double kRounding = 1e-4;
    if (all_zeros(bias)) return true;
    const std::vector<double> norms = products(matrix, {}).norms;
    for (size_t n = 0; n < bias.size(); ++n) {
      if (!(std::fabs(bias[n]) <= kRounding * norms[n])) return false;
    }
    return true;
  }

  void write_biases() {
    const auto type = checkpoint_.config().get("model_type");
    const std::string model_type = type && type->is_string() ? std::string(type->as_string()) : "";
    std::set<const BiasRule*> rules;
    for (const SourceMatrix& matrix : source_.matrices) {
      const auto bias = new_biases_.find(matrix.name);
      if (bias == new_biases_.end()) continue;
      const bool stored = stored_biases_.contains(matrix.name) || has(matrix.name + ".bias");
      if (!stored && is_negligible(matrix, bias->second)) continue;
      const auto& all = bias_rules();
      const auto rule = std::ranges::find_if(all, [&](const BiasRule& row) {
        return row.model_type == model_type && std::ranges::count(row.parts, last_part(matrix.name)) > 0;
      });
      if (rule == all.end() && !stored) {
        refuse(fmt::format("{}: its quantization gave it a bias, which an unquantized model of type {} cannot have",
                           matrix.name, model_type.empty() ? "unknown" : model_type));
      }
      if (rule != all.end() && !rule->key.empty()) rules.insert(&*rule);
      write_bias(matrix, bias->second);
    }
    // A key speaks of all of its layers.
    for (const BiasRule* rule : rules) {
      source_.config[std::string(rule->key)] = "true";
      for (const SourceMatrix& matrix : source_.matrices) {
        const bool there = written_biases_.contains(matrix.name) || has(matrix.name + ".bias");
        if (!there && std::ranges::count(rule->parts, last_part(matrix.name)) > 0)
          write_bias(matrix, std::vector<double>(size_t(matrix.rows)));
      }
    }
  }

  void write_bias(const SourceMatrix& matrix, const std::vector<double>& values) {
    TensorView tensor;
    tensor.name = matrix.name + ".bias";
    tensor.dtype = plain_;
    tensor.shape = {matrix.rows};
    tensor.file = matrix.tensors.front()->file;
    source_.add_changed(std::move(tensor), std::vector<float>(values.begin(), values.end()));
    dropped_.insert(matrix.name + ".bias");
    written_biases_.insert(matrix.name);
  }

  void copy_the_rest() {
    std::set<std::string> used = binder_.consumed();
    used.insert(dropped_.begin(), dropped_.end());
    used.insert(stacks_.begin(), stacks_.end());
    used.insert(biases_.consumed().begin(), biases_.consumed().end());
    for (const auto& [module, tensor] : stored_biases_) {
      if (!dropped_.contains(tensor)) used.erase(tensor);
    }
    for (const Binder::Ignored& tensor : plan_->ignored) {
      if (is_quantization_parameter(tensor.tensor)) used.insert(tensor.tensor);
    }
    for (const TensorView& tensor : checkpoint_.tensors()) {
      if (used.contains(tensor.name)) continue;
      // The plan has the names of the files.
      if (source_.other_layout && tensor.elements() == 1 && is_quantization_parameter(tensor.name)) continue;
      if (tensor.shape.size() == 2 && (dtype_bits(tensor.dtype) == 8 || tensor.dtype == Dtype::kI32))
        refuse(fmt::format("tensor {}: codes of a layer that is not run cannot be converted", tensor.name));
      source_.copied.push_back(&tensor);
    }
  }

  Source& source_;
  const Checkpoint& checkpoint_;
  std::unique_ptr<Plan> plan_;
  Binder binder_, biases_;
  Dtype plain_;
  bool transposed_ = false;
  std::set<std::string> stacks_;  // tensors of experts that are matrices of their own
  std::map<std::string, SourceMatrix*> by_module_;
  std::map<std::string, std::string> stored_biases_;       // tensors X.bias, by module
  std::map<std::string, std::vector<double>> new_biases_;  // by module
  std::set<std::string> dropped_, renamed_, behind_norms_, written_biases_;
};

}  // namespace

void add_quantized(Source& source) { Undoing(source).run(); }

std::unique_ptr<Plan> plan_of(const Source& source) {
  std::vector<TensorView> tensors;
  for (const SourceMatrix& matrix : source.matrices) {
    TensorView tensor;
    tensor.name = matrix.name + std::string(kWeight);
    tensor.dtype = matrix.type;
    tensor.shape = {matrix.rows, matrix.cols};
    tensor.file = matrix.tensors.front()->file;
    tensors.push_back(std::move(tensor));
  }
  for (const TensorView* tensor : source.copied) tensors.push_back(*tensor);
  const std::vector<std::byte> zeros(tensors.size());
  const ModelLocation& location = source.checkpoint.location();
  const ModelFiles& files = source.checkpoint.files();
  auto config = JsonDocument::parse(files.read("config.json"), files.subject("config.json"));
  return make_plan(Checkpoint::blank(location, std::move(config), std::move(tensors), zeros, true), true);
}

}  // namespace qgen::quantize
