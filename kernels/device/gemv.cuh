// A few tokens: the weights stream by once, through a ring in shared memory into matrix products (MMA), weights as the
// product's 16 rows and tokens as its 8 columns. Since any order of the columns of W is as good as another, as
// long as x has the same, each lane loads 16 (or 8) neighbouring codes of a row at once. (Field notes on such kernels:
// ONNX Runtime, docs/contrib_ops/cuda/matmul_block_scaled_fp8_experiments.md.)
//
// x goes in as the sum of two 16-bit floats, together 22 bits: up to four tokens use columns 2 t and 2 t + 1 for them,
// more tokens two products. Either way each token's numbers meet the same operations in the same order.
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/gemv_shape.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/split.cuh"

namespace qgen::QGEN_BACKEND {

template <int kLaneBytes>
struct LaneBytes;
template <>
struct LaneBytes<16> {
  using Type = Bytes16;
  static QGEN_DEVICE void copy(void* to, const uint8_t* from, bool valid) { copy_once16(to, from, valid); }
};
template <>
struct LaneBytes<8> {
  using Type = Bytes8;
  static QGEN_DEVICE void copy(void* to, const uint8_t* from, bool valid) { copy_once8(to, from, valid); }
};

// A lane's codes of one window, and the numbers of its groups: of rows g and g + 8.
template <typename Traits>
struct GemvWindow {
  typename LaneBytes<Traits::kLaneBytes>::Type codes[2];
  GroupLoads<typename Traits::Grid> groups[2];
};

// What becomes of the sum of a row and a token before the epilogue. `scale`: of a row that has one; `factor`: of the
// token, what normalizes it or the sigmoid of its gate.
template <typename Grid>
QGEN_DEVICE float product_of(const Matrix& w, int row, float total, float scale, float factor) {
  if (!Grid::kGrouped) total *= scale;
  return fused_product(total, factor, w.bias != nullptr ? w.bias[row] : 0);
}

// Which rows a block multiplies: all rows of all parts. Another policy (ListedRows) has one part, and says which of its
// rows is at a place of the tiles.
struct AllRows {
  static constexpr bool kInOrder = true;
  QGEN_DEVICE static int tiles(const GemvKernelArgs& gemv) { return gemv.tiles; }
  QGEN_DEVICE static int count(const Matrix& part) { return part.rows; }
  QGEN_DEVICE static int row(int place) { return place; }
};

// A block's work: keep_weights(), ask_first() and load_first_groups(), which do not wait for the inputs,
// stage_inputs(), then multiply_tiles(), whose `store` calls for_result() or write_result().
//
// Each warp has a slice of the columns, of all rows of a tile (InputSlice), and prepares its inputs for itself: warps
// wait for each other only when their sums are put together.
//
// Weights come through a ring in shared memory. Each lane asks for its own codes, some windows ahead and on into the
// block's next tiles, and reads back what it has asked for itself: loads are under way at all times.
template <typename Traits, typename Rows = AllRows>
class GemvBlock {
 public:
  static constexpr Codes kCodes = Traits::kCodes;
  static constexpr bool kIntegers = kCodes == Codes::kI8;  // which may have zero points
  using Slice = typename Traits::Slice;
  using Window = GemvWindow<Traits>;
  using Sums = float[Traits::kSums][4];
  static constexpr int kStep = 4 * Traits::kWarps * Traits::kLaneBytes;  // bytes of a row from a window to the next

  // The block has tile `first` and every `step`-th behind it. `parts`: its matrices, those of `gemv` or others
  // like them.
  QGEN_DEVICE GemvBlock(const GemvKernelArgs& gemv, int first, int step, const Matrix* parts, const Rows& rows = {})
      : gemv_(gemv),
        args_(gemv.linear),
        parts_(parts),
        rows_(rows),
        gated_(args_.gated),
        first_(first),
        step_(step),
        asked_tile_(first) {
    const int windows = (cols() + Traits::kWindow - 1) / Traits::kWindow;
    const int of_row = int(args_.part[0].row_bytes / Traits::kLaneBytes);
    windows_ = Slice::count(windows - warp_index(), Traits::kWarps);
    loads_ = Slice::count((of_row < 4 * windows ? of_row : 4 * windows) - 4 * warp_index() - q(), 4 * Traits::kWarps);
  }

  QGEN_DEVICE int cols() const { return args_.part[0].cols; }
  QGEN_DEVICE int tiles() const { return rows_.tiles(gemv_); }

  // Where the stages hand each other what they made, behind `used` bytes.
  QGEN_DEVICE void place_shared_memory(int used = 0) {
    used_ = used;
    x_ = reinterpret_cast<uint16_t*>(begin()) + warp_index() * 2 * args_.tokens * gemv_x_stride<Traits>(gemv_.slab);
    sums_ = squares() + 3 * Traits::kWarps * args_.tokens;
    ring_ = begin() + gemv_bytes<Traits>(args_.tokens, gemv_.slab, tiles_at_once()) + warp_index() * Traits::kWarpRing;
  }

  // What the inputs of the first slab are multiplied by, the norm's weights or 1, to where token 0 will be: so there is
  // nothing to decide when the inputs come. No launch before this one writes it. Before ask_first().
  QGEN_DEVICE void keep_weights() const {
    if (!is_ordered()) {
      QGEN_UNROLL_BY(1)
      for (int u = 0; is_kept(u) && Slice::column(u) < padded_cols(cols()); ++u) {
        uint16_t *const highs = highs_of(0) + Slice::place(u), *const lows = lows_of(0) + Slice::place(u);
        if (args_.norm != nullptr) {
          copy_once8(highs, args_.norm + Slice::column(u), true);
          copy_once8(lows, args_.norm + Slice::column(u) + 2, true);
        } else {
          keep({{1, 1, 1, 1}}, highs, lows);
        }
      }
    }
    copy_async_commit();
  }
  // As many windows as the ring has stages.
  QGEN_DEVICE void ask_first() {
    aim();
    QGEN_UNROLL
    for (int u = 0; u < Traits::kStages; ++u) ask(u);
  }
  QGEN_DEVICE void load_first_groups(Window& window, int tile, int begin = 0) {
    use_rows(tile);
    load_groups(window, begin);
  }

  // The first slab of the warp's inputs, (tokens, x_stride), as pairs of 16-bit floats, at once as they are: where that
  // does not suit the whole slice, once more in the range that does. And of each token what its norm is made of.
  QGEN_DEVICE void stage_inputs(const float* x) {
    inputs_ = x;
    constexpr int kTokens = Traits::kStagedTokens;
    copy_async_wait<Traits::kStages>();  // for the norm's weights
    // Token 0 comes last: it takes the place of the weights.
    QGEN_UNROLL_BY(1)
    for (int first = (args_.tokens - 1) / kTokens * kTokens; first >= 0; first -= kTokens) {
      float factor[kTokens];
      QGEN_UNROLL
      for (int t = 0; t < kTokens; ++t) factor[t] = 1;
      QGEN_UNROLL_BY(1)
      for (bool again = false;; again = true) {
        InputMeasure measure[kTokens];
        measure_slice<Slice, kTokens, Traits::kStagedPieces>(
            cols(), args_.tokens - first, measure, [&](int t, int column) { return raw(first + t, column); },
            [&](int column, int u) { return is_kept(u) && !is_ordered() ? kept_weights(u) : weights(column); },
            [&](int t, int u, const Floats4& values) {
              if (is_kept(u)) put(first + t, u, values, factor[t]);
            });
        if (again) break;
        bool suits = true;
        QGEN_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          if (kTokens > 1 && first + t >= args_.tokens) continue;
          factor[t] = range_of(first + t, measure[t]);
          suits &= factor[t] == 1;
        }
        if (suits) [[likely]]
          break;
        keep_weights();  // which token 0 has overwritten
        copy_async_wait<0>();
      }
    }
    warp_barrier();
  }

  // store(tile) when the sums of the tiles from `tile` on that are put together are there, for all tiles of the block,
  // whose first weights are on their way and whose first inputs are there. Where x is there slab by slab, these tiles
  // are multiplied by one slab after the other, so that each slab is prepared once for them.
  template <typename Store>
  QGEN_DEVICE void multiply_tiles(Window& window, const Store& store) {
    QGEN_UNROLL_BY(1)
    for (int begin = first_; begin < tiles(); begin += tiles_at_once() * step_) {
      load_result(begin);
      QGEN_UNROLL_BY(1)
      for (int slab = 0; slab == 0 || slab < windows_; slab += slab_windows()) {
        if (has_slabs() && (begin != first_ || slab > 0)) stage_slab(slab);
        QGEN_UNROLL_BY(1)
        for (int at = 0; at < tiles_at_once(); ++at) {
          const int tile = begin + at * step_;
          if (tile >= tiles()) break;
          Sums sum = {};
          if (slab > 0) load_parts(sum, at);
          multiply_tile(tile, slab, window, sum);
          if (slab + slab_windows() < windows_) {
            store_parts(sum, at);
          } else {
            store_sums(sum, at);
          }
        }
        if constexpr (!Traits::kPairs) break;
      }
      barrier();
      store(begin);
      // Parts of sums go to both places of the sums.
      if (has_slabs()) barrier();
    }
    copy_async_wait<0>();
  }

  // The warps' sums of the tiles from `tile` on together, scales, biases: store(part, token, row, its product, or those
  // of the gate and of what it gates) for the thread's result before the epilogue.
  template <typename Store>
  QGEN_DEVICE void for_result(int tile, const Store& store) {
    const Result own = result_of_thread(tile);
    const bool has_factor = args_.norm != nullptr || args_.token_gate != nullptr;
    if (tile == first_ && has_factor && own.at < tiles_at_once() && own.token < args_.tokens)
      *factor() = args_.norm != nullptr
                      ? norm_factor<Traits::kWarps>(squares() + own.token * Traits::kWarps, cols(), args_.norm_eps)
                      : sigmoid(args_.token_gate[own.token * args_.token_gate_stride]);
    if (own.there) {
      float result[2] = {};
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && !gated_) continue;
        float total = 0;
        QGEN_UNROLL
        for (int from = 0; from < Traits::kWarps; ++from)
          total += sums_of(own.at, second_sums_, from, own.token)[own.r + 8 * i];
        result[i] = product_of<typename Traits::Grid>(matrix_of(gated_ ? i : own.part), own.row, total,
                                                      result_scale_[i], has_factor ? *factor() : 1);
      }
      store(own.part, own.token, own.row, result);
    }
    second_sums_ ^= kSecondSums;
  }
  // The same with the epilogue, to where results go.
  QGEN_DEVICE void write_result(int tile) {
    for_result(tile, [&](int part, int t, int row, const float(&result)[2]) {
      const float activation = activated(args_.epilogue.activation, result[0]);
      *result_at(part, t, row) = stored_product(args_.epilogue, gated_ ? activation * result[1] : activation, added_);
    });
  }

 private:
  // What the thread's result needs when its sum is there: asked for before its tile is multiplied, so that it does not
  // wait then. `tile`: the first of those that are put together next.
  QGEN_DEVICE void load_result(int tile) {
    static_assert(kMmaRows * Traits::kMostTokens * Traits::kMostTilesAtOnce <= Traits::kThreads);
    const Result own = result_of_thread(tile);
    if (!own.there) return;
    if (args_.epilogue.add) added_ = *result_at(own.part, own.token, own.row);
    if constexpr (!Traits::Grid::kGrouped) {
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Matrix w = matrix_of(gated_ ? i : own.part);
        if (i == 0 || gated_) result_scale_[i] = scale_at(w, first_group(w, own.row));
      }
    }
  }

  // sum += the products of a tile and the warp's slice, from its window `begin` on as far as the slab goes.
  QGEN_DEVICE void multiply_tile(int tile, int begin, Window& now, Sums& sum) {
    if (has_slabs()) load_first_groups(now, tile, begin);
    load_biases();
    const int end = end_of_slab(begin);
    QGEN_UNROLL_BY(1)
    for (int first = begin; first < end; first += Traits::kStages) {
      aim_further();
      QGEN_UNROLL
      for (int u = 0; u < Traits::kStages; ++u) {
        const int window = first + u;
        if (window < end) {
          take(now, u);
          multiply_window(now, window, window - begin, sum);
          load_groups(now, window + 1);  // of two levels
        }
        ask(u);
      }
    }
    // While the sums are put together the first groups of the next tile come.
    if (!has_slabs() && tile + step_ < tiles()) load_first_groups(now, tile + step_);
  }

  // sum += the products of window `window` of the slice, which begins at column kWindow * `place` in shared memory.
  QGEN_DEVICE void multiply_window(const Window& loads, int window, int place, Sums& sum) {
    using Grid = typename Traits::Grid;
    constexpr int kGroups = GroupLoads<Grid>::kGroups, kSteps = Traits::kLane / 4 / kGroups;  // of a group
    uint32_t b[Traits::kSums][Traits::kLane / 2];
    load_inputs(place, b);
    const auto inputs = [&](int s, int step, uint32_t(&two)[2]) {
      two[0] = b[s][2 * step];
      two[1] = b[s][2 * step + 1];
    };
    [[maybe_unused]] float x_sum[kGroups][Traits::kSums][4] = {};
    if constexpr (Grid::kMinimums) {
      QGEN_UNROLL
      for (int step = 0; step < kGroups * kSteps; ++step) {
        QGEN_UNROLL
        for (int s = 0; s < Traits::kSums; ++s) {
          uint32_t two[2];
          inputs(s, step, two);
          add_inputs(x_sum[step / kSteps][s], two);
        }
      }
    }
    typename LaneBytes<Traits::kLaneBytes>::Type codes[2] = {loads.codes[0], loads.codes[1]};
    if constexpr (kGroups == 2) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) part_groups(codes[h]);
    }
    QGEN_UNROLL
    for (int j = 0; j < kGroups; ++j) {
      uint32_t bias[2];
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        if constexpr (Grid::kGrouped && kIntegers) {
          bias[h] = bias_of(h, group_at(h, window) + j);
        } else {
          bias[h] = bias_[h];
        }
      }
      if constexpr (Grid::kMinimums) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
          const float minimum = loads.groups[h].minimum(j);
          QGEN_UNROLL
          for (int s = 0; s < Traits::kSums; ++s) {
            sum[s][2 * h] = fused_product(minimum, x_sum[j][s][2 * h], sum[s][2 * h]);
            sum[s][2 * h + 1] = fused_product(minimum, x_sum[j][s][2 * h + 1], sum[s][2 * h + 1]);
          }
        }
      }
      float group_sum[Traits::kSums][4] = {};
      float(&into)[Traits::kSums][4] = Grid::kGrouped ? group_sum : sum;
      QGEN_UNROLL
      for (int step = j * kSteps; step < (j + 1) * kSteps; ++step) {
        uint32_t a[4];
        if constexpr (kCodeBytes<kCodes> == 2) {
          QGEN_UNROLL
          for (int h = 0; h < 2; ++h) {
            a[h] = codes[h].word[2 * step];
            a[h + 2] = codes[h].word[2 * step + 1];
          }
        } else {
          QGEN_UNROLL
          for (int h = 0; h < 2; ++h) four_codes<kCodes>(codes[h].word[step], bias[h], a[h], a[h + 2]);
        }
        QGEN_UNROLL
        for (int s = 0; s < Traits::kSums; ++s) {
          uint32_t two[2];
          inputs(s, step, two);
          multiply_add<kCodes>(into[s], a, two);
        }
      }
      if constexpr (Grid::kGrouped) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
          const float scale = loads.groups[h].scale(j);
          QGEN_UNROLL
          for (int s = 0; s < Traits::kSums; ++s) {
            sum[s][2 * h] = fused_product(scale, group_sum[s][2 * h], sum[s][2 * h]);
            sum[s][2 * h + 1] = fused_product(scale, group_sum[s][2 * h + 1], sum[s][2 * h + 1]);
          }
        }
      }
    }
  }

  // The products of high and low parts together, times the inverse of the slice's power of two, into shared memory.
  // `at`: of the tiles that are put together next. Sums go to two places by turns, so that the next ones need not wait
  // until these are read; with slabs they do (multiply_tiles).
  QGEN_DEVICE void store_sums(const Sums& sum, int at) const {
    const auto store = [&](int t, const auto& of_row) {
      if (t >= args_.tokens) return;
      const float inverse = ranges()[t].inverse;
      float* const out = sums_of(at, second_sums_, warp_index(), t) + g();
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) out[8 * h] = rounded_product(of_row(h), inverse);
    };
    if constexpr (Traits::kPairs) {
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i)
        store(2 * q() + i, [&](int h) { return of_parts(sum[0][2 * h + i], sum[1][2 * h + i]); });
    } else {
      store(q(), [&](int h) { return of_parts(sum[0][2 * h], sum[0][2 * h + 1]); });
    }
  }
  QGEN_DEVICE static float of_parts(float high, float low) { return product_of_parts<Traits::kBf16>(high, low); }

  // The sums of a tile between two slabs: of each part of x in one of the two places.
  QGEN_DEVICE void store_parts([[maybe_unused]] const Sums& sum, [[maybe_unused]] int at) const {
    if constexpr (Traits::kPairs) for_parts(at, [&](int s, int of_lane, float& there) { there = sum[s][of_lane]; });
  }
  QGEN_DEVICE void load_parts([[maybe_unused]] Sums& sum, [[maybe_unused]] int at) const {
    if constexpr (Traits::kPairs)
      for_parts(at, [&](int s, int of_lane, const float& there) { sum[s][of_lane] = there; });
  }
  // use(s, i, where they lie between two slabs) for sums [s][i] of the lane.
  template <typename Use>
  QGEN_DEVICE void for_parts(int at, const Use& use) const {
    QGEN_UNROLL
    for (int s = 0; s < Traits::kSums; ++s) {
      QGEN_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (const int t = 2 * q() + i % 2; t < args_.tokens)
          use(s, i, sums_of(at, s * kSecondSums, warp_index(), t)[g() + i / 2 * 8]);
      }
    }
  }

  // All but pointers and row_origin is in the kernel's arguments, which are closer at hand than the memory that the
  // matrices of an expert are in.
  QGEN_DEVICE Matrix matrix_of(int i) const {
    Matrix part = args_.part[i];
    const Matrix& own = parts_[i];
    part.codes = own.codes;
    part.scale = own.scale;
    part.zero_point = own.zero_point;
    part.minimum = own.minimum;
    part.super_scale = own.super_scale;
    part.minimum_codes = own.minimum_codes;
    part.super_minimum = own.super_minimum;
    part.bias = own.bias;
    part.row_origin = own.row_origin;
    return part;
  }
  QGEN_DEVICE static int g() { return lane_index() / 4; }
  QGEN_DEVICE static int q() { return lane_index() % 4; }
  // Rows of a tile, the part that it is of, and its first row there.
  QGEN_DEVICE int tile_rows() const { return Traits::tile_rows(gated_); }
  QGEN_DEVICE int part_of(int tile) const {
    int part = 0;
    while (!gated_ && part + 1 < args_.parts && tile >= gemv_.first_tile[part + 1]) ++part;
    return part;
  }
  // The first tile of a part that has not all of its rows, or the next part's first. Computed anew, as some others
  // are: kept, it would take a register of the loop.
  QGEN_DEVICE int end_of_whole_tiles(int part) const {
    const unsigned rows = unsigned(rows_.count(args_.part[part]));
    return gemv_.first_tile[part] + int(gated_ ? rows / (kMmaRows / 2) : rows / kMmaRows);
  }
  QGEN_DEVICE int first_row_of(int tile, int part) const { return (tile - gemv_.first_tile[part]) * tile_rows(); }
  // What the thread puts together of the tiles from `tile` on: row r of one of them, number `at`, and a token.
  struct Result {
    int at, token, r, part, row;
    bool there;
  };
  QGEN_DEVICE Result result_of_thread(int tile) const {
    const unsigned thread = unsigned(thread_index_anew());
    const int r = int(gated_ ? thread % (kMmaRows / 2) : thread % kMmaRows),
              rest = int(gated_ ? thread / (kMmaRows / 2) : thread / kMmaRows);
    const int at = rest % Traits::kMostTilesAtOnce, token = rest / Traits::kMostTilesAtOnce;
    const int own_tile = tile + at * step_;
    if (at >= tiles_at_once() || token >= args_.tokens || own_tile >= tiles()) return {at, token, r, 0, 0, false};
    const int part = part_of(own_tile), place = first_row_of(own_tile, part) + r;
    const bool there = place < rows_.count(args_.part[part]);
    return {at, token, r, part, Rows::kInOrder || there ? rows_.row(place) : 0, there};
  }
  // The place among a part's `rows` of row r of a tile that begins at `first_row`; or the last one behind it.
  // Rows 8 to 15 of a gated tile are rows 0 to 7 of what the gate gates.
  QGEN_DEVICE int row_of(int rows, int first_row, int r) const {
    const int row = first_row + (gated_ ? r % 8 : r);
    return row < rows ? row : rows - 1;
  }
  // use(h, matrix, row) for the lane's rows, g and g + 8, of a tile of a part that begins at `first_row`.
  template <typename Use>
  QGEN_DEVICE void for_rows(int part, int first_row, const Use& use) const {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int of = gated_ ? h : part;
      use(h, matrix_of(of), rows_.row(row_of(rows_.count(args_.part[of]), first_row, g() + 8 * h)));
    }
  }

  // The lane's codes of row g + 8 h in a stage of the warp's ring.
  QGEN_DEVICE uint8_t* codes_at(int u, int h) const {
    return ring_ + u * Traits::kWarpStage + (h * kWarp + lane_index()) * Traits::kLaneBytes;
  }
  // What is asked for next: the first windows of a tile, or of a slab of it, or of none behind the last.
  QGEN_DEVICE void aim() {
    asked_first_ = asked_slab_;
    if (asked_tile_ >= tiles()) return;
    asked_part_ = part_of(asked_tile_);
    const int first_row = first_row_of(asked_tile_, asked_part_);
    for_rows(asked_part_, first_row, [&](int h, const Matrix& w, int row) {
      asked_[h] = w.codes + row * args_.part[0].row_bytes + (4 * warp_index() + q()) * Traits::kLaneBytes +
                  (Traits::kPairs ? asked_slab_ * kStep : 0);
      aim_groups(h, w, row);
    });
  }
  QGEN_DEVICE void aim_groups([[maybe_unused]] int h, [[maybe_unused]] const Matrix& w, [[maybe_unused]] int row) {
    if constexpr (Traits::kEarlyGroups) {
      const int first = first_group(w, row);
      asked_scales_[h] = static_cast<const Number*>(w.scale) + first;
      if constexpr (Traits::Grid::kMinimums) asked_minimums_[h] = w.minimum + first;
    }
  }
  // The next windows of the tile, as many as the ring has stages, or the first of the next tile. That tile is looked up
  // anew only where it is of another part or has not all of its rows: where a warp has a tile in one round, as with
  // 4096 columns, looking it up takes half as long as multiplying it.
  QGEN_DEVICE void aim_further() {
    if (asked_first_ + Traits::kStages < end_of_slab(asked_slab_) && asked_tile_ < tiles()) {
      asked_first_ += Traits::kStages;
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) asked_[h] += Traits::kStages * kStep;
      return;
    }
    if (has_slabs()) {
      aim_at_next_slab();
      return aim();
    }
    asked_tile_ += step_;
    if (!Rows::kInOrder || asked_tile_ >= end_of_whole_tiles(asked_part_)) return aim();
    const int row = first_row_of(asked_tile_, asked_part_) + g();
    const int64_t bytes = step_ * tile_rows() * args_.part[0].row_bytes - asked_first_ * kStep;
    asked_first_ = 0;
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      asked_[h] += bytes;
      aim_groups(h, matrix_of(gated_ ? h : asked_part_), gated_ ? row : row + 8 * h);
    }
  }
  // In the order of multiply_tiles().
  QGEN_DEVICE void aim_at_next_slab() {
    const int begin = asked_tile_ - asked_at_ * step_;
    if (++asked_at_ < tiles_at_once() && asked_tile_ + step_ < tiles()) {
      asked_tile_ += step_;
      return;
    }
    asked_at_ = 0;
    asked_slab_ += slab_windows();
    if (asked_slab_ < windows_) {
      asked_tile_ = begin;
    } else {
      asked_slab_ = 0;
      asked_tile_ = begin + tiles_at_once() * step_;
    }
  }
  QGEN_DEVICE void ask(int u) {
    const int window = asked_first_ + u;
    if (asked_tile_ < tiles() && window < end_of_slab(asked_slab_)) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h)
        LaneBytes<Traits::kLaneBytes>::copy(codes_at(u, h), asked_[h] + u * kStep, window < loads_);
      if constexpr (Traits::kEarlyGroups) {
        const int group = Slice::window_column(window) >> group_shift();
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) early_groups_[u][h].load_here(asked_scales_[h], asked_minimums_[h], group);
      }
    }
    copy_async_commit();
  }
  // The window that was asked for first.
  QGEN_DEVICE void take(Window& now, int u) const {
    copy_async_wait<Traits::kStages - 1>();
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      using Type = typename LaneBytes<Traits::kLaneBytes>::Type;
      now.codes[h] = *reinterpret_cast<const Type*>(codes_at(u, h));
      if constexpr (Traits::kEarlyGroups) now.groups[h] = early_groups_[u][h];
    }
  }

  // The tile whose rows are multiplied, where more is needed of them than came with their codes.
  QGEN_DEVICE void use_rows(int tile) {
    if constexpr (kIntegers || (Traits::Grid::kGrouped && !Traits::kEarlyGroups)) {
      part_ = part_of(tile);
      for_rows(part_, first_row_of(tile, part_),
               [&](int h, const Matrix& w, int row) { group_[h] = first_group(w, row); });
    }
  }
  QGEN_DEVICE Matrix matrix(int h) const { return matrix_of(gated_ ? h : part_); }
  QGEN_DEVICE int group_shift() const { return args_.part[0].group_shift; }  // of all parts
  // The first group of a window in row g + 8 h.
  QGEN_DEVICE int group_at(int h, int window) const {
    return group_[h] + (Slice::window_column(window) >> group_shift());
  }
  QGEN_DEVICE void load_groups([[maybe_unused]] Window& now, [[maybe_unused]] int window) const {
    if constexpr (Traits::Grid::kGrouped && !Traits::kEarlyGroups) {
      if (window >= windows_) return;
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) now.groups[h].load(matrix(h), group_at(h, window));
    }
  }
  // Zero points of whole rows, as biases that are added to codes. Those of groups are read with each group: kept here,
  // they would take registers that the loop does not have.
  QGEN_DEVICE void load_biases() {
    if constexpr (kIntegers && !Traits::Grid::kGrouped) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) bias_[h] = bias_of(h, group_[h]);
    }
  }
  QGEN_DEVICE uint32_t bias_of(int h, int group) const {
    return i8_bias(zero_point_at<typename Traits::Grid>(matrix(h), group));
  }
  // Places in shared memory, computed anew since they would take registers of the loop: the squares of a token's
  // slices, (tokens, warps); what the warp's inputs are multiplied by, (tokens); the factor of the token of the
  // thread's result.
  QGEN_DEVICE uint8_t* begin() const { return shared_memory<uint8_t>() + used_; }
  QGEN_DEVICE float* squares() const {
    return reinterpret_cast<float*>(begin()) + Traits::kWarps * args_.tokens * gemv_x_stride<Traits>(gemv_.slab);
  }
  QGEN_DEVICE PowerOfTwo* ranges() const {
    return reinterpret_cast<PowerOfTwo*>(squares() + Traits::kWarps * args_.tokens) + warp_index() * args_.tokens;
  }
  QGEN_DEVICE int tiles_at_once() const {
    return Traits::kFewestTilesAtOnce == Traits::kMostTilesAtOnce ? Traits::kMostTilesAtOnce : gemv_.tiles_at_once;
  }
  QGEN_DEVICE float* factor() const {
    return sums_ + args_.tokens * gemv_sums_stride<Traits>(tiles_at_once()) + thread_index();
  }
  // Of a few tokens, whose rows 32 bits reach.
  QGEN_DEVICE float* result_at(int part, int token, int row) const {
    return args_.y[part] + (token * int(args_.y_stride[part]) + row);
  }
  // The 16 rows of (tokens, tiles_at_once, 2, warps): sums go to the two places by turns.
  static constexpr int kSecondSums = Traits::kWarps * kMmaRows;
  QGEN_DEVICE float* sums_of(int at, int second, int warp, int token) const {
    return sums_ + token * gemv_sums_stride<Traits>(tiles_at_once()) + (2 * at * Traits::kWarps + warp) * kMmaRows +
           second;
  }

  // Of a window of two groups, lanes q = 0, 1 have loaded the codes of the first and 2, 3 those of the second. Each
  // gives half of them away, so that word j of every lane is of group j.
  QGEN_DEVICE static void part_groups(Bytes8& codes) {
    const bool second = q() >= 2;
    const uint32_t taken = shuffle_xor_bits(second ? codes.word[0] : codes.word[1], 2);
    codes = second ? Bytes8{{taken, codes.word[1]}} : Bytes8{{codes.word[0], taken}};
  }
  // The first column of x of this lane's codes in a window; of two groups, that of the first, whose second is 16
  // behind.
  QGEN_DEVICE static int first_column() {
    return Traits::Grid::kGroups == 2 ? q() % 2 * 8 + q() / 2 * 4 : q() * Traits::kLane;
  }

  // Whether not all of x is in shared memory at once.
  QGEN_DEVICE bool has_slabs() const { return Traits::kPairs && gemv_.slab < cols(); }
  // Windows of the warp's slice that a slab has; and the first one behind a slab that begins at `begin`.
  QGEN_DEVICE int slab_windows() const {
    return Traits::kPairs ? gemv_.slab / (Traits::kWarps * Traits::kWindow) : windows_;
  }
  QGEN_DEVICE int end_of_slab(int begin) const {
    if constexpr (!Traits::kPairs) return windows_;
    const int end = begin + slab_windows();
    return end < windows_ ? end : windows_;
  }
  // Columns of the layer in another order than those of x.
  QGEN_DEVICE bool is_ordered() const { return Traits::kPairs && args_.part[0].column_order != nullptr; }
  // Whether a slab has a piece u of the lane. Those of the first one stay in shared memory when they have been
  // measured.
  QGEN_DEVICE bool is_kept(int u) const { return !Traits::kPairs || Slice::place(u) < gemv_.slab / Traits::kWarps; }
  // Four inputs of token t from `column` of the layer on, as they are.
  QGEN_DEVICE Floats4 raw(int t, int column) const {
    const int row = t * int(args_.x_stride);  // of a few tokens
    if (!is_ordered()) return load_floats4(inputs_ + row + column);
    Floats4 out;
    for (int j = 0; j < 4; ++j) out.at[j] = column + j < cols() ? inputs_[row + column_of_x(column + j)] : 0;
    return out;
  }
  // What these columns are multiplied by: the norm's weights, or 1.
  QGEN_DEVICE Floats4 weights(int column) const {
    if (args_.norm == nullptr) return {{1, 1, 1, 1}};
    if (!is_ordered()) return load_floats4(args_.norm + column);
    Floats4 out = {};
    for (int j = 0; j < 4; ++j) {
      if (column + j < cols()) out.at[j] = args_.norm[column_of_x(column + j)];
    }
    return out;
  }
  // The same of piece u where keep_weights() has put them, until token 0 takes their place.
  QGEN_DEVICE Floats4 kept_weights(int u) const {
    return kept(highs_of(0) + Slice::place(u), lows_of(0) + Slice::place(u));
  }
  QGEN_DEVICE int column_of_x(int column) const { return args_.part[0].column_order[column]; }
  // What suits the slice of a token, which is kept beside its inputs; and the slice's share of the token's squares.
  QGEN_DEVICE float range_of(int t, const InputMeasure& measure) const {
    const PowerOfTwo range = measure.template range<Traits::kBf16>();
    if (args_.norm != nullptr) {
      const float of_slice = sum_lanes(measure.squares);
      if (lane_index() == 0) squares()[t * Traits::kWarps + warp_index()] = of_slice;
    }
    if (lane_index() == 0) ranges()[t] = range;
    return range.factor;
  }
  // The warp's inputs of a slab that begins at its window `begin`.
  QGEN_DEVICE void stage_slab([[maybe_unused]] int begin) const {
    if constexpr (!Traits::kPairs) return;
    warp_barrier();
    QGEN_UNROLL_BY(1)
    for (int u = 0; is_kept(u); ++u) {
      const int place = Slice::place(u), window = begin + place / Traits::kWindow,
                column = Slice::window_column(window) + place % Traits::kWindow;
      if (column >= padded_cols(cols())) continue;
      const Floats4 by = weights(column);
      QGEN_UNROLL_BY(4)
      for (int t = 0; t < args_.tokens; ++t) put(t, u, product(raw(t, column), by), ranges()[t].factor);
    }
    warp_barrier();
  }

  // Of x in shared memory: high and low of token 0, of token 1, ...; for pairs first all highs. Lanes that load at once
  // have neighbouring columns so.
  QGEN_DEVICE uint16_t* highs_of(int t) const { return x_ + column_of(t, 0) * gemv_x_stride<Traits>(gemv_.slab); }
  QGEN_DEVICE uint16_t* lows_of(int t) const { return x_ + column_of(t, 1) * gemv_x_stride<Traits>(gemv_.slab); }
  QGEN_DEVICE int column_of(int t, int part) const { return Traits::kPairs ? part * args_.tokens + t : 2 * t + part; }
  // The lane's piece u of the slab.
  QGEN_DEVICE void put(int t, int u, const Floats4& values, float factor) const {
    store_split<Traits::kBf16>(values, factor, highs_of(t) + Slice::place(u), lows_of(t) + Slice::place(u));
  }

  // The columns of x of this lane's codes: of the high part and, for pairs, of the low part.
  QGEN_DEVICE void load_inputs(int place, uint32_t (&b)[Traits::kSums][Traits::kLane / 2]) const {
    const int stride = gemv_x_stride<Traits>(gemv_.slab);
    // Matrix B has 8 columns. Those beyond the tokens' repeat column 0: the matrix product keeps columns apart, and
    // store_sums() does not read the sums of these.
    const int g_there = g() < (Traits::kPairs ? args_.tokens : 2 * args_.tokens) ? g() : 0;
    QGEN_UNROLL
    for (int s = 0; s < Traits::kSums; ++s) {
      const int column = Traits::kPairs ? column_of(g_there, s) : g_there;
      const uint16_t* const x = x_ + column * stride + place * Traits::kWindow + first_column();
      if constexpr (Traits::Grid::kGroups == 2) {
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) {
          const Bytes8 v = reinterpret_cast<const Bytes8*>(x)[4 * i];
          b[s][2 * i] = v.word[0];
          b[s][2 * i + 1] = v.word[1];
        }
      } else {
        QGEN_UNROLL
        for (int i = 0; i < Traits::kLane / 8; ++i) {
          const Bytes16 v = reinterpret_cast<const Bytes16*>(x)[i];
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) b[s][4 * i + j] = v.word[j];
        }
      }
    }
  }

  const GemvKernelArgs& gemv_;
  const GemvArgs& args_;
  const Matrix* const parts_;
  [[no_unique_address]] const Rows rows_;
  const float* inputs_ = nullptr;
  const bool gated_;
  const int first_, step_;
  int windows_ = 0;  // of the slice
  int loads_ = 0;    // of the lane, of a row
  // What is asked for next.
  int asked_tile_, asked_first_ = 0;
  int asked_slab_ = 0,
      asked_at_ = 0;  // where there are slabs: the slab's first window, the tile's number among those at once
  int asked_part_ = 0;
  const uint8_t* asked_[2];
  using Number = std::conditional_t<Traits::Grid::kForm == ScaleForm::kF16, uint16_t, float>;
  [[maybe_unused]] const Number* asked_scales_[2] = {};  // of the rows' first groups
  [[maybe_unused]] const float* asked_minimums_[2] = {};
  GroupLoads<typename Traits::Grid> early_groups_[Traits::kEarlyGroups ? Traits::kStages : 1][2];
  // What is multiplied.
  int part_ = 0;
  int group_[2] = {};      // the first of the row's in the grid
  uint32_t bias_[2] = {};  // of rows with one zero point each
  // Shared memory, behind bytes that are the caller's.
  int used_ = 0;
  uint16_t* x_ = nullptr;  // (columns, stride), the warp's
  float* sums_ = nullptr;
  uint8_t* ring_ = nullptr;  // the warp's
  int second_sums_ = 0;      // where the sums of the next tiles go: 0 or kSecondSums behind the first place
  float result_scale_[2] = {1, 1}, added_ = 0;
};

template <typename Traits>
QGEN_KERNEL(Traits::kThreads, Traits::kBlocks)
gemv_kernel(const GemvKernelArgs args, const LaunchTimes times) {
  KernelScope scope(times, args.linear.beside);
  const int first = int(block_index().x), step = int(grid_size().x);
  GemvBlock<Traits> block(args, first, step, args.linear.part);

  // The first weights are on their way before the inputs are there.
  GemvWindow<Traits> window;
  block.place_shared_memory();
  block.keep_weights();
  block.ask_first();
  block.load_first_groups(window, first);
  scope.wait_for_inputs(args.linear.beside);
  block.stage_inputs(args.linear.x);
  scope.inputs_are_staged();
  block.multiply_tiles(window, [&](int tile) { block.write_result(tile); });
  scope.end(args.linear.beside);
}

}  // namespace qgen::QGEN_BACKEND
