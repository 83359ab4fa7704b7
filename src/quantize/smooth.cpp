#include "quantize/smooth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/numbers.h"
#include "model/open.h"
#include "quantize/quantized_source.h"
#include "quantize/repacked.h"

namespace qgen::quantize {
namespace {

// A norm of the checkpoint that only linear layers read.
struct Place {
  const TensorView* weight = nullptr;
  const TensorView* bias = nullptr;
  double add = 0;  // the norm multiplies with `weight` and this
  std::set<std::string> modules;
};

// By the name of the norm's tensor.
std::map<std::string, Place> find_places(const Plan& plan, const Source& source) {
  std::map<std::string, Place> out;
  std::set<std::string> others;  // norms that something else reads, or that are read in part
  const auto copied = [&](const std::string& name) -> const TensorView* {
    for (const TensorView* tensor : source.copied) {
      if (tensor->name == name) return tensor;
    }
    return nullptr;
  };
  std::set<const Weight*> tables;
  for (const Step& step : plan.steps) {
    if (const auto* lookup = std::get_if<LookupStep>(&step.op)) tables.insert(lookup->table);
  }
  for (const Step& step : plan.steps) {
    const auto* linear = std::get_if<LinearStep>(&step.op);
    for_each_norm(step, [&](const Norm& norm) {
      if (norm.weight == nullptr) return;
      const Vector& vector = *norm.weight;
      const bool whole = linear != nullptr && norm.group == linear->in.cols && vector.size == norm.group &&
                         !vector.bytes.empty() && vector.first == 0;
      Place place{copied(vector.name), norm.bias != nullptr ? copied(norm.bias->name) : nullptr, vector.add, {}};
      const bool found = place.weight != nullptr && (norm.bias == nullptr || place.bias != nullptr);
      if (!whole || !found) {
        others.insert(vector.name);
        return;
      }
      Place& known = out.try_emplace(vector.name, place).first->second;
      for (const Projection& projection : linear->projections) {
        for (const Weight* weight : {projection.weight, projection.gate}) {
          if (weight == nullptr) continue;
          // A repacked weight is not the file's matrix, and a lookup table's columns have other readers as well.
          if (weight->repack != nullptr || tables.contains(weight)) others.insert(vector.name);
          known.modules.insert(weight->name);
        }
      }
    });
  }
  std::erase_if(out, [&](const auto& entry) { return others.contains(entry.first); });
  return out;
}

// The largest magnitude of each column, joined into `out`.
void join_maxima(const SourceMatrix& matrix, std::vector<float>& out) {
  constexpr int64_t kRows = 256;
  const auto strips = size_t((matrix.rows + kRows - 1) / kRows);
  std::vector<std::vector<float>> maxima(strips);
  on_all_cores(strips, [&](size_t strip) {
    const int64_t first = int64_t(strip) * kRows, count = std::min(kRows, matrix.rows - first);
    RowReader reader(matrix);
    const std::span<const float> values = reader.tile(first, count, 0, matrix.cols);
    maxima[strip].assign(size_t(matrix.cols), 0.0f);
    for (size_t i = 0; i < values.size(); ++i) {
      float& largest = maxima[strip][i % size_t(matrix.cols)];
      largest = std::max(largest, std::fabs(values[i]));
    }
  });
  for (const std::vector<float>& part : maxima)
    std::ranges::transform(out, part, out.begin(), [](float a, float b) { return std::max(a, b); });
}

float round_to(float value, Dtype type) {
  return type == Dtype::kF32   ? value
         : type == Dtype::kF16 ? f16_to_float(float_to_f16(value))
                               : bf16_to_float(float_to_bf16(value));
}

// Puts a tensor with other values in the place of a copied one.
void replace(Source& source, const TensorView* old, std::span<const float> values) {
  Source::Changed& changed = source.changed.emplace_back();
  changed.bytes = stored_floats(values, old->dtype);
  changed.tensor = *old;
  changed.tensor.bytes = changed.bytes;
  std::replace(source.copied.begin(), source.copied.end(), old, static_cast<const TensorView*>(&changed.tensor));
}

// The bound on factors: no outlier that can be moved needs a larger one. SmoothQuant's own code clamps at its inverse.
constexpr double kMostFactor = 1e5;

// SmoothQuant's factor for each column of the weights; 1 where all inputs or all weights of the column are zero.
std::vector<float> factors(std::span<const float> inputs, std::span<const float> weights, double alpha) {
  std::vector<float> out(inputs.size(), 1.0f);
  for (size_t k = 0; k < out.size(); ++k) {
    if (inputs[k] == 0 || weights[k] == 0) continue;
    const double s = std::pow(double(inputs[k]), alpha) / std::pow(double(weights[k]), 1 - alpha);
    out[k] = float(std::max(s, 1 / kMostFactor));
  }
  return out;
}

}  // namespace

Smoothed smooth(Source& source, std::span<const std::string_view> reasons, const InputStatistics& statistics,
                double alpha) {
  if (source.quantized) {
    fail(ErrorKind::kModel,
         fmt::format("{}: a quantized checkpoint cannot be smoothed", source.checkpoint.location().name),
         "start from the unquantized checkpoint, or leave --smooth away");
  }
  const auto plan = source.other_layout ? plan_of(source) : plan_of_files(source);
  std::map<std::string_view, SourceMatrix*> matrices;
  std::set<const SourceMatrix*> quantized;
  for (size_t i = 0; i < source.matrices.size(); ++i) {
    matrices[source.matrices[i].name] = &source.matrices[i];
    if (reasons[i].empty()) quantized.insert(&source.matrices[i]);
  }
  Smoothed out;
  for (auto& [name, place] : find_places(*plan, source)) {
    const int64_t cols = place.weight->elements();
    std::vector<SourceMatrix*> readers;
    for (const std::string& module : place.modules) {
      const auto found = matrices.find(module);
      if (found != matrices.end() && found->second->cols == cols) readers.push_back(found->second);
    }
    if (readers.size() < place.modules.size()) continue;
    if (std::ranges::none_of(readers, [&](const SourceMatrix* matrix) { return quantized.contains(matrix); })) continue;
    const std::vector<float> inputs = statistics.maxima_of(readers.front()->name);
    if (int64_t(inputs.size()) != cols) {
      ++out.without_maxima;
      continue;
    }
    std::vector<float> weights(size_t(cols), 0.0f);
    {
      const std::vector<const SourceMatrix*> read(readers.begin(), readers.end());
      const Repacked repacked(read);
      for (const SourceMatrix* matrix : read) join_maxima(*matrix, weights);
    }

    std::vector<float> s = factors(inputs, weights, alpha);
    const float most = *std::max_element(s.begin(), s.end());
    if (!(most <= float(kMostFactor))) {
      fail(ErrorKind::kUsage,
           fmt::format("--smooth: the maxima of the inputs of {} are too large (they would be divided by up to {:.3g})",
                       readers.front()->name, most),
           "`qgen calibrate` writes those of the model");
    }
    std::vector<float> norm = tensor_values(*place.weight);
    for (size_t k = 0; k < norm.size(); ++k) {
      const double before = norm[k] + place.add;
      norm[k] = float(before / s[k] - place.add);
      // The weights' factor is recomputed from the norm as it is stored (rounded), so that products stay the same.
      const float rounded = round_to(norm[k], place.weight->dtype);
      const double after = rounded + place.add;
      if (before == 0 || after == 0) {
        norm[k] = float(before - place.add);
        s[k] = 1;
      } else {
        s[k] = float(before / after);
      }
    }
    replace(source, place.weight, norm);
    if (place.bias != nullptr) {
      std::vector<float> bias = tensor_values(*place.bias);
      for (size_t k = 0; k < bias.size(); ++k) bias[k] /= s[k];
      replace(source, place.bias, bias);
    }
    const auto multipliers = std::make_shared<const std::vector<float>>(std::move(s));
    for (SourceMatrix* matrix : readers) matrix->multipliers = multipliers;
    ++out.norms;
  }
  return out;
}

}  // namespace qgen::quantize
