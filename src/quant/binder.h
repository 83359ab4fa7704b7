// Binds what a model's description asks for to tensors of a checkpoint, then accounts for the rest. A method is
// recognized by the tensors that are there for a module; config.json only explains them. Only headers are read: values
// wait in lazy grids, vectors and repacks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "quant/declaration.h"
#include "quant/weight.h"

namespace qgen {

struct Format;

// A tensor that no engine needs, and why.
struct IgnoredTensor {
  std::string tensor;
  std::string_view reason;
};

// Tensors of layers that no step needs: a part of their names, and why.
struct UnusedPart {
  std::string part;
  std::string_view reason;
  bool is_in(std::string_view tensor) const { return tensor.find(part) != tensor.npos; }
};
constexpr std::string_view kProgramBuffer = "a buffer of the model's program";

// One module X while it is being bound: X.<suffix> tensors are looked up here, and what is taken is remembered, so that
// nothing in the files is left over unnoticed.
//
// A module may be one of several that are stacked in tensors with one more dimension, as the experts of a mixture are:
// then each tensor looks like its part of it. The tensors of a stack may lack ".weight": X, X_scale_inv.
class Module {
 public:
  struct Part {
    int64_t index, count;  // count 0: a module of its own
  };
  Module(const Checkpoint& checkpoint, const QuantConfig& config, std::string name, int64_t rows, int64_t cols,
         Part part = {0, 0})
      : checkpoint_(checkpoint), config_(config), name_(std::move(name)), rows_(rows), cols_(cols), part_(part) {}

  const std::string& name() const { return name_; }
  // The tensors that were taken, by their names in the checkpoint.
  const std::vector<std::string>& taken() const { return taken_; }
  // Those among them that have no effect.
  const std::vector<IgnoredTensor>& ignored() const { return ignored_; }
  // What msModelSlim's description file says of X.weight; "" where there is none.
  std::string_view described_type() const;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  const TensorView* peek(std::string_view suffix) const;  // nullptr if absent
  // What X.<suffix> is called: of a stack without ".weight" where its own tensor is called so.
  std::string tensor_name(std::string_view suffix) const;
  bool has(std::string_view suffix) const { return peek(suffix) != nullptr; }
  const TensorView& take(std::string_view suffix);  // an error if absent
  // An error, too, unless its type is one of these and its shape this one.
  const TensorView& take(std::string_view suffix, std::initializer_list<Dtype> types,
                         const std::vector<int64_t>& shape);
  // An error, which says that config.json declares it, unless X.<suffix> is there.
  void require(std::string_view suffix) const;
  // The same for weight_zero_point and weight_g_idx of integer codes with these scales, as far as config.json declares
  // them.
  void require_declared(const ScaleGrid& scale) const;
  // Takes a tensor without effect, if it is there; reports speak of one that has a reason.
  void ignore(std::string_view suffix, std::string_view reason = {});
  const QuantConfig& config() const { return config_; }

  // An (N, K) weight over the codes of X.<suffix>; an error if the shape or the type is not that. FNUZ codes, which no
  // engine has, are widened when the model is loaded.
  Weight take_codes(std::string_view suffix, Codes codes);
  // The same for codes of a byte, whatever their type.
  Weight take_byte_codes(std::string_view suffix);
  // The same for codes that lie as (K, N): they are transposed when the model is loaded.
  Weight take_transposed_codes(std::string_view suffix, Codes codes);
  // The grid that X.<suffix> is over the module's matrix, by its shape and the declared groups: of scales, or of zero
  // points, whose bytes are plain integers.
  enum class GridKind { kScales, kZeroPoints };
  ScaleGrid take_grid(std::string_view suffix, GridKind kind = GridKind::kScales);
  // The same for groups that are known: the tensor's values are those of the groups, row by row.
  ScaleGrid take_grid(std::string_view suffix, int64_t group_rows, int64_t group_cols,
                      GridKind kind = GridKind::kScales);
  // Zero points in the groups of `scale`; an error where they are in others.
  ScaleGrid take_zero_points(std::string_view suffix, const ScaleGrid& scale);
  // The grid of scales that lie as (groups, N), as GPTQ and AWQ have them.
  ScaleGrid transposed_groups(const TensorView& scales) const;
  // Columns of a group where a row has so many groups: as declared, else those that divide the row. An error, about
  // `scales`, where there are none.
  int64_t group_columns(const TensorView& scales, int64_t groups) const;
  // An (N, K) weight over the bytes of `source`: its codes side by side, or what a repack will make them from.
  Weight codes_over(const TensorView& source, Codes codes) const;

 private:
  const TensorView* find(std::string_view suffix) const;

  const Checkpoint& checkpoint_;
  const QuantConfig& config_;
  std::string name_;
  int64_t rows_;
  int64_t cols_;
  Part part_;
  std::vector<std::string> taken_;
  std::vector<IgnoredTensor> ignored_;
  mutable std::map<std::string, TensorView, std::less<>> parts_;  // by suffix
};

class Binder {
 public:
  // `trust_tensors`: as QuantConfig::read() has it.
  explicit Binder(const Checkpoint& checkpoint, bool trust_tensors = false);

  // Which tensors became which module's matrix, and by which row of the table: the evidence for the method.
  struct Binding {
    std::string module;
    std::string_view format;  // the row, or the declared method whose tensors are those of the row
    std::string kind;         // in the method's words: "Q8_0", "W8A16"; "" where it has none
    std::vector<std::string> tensors;
  };
  const std::vector<Binding>& bindings() const { return bindings_; }

  // W of module X, (rows, cols).
  Weight matrix(const std::string& module, int64_t rows, int64_t cols);
  bool has_matrix(const std::string& module) const;
  // The `count` matrices, (rows, cols) each, that are stacked in the tensors of one module.
  std::vector<Weight> stack(const std::string& module, int64_t count, int64_t rows, int64_t cols);
  bool has_stack(const std::string& module) const;
  // Whether the tensor of a stack, X.weight or X, has this shape.
  bool has_stack_of(const std::string& module, const std::vector<int64_t>& shape) const;
  // The bias of module X, (rows): X.bias, or what a method's tensors imply in its place; nothing where there is none.
  std::optional<Vector> bias(const std::string& module, int64_t rows, int64_t cols);
  // What the columns of module X's input are multiplied with before they meet W, (cols); nothing for 1.
  std::optional<Vector> input_scale(const std::string& module, int64_t cols);
  // Whether norms may have been smoothed: a bias of their own, `NORM.module.weight` and `NORM.module.bias`
  // (msModelSlim's outlier suppression).
  bool may_smooth_norms() const { return !config_.description.empty(); }
  // The tensors that were used so far, by their names.
  const std::set<std::string>& consumed() const { return consumed_; }
  // An unquantized vector of n elements, which may be stored as a matrix (of several heads), or a matrix of n elements
  // with `cols` columns whose rows lie one after the other; further dimensions of 1 do not count.
  Vector vector(const std::string& tensor, int64_t n, int64_t cols = 1);
  bool has_tensor(const std::string& tensor) const { return checkpoint_.find(tensor) != nullptr; }

  using Ignored = IgnoredTensor;
  // After all binding. Tensors that no engine needs (activation and cache scales, unused parts) are returned;
  // quantization parameters that no method took, and anything else under one of the model's own `prefixes`, are errors.
  // Tensors in one of the `unused` parts are not errors.
  std::vector<Ignored> finish(std::span<const std::string> prefixes, std::span<const UnusedPart> unused,
                              std::string_view family) const;

 private:
  Weight bind(Module& module, const std::string& name);
  void note(const Module& module);  // what it took

  const Checkpoint& checkpoint_;
  QuantConfig config_;
  std::set<std::string> consumed_;
  std::vector<Ignored> ignored_;
  std::vector<Binding> bindings_;
};

// Has `change` done when the model is loaded, after what the weight's repack prepares.
void change_at_load(Weight& weight, std::function<void(Weight&)> change);
// Zero points that turn out to be all zero when the model is loaded are left away.
void drop_zeros_at_load(Weight& weight);

// Throws a model Error about a tensor, "FILE: tensor NAME: problem".
[[noreturn]] void fail_tensor(const TensorView& tensor, const std::string& problem, std::string hint = {});
// How a grid's values are stored; an error for other types. Zero points are integers of a byte, or floats.
ScaleType scale_type(const TensorView& tensor, bool zero_points = false);

// `shape` over a tensor's values, which lie row by row.
ScaleGrid grid_over(const TensorView& tensor, ScaleGrid shape, bool zero_points = false);

// I8, F8_E4M3 and F8_E5M2 as codes, F8_E4M3FNUZ and F8_E5M2FNUZ as BF16, which they are widened to; nothing for other
// types.
std::optional<Codes> byte_codes(const TensorView& tensor);

}  // namespace qgen
