// Where the weights of a plan come from: a checkpoint, or what stands in for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/names.h"
#include "quant/binder.h"

namespace qgen {

// What each is asked for: see Binder.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual bool has_matrix(const std::string& module) = 0;
  virtual bool has_tensor(const std::string& tensor) = 0;
  virtual bool has_stack(const std::string& module) = 0;
  // Whether the tensor of a stack has this shape; false where it is not known.
  virtual bool has_stack_of(const std::string& module, const std::vector<int64_t>& shape) = 0;
  virtual Weight matrix(const std::string& module, int64_t rows, int64_t cols) = 0;
  virtual std::vector<Weight> stack(const std::string& module, int64_t count, int64_t rows, int64_t cols) = 0;
  virtual Vector vector(const std::string& tensor, int64_t n, int64_t cols = 1) = 0;
  virtual std::optional<Vector> bias(const std::string& module, int64_t rows, int64_t cols) = 0;
  virtual std::optional<Vector> input_scale(const std::string& module, int64_t cols) = 0;
  virtual bool may_smooth_norms() const = 0;
};

class CheckpointSource : public WeightSource {
 public:
  explicit CheckpointSource(Binder& binder) : binder_(binder) {}
  bool has_matrix(const std::string& module) override { return binder_.has_matrix(module); }
  bool has_tensor(const std::string& tensor) override { return binder_.has_tensor(tensor); }
  bool has_stack(const std::string& module) override { return binder_.has_stack(module); }
  bool has_stack_of(const std::string& module, const std::vector<int64_t>& shape) override {
    return binder_.has_stack_of(module, shape);
  }
  Weight matrix(const std::string& module, int64_t rows, int64_t cols) override {
    return binder_.matrix(module, rows, cols);
  }
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

 private:
  Binder& binder_;
};

// The matrices of a layer's experts, (width, inputs) and (inputs, width), by number.
struct ExpertWeights {
  std::vector<Weight> gate, up, down;  // no gates where the mixture has none
};

// Those of layer `number` in files that stack them, (experts, rows, cols) in one tensor: gates apart from ups, and all
// as (outputs, inputs), whichever way round they are stored. A model Error where the tensors have other shapes than the
// mixture.
ExpertWeights unstacked_experts(WeightSource& source, const MixtureSpec& mixture, const Names& names, int64_t number,
                                int64_t hidden);

}  // namespace qgen
