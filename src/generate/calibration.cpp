#include "generate/calibration.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/cores.h"
#include "engine/norm.h"
#include "engine/sequence.h"
#include "quantize/source.h"

namespace qgen {
namespace {

// The modules whose matrices a weight holds, as a quantizer names them: those of stacks of experts,
// "X.gate_up_proj[3]", are X.3.gate_proj and X.3.up_proj there.
std::vector<std::string> modules_of(const Weight& weight) {
  const std::string& name = weight.name;
  const size_t bracket = name.find('[');
  const size_t dot = name.rfind('.', bracket);
  if (bracket == name.npos || dot == name.npos) return {name};
  const std::string expert = name.substr(bracket + 1, name.size() - bracket - 2);
  const std::string part = name.substr(dot + 1, bracket - dot - 1), parent = name.substr(0, dot);
  if (part != "gate_up_proj") return {fmt::format("{}.{}.{}", parent, expert, part)};
  return {fmt::format("{}.{}.gate_proj", parent, expert), fmt::format("{}.{}.up_proj", parent, expert)};
}

// The largest magnitude of each column.
class Maxima {
 public:
  explicit Maxima(int64_t cols) : values_(size_t(cols), 0.0f) {}

  template <typename Value>
  void add(std::span<const Value> row) {
    for (size_t k = 0; k < values_.size(); ++k) values_[k] = std::max(values_[k], float(std::fabs(row[k])));
    seen_ = true;
  }
  bool seen() const { return seen_; }
  std::span<const float> values() const { return values_; }

 private:
  std::vector<float> values_;
  bool seen_ = false;
};

class InputWatch {
 public:
  InputWatch(const Plan& plan, quantize::InputStatistics& statistics) : plan_(plan), statistics_(statistics) {}

  void operator()(size_t step, const BatchRows& rows) {
    if (const auto* linear = std::get_if<LinearStep>(&plan_.steps[step].op)) look(*linear, rows);
    if (const auto* experts = std::get_if<ExpertsStep>(&plan_.steps[step].op)) look(*experts, rows);
  }

 private:
  // Of a vector, once for all batches.
  std::span<const float> values_of(const Vector* vector) {
    if (vector == nullptr) return {};
    const auto [entry, added] = vectors_.try_emplace(vector);
    if (added) entry->second = vector->values();
    return entry->second;
  }

  void add(const Weight* weight, const Maxima& maxima) {
    if (weight == nullptr || !maxima.seen()) return;
    for (const std::string& module : modules_of(*weight)) statistics_.add(module + ".weight", maxima.values());
  }

  void look(const LinearStep& step, const BatchRows& rows) {
    if (plan_.rows[size_t(step.projections.front().out.row)].scored) return;  // the output head
    const std::span<const float> weight = values_of(step.norm.weight), bias = values_of(step.norm.bias);
    std::vector<float> row(size_t(step.in.cols));
    std::vector<double> x;
    Maxima maxima(step.in.cols);
    for (int64_t t = 0; t < rows.tokens(); ++t) {
      rows.read(t, step.in, row);
      x.assign(row.begin(), row.end());
      normalize(step.norm, weight, bias, x);
      maxima.add(std::span<const double>(x));
    }
    for (const Projection& projection : step.projections) {
      add(projection.weight, maxima);
      add(projection.gate, maxima);
    }
  }

  // What an expert's down matrix sees is nowhere to be read, and computed here once more.
  void look(const ExpertsStep& step, const BatchRows& rows) {
    const auto cols = size_t(step.in.cols);
    std::vector<float> inputs(size_t(rows.tokens()) * cols), route(size_t(step.route.cols));
    std::vector<std::vector<std::pair<int64_t, float>>> tokens(size_t(step.experts()));  // with the router's weight
    for (int64_t t = 0; t < rows.tokens(); ++t) {
      rows.read(t, step.in, std::span(inputs).subspan(size_t(t) * cols, cols));
      rows.read(t, step.route, route);
      for (int64_t i = 0; i < step.chosen(); ++i)
        tokens[size_t(route[size_t(step.chosen() + i)])].emplace_back(t, route[size_t(i)]);
    }
    const std::span<const float> gate_bias = values_of(step.gate_bias), up_bias = values_of(step.up_bias);
    std::vector<Maxima> inner(size_t(step.experts()), Maxima(step.width()));
    std::vector<Maxima> outer(size_t(step.experts()), Maxima(step.in.cols));
    on_all_cores(size_t(step.experts()), [&](size_t e) {
      std::vector<std::vector<float>> x;
      for (const auto& [token, weight] : tokens[e]) {
        x.emplace_back(inputs.begin() + token * int64_t(cols), inputs.begin() + (token + 1) * int64_t(cols));
        if (step.weighted_input)
          std::ranges::transform(x.back(), x.back().begin(), [weight = weight](float v) { return v * weight; });
        outer[e].add(std::span<const float>(x.back()));
      }
      if (x.empty() || step.up[e]->data.empty()) return;  // weights may be on the device alone
      const auto part = [&](std::span<const float> biases) {
        return biases.empty() ? biases : biases.subspan(e * size_t(step.width()), size_t(step.width()));
      };
      const auto up = products(*step.up[e], part(up_bias), x);
      const auto gate = step.gate.empty() ? up : products(*step.gate[e], part(gate_bias), x);
      const double limit = step.limit > 0 ? step.limit : INFINITY;
      std::vector<float> y(size_t(step.width()));
      for (size_t t = 0; t < x.size(); ++t) {
        for (size_t n = 0; n < y.size(); ++n) {
          const double factor = step.gate.empty() ? 1 : std::clamp(double(up[t][n]), -limit, limit) + step.up_offset;
          y[n] = float(activate(step.activation, std::min(double(gate[t][n]), limit)) * factor);
        }
        inner[e].add(std::span<const float>(y));
      }
    });
    for (size_t e = 0; e < outer.size(); ++e) {
      add(step.up[e], outer[e]);
      if (!step.gate.empty()) add(step.gate[e], outer[e]);
      add(step.down[e], inner[e]);
    }
  }

  // W x + bias of each x.
  static std::vector<std::vector<float>> products(const Weight& weight, std::span<const float> bias,
                                                  const std::vector<std::vector<float>>& inputs) {
    std::vector<std::vector<float>> out(inputs.size(), std::vector<float>(size_t(weight.rows)));
    std::vector<float> row(size_t(weight.cols));
    for (int64_t n = 0; n < weight.rows; ++n) {
      quantize::decode_row(weight, n, row);
      for (size_t t = 0; t < inputs.size(); ++t) {
        float sum = bias.empty() ? 0 : bias[size_t(n)];
        for (size_t k = 0; k < row.size(); ++k) sum += row[k] * inputs[t][k];
        out[t][size_t(n)] = sum;
      }
    }
    return out;
  }

  const Plan& plan_;
  quantize::InputStatistics& statistics_;
  std::map<const Vector*, std::vector<float>> vectors_;
};

}  // namespace

Calibration calibrate(LoadedModel& model, std::span<const TokenId> ids, int64_t window, const RunControl& control) {
  // Tokens of a prefill call: a stop is noticed and progress is shown between two calls.
  constexpr int64_t kBatch = 256;
  Calibration out;
  model.engine->set_watch(InputWatch(*model.plan, out.statistics));
  {
    Sequence sequence(*model.engine, std::min(window, int64_t(ids.size())));
    for (int64_t at = 0; at < int64_t(ids.size());) {
      if (at % window == 0) sequence.rewind(0);
      const int64_t count = std::min({kBatch, window - at % window, int64_t(ids.size()) - at});
      sequence.run(ids.subspan(size_t(at), size_t(count)));
      at += count;
      out.tokens = at;
      if (control.stopped && control.stopped()) break;
      if (control.progress) control.progress([&] { return fmt::format("{} of {} tokens", at, ids.size()); });
    }
  }
  if (control.progress) control.progress({});
  model.engine->set_watch({});
  return out;
}

}  // namespace qgen
