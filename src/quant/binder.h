// Binds what a model's description asks for to tensors of a checkpoint, then accounts for the rest. A method is
// recognized by the tensors that are there for a module; config.json only explains them. Only headers are read: values
// wait in lazy grids, vectors and repacks.
#pragma once

#include <cstdint>
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

// One module X while it is being bound: X.<suffix> tensors are looked up here, and what is taken is remembered, so that
// nothing in the files is left over unnoticed.
class Module {
 public:
  Module(const Checkpoint& checkpoint, const QuantConfig& config, std::set<std::string>& consumed, std::string name,
         int64_t rows, int64_t cols)
      : checkpoint_(checkpoint),
        config_(config),
        consumed_(consumed),
        name_(std::move(name)),
        rows_(rows),
        cols_(cols) {}

  const std::string& name() const { return name_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  const TensorView* peek(std::string_view suffix) const;  // nullptr if absent
  bool has(std::string_view suffix) const { return peek(suffix) != nullptr; }
  const TensorView& take(std::string_view suffix);  // an error if absent

  // An (N, K) weight over the codes of X.<suffix>; an error if the shape or the type is not that.
  Weight take_codes(std::string_view suffix, Codes codes);
  // The grid that X.<suffix> is over the module's matrix, by its shape and the declared groups: of scales, or of zero
  // points, whose bytes are plain integers.
  enum class GridKind { kScales, kZeroPoints };
  ScaleGrid take_grid(std::string_view suffix, GridKind kind = GridKind::kScales);

 private:
  const Checkpoint& checkpoint_;
  const QuantConfig& config_;
  std::set<std::string>& consumed_;
  std::string name_;
  int64_t rows_;
  int64_t cols_;
};

class Binder {
 public:
  explicit Binder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), config_(QuantConfig::read(checkpoint.config())) {}

  // Which tensors became which module's matrix, and by which row of the table: the evidence for the method.
  struct Binding {
    std::string module;
    std::string_view format;
    std::vector<std::string> tensors;
  };
  const std::vector<Binding>& bindings() const { return bindings_; }

  // W of module X, (rows, cols).
  Weight matrix(const std::string& module, int64_t rows, int64_t cols);
  bool has_matrix(const std::string& module) const;
  // An unquantized vector of n elements; those of several heads may be stored as a matrix.
  Vector vector(const std::string& tensor, int64_t n);
  bool has_tensor(const std::string& tensor) const { return checkpoint_.find(tensor) != nullptr; }

  struct Ignored {
    std::string tensor;
    std::string_view reason;
  };
  // After all binding. Tensors that no engine needs (activation and cache scales, buffers) are returned; quantization
  // parameters that no method took, and anything under one of the model's own `prefixes` whose name does not end as one
  // of its `buffers`, are errors.
  std::vector<Ignored> finish(std::span<const std::string> prefixes, std::span<const std::string_view> buffers,
                              std::string_view family) const;

 private:
  const Checkpoint& checkpoint_;
  QuantConfig config_;
  std::set<std::string> consumed_;
  std::vector<Binding> bindings_;
};

// I8, F8_E4M3 and F8_E5M2 as codes; nothing for other types.
std::optional<Codes> byte_codes(const TensorView& tensor);

}  // namespace qgen
