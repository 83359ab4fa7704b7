#include "model/planner.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/table.h"
#include "model/mistral_files.h"
#include "model/smoothing.h"
#include "quant/transpose.h"

namespace qgen {
namespace {

// Where a planner gets its weights from: a checkpoint, or what stands in for one.
class Source {
 public:
  virtual ~Source() = default;
  virtual bool has_matrix(const std::string& module) = 0;
  virtual bool has_tensor(const std::string& tensor) = 0;
  virtual bool has_stack(const std::string& module) = 0;
  virtual Weight matrix(const std::string& module, int64_t rows, int64_t cols) = 0;
  virtual std::vector<Weight> stack(const std::string& module, int64_t count, int64_t rows, int64_t cols) = 0;
  virtual Vector vector(const std::string& tensor, int64_t n, int64_t cols = 1) = 0;
  virtual std::optional<Vector> bias(const std::string& module, int64_t rows, int64_t cols) = 0;
  // See Binder.
  virtual std::optional<Vector> input_scale(const std::string& module, int64_t cols) = 0;
  virtual bool may_smooth_norms() const = 0;
};

class CheckpointSource : public Source {
 public:
  CheckpointSource(const Checkpoint& checkpoint, bool trust_tensors) : binder_(checkpoint, trust_tensors) {}
  bool has_matrix(const std::string& module) override { return binder_.has_matrix(module); }
  bool has_tensor(const std::string& tensor) override { return binder_.has_tensor(tensor); }
  Weight matrix(const std::string& module, int64_t rows, int64_t cols) override {
    return binder_.matrix(module, rows, cols);
  }
  bool has_stack(const std::string& module) override { return binder_.has_stack(module); }
  std::vector<Weight> stack(const std::string& module, int64_t count, int64_t rows, int64_t cols) override {
    return binder_.stack(module, count, rows, cols);
  }
  Vector vector(const std::string& tensor, int64_t n, int64_t cols) override { return binder_.vector(tensor, n, cols); }
  std::optional<Vector> bias(const std::string& module, int64_t rows, int64_t cols) override {
    return binder_.bias(module, rows, cols);
  }
  std::optional<Vector> input_scale(const std::string& module, int64_t cols) override {
    return binder_.input_scale(module, cols);
  }
  bool may_smooth_norms() const override { return binder_.may_smooth_norms(); }
  const Binder& binder() const { return binder_; }

 private:
  Binder binder_;
};

// Writes down what a checkpoint would be asked for.
class Recorder : public Source {
 public:
  explicit Recorder(const std::function<bool(const std::string&)>& has) : has_(has) {}
  bool has_matrix(const std::string& module) override { return has_(module + ".weight"); }
  bool has_tensor(const std::string& tensor) override { return has_(tensor); }
  Weight matrix(const std::string& module, int64_t rows, int64_t cols) override {
    requests.push_back({module, rows, cols});
    return {};
  }
  bool has_stack(const std::string& module) override { return has_(module) || has_(module + ".weight"); }
  std::vector<Weight> stack(const std::string& module, int64_t count, int64_t rows, int64_t cols) override {
    requests.push_back({module, rows, cols, count});
    return std::vector<Weight>(size_t(count));
  }
  Vector vector(const std::string& tensor, int64_t n, int64_t) override {
    requests.push_back({tensor, n, 0});
    Vector out;
    out.size = n;
    return out;
  }
  std::optional<Vector> bias(const std::string& module, int64_t rows, int64_t) override {
    const std::string tensor = module + ".bias";
    if (!has_tensor(tensor)) return {};
    return vector(tensor, rows, 1);
  }
  std::optional<Vector> input_scale(const std::string&, int64_t) override { return {}; }
  bool may_smooth_norms() const override { return true; }

  std::vector<TensorRequest> requests;

 private:
  const std::function<bool(const std::string&)>& has_;
};

class Planner {
 public:
  // `name` of the model is for messages.
  Planner(const Description& model, Plan& plan, Source& source, const std::string& name)
      : model_(model), plan_(plan), source_(source), name_(name) {}

  void run() {
    plan_.ropes = model_.ropes;
    bind_rope_factors();
    residual_ = row("residual", model_.hidden);
    const Weight* embed = matrix(model_.names.of(Role::kEmbed), model_.vocab, model_.hidden);
    LookupStep lookup;
    lookup.table = embed;
    lookup.scale = model_.embed_scale;
    if (model_.positions > 0)
      lookup.positions = matrix(model_.names.of(Role::kPositions), model_.positions, model_.hidden);
    lookup.out = residual_;
    plan_.steps.push_back({-1, lookup});
    for (layer_ = 0; layer_ < int64_t(model_.layers.size()); ++layer_) {
      add_layer(model_.layers[size_t(layer_)]);
    }
    add_head(embed);
    link();
  }

 private:
  std::string module(Role role, int64_t expert = 0) const { return model_.names.of(role, layer_, expert); }

  // A row of this name and width: the same one for every layer.
  View row(const std::string& name, int64_t cols, bool scored = false) {
    for (size_t i = 0; i < plan_.rows.size(); ++i) {
      if (plan_.rows[i].name == name && plan_.rows[i].cols == cols) return {RowId(i), 0, cols};
    }
    plan_.rows.push_back({name, cols, scored});
    return {RowId(plan_.rows.size() - 1), 0, cols};
  }

  template <typename Op>
  void add(Op op) {
    plan_.steps.push_back({int32_t(layer_), std::move(op)});
  }
  void add(LinearStep step) {
    if (smoothing_.empty()) return add<LinearStep>(std::move(step));
    smoothing_.arrange(
        std::move(step), [&](const std::string& name, int64_t cols, bool scored) { return row(name, cols, scored); },
        [&](Vector vector) { return keep(std::move(vector)); }, [&](auto op) { add<decltype(op)>(std::move(op)); });
  }

  // Parallel branches read the residual before any of them adds to it.
  void add_layer(const std::vector<BlockSpec>& blocks) {
    for (auto block = blocks.begin(); block != blocks.end();) {
      if (is_whole(*block)) {
        add_whole(*block++);
        continue;
      }
      const auto end = std::find_if(block + 1, blocks.end(), [](const BlockSpec& next) { return !next.parallel; });
      std::vector<View> inner;
      for (auto branch = block; branch != end; ++branch) inner.push_back(add_inner(*branch));
      for (size_t i = 0; block != end; ++block, ++i)
        std::visit([&](const auto& mixer) { add_outer(*block, mixer, inner[i]); }, block->mixer);
    }
  }

  // Blocks of steps between which nothing else comes.
  static bool is_whole(const BlockSpec& block) {
    return std::holds_alternative<MixtureSpec>(block.mixer) || std::holds_alternative<DeltaSpec>(block.mixer);
  }
  void add_whole(const BlockSpec& block) {
    const Norm before = block.before ? norm(block.before->spec, module(block.before->role), model_.hidden) : Norm();
    if (const auto* mixture = std::get_if<MixtureSpec>(&block.mixer)) add_mixer(block, *mixture, before);
    if (const auto* delta = std::get_if<DeltaSpec>(&block.mixer)) add_mixer(block, *delta, before);
  }
  View add_inner(LinearStep&, const MixtureSpec&) { return {}; }
  View add_inner(LinearStep&, const DeltaSpec&) { return {}; }
  void add_outer(const BlockSpec&, const MixtureSpec&, const View&) {}
  void add_outer(const BlockSpec&, const DeltaSpec&, const View&) {}

  // The products of the residual that a branch begins with; gives what they are.
  View add_inner(const BlockSpec& block) {
    LinearStep step;
    step.in = residual_;
    if (block.before) shared_norm_ = norm(block.before->spec, module(block.before->role), model_.hidden);
    const bool shares = block.parallel && !block.before;
    if (block.before || (shares && !smoothing_.empty())) step.norm = shared_norm_;
    const View out = std::visit([&](const auto& mixer) { return add_inner(step, mixer); }, block.mixer);
    if (shares && smoothing_.empty()) {
      auto& shared = std::get<LinearStep>(plan_.steps.back().op).projections;
      shared.insert(shared.end(), step.projections.begin(), step.projections.end());
    } else {
      add(std::move(step));
    }
    return out;
  }

  // A gate's columns lie behind those of each head.
  static int64_t q_stride(const AttentionSpec& spec) { return spec.output_gate ? 2 * spec.head_dim : spec.head_dim; }

  View add_inner(LinearStep& step, const AttentionSpec& spec) {
    const int64_t q_rows = spec.heads * q_stride(spec), kv_cols = spec.kv_heads * spec.head_dim;
    const View qkv = row("qkv", q_rows + 2 * kv_cols);
    const View q{qkv.row, 0, q_rows}, k{qkv.row, q_rows, kv_cols}, v{qkv.row, q_rows + kv_cols, kv_cols};
    if (is_fused(Role::kAttnQkv, Role::kAttnQ, spec.fused)) {
      const auto parts = fused(Role::kAttnQkv, {q_rows, kv_cols, kv_cols}, model_.hidden, spec.qkv_bias);
      step.projections = {to(parts[0], q), to(parts[1], k), to(parts[2], v)};
    } else {
      step.projections = {to(linear(Role::kAttnQ, q_rows, model_.hidden, spec.qkv_bias), q),
                          to(linear(Role::kAttnK, kv_cols, model_.hidden, spec.qkv_bias), k),
                          to(linear(Role::kAttnV, kv_cols, model_.hidden, spec.qkv_bias), v)};
    }
    return qkv;
  }

  void add_outer(const BlockSpec& block, const AttentionSpec& spec, const View& qkv) {
    const int64_t q_cols = spec.heads * spec.head_dim, kv_cols = spec.kv_heads * spec.head_dim;
    const int64_t q_rows = spec.heads * q_stride(spec);
    AttendStep attend;
    attend.state = StateId(plan_.states.size());
    plan_.states.push_back({State::Kind::kKv, spec.kv_heads, spec.head_dim, spec.head_dim, spec.window, 0});
    attend.heads = spec.heads;
    attend.kv_heads = spec.kv_heads;
    attend.key_dim = attend.value_dim = spec.head_dim;
    attend.q = {qkv.row, 0, q_stride(spec)};
    if (spec.output_gate) attend.gate = {qkv.row, spec.head_dim, q_stride(spec)};
    attend.k = {qkv.row, q_rows, spec.head_dim};
    attend.v = {qkv.row, q_rows + kv_cols, spec.head_dim};
    if (spec.q_norm) attend.q_norm = head_norm(*spec.q_norm, Role::kAttnQNorm, spec.heads, spec.head_dim);
    if (spec.k_norm) attend.k_norm = head_norm(*spec.k_norm, Role::kAttnKNorm, spec.kv_heads, spec.head_dim);
    attend.norm_after_rotation = spec.norm_after_rotation;
    attend.rope = spec.rope;
    attend.scale = spec.scale > 0 ? spec.scale : 1 / std::sqrt(double(spec.head_dim));
    attend.softcap = spec.softcap;
    attend.window = spec.window;
    attend.chunk = spec.chunk;
    attend.temperature_beta = spec.temperature_beta;
    attend.temperature_interval = spec.temperature_interval;
    attend.out = row("mixed", q_cols);
    const View mixed = attend.out;
    add(std::move(attend));
    add_output(block, linear(Role::kAttnOut, model_.hidden, q_cols, spec.out_bias), mixed);
  }

  View add_inner(LinearStep& step, const FeedForwardSpec& spec) {
    const View out = row("inner", spec.width);
    Projection up;
    if (!spec.gated) {
      up = linear(Role::kFfnUp, spec.width, model_.hidden, spec.bias);
    } else if (is_fused(Role::kFfnGateUp, Role::kFfnGate, spec.fused)) {
      const auto parts = fused(Role::kFfnGateUp, {spec.width, spec.width}, model_.hidden, spec.bias);
      up = gated(parts[0], parts[1]);
    } else {
      const Projection gate = linear(Role::kFfnGate, spec.width, model_.hidden, spec.bias);
      up = gated(gate, linear(Role::kFfnUp, spec.width, model_.hidden, spec.bias));
    }
    up.activation = spec.activation;
    step.projections = {to(up, out)};
    return out;
  }

  void add_outer(const BlockSpec& block, const FeedForwardSpec& spec, const View& inner) {
    add_output(block, linear(Role::kFfnDown, model_.hidden, spec.width, spec.bias), inner);
  }

  void add_mixer(const BlockSpec& block, const MixtureSpec& spec, const Norm& before) {
    // Router, experts and the shared expert read the same normed row.
    CombineStep normalize;
    normalize.y = residual_;
    normalize.norm = before;
    const View normed = normalize.out = row("normed", model_.hidden);
    add(normalize);
    const View target = block.after || block.scale != 1 ? row("branch", model_.hidden) : residual_;
    const bool adds = target.row == residual_.row;

    LinearStep router;
    router.in = normed;
    const View logits = row("router", spec.experts);
    router.projections = {to(linear(Role::kRouter, spec.experts, model_.hidden, false), logits)};
    const View shared_score = spec.shared_score ? row("shared_score", 1) : View();
    if (spec.shared_score)
      router.projections.push_back(to(linear(Role::kSharedScore, 1, model_.hidden, false), shared_score));
    add(std::move(router));

    RouteStep route;
    route.logits = logits;
    route.chosen = spec.chosen;
    route.score = spec.score;
    if (spec.ranking_bias) route.bias = keep(source_.vector(module(Role::kRouterBias), spec.experts));
    route.groups = spec.groups;
    route.kept_groups = spec.kept_groups;
    route.rank = spec.rank;
    route.normalized = spec.normalized;
    route.least_sum = spec.least_sum;
    route.scale = spec.scale;
    route.out = row("route", 2 * spec.chosen);
    const View chosen = route.out;
    add(route);

    ExpertsStep experts;
    experts.in = normed;
    experts.route = chosen;
    bind_experts(spec, experts);
    experts.activation = spec.activation;
    experts.out = target;
    experts.add = adds;
    add(std::move(experts));
    if (spec.shared_width > 0) add_shared_expert(spec, normed, shared_score, target);
    if (!adds) add_branch(block, target);
  }

  void bind_experts(const MixtureSpec& spec, ExpertsStep& out) {
    const auto append = [&](std::vector<const Weight*>& bank, Weight weight) {
      plan_.weights.push_back(std::move(weight));
      bank.push_back(&plan_.weights.back());
    };
    if (source_.has_stack(module(Role::kExpertDowns))) {
      const auto stack = [&](Role role, int64_t rows, int64_t cols) {
        return source_.stack(module(role), spec.experts, rows, cols);
      };
      if (source_.has_stack(module(Role::kExpertGateUps))) {
        for (const Weight& whole : stack(Role::kExpertGateUps, 2 * spec.width, model_.hidden)) {
          append(out.gate, slice_rows(whole, 0, spec.width));
          append(out.up, slice_rows(whole, spec.width, spec.width));
        }
      } else {
        for (Weight& weight : stack(Role::kExpertGates, spec.width, model_.hidden)) append(out.gate, std::move(weight));
        for (Weight& weight : stack(Role::kExpertUps, spec.width, model_.hidden)) append(out.up, std::move(weight));
      }
      for (Weight& weight : stack(Role::kExpertDowns, model_.hidden, spec.width)) append(out.down, std::move(weight));
      return;
    }
    for (int64_t e = 0; e < spec.experts; ++e) {
      append(out.gate, source_.matrix(module(Role::kExpertGate, e), spec.width, model_.hidden));
      append(out.up, source_.matrix(module(Role::kExpertUp, e), spec.width, model_.hidden));
      append(out.down, source_.matrix(module(Role::kExpertDown, e), model_.hidden, spec.width));
    }
  }

  // target += sigmoid(score) * the shared expert's result
  void add_shared_expert(const MixtureSpec& spec, const View& normed, const View& score, const View& target) {
    LinearStep inner;
    inner.in = normed;
    const View out = row("inner", spec.shared_width);
    Projection up = gated(linear(Role::kSharedGate, spec.shared_width, model_.hidden, false),
                          linear(Role::kSharedUp, spec.shared_width, model_.hidden, false));
    up.activation = spec.activation;
    inner.projections = {to(up, out)};
    add(std::move(inner));
    LinearStep down;
    down.in = out;
    Projection projection = linear(Role::kSharedDown, model_.hidden, spec.shared_width, false);
    projection.add = !score;
    const View result = score ? row("shared", model_.hidden) : target;
    down.projections = {to(projection, result)};
    add(std::move(down));
    if (!score) return;
    CombineStep sum;
    sum.x = sum.out = target;
    sum.y = result;
    sum.gate = score;
    sum.activation = Activation::kSigmoid;
    add(sum);
  }

  void add_mixer(const BlockSpec& block, const DeltaSpec& spec, const Norm& before) {
    const int64_t keys = spec.key_heads * spec.key_dim, values = spec.value_heads * spec.value_dim;
    const View all = row("delta", 2 * keys + 2 * values + 2 * spec.value_heads);
    const View qkv{all.row, 0, 2 * keys + values}, z{all.row, qkv.cols, values},
        decay{all.row, qkv.cols + values, spec.value_heads}, rate{all.row, decay.first + decay.cols, spec.value_heads};
    LinearStep projections;
    projections.in = residual_;
    projections.norm = before;
    if (spec.by_key_head) {
      const View q{all.row, 0, keys}, k{all.row, keys, keys}, v{all.row, 2 * keys, values};
      add_by_head(Role::kDeltaQkvz, spec.key_heads, {q, k, v, z}, projections);
      add_by_head(Role::kDeltaRateDecay, spec.key_heads, {rate, decay}, projections);
    } else {
      projections.projections = {to(linear(Role::kDeltaQkv, qkv.cols, model_.hidden, false), qkv),
                                 to(linear(Role::kDeltaZ, z.cols, model_.hidden, false), z),
                                 to(linear(Role::kDeltaDecay, decay.cols, model_.hidden, false), decay),
                                 to(linear(Role::kDeltaRate, rate.cols, model_.hidden, false), rate)};
    }
    add(std::move(projections));

    ConvStep conv;
    conv.state = fixed_state((spec.taps - 1) * qkv.cols);
    conv.taps = spec.taps;
    conv.in = conv.out = qkv;
    conv.weight = keep(source_.vector(module(Role::kDeltaConv) + ".weight", qkv.cols * spec.taps, spec.taps));
    conv.activation = Activation::kSilu;
    add(conv);

    RecurStep recur;
    recur.kind = RecurStep::Kind::kGatedDelta;
    recur.state = fixed_state(spec.value_heads * spec.key_dim * spec.value_dim);
    recur.heads = spec.value_heads;
    recur.key_heads = spec.key_heads;
    recur.key_dim = spec.key_dim;
    recur.value_dim = spec.value_dim;
    recur.q = {all.row, 0, spec.key_dim};
    recur.k = {all.row, keys, spec.key_dim};
    recur.v = {all.row, 2 * keys, spec.value_dim};
    recur.decay = decay;
    recur.rate = rate;
    recur.a_log = keep(source_.vector(module(Role::kDeltaALog), spec.value_heads));
    recur.decay_bias = keep(source_.vector(module(Role::kDeltaDecayBias), spec.value_heads));
    recur.unit_keys = true;
    recur.eps = 1e-6;
    recur.scale = 1 / std::sqrt(double(spec.key_dim));
    recur.out = row("mixed", values);
    const View mixed = recur.out;
    add(recur);

    CombineStep gate;
    gate.y = gate.out = mixed;
    gate.norm = norm(spec.norm, module(Role::kDeltaNorm), spec.value_dim);
    gate.gate = z;
    gate.activation = spec.output_gate;
    add(gate);
    add_output(block, linear(Role::kDeltaOut, model_.hidden, values, false), mixed);
  }

  // The products of a matrix whose rows are those of the views' parts for the first of `heads`, then for the next.
  void add_by_head(Role role, int64_t heads, const std::vector<View>& views, LinearStep& out) {
    std::vector<int64_t> rows;
    std::vector<View> parts;
    for (int64_t h = 0; h < heads; ++h) {
      for (const View& view : views) {
        const int64_t cols = view.cols / heads;
        rows.push_back(cols);
        parts.push_back({view.row, view.first + h * cols, cols});
      }
    }
    const std::vector<Projection> projections = fused(role, rows, model_.hidden, false);
    for (size_t i = 0; i < parts.size(); ++i) out.projections.push_back(to(projections[i], parts[i]));
  }

  StateId fixed_state(int64_t elements) {
    State state;
    state.kind = State::Kind::kFixed;
    state.elements = elements;
    plan_.states.push_back(state);
    return StateId(plan_.states.size() - 1);
  }

  // residual += scale * after(W in)
  void add_output(const BlockSpec& block, Projection projection, const View& in) {
    LinearStep output;
    output.in = in;
    if (!block.after) {
      projection.out = residual_;
      projection.add = true;
      projection.scale = block.scale;
      output.projections = {projection};
      add(std::move(output));
      return;
    }
    const View branch = row("branch", model_.hidden);
    output.projections = {to(projection, branch)};
    add(std::move(output));
    add_branch(block, branch);
  }

  // residual += scale * after(branch)
  void add_branch(const BlockSpec& block, const View& branch) {
    CombineStep combine;
    combine.x = combine.out = residual_;
    combine.y = branch;
    combine.y_scale = block.scale;
    if (block.after) combine.norm = norm(block.after->spec, module(block.after->role), model_.hidden);
    add(combine);
  }

  // A head of its own where the files have one; else the embedding, unless config.json forbids it.
  void add_head(const Weight* embed) {
    layer_ = -1;
    LinearStep head;
    head.in = residual_;
    head.norm = norm(model_.final_norm, model_.names.of(Role::kFinalNorm), model_.hidden);
    const std::string name = model_.names.of(Role::kHead);
    Projection scores;
    if (source_.has_matrix(name)) {
      scores = linear(Role::kHead, model_.vocab, model_.hidden, false);
    } else if (model_.tied_head == false) {
      fail(ErrorKind::kModel, fmt::format("{}: tensor {}.weight is missing", name_, name),
           "config.json says tie_word_embeddings: false, so the embedding does not stand in for it");
    } else {
      scores.weight = embed;
    }
    scores.scale = model_.logit_scale;
    scores.softcap = model_.logit_softcap;
    const View out = row("scores", model_.vocab, true);
    head.projections = {to(scores, out)};
    plan_.scores = out.row;
    add(std::move(head));
  }

  void link() {
    plan_.links.assign(plan_.steps.size(), {});
    const Weight* next = nullptr;
    for (size_t i = plan_.steps.size(); i-- > 0;) {
      plan_.links[i].next_weight = next;
      const Weight* first = nullptr;
      for_each_weight(plan_.steps[i], [&](const Weight& weight, WeightUse use) {
        if (first == nullptr && use.multiplies && use.share == 1) first = &weight;
      });
      if (first != nullptr) next = first;
    }
  }

  static Projection to(Projection projection, const View& out) {
    projection.out = out;
    return projection;
  }
  static Projection gated(const Projection& gate, Projection up) {
    up.gate = gate.weight;
    up.gate_bias = gate.bias;
    return up;
  }

  // Whether the files have a matrix for several, rather than one for each of which `single` is the first; where they
  // have neither, or nothing is known of them, what the family says.
  bool is_fused(Role several, Role single, bool by_family) {
    if (source_.has_matrix(module(single))) return false;
    return by_family || source_.has_matrix(module(several));
  }

  bool is_transposed(Role role) const { return model_.transposed && role != Role::kHead; }

  Projection linear(Role role, int64_t rows, int64_t cols, bool bias_required) {
    Projection out;
    if (is_transposed(role)) {
      out.weight = keep(transposed_rows(source_.matrix(module(role), cols, rows), 0, rows));
    } else {
      out.weight = matrix(module(role), rows, cols);
    }
    out.bias = bias(module(role), rows, cols, bias_required);
    if (auto scale = source_.input_scale(module(role), cols))
      smoothing_.scale_input(out.weight, keep(std::move(*scale)));
    return out;
  }

  // The parts of a matrix whose rows are those of several, one after the other.
  std::vector<Projection> fused(Role role, const std::vector<int64_t>& rows, int64_t cols, bool bias_required) {
    int64_t total = 0;
    for (const int64_t n : rows) total += n;
    const bool transposed = is_transposed(role);
    const Weight whole = source_.matrix(module(role), transposed ? cols : total, transposed ? total : cols);
    if (!transposed && whole.repack != nullptr && (whole.ordered || whole.data.empty())) {
      fail(ErrorKind::kModel, fmt::format("{}: a matrix for several layers in the order of their activations is not "
                                          "supported",
                                          whole.tensor));
    }
    const Vector* biases = bias(module(role), total, cols, bias_required);
    auto scale = source_.input_scale(module(role), cols);
    const Vector* const input_scale = scale ? keep(std::move(*scale)) : nullptr;
    std::vector<Projection> out;
    int64_t first = 0;
    for (const int64_t n : rows) {
      Projection& part = out.emplace_back();
      part.weight = keep(transposed ? transposed_rows(whole, first, n) : slice_rows(whole, first, n));
      if (input_scale != nullptr) smoothing_.scale_input(part.weight, input_scale);
      if (biases != nullptr) part.bias = part_of(*biases, first, n);
      first += n;
    }
    return out;
  }

  const Vector* part_of(const Vector& whole, int64_t first, int64_t size) { return keep(slice(whole, first, size)); }

  const Vector* bias(const std::string& module, int64_t rows, int64_t cols, bool required) {
    if (auto found = source_.bias(module, rows, cols)) return keep(std::move(*found));
    return required ? keep(source_.vector(module + ".bias", rows)) : nullptr;
  }

  Norm norm(const NormSpec& spec, const std::string& module, int64_t n) {
    const bool smoothed = source_.may_smooth_norms() && source_.has_tensor(module + ".module.weight");
    // Without float layers behind it a smoothed norm has lost its own weight.
    if (smoothed && !source_.has_tensor(module + ".weight")) return stored_norm(spec, module + ".module", n);
    const Norm out = stored_norm(spec, module, n);
    if (smoothed) smoothing_.smooth_norm(out, stored_norm(spec, module + ".module", n));
    return out;
  }

  Norm stored_norm(const NormSpec& spec, const std::string& module, int64_t n) {
    Norm out{spec.kind, nullptr, nullptr, spec.eps, n};
    if (spec.weighted) {
      Vector weight = source_.vector(module + ".weight", n);
      if (spec.plus_one && !model_.folded_norms) weight.add = 1;
      out.weight = keep(std::move(weight));
    }
    const std::string bias = module + ".bias";
    if (spec.biased || (source_.may_smooth_norms() && source_.has_tensor(bias)))
      out.bias = keep(source_.vector(bias, n));
    return out;
  }

  Norm head_norm(const NormSpec& spec, Role role, int64_t heads, int64_t dim) {
    Norm out = norm(spec, module(role), spec.whole_row || spec.per_head ? heads * dim : dim);
    if (spec.per_head) out.group = dim;
    return out;
  }

  // What frequencies are divided by: given by config.json, or tensors of a GGUF file.
  void bind_rope_factors() {
    for (const Description::RopeFactors& given : model_.rope_factors) {
      Rope& rope = plan_.ropes[given.rope];
      rope.factors = keep(given_vector("short_factor", given.factors));
      rope.long_factors = keep(given_vector("long_factor", given.long_factors));
    }
    const std::string name = model_.names.of(Role::kRopeFactors) + ".weight";
    const std::string long_name = model_.names.of(Role::kRopeLongFactors) + ".weight";
    for (Rope& rope : plan_.ropes) {
      if (rope.scaling != Rope::Scaling::kFactors || rope.factors != nullptr) continue;
      if (name == ".weight") fail(ErrorKind::kModel, fmt::format("{}: rope_type 'factors' is not supported", name_));
      const bool has_long = source_.has_tensor(long_name);
      const std::string short_name = model_.names.of(Role::kRopeShortFactors) + ".weight";
      rope.factors = keep(source_.vector(has_long ? short_name : name, rope.dim / 2));
      if (has_long) rope.long_factors = keep(source_.vector(long_name, rope.dim / 2));
    }
  }
  static Vector given_vector(std::string name, std::vector<float> values) {
    Vector out;
    out.name = std::move(name);
    out.size = int64_t(values.size());
    out.given = std::move(values);
    return out;
  }

  const Weight* matrix(const std::string& module, int64_t rows, int64_t cols) {
    return keep(source_.matrix(module, rows, cols));
  }
  const Weight* keep(Weight weight) {
    plan_.weights.push_back(std::move(weight));
    return &plan_.weights.back();
  }
  const Vector* keep(Vector vector) {
    plan_.vectors.push_back(std::move(vector));
    return &plan_.vectors.back();
  }

  const Description& model_;
  Plan& plan_;
  Source& source_;
  const std::string& name_;
  View residual_;
  Smoothing smoothing_;
  Norm shared_norm_;  // of the branch that others run beside
  int64_t layer_ = 0;
};

// The context with the factor of those rotary scalings that extend it.
int64_t extended_context(const Description& model) {
  constexpr double kMost = double(int64_t{1} << 31);
  double context = double(model.context);
  for (const Rope& rope : model.ropes) {
    const bool extends = rope.scaling == Rope::Scaling::kLinear || rope.scaling == Rope::Scaling::kDynamic ||
                         (rope.scaling == Rope::Scaling::kYarn && rope.original_context == model.context);
    if (extends) context = std::max(context, double(model.context) * std::max(1.0, rope.factor));
  }
  return int64_t(std::min(kMost, context));
}

void set_info(Plan& plan, const Description& model) {
  plan.model = {model.family, int64_t(model.layers.size()), model.hidden,
                model.vocab,  extended_context(model),      model.end_tokens};
}

}  // namespace

void find_place(Description& model, const std::function<bool(const std::string&)>& has) {
  for (const Description::NamePlace& place : model.places) {
    Names names = model.names;
    names.set_prefix(place.prefix);
    names.set(Role::kHead, place.head);
    if (!has(names.of(Role::kEmbed) + ".weight")) continue;
    model.names = names;
    return;
  }
}

std::unique_ptr<Plan> make_plan(Checkpoint checkpoint, bool trust_tensors) {
  auto plan = std::make_unique<Plan>();
  plan->checkpoint = std::move(checkpoint);
  Description model = describe(plan->checkpoint.config());
  CheckpointSource source(plan->checkpoint, trust_tensors);
  if (!plan->checkpoint.location().gguf_files.empty()) {
    model.names = Names::gguf();
    model.folded_norms = true;
  }
  if (is_mistral_native(plan->checkpoint)) {
    model.names = Names::mistral();
    for (Rope& rope : model.ropes) rope.pairs = Rope::Pairs::kAdjacent;
  } else if (model.names.prefix() != "") {
    find_place(model, [&](const std::string& tensor) { return source.has_tensor(tensor); });
  }
  set_info(*plan, model);
  Planner(model, *plan, source, plan->checkpoint.location().name).run();
  plan->bindings = source.binder().bindings();
  std::vector<std::string> drafting;
  for (int64_t i = model.drafting_layers.first; i < model.drafting_layers.second; ++i)
    drafting.push_back(model.names.layer_prefix(i));
  plan->ignored = source.binder().finish(model.names.own_prefixes(), drafting, model.buffers, model.family);
  return plan;
}

std::vector<TensorRequest> plan_requests(const Description& model, const std::string& name,
                                         const std::function<bool(const std::string&)>& has) {
  Plan plan;
  set_info(plan, model);
  Recorder recorder(has);
  Planner(model, plan, recorder, name).run();
  return std::move(recorder.requests);
}

}  // namespace qgen
