// Products of dense matrices by the library that the GPU's maker tunes for each of its processors: cuBLASLt, loaded
// when a prompt first wants it. Where it is missing, or has nothing for a shape, qgen's own kernels do the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {

enum class LibraryGemmKind : uint8_t {
  kF16,         // 16-bit floats, summed as F32
  kBf16,        // the same
  kI8,          // integers, summed as I32
  kE4M3,        // 8-bit floats, summed as F32
  kE4M3Blocks,  // the same with a scale for every 128 x 128 of W and every 128 columns of a token
};

// y = factor * W x; with `add`, which integers have not, y += factor * W x.
struct LibraryGemmArgs {
  LibraryGemmKind kind = LibraryGemmKind::kF16;
  const void* w = nullptr;  // (rows, w_stride)
  const void* x = nullptr;  // (tokens, x_stride)
  void* y = nullptr;        // (tokens, y_stride) F32, of kI8 I32
  int rows = 0, cols = 0, tokens = 0;
  int64_t w_stride = 0, x_stride = 0, y_stride = 0;  // elements
  float factor = 1;                                  // of kI8: 1
  bool add = false;
  // Of kE4M3Blocks, F32: (ceil(rows / 128), w_scale_stride), which is ceil(cols / 128) up to a multiple of 4;
  // (ceil(cols / 128), tokens).
  const void* w_scale = nullptr;
  const void* x_scale = nullptr;
  int64_t w_scale_stride = 0;
};

// What the engine lays out for it, and when it pays.
struct LibraryGemmLimits {
  // From so many tokens on it is worth writing the weights out as 16-bit floats first.
  int fewest_tokens;
  int64_t copy_bytes;       // of weights as 16-bit floats at once,
  int64_t copy_rows;        // or more where that is less than so many rows
  int64_t workspace_bytes;  // for the library itself
};
const LibraryGemmLimits& library_gemm_limits();
// Tokens of 8-bit products are a multiple of this; the rows behind the last token may hold anything.
constexpr int kLibraryGemmTokens = 16;

// Whether there is a library at all; loads it.
bool gemm_library_found();

class LibraryGemm {
 public:
  // `workspace`: library_gemm_limits().workspace_bytes of the device's memory.
  LibraryGemm(Device& device, void* workspace);
  ~LibraryGemm();
  LibraryGemm(const LibraryGemm&) = delete;

  // "cuBLASLt 13.0"; "" where it is missing, or before the first product.
  std::string library() const;
  // Whether it has something for such a product; of pointers only the alignment counts.
  bool can(const LibraryGemmArgs& args);
  // What can() was asked about; false where it could not be done after all, which leaves y as it was, and can() will
  // say so from then on.
  bool multiply(const LibraryGemmArgs& args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qgen::QGEN_BACKEND
