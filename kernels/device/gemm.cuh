// Many tokens: tiles of 128 rows of W by 128 tokens, whose codes stay codes until they are in registers. A warp takes
// 32 rows and 64 tokens. Where W has a scale for groups of columns, each group's sum is scaled before it is added.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kBlockRows = 128, kBlockTokens = 128, kStepColumns = 64;
constexpr int kTileWarps = 8, kTileThreads = kTileWarps * kWarp;
constexpr int kWarpRows = 32, kWarpTokens = 64;
constexpr int kStages = 3;

template <Codes kCodes>
constexpr int kStageBytes = kBlockRows* kStepColumns* kCodeBytes<kCodes> + kBlockTokens* kStepColumns * 2;

// Where the piece of 8 columns `piece` (of 8) of a token's 64 lies in shared memory: lanes q = 0..3 read a product's
// columns as 16 bytes each, which then are neighbours; tokens in turns have the halves the other way round, so that two
// of them are in different banks. kLane: codes that a lane takes at once.
template <int kLane>
QGEN_DEVICE int x_place(int token, int piece) {
  const int half = kLane == 16 ? piece % 2 : piece / 4, q = kLane == 16 ? piece / 2 : piece % 4;
  return token * kStepColumns + ((half ^ token % 2) * 4 + q) * 8;
}

template <typename Grid>
QGEN_KERNEL(kTileThreads, 1)
gemm_kernel(const GemmArgs args, const LaunchTimes times) {
  constexpr Codes kCodes = Grid::kCodes;
  constexpr int kLane = Grid::kLane;
  constexpr bool kGrouped = Grid::kGrouped;
  constexpr int kBytes = kCodeBytes<kCodes>, kRowBytes = kStepColumns * kBytes;
  constexpr int kWindow = 4 * kLane, kWindows = kStepColumns / kWindow;
  constexpr int kGroups = GroupLoads<Grid>::kGroups, kGroupSteps = kLane / 4 / kGroups;  // of a window, of a group
  // All windows of a step, their scales loaded a step ahead; more numbers than a scale would not fit in registers.
  constexpr bool kOneWindow = Grid::kMinimums || Grid::kForm == ScaleForm::kTwoLevels;
  constexpr int kWindowsAtOnce = kOneWindow ? 1 : kWindows;
  const Matrix& w = args.w;
  const int lane = lane_index(), g = lane / 4, q = lane % 4;
  const int warp_row = warp_index() / 2 * kWarpRows, warp_token = warp_index() % 2 * kWarpTokens;
  const int first_row = int(block_index().x) * kBlockRows, first_token = int(block_index().y) * kBlockTokens;
  KernelScope scope(times);
  scope.wait_for_inputs();

  uint8_t* const memory = shared_memory<uint8_t>();
  const int steps = (w.cols + kStepColumns - 1) / kStepColumns;
  const auto copy_step = [&](int step) {
    if (step < steps) {
      uint8_t* const codes = memory + step % kStages * kStageBytes<kCodes>;
      uint16_t* const x = reinterpret_cast<uint16_t*>(codes + kBlockRows * kRowBytes);
      for (int i = thread_index(); i < kBlockRows * kRowBytes / 16; i += kTileThreads) {
        const int row = i / (kRowBytes / 16), piece = i % (kRowBytes / 16);
        const int64_t at = int64_t(step) * kRowBytes + piece * 16;
        const bool valid = first_row + row < w.rows && at < w.row_bytes;
        copy_async16(codes + row * kRowBytes + piece * 16, w.codes + (first_row + row) * w.row_bytes + at, valid);
      }
      for (int i = thread_index(); i < kBlockTokens * kStepColumns / 8; i += kTileThreads) {
        const int token = i / (kStepColumns / 8), piece = i % (kStepColumns / 8);
        copy_async16(x + x_place<kLane>(token, piece),
                     args.x.values + (first_token + token) * args.x.stride + int64_t(step) * kStepColumns + piece * 8,
                     first_token + token < args.tokens);
      }
    }
    copy_async_commit();
  };

  // Of this lane's rows: where their scale groups begin in the grid.
  int group[2][2];
  uint32_t bias[2][2];
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + warp_row + i * 16 + g + 8 * h;
      group[i][h] = first_group(w, row < w.rows ? row : w.rows - 1);
      bias[i][h] = i8_bias(kGrouped ? 0 : zero_point_at<Grid>(w, group[i][h]));
    }
  }

  float sum[2][kWarpTokens / 8][4] = {};
  QGEN_UNROLL
  for (int s = 0; s < kStages - 1; ++s) copy_step(s);
  for (int step = 0; step < steps; ++step) {
    GroupLoads<Grid> groups[kWindowsAtOnce][2][2];
    const auto load_groups = [&](int window, GroupLoads<Grid>(&into)[2][2]) {
      // Behind the last column any that exist will do: x is zero there.
      const int own = (step * kStepColumns + window * kWindow) >> w.group_shift,
                last = ((w.cols - 1) >> w.group_shift) / kGroups * kGroups, group_column = own < last ? own : last;
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) into[i][h].load(w, group[i][h] + group_column);
      }
    };
    if constexpr (kGrouped && !kOneWindow) {
      QGEN_UNROLL
      for (int window = 0; window < kWindows; ++window) load_groups(window, groups[window]);
    }
    copy_async_wait<kStages - 2>();
    barrier();  // all copies of this step have arrived, and no thread still reads the stage that is written next
    copy_step(step + kStages - 1);
    const uint8_t* const codes = memory + step % kStages * kStageBytes<kCodes>;
    const uint16_t* const x = reinterpret_cast<const uint16_t*>(codes + kBlockRows * kRowBytes);
    QGEN_UNROLL_BY(kWindowsAtOnce)
    for (int window = 0; window < kWindows; ++window) {
      const int column = step * kStepColumns + window * kWindow;
      GroupLoads<Grid>(&of_window)[2][2] = groups[kOneWindow ? 0 : window];
      if constexpr (kOneWindow) load_groups(window, of_window);
      uint32_t a[kLane / 4][2][4];
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
          const uint32_t* from = reinterpret_cast<const uint32_t*>(codes + (warp_row + i * 16 + g + 8 * h) * kRowBytes +
                                                                   (window * kWindow + q * kLane / kGroups) * kBytes);
          uint32_t added[kGroups];
          QGEN_UNROLL
          for (int of = 0; of < kGroups; ++of) {
            added[of] = bias[i][h];
            if constexpr (kGrouped) {
              // Behind the last column any will do: x is zero there.
              const int tile = group[i][h] + (column >> w.group_shift) + of;
              added[of] = i8_bias(column < w.cols ? zero_point_at<Grid>(w, tile) : 0);
            }
          }
          QGEN_UNROLL
          for (int s = 0; s < kLane / 4; ++s) {
            if constexpr (kBytes == 2) {
              a[s][i][h] = from[2 * s];
              a[s][i][h + 2] = from[2 * s + 1];
            } else {
              four_codes<kCodes>(from[kGroups == 2 ? 4 * s : s], added[s / kGroupSteps], a[s][i][h], a[s][i][h + 2]);
            }
          }
        }
      }
      QGEN_UNROLL
      for (int n = 0; n < kWarpTokens / 8; ++n) {
        const int token = warp_token + n * 8 + g;
        uint32_t b[kLane / 4][2];
        if constexpr (kGroups == 2) {
          // Lanes have 4 neighbouring columns of each group, as part_groups() (gemv.cuh) leaves the codes there.
          QGEN_UNROLL
          for (int s = 0; s < 2; ++s) {
            const int piece = 4 * window + 2 * s + q / 2;
            const Bytes8 v = *reinterpret_cast<const Bytes8*>(x + x_place<kLane>(token, piece) + q % 2 * 4);
            b[s][0] = v.word[0];
            b[s][1] = v.word[1];
          }
        } else {
          QGEN_UNROLL
          for (int half = 0; half < kLane / 8; ++half) {
            const int piece = kLane == 16 ? 2 * q + half : 4 * window + q;
            const Bytes16 v = *reinterpret_cast<const Bytes16*>(x + x_place<kLane>(token, piece));
            QGEN_UNROLL
            for (int j = 0; j < 4; ++j) b[2 * half + j / 2][j % 2] = v.word[j];
          }
        }
        QGEN_UNROLL
        for (int of = 0; of < kGroups; ++of) {
          [[maybe_unused]] float x_sum[4] = {};
          if constexpr (Grid::kMinimums) {
            QGEN_UNROLL
            for (int s = of * kGroupSteps; s < (of + 1) * kGroupSteps; ++s) add_inputs(x_sum, b[s]);
          }
          QGEN_UNROLL
          for (int i = 0; i < 2; ++i) {
            float part[4] = {};
            float(&into)[4] = kGrouped ? part : sum[i][n];
            QGEN_UNROLL
            for (int s = of * kGroupSteps; s < (of + 1) * kGroupSteps; ++s) multiply_add<kCodes>(into, a[s][i], b[s]);
            if constexpr (kGrouped) {
              QGEN_UNROLL
              for (int j = 0; j < 4; ++j) {
                sum[i][n][j] += of_window[i][j / 2].scale(of) * part[j];
                if constexpr (Grid::kMinimums) sum[i][n][j] += of_window[i][j / 2].minimum(of) * x_sum[j];
              }
            }
          }
        }
      }
    }
  }
  copy_async_wait<0>();

  QGEN_UNROLL
  for (int i = 0; i < 2; ++i) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + warp_row + i * 16 + g + 8 * h;
      if (row >= w.rows) continue;
      const float scale = kGrouped ? 1 : scale_at(w, group[i][h]);
      const float add = w.bias != nullptr ? w.bias[row] : 0;
      QGEN_UNROLL
      for (int n = 0; n < kWarpTokens / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int token = first_token + warp_token + n * 8 + 2 * q + j;
          if (token >= args.tokens) continue;
          float* const y = args.y + token * args.y_stride + row;
          const float result = sum[i][n][2 * h + j] * scale * args.x.factor[token] + add;
          *y = args.add ? *y + result : result;
        }
      }
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
