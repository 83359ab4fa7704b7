// The next tokens of many sequences: the tiles of gemm.cuh, where a token has two columns of x, the upper and the lower
// part of its inputs, as in gemv(). A token comes out as it does there, bit by bit: first the sums of every
// kInputSlices-th window of columns, which a warp adds up there, then these in order. A block has all of them, or one,
// and the last block of its rows then adds them up.
#pragma once

#include "kernels/device/gemm.cuh"
#include "kernels/device/gemv.cuh"

namespace qgen::QGEN_BACKEND {

struct SplitGemmKernelArgs {
  SplitGemmArgs gemm;
  int first_block[GemvArgs::kMostParts];  // of each part
  int blocks_of_rows;                     // kInputSlices, or 1
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
    first_slice_ = int(block_index().y) * kInputSlices / args.blocks_of_rows;
    while (tiles_ < kTokenTiles && token_of(2 * tiles_, warp_index() % 2) < products_.tokens) ++tiles_;
    codes_.begin(*this);
  }

  // A slice has every kInputSlices-th window.
  QGEN_DEVICE int steps() const { return slice_steps_ * kInputSlices / args_.blocks_of_rows; }
  QGEN_DEVICE int column_of(int step, int window) const {
    const int slice = first_slice_ + step / slice_steps_, of_slice = step % slice_steps_ * Warp::kWindows + window;
    return (slice + of_slice * kInputSlices) * Warp::kWindow;
  }

  // Of gated products, tiles of 16 rows of the gate and of what it gates by turns.
  QGEN_DEVICE const Matrix& matrix(int tile) const { return products_.part[gated_ ? tile % 2 : part_]; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + (gated_ ? row / 32 * 16 + row % 16 : row); }

  QGEN_DEVICE void copy_step(int step, uint8_t* codes, uint16_t* x) const {
    constexpr int kWindowBytes = Warp::kWindow * Warp::kBytes;
    const int byte = codes_.byte();
    codes_.copy(column_of(step, byte / kWindowBytes) * Warp::kBytes + byte % kWindowBytes, codes);
    const SplitRows& parts = args_.gemm.parts;
    for (int i = thread_index(); i < kBlockTokens * kStepColumns / 8; i += kTileThreads) {
      const int column = i / (kStepColumns / 8), piece = i % (kStepColumns / 8);
      const int tile = column % kWarpTokens / 8, token = token_of(tile, column / kWarpTokens) + column % 8;
      if (token - column % 8 >= products_.tokens) continue;  // no warp looks at it
      const int64_t at = column_of(step, piece * 8 / Warp::kWindow) + piece * 8 % Warp::kWindow;
      copy_async16(x + x_place<Grid::kLane>(column, piece), parts.values + (2 * token + tile % 2) * parts.stride + at,
                   token < products_.tokens && at < parts.stride);
    }
  }

  QGEN_DEVICE int tiles() const { return 2 * tiles_; }
  // At the end of a slice adds its sums, out of its range, to what the block has, and begins anew.
  QGEN_DEVICE void end_step(int step, Warp& warp) {
    if ((step + 1) % slice_steps_ != 0) return;
    const float* const of_slice = args_.gemm.parts.inverse + first_slice_ + step / slice_steps_;
    QGEN_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int token = token_of_sum(m, j);
        const float inverse = token < products_.tokens ? of_slice[token * kInputSlices] : 0;
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) {
          total_[i][m][j] += rounded_product(warp.sum[i][2 * m][j] + warp.sum[i][2 * m + 1][j], inverse);
          warp.sum[i][2 * m][j] = warp.sum[i][2 * m + 1][j] = 0;
        }
      }
    }
  }

  // Whether this block has, or now gets, the sums of all slices.
  QGEN_DEVICE bool adds_up_slices(uint32_t* flag) {
    if (args_.blocks_of_rows == 1) return true;
    constexpr int kNumbers = 2 * kTokenTiles * 4;
    const auto for_numbers = [&](int slice, const auto& use) {
      float* const numbers = args_.gemm.partial +
                             (int64_t(block_index().x) * kInputSlices + slice) * kNumbers * kTileThreads +
                             thread_index();
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        QGEN_UNROLL
        for (int m = 0; m < kTokenTiles; ++m) {
          if (m >= tiles_) continue;
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) use(total_[i][m][j], numbers[((i * kTokenTiles + m) * 4 + j) * kTileThreads]);
        }
      }
    };
    for_numbers(first_slice_, [](float own, float& number) { number = own; });
    if (!ends_last(args_.gemm.counter + block_index().x, unsigned(kInputSlices), flag)) return false;
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      QGEN_UNROLL
      for (int m = 0; m < kTokenTiles; ++m) {
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) total_[i][m][j] = 0;
      }
    }
    QGEN_UNROLL_BY(1)
    for (int slice = 0; slice < kInputSlices; ++slice)
      for_numbers(slice, [](float& own, const float& number) { own += number; });
    return true;
  }

  QGEN_DEVICE void write_results() const {
    const int g = lane_index() / 4;
    QGEN_UNROLL
    for (int m = 0; m < kTokenTiles; ++m) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int token = token_of_sum(m, j);
        if (token >= products_.tokens) continue;
        float result[2];
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int row = row_of(warp_index() / 2 * kWarpRows + i * 16 + g + j / 2 * 8);
          if (row >= matrix(i).rows) continue;
          const float scale = Grid::kGrouped ? 1 : scale_at(matrix(i), first_group(matrix(i), row));
          result[i] = product_of<Grid>(matrix(i), row, total_[i][m][j], scale, args_.gemm.parts.norm[token]);
          if (gated_ && i == 0) continue;
          const float activation = activated(products_.epilogue.activation, gated_ ? result[0] : result[i]);
          store_product(products_.epilogue, gated_ ? activation * result[1] : activation,
                        products_.y[part_] + token * products_.y_stride[part_] + row);
        }
      }
    }
  }

 private:
  // The first token of a tile of columns of a warp: the warps' tiles by turns, so that few tokens keep both busy.
  QGEN_DEVICE static int token_of(int tile, int warp) { return (tile / 2 * 2 + warp) * 8; }
  // That of number j of the lane's sums of token tile m.
  QGEN_DEVICE static int token_of_sum(int m, int j) {
    return token_of(2 * m, warp_index() % 2) + 2 * (lane_index() % 4) + j % 2;
  }

  const SplitGemmKernelArgs& args_;
  const GemvArgs& products_;
  const bool gated_;
  int part_ = 0, first_row_ = 0;
  int slice_steps_ = 0, first_slice_ = 0;
  int tiles_ = 0;  // of tokens that this warp has
  TileCodes<Grid> codes_;
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
