// The checkpoint that is quantized: its matrices as F32, whatever they are stored in, and the tensors that are copied.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/plan.h"
#include "quant/weight.h"
#include "quantize/rounding.h"

namespace qgen::quantize {

// A matrix W, (rows, cols), of a module.
struct SourceMatrix {
  std::string name;  // the module in the checkpoint that is written, without ".weight"
  int64_t rows = 0;
  int64_t cols = 0;
  Dtype type = Dtype::kBf16;               // F32, F16 or BF16, what it is stored as where it is not quantized
  std::span<const std::byte> plain;        // its elements in that type, row by row; empty where `weight` has them
  std::shared_ptr<Weight> weight;          // else: codes, or elements that are stored the other way round
  std::vector<const TensorView*> tensors;  // that it comes from
  // Of one that is joined (joined_matrices.h): its parts, each with their columns those of this matrix.
  std::shared_ptr<const std::vector<Weight>> parts;
  bool mapped = true;  // `plain` lies in a file
  // Where row n, and column k, are in what is stored; null: at n, at k.
  std::shared_ptr<const std::vector<int64_t>> stored_rows, stored_cols;
  bool moved() const { return stored_rows != nullptr || stored_cols != nullptr; }
  int64_t stored_row(int64_t n) const { return stored_rows == nullptr ? n : (*stored_rows)[size_t(n)]; }
  // (cols): what each column is multiplied by when it is read; null: 1
  std::shared_ptr<const std::vector<float>> multipliers;
};

// The bytes in the checkpoint's files of a matrix's tensors that are not among `counted`, which they join: parts of one
// tensor may become several matrices.
uint64_t stored_bytes(const SourceMatrix& matrix, std::set<const TensorView*>& counted);

// Rows of a matrix in F32, as one strip or tile by tile. Not shared between threads.
class RowReader {
 public:
  explicit RowReader(const SourceMatrix& matrix, const RoundingKernels& kernels = rounding_kernels())
      : matrix_(matrix), kernels_(kernels) {}

  // Columns [col, col + cols) of rows [first, first + rows), row by row and `cols` apart; valid until the next call.
  // Quantized weights, and columns that move, are read whole rows at a time, and kept for the tiles that follow.
  std::span<const float> tile(int64_t first, int64_t rows, int64_t col, int64_t cols);

 private:
  std::span<const float> stored_tile(int64_t first, int64_t rows, int64_t col, int64_t cols);
  void widen(int64_t row, int64_t col, int64_t cols, float* out) const;

  const SourceMatrix& matrix_;
  const RoundingKernels& kernels_;
  std::vector<float> values_, decoded_;
  int64_t first_decoded_ = -1, rows_decoded_ = 0;
};

// Whether elements are F32, F16 or BF16.
bool is_float(Dtype type);
// The type of a tensor whose elements are these codes, which are floats.
Dtype float_type(Codes codes);

// Whether a weight, once it is ready to be read, is its floats, row by row.
bool is_plain(const Weight& weight);

// Floats as bytes of F32, F16 or BF16.
std::vector<std::byte> stored_floats(std::span<const float> values, Dtype type);

// Row n of a weight that is ready to be read, W in F32.
void decode_row(const Weight& weight, int64_t n, std::span<float> out);

// What becomes of stacks of experts. Servers want those of FP8 models apart, but for experts with biases and Granite's,
// which no server reads so.
enum class Stacks : uint8_t { kWhole, kAsServers, kApart };

struct Source {
  ModelLocation location;                 // of the files
  Checkpoint checkpoint;                  // of a GGUF model, or one in Mistral's own layout, as hugging_face.h has it
  Checkpoint parts;                       // of matrices that are joined (joined_matrices.h), under the files' names
  std::deque<SourceMatrix> matrices;      // those that may be quantized
  std::vector<const TensorView*> copied;  // what belongs to no matrix
  Stacks stacks = Stacks::kAsServers;
  bool trust_tensors = false;  // as make_plan() has it
  bool quantized = false;      // the checkpoint is quantized itself
  bool other_layout = false;   // its files are GGUF, or Mistral's own
  // Of a matrix that is quantized in the checkpoint and not in the one that is written; nothing: as that of the norms.
  std::optional<Dtype> float_type;
  // What `qgen calibrate` calls the modules of files in another layout.
  std::map<std::string, std::string> file_modules;
  std::map<std::string, int64_t> left;  // how many tensors belong to neither, by the reason
  // Tensors that are written in place of those of the files, and their values.
  struct Changed {
    TensorView tensor;
    std::vector<std::byte> bytes;
  };
  std::deque<Changed> changed;
  std::map<std::string, std::string> config;  // members of config.json that are written with another value, as JSON

  // Puts `tensor`, with values of its type, among those that are copied.
  void add_changed(TensorView tensor, std::span<const float> values);
};

// The module that a stack of matrices belongs to which is copied as a whole: the experts of a layer; "" for other
// tensors.
std::string module_of_stack(const TensorView& tensor);

// Throws a model Error about what cannot be read. `trust_tensors`: as make_plan() has it.
Source open_source(const std::string& model, Stacks stacks, bool trust_tensors = false);

// The plan of the source's files as they are: refuses what a run would refuse.
std::unique_ptr<Plan> plan_of_files(const Source& source);

}  // namespace qgen::quantize
