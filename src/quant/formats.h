// The table of quantization methods, and the binder that turns tensors of a checkpoint into weights.
// A method is recognized by the tensors that are there for a module; config.json only explains them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "quant/declaration.h"
#include "quant/storage.h"

namespace qgen {

// What config.json says about quantization: hints for reading scale grids, and reasons to refuse.
struct QuantConfig {
  std::vector<std::pair<int64_t, int64_t>> tiles;  // declared blocks (r, c) and groups (1, g)

  // Throws a model Error on contents that are wrong or that change the arithmetic (rotations, sparsity).
  static QuantConfig read(const Json& config);
};

// One module X while it is being bound: X.<suffix> tensors are looked up here, and what is taken is
// remembered, so that nothing in the files is left over unnoticed.
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
  // The grid that X.<suffix> is over the module's matrix, by its shape and the declared tiles: of scales, or of
  // offsets, whose bytes are plain integers.
  enum class GridKind { kScales, kOffsets };
  Grid take_grid(std::string_view suffix, GridKind kind = GridKind::kScales);

 private:
  const Checkpoint& checkpoint_;
  const QuantConfig& config_;
  std::set<std::string>& consumed_;
  std::string name_;
  int64_t rows_;
  int64_t cols_;
};

struct Format {
  std::string_view name;     // as published files call it
  std::string_view summary;  // for people
  bool (*detect)(const Module&);
  Weight (*bind)(Module&);
  // For checkpoints whose weights are not there: whether config.json declares this method, with what it says about
  // it, and the tensors that published files then have for a (rows, cols) module.
  bool (*read)(const QuantSource&, Declaration&);
  std::vector<DeclaredTensor> (*declare)(const Scheme&, int64_t rows, int64_t cols);
};
std::span<const Format> formats();

// Binds everything a model's description asks for, then accounts for the rest.
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
  // An unquantized vector of n elements, in F32.
  std::vector<float> vector(const std::string& tensor, int64_t n);
  bool has_tensor(const std::string& tensor) const { return checkpoint_.find(tensor) != nullptr; }

  struct Ignored {
    std::string tensor;
    std::string_view reason;
  };
  // After all binding. Tensors that no engine needs (activation and cache scales, buffers) are returned;
  // quantization parameters nobody took, and anything under one of the model's own `prefixes`, are errors.
  std::vector<Ignored> finish(std::span<const std::string_view> prefixes, std::string_view family) const;

 private:
  const Checkpoint& checkpoint_;
  QuantConfig config_;
  std::set<std::string> consumed_;
  std::vector<Binding> bindings_;
};

// The values of a scale or vector in F32, exact: F32, F16, BF16, F8_E8M0 (U8 is read as E8M0).
std::vector<float> tensor_values(const TensorView& tensor);

// I8, F8_E4M3 and F8_E5M2 as codes; nothing for other types.
std::optional<Codes> byte_codes(const TensorView& tensor);

// The rows of the table, a file each.
extern const Format kPlainFormat;
extern const Format kFp8Format;
extern const Format kScaledFormat;
extern const Format kQ8_0Format;

}  // namespace qgen
