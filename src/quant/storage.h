// The canonical weight: what every checkpoint method becomes and the only thing engines know.
//
//   W[n, k] = (code[n, k] - offset[tile]) * scale[tile],   tile = (n / group_rows, k / group_cols)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor.h"

namespace qgen {

enum class Codes : uint8_t { kF32, kF16, kBf16, kI8, kE4M3, kE5M2 };
std::string_view codes_name(Codes codes);
int64_t code_bytes(Codes codes);

// One value per tile of group_rows x group_cols elements; the last tile of a row or column may be partial.
// Tensor = (N, K), row = (1, K), group = (1, g), block = (128, 128). Without values: 1 (scale) or 0 (offset).
struct Grid {
  int64_t group_rows = 0;
  int64_t group_cols = 0;
  int64_t tile_rows = 0;      // ceil(N / group_rows)
  int64_t tile_cols = 0;      // ceil(K / group_cols)
  std::vector<float> values;  // (tile_rows, tile_cols), exact in F32 for every type a scale is stored in

  bool empty() const { return tile_rows * tile_cols == 0; }
  float at(int64_t n, int64_t k) const { return values[n / group_rows * tile_cols + k / group_cols]; }
};

// A grid of one tile shape over an (N, K) matrix; its values are to be filled in.
Grid make_grid(int64_t rows, int64_t cols, int64_t group_rows, int64_t group_cols);

// How a weight's codes lie in its bytes.
enum class Layout : uint8_t {
  kRows,        // (N, K) row major
  kQ8_0Blocks,  // rows of blocks: the F16 scale of 32 codes, then the codes; the scale grid has no values of its own
};

struct Weight {
  std::string name;  // the module, "model.layers.0.self_attn.q_proj"
  int64_t rows = 0;  // N, outputs
  int64_t cols = 0;  // K, inputs
  Codes codes = Codes::kF32;
  Layout layout = Layout::kRows;
  // Attention heads whose rows lie with the two halves of each taken in turns (row 2 i + h is element i of half h),
  // as GGUF files of Llama models have them; 0 for rows in their order.
  int64_t paired_heads = 0;
  std::span<const std::byte> data;  // the codes, possibly unaligned: the mapped file or `owned`
  std::vector<std::byte> owned;     // filled only when the file's layout cannot be used in place
  Grid scale;
  Grid offset;  // same tiles as `scale` where present
  // Stored column j multiplies input column_order[j] (act-order quantization); empty for the natural order.
  std::vector<int32_t> column_order;
  int64_t nan_codes = 0;  // fp8 codes that are NaN or infinite, known after a WeightScan
  std::string tensor;     // "FILE: tensor NAME", for messages

  Weight() = default;
  Weight(Weight&&) = default;
  Weight& operator=(Weight&&) = default;
  Weight(const Weight&) = delete;

  bool quantized() const { return codes == Codes::kI8 || codes == Codes::kE4M3 || codes == Codes::kE5M2; }
  int64_t row_bytes() const;
  // The row of `data` that is row n.
  int64_t stored_row(int64_t n) const;
  float scale_at(int64_t n, int64_t k) const;  // 1 without a grid
  size_t bytes() const;                        // codes and grids, as they are held in memory once loaded
};

// Codes [n, 0..K) of one row as doubles, exact; `out` has K elements.
void decode_codes(const Weight& weight, int64_t n, std::span<double> out);
// Row n of W in the order of the inputs; `out` has K elements. Exact up to the final double product.
void dequantize_row(const Weight& weight, int64_t n, std::span<double> out);

// "fp8 block 128x128", "int8 channel", "int8 group 32 asymmetric", "bf16".
std::string method_name(const Weight& weight);

// Row n of rows whose heads are paired (see Weight).
int64_t paired_row(int64_t rows, int64_t paired_heads, int64_t n);

// Looks for what is no number in all weights: counts such fp8 codes, and refuses scales among the codes. Whoever reads
// the weights anyway shows what it reads, run() is for where nobody does.
class WeightScan {
 public:
  // `progress`, where given, is told by show() how many bytes are done.
  explicit WeightScan(std::span<Weight* const> weights, std::function<void(size_t bytes_done)> progress = {});
  ~WeightScan();

  // A piece of a weight's data, of whole blocks where it has blocks; from any thread.
  void look(const Weight& weight, std::span<const std::byte> piece);
  void show() const;
  // Brings all weights into memory and looks at them, on all cores, showing how far it is.
  void run();
  // Once all has been seen: each weight's nan_codes. A model Error where a scale is no finite number.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qgen
