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
  int first_block[GemvArgs::kMostParts];  // of rows, of each part
  // Powers of two, by their logarithms: divisions would take registers from the loop.
  int token_shift;    // of the tiles that have the same rows, one after the other
  int whole_tiles;    // each of a block; behind them those that several blocks share
  int sharing_shift;  // of these blocks, one after the other, among which the slices of a tile are divided
};

// As GemmBlock, of gated products or of several parts. Blocks that read the same codes run together.
template <typename Tile>
class SplitGemmBlock {
 public:
  using Warp = GemmWarp<Tile>;
  static constexpr bool kMinimumsFirst = true;
  // Two are of a token; more would be in vain where the tokens of two warps are few.
  static constexpr int kTilesAtOnce = Tile::kTokenWarps > 1 && Warp::kAtOnce > 2 ? 2 : Warp::kAtOnce;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr bool kOverlaps = Warp::kOverlaps && !Tile::kGrouped;  // ptxas finds no registers for it there
#else
  static constexpr bool kOverlaps = Warp::kOverlaps && (!Tile::kGrouped || Tile::kTokenWarps == 1);
#endif
  static constexpr int kTokenTiles = Warp::kTokenTiles / 2;  // of a warp, each with two tiles of columns
  static constexpr int kTokens = Tile::kBlockTokens / 2;

  QGEN_DEVICE explicit SplitGemmBlock(const SplitGemmKernelArgs& args)
      : args_(args),
        products_(args.gemm.products),
        gated_(products_.gated),
        shared_(int(block_index().x) - args.whole_tiles) {
    int tile = int(block_index().x);
    slices_ = kInputSlices;
    if (shared_ >= 0) {
      slices_ >>= args.sharing_shift;
      first_slice_ = (shared_ & ((1 << args.sharing_shift) - 1)) * slices_;
      shared_ >>= args.sharing_shift;
      tile = args.whole_tiles + shared_;
    }
    const int block = tile >> args.token_shift;  // of rows
    first_token_ = (tile & ((1 << args.token_shift) - 1)) * kTokens;
    tokens_ = products_.tokens - first_token_ < kTokens ? products_.tokens - first_token_ : kTokens;
    while (!gated_ && part_ + 1 < products_.parts && block >= args.first_block[part_ + 1]) ++part_;
    first_row_ = (block - args.first_block[part_]) * (gated_ ? Tile::kBlockRows / 2 : Tile::kBlockRows);
    const int windows = (matrix(0).cols + Warp::kWindow - 1) / Warp::kWindow;
    slice_steps_ = (windows + kInputSlices * Warp::kWindows - 1) / (kInputSlices * Warp::kWindows);
    inverse_steps_ = ((1u << 31) - 1) / uint32_t(slice_steps_) + 1;
    const int most_tiles = warp_has_rows<Tile>(*this) ? kTokenTiles : 0;
    while (tiles_ < most_tiles && token_of(2 * tiles_, Tile::token_warp()) < tokens_) ++tiles_;
    codes_.begin(*this);
    inputs_.begin([&](int row) {
      const int of_warp = row % kWarpTokens / 8, warp = row / kWarpTokens, token = token_of(of_warp, warp) + row % 8;
      const bool read = token_of(of_warp / kTilesAtOnce * kTilesAtOnce, warp) < tokens_;
      return token < tokens_ ? (2 * (first_token_ + token) + of_warp % 2) * args_.gemm.parts.stride
             : read          ? TileInputs<Tile>::kZeros
                             : TileInputs<Tile>::kUnread;
    });
  }

  // A slice has every kInputSlices-th window.
  QGEN_DEVICE int steps() const { return slice_steps_ * slices_; }
  QGEN_DEVICE int column_of(int step, int window) const {
    const int slice = slice_of(step), of_slice = (step - slice * slice_steps_) * Warp::kWindows + window;
    return (first_slice_ + slice + of_slice * kInputSlices) * Warp::kWindow;
  }

  QGEN_DEVICE const Matrix& matrix(int tile) const { return products_.part[gated_ ? tile % 2 : part_]; }
  QGEN_DEVICE const Matrix& like() const { return products_.part[0]; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + (gated_ ? gated_row(row) : row); }

  QGEN_DEVICE void copy_codes(int step, uint8_t* codes) const {
    constexpr int kWindowBytes = Warp::kWindow * Warp::kBytes;
    const int byte = codes_.byte();
    codes_.copy(column_of(step, byte / kWindowBytes) * Warp::kBytes + byte % kWindowBytes, codes);
  }
  QGEN_DEVICE void copy_inputs(int step, uint16_t* x) const {
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
      const int token = token_of(n / 2 * 2, Tile::token_warp()) + 2 * (lane_index() % 4) + n % 2;
      inverse[n / 2][n % 2] =
          token < tokens_ ? args_.gemm.parts.inverse[(first_token_ + token) * kInputSlices + slice] : 0;
    }
    QGEN_UNROLL
    for (int n = 0; n < kTokenTiles * 4; ++n) {
      const int m = n / 4, j = n % 4;
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        float(&sum)[Warp::kTokenTiles][4] = warp.sum[i];
        const float product = product_of_parts<Tile::kCodes == Codes::kBf16>(sum[2 * m][j], sum[2 * m + 1][j]);
        total_[i][m][j] += rounded_product(product, inverse[m][j % 2]);
        sum[2 * m][j] = sum[2 * m + 1][j] = 0;
      }
    }
    if (shared_ >= 0) {
      for_totals(slice, [](float& total, float& partial) {
        partial = total;
        total = 0;
      });
    }
  }

  // Whether this block has, or now gets, the sums of all slices.
  QGEN_DEVICE bool adds_up_slices(uint32_t* flag) {
    if (shared_ < 0) return true;
    if (!ends_last(args_.gemm.counter + shared_, 1u << args_.sharing_shift, flag)) return false;
    QGEN_UNROLL_BY(1)
    for (int slice = 0; slice < kInputSlices; ++slice)
      for_totals(slice, [](float& total, const float& partial) { total += partial; });
    return true;
  }

  QGEN_DEVICE void write_results() const {
    float* const sums = shared_memory<float>();
    share_sums<Tile>(total_, sums, [](int m, int column) { return token_of(2 * m, Tile::token_warp()) + column; });
    const int rows = gated_ ? Tile::kBlockRows / 2 : Tile::kBlockRows;
    QGEN_UNROLL_BY(1)
    for (int r = lane_index(); r < rows && first_row_ + r < matrix(0).rows; r += kWarp) {
      const int row = first_row_ + r, at = gated_ ? gate_place(r) : r;
      float scale[2] = {1, 1};
      if constexpr (!Tile::kGrouped) {
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) scale[i] = scale_at(matrix(i), first_group(matrix(i), row));
      }
      const Epilogue& epilogue = products_.epilogue;
      const auto y_of = [&](int token) {
        return products_.y[part_] + int64_t{first_token_ + token} * products_.y_stride[part_] + row;
      };
      for_shared_sums(
          tokens_, [&](int token) { return epilogue.add ? *y_of(token) : 0; },
          [&](int token, float added) {
            const float* const of_token = sums + token * Tile::kSumsRow + at;
            const float norm = args_.gemm.parts.norm[first_token_ + token];
            const auto result = [&](int i) {
              return product_of<Tile>(matrix(i), row, of_token[i * kTurnRows], scale[i], norm);
            };
            const float activation = activated(epilogue.activation, result(0));
            *y_of(token) = stored_product(epilogue, gated_ ? activation * result(1) : activation, added);
          });
    }
  }

 private:
  static_assert(kTokens * Tile::kSumsRow * 4 <= Tile::kBytes);

  // The first of the block's tokens in a tile of columns of a warp: the warps' tiles by turns, so that few tokens keep
  // both busy.
  QGEN_DEVICE static int token_of(int tile, int warp) { return (tile / 2 * Tile::kTokenWarps + warp) * 8; }
  // step / slice_steps_ by the upper half of a product, which is exact as long as 16 slice_steps_^2 are below 2^31: for
  // 11 million columns.
  QGEN_DEVICE int slice_of(int step) const { return int(upper_product(2 * uint32_t(step), inverse_steps_)); }

  // use(total, partial) for the thread's sums; `partial`: where those of a slice are in memory.
  template <typename Use>
  QGEN_DEVICE void for_totals(int slice, const Use& use) {
    constexpr int kSums = 2 * kTokenTiles * 4;
    float* const partial =
        args_.gemm.partial + (int64_t{shared_} * kInputSlices + slice) * kSums * kTileThreads + thread_index();
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
  int shared_;  // number of the tile among those that are shared, or less than 0
  int first_token_ = 0, tokens_ = 0;
  int part_ = 0, first_row_ = 0;
  int slice_steps_ = 0, first_slice_ = 0, slices_ = 0;
  uint32_t inverse_steps_ = 0;  // 2^31 / slice_steps_
  int tiles_ = 0;               // of tokens that this warp has
  TileCodes<Tile> codes_;
  TileInputs<Tile> inputs_;
  float total_[2][kTokenTiles][4] = {};
};

template <typename Tile>
QGEN_KERNEL(kTileThreads, 1)
split_gemm_kernel(const SplitGemmKernelArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  SplitGemmBlock<Tile> block(args);
  GemmWarp<Tile> warp;
  multiply_steps(block, warp, [&] { scope.wait_for_inputs(); });
  if (block.adds_up_slices(shared_memory<uint32_t>())) block.write_results();
}

}  // namespace qgen::QGEN_BACKEND
