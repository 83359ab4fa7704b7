#include "model/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// What all four families' tensors are called by; anything else under these names belongs to no step.
constexpr std::string_view kPrefixes[] = {"model.", "lm_head."};

// Walks the description and asks `source`, a Binder or what stands in for one, for everything that it names.
template <typename Source>
class Planner {
 public:
  // `name` of the model is for messages.
  Planner(Plan& plan, Source& source, const std::string& name) : plan_(plan), source_(source), name_(name) {}

  void run() {
    const Description& model = plan_.model;
    const Weight* embed = matrix(model.names.embed, model.vocab, model.hidden);
    plan_.steps.push_back(EmbedStep{embed});
    for (int64_t layer = 0; layer < model.layers; ++layer) add_layer(layer);
    plan_.steps.push_back(LogitsStep{vector(model.names.final_norm, model.hidden), head(embed)});
  }

 private:
  void add_layer(int64_t layer) {
    const Description& model = plan_.model;
    const auto named = [&](const std::string& pattern) { return fmt::format(fmt::runtime(pattern), layer); };
    const int64_t q_rows = model.heads * model.head_dim, kv_rows = model.kv_heads * model.head_dim;
    auto& steps = plan_.steps;
    const auto* input_norm = vector(named(model.names.input_norm), model.hidden);
    steps.push_back(QkvStep{input_norm, linear(named(model.names.q), q_rows, model.hidden, model.qkv_bias),
                            linear(named(model.names.k), kv_rows, model.hidden, model.qkv_bias),
                            linear(named(model.names.v), kv_rows, model.hidden, model.qkv_bias)});
    RotateStoreStep rotate{layer, nullptr, nullptr};
    if (model.qk_norm) {
      rotate.q_norm = vector(named(model.names.q_norm), model.head_dim);
      rotate.k_norm = vector(named(model.names.k_norm), model.head_dim);
    }
    steps.push_back(rotate);
    steps.push_back(AttendStep{layer, model.window[layer]});
    steps.push_back(OutStep{linear(named(model.names.o), model.hidden, q_rows, model.o_bias)});
    const auto* post_norm = vector(named(model.names.post_norm), model.hidden);
    steps.push_back(GateUpStep{post_norm,
                               linear(named(model.names.gate), model.intermediate, model.hidden, model.mlp_bias),
                               linear(named(model.names.up), model.intermediate, model.hidden, model.mlp_bias)});
    steps.push_back(DownStep{linear(named(model.names.down), model.hidden, model.intermediate, model.mlp_bias)});
  }

  // A head of its own where the files have one; else the embedding, unless config.json forbids it.
  Linear head(const Weight* embed) {
    const Description& model = plan_.model;
    if (source_.has_matrix(model.names.head)) return linear(model.names.head, model.vocab, model.hidden, false);
    if (model.tied_head == false) {
      fail(ErrorKind::kModel, fmt::format("{}: tensor {}.weight is missing", name_, model.names.head),
           "config.json says tie_word_embeddings: false, so the embedding does not stand in for it");
    }
    return {embed, nullptr};
  }

  Linear linear(const std::string& module, int64_t rows, int64_t cols, bool bias_required) {
    Linear out{matrix(module, rows, cols), nullptr};
    const std::string bias = module + ".bias";
    if (bias_required || source_.has_tensor(bias)) out.bias = vector_named(bias, rows);
    return out;
  }

  const Weight* matrix(const std::string& module, int64_t rows, int64_t cols) {
    plan_.weights.push_back(source_.matrix(module, rows, cols));
    return &plan_.weights.back();
  }
  const std::vector<float>* vector(const std::string& module, int64_t n) { return vector_named(module + ".weight", n); }
  const std::vector<float>* vector_named(const std::string& tensor, int64_t n) {
    plan_.vectors.push_back(source_.vector(tensor, n));
    return &plan_.vectors.back();
  }

  Plan& plan_;
  Source& source_;
  const std::string& name_;
};

// Writes down what a Binder would be asked for.
class Recorder {
 public:
  explicit Recorder(const std::function<bool(const std::string&)>& has) : has_(has) {}

  bool has_matrix(const std::string& module) const { return has_(module + ".weight"); }
  bool has_tensor(const std::string& tensor) const { return has_(tensor); }
  Weight matrix(const std::string& module, int64_t rows, int64_t cols) {
    requests.push_back({module, rows, cols});
    return {};
  }
  std::vector<float> vector(const std::string& tensor, int64_t n) {
    requests.push_back({tensor, n, 0});
    return {};
  }

  std::vector<TensorRequest> requests;

 private:
  const std::function<bool(const std::string&)>& has_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(Checkpoint checkpoint) {
  auto plan = std::make_unique<Plan>();
  plan->checkpoint = std::move(checkpoint);
  plan->model = describe(plan->checkpoint.config());
  Binder binder(plan->checkpoint);
  Planner(*plan, binder, plan->checkpoint.location().name).run();
  plan->bindings = binder.bindings();
  plan->ignored = binder.finish(kPrefixes, plan->model.family);
  return plan;
}

std::vector<TensorRequest> plan_requests(const Description& model, const std::string& name,
                                         const std::function<bool(const std::string&)>& has) {
  Plan plan;
  plan.model = model;
  Recorder recorder(has);
  Planner(plan, recorder, name).run();
  return std::move(recorder.requests);
}

std::string_view step_name(const Step& step) {
  constexpr std::string_view kNames[] = {"embed",        "norm+qkv",          "norm+rotate+store", "attend",
                                         "out+residual", "norm+gate+up+silu", "down+residual",     "norm+logits"};
  return kNames[step.index()];
}

std::vector<Linear> linears(const Step& step) {
  struct Visitor {
    std::vector<Linear> operator()(const QkvStep& s) const { return {s.q, s.k, s.v}; }
    std::vector<Linear> operator()(const OutStep& s) const { return {s.o}; }
    std::vector<Linear> operator()(const GateUpStep& s) const { return {s.gate, s.up}; }
    std::vector<Linear> operator()(const DownStep& s) const { return {s.down}; }
    std::vector<Linear> operator()(const LogitsStep& s) const { return {s.head}; }
    std::vector<Linear> operator()(const EmbedStep&) const { return {}; }
    std::vector<Linear> operator()(const RotateStoreStep&) const { return {}; }
    std::vector<Linear> operator()(const AttendStep&) const { return {}; }
  };
  return std::visit(Visitor{}, step);
}

std::string Plan::method() const {
  std::map<std::string, size_t> quantized, plain;
  for (const Weight& weight : weights) {
    const int64_t bytes = weight.rows * weight.cols * code_bytes(weight.codes);
    (weight.quantized() ? quantized : plain)[method_name(weight)] += size_t(bytes);
  }
  const auto& counts = quantized.empty() ? plain : quantized;
  std::string best;
  size_t most = 0;
  for (const auto& [name, bytes] : counts) {
    if (bytes > most) {
      best = name;
      most = bytes;
    }
  }
  return best;
}

int64_t Plan::parameters() const {
  int64_t count = 0;
  for (const Weight& weight : weights) count += weight.rows * weight.cols;
  for (const auto& vector : vectors) count += int64_t(vector.size());
  return count;
}

size_t Plan::weight_bytes() const {
  size_t bytes = 0;
  for (const Weight& weight : weights) bytes += weight.bytes();
  for (const auto& vector : vectors) bytes += vector.size() * sizeof(float);
  return bytes;
}

size_t Plan::bytes_per_token() const {
  const Weight* embed = std::get<EmbedStep>(steps.front()).table;
  size_t bytes = weight_bytes() - embed->bytes() + embed->bytes() / size_t(embed->rows);
  if (std::get<LogitsStep>(steps.back()).head.weight == embed) bytes += embed->bytes();
  return bytes;
}

double Plan::keys_seen(int64_t position) const {
  double keys = 0;
  for (const int64_t window : model.window) keys += double(window > 0 ? std::min(window, position + 1) : position + 1);
  return keys;
}

int64_t Plan::nan_codes() const {
  int64_t count = 0;
  for (const Weight& weight : weights) count += weight.nan_codes;
  return count;
}

double kv_bytes_read(const Plan& plan, int64_t position, KvType type) {
  const Description& model = plan.model;
  return 2.0 * double(model.kv_heads * kv_row_bytes(type, model.head_dim)) * plan.keys_seen(position);
}

std::string_view kv_name(KvType type) {
  switch (type) {
    case KvType::kF16: return "f16";
    case KvType::kBf16: return "bf16";
    case KvType::kF32: return "f32";
    case KvType::kFp8: return "fp8";
    case KvType::kInt8: return "int8";
  }
  return "?";
}

int64_t kv_element_bytes(KvType type) {
  switch (type) {
    case KvType::kF32: return 4;
    case KvType::kFp8:
    case KvType::kInt8: return 1;
    default: return 2;
  }
}

int64_t kv_row_bytes(KvType type, int64_t head_dim) {
  const int64_t factor = kv_element_bytes(type) == 1 ? int64_t(sizeof(float)) : 0;
  return head_dim * kv_element_bytes(type) + factor;
}

}  // namespace qgen
