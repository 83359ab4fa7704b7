// The next tokens of many sequences: the tiles of gemm.cuh, where a token has two columns of x, the upper and the lower
// part of its inputs, as in gemv(). A token comes out as it does there, bit by bit: first the sums of every
// kInputSlices-th window of columns, which a warp adds up there, then these in order. Where there are few rows several
// blocks share the slices of each, and the last one of them adds their sums up.
#pragma once

#include "kernels/device/gemm.cuh"
#include "kernels/device/gemv.cuh"

namespace qgen::QGEN_BACKEND {

struct SplitGemmKernelArgs {
  SplitGemmArgs gemm;
  int first_block[GemvArgs::kMostParts];  // of each part
  int blocks_of_rows;                     // among which the slices are divided
};

// As GemmBlock, of gated products or of several parts.
template <typename Grid>
class SplitGemmBlock {
 public:
  using Warp = GemmWarp<Grid>;
  static constexpr bool kMinimumsFirst = true;
  // A token has two tiles of columns, and what is behind the last token is not copied.
  static constexpr int kTilesAtOnce = Warp::kAtOnce < 2 ? Warp::kAtOnce : 2;
  static constexpr int kTokenTiles = Warp::kTokenTiles / 2;  // of a warp, each with two tiles of columns

  QGEN_DEVICE explicit SplitGemmBlock(const SplitGemmKernelArgs& args)
      : args_(args), products_(args.gemm.products), gated_(products_.gated) {
    const int block = int(block_index().x);
    while (!gated_ && part_ + 1 < products_.parts && block >= args.first_block[part_ + 1]) ++part_;
    first_row_ = (block - args.first_block[part_]) * (gated_ ? kBlockRows / 2 : kBlockRows);
    const int windows = (matrix(0).cols + Warp::kWindow - 1) / Warp::kWindow;
    slice_steps_ = (windows + kInputSlices * Warp::kWindows - 1) / (kInputSlices * Warp::kWindows);
    inverse_steps_ = ((1u << 31) - 1) / uint32_t(slice_steps_) + 1;
    first_slice_ = int(block_index().y) * kInputSlices / args.blocks_of_rows;
    while (tiles_ < kTokenTiles && token_of(2 * tiles_, warp_index() % 2) < products_.tokens) ++tiles_;
    codes_.begin(*this);
    inputs_.begin([&](int row) {
      const int tile = row % kWarpTokens / 8, first = token_of(tile, row / kWarpTokens), token = first + row % 8;
      return token < products_.tokens   ? (2 * token + tile % 2) * args_.gemm.parts.stride
             : first < products_.tokens ? TileInputs<Grid>::kZeros
                                        : TileInputs<Grid>::kUnread;
    });
  }

  // A slice has every kInputSlices-th window.
  QGEN_DEVICE int steps() const { return slice_steps_ * kInputSlices / args_.blocks_of_rows; }
  QGEN_DEVICE int column_of(int step, int window) const {
    const int slice = slice_of(step), of_slice = (step - slice * slice_steps_) * Warp::kWindows + window;
    return (first_slice_ + slice + of_slice * kInputSlices) * Warp::kWindow;
  }

  QGEN_DEVICE const Matrix& matrix(int tile) const { return products_.part[gated_ ? tile % 2 : part_]; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + (gated_ ? gated_row(row) : row); }

  QGEN_DEVICE void copy_step(int step, uint8_t* codes, uint16_t* x) const {
    constexpr int kWindowBytes = Warp::kWindow * Warp::kBytes;
    const int byte = codes_.byte();
    codes_.copy(column_of(step, byte / kWindowBytes) * Warp::kBytes + byte % kWindowBytes, codes);
    const int column = inputs_.column();
    const int64_t at = column_of(step, column / Warp::kWindow) + column % Warp::kWindow;
    inputs_.copy(args_.gemm.parts.values, at, at < args_.gemm.parts.stride, x);
  }

  QGEN_DEVICE int tiles() const { return 2 * tiles_; }
  // At the end of a slice adds its sums, out of its range, to what the block has, or, if others have the rows' other
  // slices, puts them where they are added up; and begins anew.
  QGEN_DEVICE void end_step(int step, Warp& warp) {
    const int own_slice = slice_of(step), slice = first_slice_ + own_slice;
    if (slice_of(step + 1) == own_slice) return;
    float inverse[kTokenTiles][2];  // all loads before the first store, behind which they would have to wait
    QGEN_UNROLL
    for (int n = 0; n < kTokenTiles * 2; ++n) {
      const int token = token_of(n / 2 * 2, warp_index() % 2) + 2 * (lane_index() % 4) + n % 2;
      inverse[n / 2][n % 2] = token < products_.tokens ? args_.gemm.parts.inverse[token * kInputSlices + slice] : 0;
    }
    QGEN_UNROLL
    for (int n = 0; n < kTokenTiles * 4; ++n) {
      const int m = n / 4, j = n % 4;
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        float(&sum)[Warp::kTokenTiles][4] = warp.sum[i];
        const float product = product_of_parts<Grid::kCodes == Codes::kBf16>(sum[2 * m][j], sum[2 * m + 1][j]);
        total_[i][m][j] += rounded_product(product, inverse[m][j % 2]);
        sum[2 * m][j] = sum[2 * m + 1][j] = 0;
      }
    }
    if (args_.blocks_of_rows > 1) {
      for_totals(slice, [](float& total, float& partial) {
        partial = total;
        total = 0;
      });
    }
  }

  // Whether this block has, or now gets, the sums of all slices.
  QGEN_DEVICE bool adds_up_slices(uint32_t* flag) {
    if (args_.blocks_of_rows == 1) return true;
    if (!ends_last(args_.gemm.counter + block_index().x, unsigned(args_.blocks_of_rows), flag)) return false;
    QGEN_UNROLL_BY(1)
    for (int slice = 0; slice < kInputSlices; ++slice)
      for_totals(slice, [](float& total, const float& partial) { total += partial; });
    return true;
  }

  QGEN_DEVICE void write_results() const {
    float* const sums = shared_memory<float>();
    share_sums(total_, sums, [](int m, int column) { return token_of(2 * m, warp_index() % 2) + column; });
    const int rows = gated_ ? kBlockRows / 2 : kBlockRows;
    QGEN_UNROLL_BY(1)
    for (int r = lane_index(); r < rows && first_row_ + r < matrix(0).rows; r += kWarp) {
      const int row = first_row_ + r, at = gated_ ? gate_place(r) : r;
      float scale[2] = {1, 1};
      if constexpr (!Grid::kGrouped) {
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) scale[i] = scale_at(matrix(i), first_group(matrix(i), row));
      }
      const Epilogue& epilogue = products_.epilogue;
      const auto y_of = [&](int64_t token) { return products_.y[part_] + token * products_.y_stride[part_] + row; };
      for_shared_sums(
          products_.tokens, [&](int token) { return epilogue.add ? *y_of(token) : 0; },
          [&](int token, float added) {
            const float* const of_token = sums + token * kSumsRow + at;
            const float norm = args_.gemm.parts.norm[token];
            const auto result = [&](int i) {
              return product_of<Grid>(matrix(i), row, of_token[i * kTurnRows], scale[i], norm);
            };
            const float activation = activated(epilogue.activation, result(0));
            *y_of(token) = stored_product(epilogue, gated_ ? activation * result(1) : activation, added);
          });
    }
  }

 private:
  static_assert(SplitGemmArgs::kMostTokens * kSumsRow * 4 <= kStages * kStageBytes<Grid::kCodes>);

  // The first token of a tile of columns of a warp: the warps' tiles by turns, so that few tokens keep both busy.
  QGEN_DEVICE static int token_of(int tile, int warp) { return (tile / 2 * 2 + warp) * 8; }
  // step / slice_steps_ by a product, which is exact as long as 16 slice_steps_^2 are below 2^31: for 11 million
  // columns.
  QGEN_DEVICE int slice_of(int step) const { return int(uint64_t{uint32_t(step)} * inverse_steps_ >> 31); }

  // use(total, partial) for the thread's sums; `partial`: where those of a slice are in memory.
  template <typename Use>
  QGEN_DEVICE void for_totals(int slice, const Use& use) {
    constexpr int kSums = 2 * kTokenTiles * 4;
    float* const partial =
        args_.gemm.partial + (int64_t(block_index().x) * kInputSlices + slice) * kSums * kTileThreads + thread_index();
    QGEN_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      if (m >= tiles_) continue;  // no break: totals are registers
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) use(total_[i][m][j], partial[((i * kTokenTiles + m) * 4 + j) * kTileThreads]);
      }
    }
  }

  const SplitGemmKernelArgs& args_;
  const GemvArgs& products_;
  const bool gated_;
  int part_ = 0, first_row_ = 0;
  int slice_steps_ = 0, first_slice_ = 0;
  uint32_t inverse_steps_ = 0;  // 2^31 / slice_steps_
  int tiles_ = 0;               // of tokens that this warp has
  TileCodes<Grid> codes_;
  TileInputs<Grid> inputs_;
  float total_[2][kTokenTiles][4] = {};
};

template <typename Grid>
QGEN_KERNEL(kTileThreads, 1)
split_gemm_kernel(const SplitGemmKernelArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  SplitGemmBlock<Grid> block(args);
  GemmWarp<Grid> warp;
  multiply_steps(block, warp);
  if (block.adds_up_slices(shared_memory<uint32_t>())) block.write_results();
}

}  // namespace qgen::QGEN_BACKEND
