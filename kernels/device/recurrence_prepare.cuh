// Linear recurrences of many tokens of one sequence, kRecurChunk at a time: in matrix products of TF32, whose sums and
// states are F32.
//
// With G_t the sum of the binary logarithms of a chunk's decays up to token t, P_t = 2^G_t, D_ti = 2^(G_t - G_i) and
// S the state (keys, values) that the chunk begins with, the delta rule's changes c (tokens, values) are
//   (I + A) c = diag(rate) (V - diag(P) K S),  A_ti = rate_t D_ti (k_t . k_i) for i < t, else 0,
// so that they are T (V - diag(P) K S) for T = (I + A)^-1 diag(rate), which needs no state: one kernel makes it for all
// chunks at once. A second one (recurrence_chunks.cuh) goes through the chunks:
//   c = T (V - diag(P) K S),  or rate_t v_t without `delta`
//   out_t = P_t S^T q_t + sum over i <= t of D_ti (k_i . q_t) c_i + skip v_t
//   S = P_last S + sum over t of D_last,t k_t c_t^T
// (Yang et al. 2024, "Gated Delta Networks", section 3.3; Dao and Gu 2024, "Transformers are SSMs", section 6.)
#pragma once

#include "kernels/device/recurrence.cuh"

namespace qgen::QGEN_BACKEND {

static_assert(kRecurChunk == kWarp);
constexpr int kTile = 16;  // rows of a left operand of a matrix product
constexpr int kStep = 8;   // its columns; rows and columns of the right one

// Floats from row to row of operands in shared memory, for rows of a multiple of eight: load_matrices() then finds
// eight rows in different banks.
constexpr int padded_row(int floats) { return floats + 4; }
constexpr int kChunkRow = padded_row(kRecurChunk);

// Of what has tokens as its left operand's columns and its right one's rows, those of a step stand in the order of 0,
// 2, 4, 6, 1, 3, 5, 7: a lane has two neighbours, and four lanes of keys in rows of 32 n + 4 floats meet in no bank.
QGEN_DEVICE constexpr int place_of(int token) { return token / kStep * kStep + token % 2 * 4 + token % kStep / 2; }

// A matrix (kRecurChunk, kRecurChunk) that is zero above its diagonal, as left operands of products, without those
// tiles that are zero: each (kTile, kStep), four floats a lane. Rows: of tile row m (0 or 1).
constexpr int kTileFloats = kTile * kStep;
static_assert(kRecurTiles * kTileFloats == kRecurTileFloats);
QGEN_DEVICE constexpr int steps_of(int m) { return (m + 1) * kTile / kStep; }
QGEN_DEVICE constexpr int tile_of(int m, int step) { return m * steps_of(0) + step; }

// Operands from rows in shared memory, columns [column, column + kStep): a left one, of kTile rows; two right ones,
// whose columns are kStep rows each.
QGEN_DEVICE void load_left(uint32_t (&a)[4], const float* rows, int row_floats, int column) {
  const int lane = lane_index();
  load_matrices(a, rows + lane % kTile * row_floats + lane / kTile * 4 + column);
}
QGEN_DEVICE void load_rights(uint32_t (&b)[4], const float* rows, int row_floats, int column) {
  const int lane = lane_index();
  load_matrices(b, rows + (lane / kTile * kStep + lane % 8) * row_floats + lane / 8 % 2 * 4 + column);
}
// Adds products of a left operand with two right ones.
QGEN_DEVICE void multiply_pair(float (&first)[4], float (&second)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  const uint32_t of_first[2] = {b[0], b[1]}, of_second[2] = {b[2], b[3]};
  mma_tf32(first, a, of_first);
  mma_tf32(second, a, of_second);
}

// The sum of the lanes up to this one.
QGEN_DEVICE float sum_up_to(float value) {
  float sum = value, of_group = value;
  for (int mask = 1; mask < kWarp; mask *= 2) {
    const float other = shuffle_xor(of_group, mask);
    if (lane_index() & mask) sum += other;
    of_group += other;
  }
  return sum;
}

// Tokens of a chunk from which on there are `left`.
QGEN_DEVICE int chunk_tokens(int left) { return left < kRecurChunk ? left : kRecurChunk; }

constexpr int kPrepareWarps = 4;

// What recur_prepare_kernel() has in shared memory (floats): keys and queries, and in their place later what each warp
// solves; products.
struct RecurPrepare {
  static constexpr int kProducts = kRecurChunk * kChunkRow;  // of keys with keys; of queries with keys behind them
  static constexpr int kSolve = kRecurChunk * kChunkRow + 2 * kRecurChunk;  // a matrix, rates
  static constexpr int rows(int key_row) {
    const int inputs = 2 * kRecurChunk * padded_row(key_row), solve = kPrepareWarps * kSolve;
    return inputs > solve ? inputs : solve;
  }
  static constexpr int size(int key_row) { return rows(key_row) + 2 * kProducts; }
};

// A warp's rows of the keys, and behind them queries, of a chunk of `tokens` from `first_token` on, in TF32 to `rows`
// and to where they go from there; divided by their lengths where that is wanted. Zeros of tokens that there are not.
QGEN_DEVICE void prepare_rows(const RecurArgs& args, int first_token, int tokens, int key_head, int key_row,
                              float* rows) {
  const int row_floats = padded_row(key_row), lane = lane_index();
  QGEN_UNROLL_BY(2)
  for (int row = warp_index(); row < 2 * kRecurChunk; row += kPrepareWarps) {
    const HeadRows& from = row < kRecurChunk ? args.k : args.q;
    const int t = row % kRecurChunk;
    const bool there = t < tokens;
    const float* const x = from.x + (first_token + (there ? t : 0)) * from.stride + key_head * from.head_stride;
    for (int i = lane; i < key_row; i += kWarp) {
      const bool inside = there && i < args.key_dim;
      copy_async4(rows + row * row_floats + i, x + (inside ? i : 0), inside);
    }
  }
  copy_async_commit();
  copy_async_wait<0>();
  warp_barrier();
  QGEN_UNROLL_BY(2)
  for (int row = warp_index(); row < 2 * kRecurChunk; row += kPrepareWarps) {
    const bool of_key = row < kRecurChunk;
    const int t = row % kRecurChunk;
    const bool there = t < tokens;
    float* const x = rows + row * row_floats;
    float factor = of_key ? 1 : args.scale, squares = 0;
    if (args.unit_keys) {
      for (int i = lane * 4; i < key_row; i += kWarp * 4) {
        const Floats4 four = load_floats4(x + i);
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) squares = fused_product(four.at[j], four.at[j], squares);
      }
      factor *= rsqrt_exact(sum_lanes(squares) + args.eps);
    }
    float* const out =
        (of_key ? args.keys : args.queries) + (int64_t(first_token + t) * args.key_heads + key_head) * args.key_dim;
    for (int i = lane * 4; i < key_row; i += kWarp * 4) {
      Floats4 four = load_floats4(x + i);
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) four.at[j] = tf32_value(four.at[j] * factor);
      store_floats4(x + i, four);
      if (there && i < args.key_dim) store_floats4(out + i, four);
    }
  }
}

// Products of keys with keys, or behind them of queries with keys, (kRecurChunk, kChunkRow), up to the diagonal and
// around it: a warp has kTile rows of either.
QGEN_DEVICE void multiply_rows(bool delta, const float* rows, int key_row, float* products) {
  static_assert(kPrepareWarps == 2 * kRecurChunk / kTile);
  const int row_floats = padded_row(key_row), lane = lane_index(), which = warp_index() / 2, m = warp_index() % 2;
  if (which == 0 && !delta) return;
  float sum[2 * kTile / kStep][4] = {};
  const float* const left = rows + (which * kRecurChunk + m * kTile) * row_floats;
  for (int i = 0; i < key_row; i += kStep) {
    uint32_t a[4];
    load_left(a, left, row_floats, i);
    QGEN_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      if (pair > m) continue;
      uint32_t b[4];  // of two times kStep keys
      load_rights(b, rows + pair * 2 * kStep * row_floats, row_floats, i);
      multiply_pair(sum[2 * pair], sum[2 * pair + 1], a, b);
    }
  }
  float* const out = products + which * RecurPrepare::kProducts + m * kTile * kChunkRow;
  QGEN_UNROLL
  for (int n = 0; n < 2 * kTile / kStep; ++n) {
    QGEN_UNROLL
    for (int i = 0; i < 4; ++i) out[(lane / 4 + i / 2 * 8) * kChunkRow + n * kStep + lane % 4 * 2 + i % 2] = sum[n][i];
  }
}

// A warp turns a matrix (kRecurChunk, kChunkRow) of what is below the diagonal of A into T: a lane a column, from its
// first row to its last. `rate`: of the lane's token.
QGEN_DEVICE void solve(float* matrix, float rate) {
  const int lane = lane_index();
  float column[kRecurChunk];
  QGEN_UNROLL
  for (int t = 0; t < kRecurChunk; ++t) {
    float sum[4] = {};
    QGEN_UNROLL
    for (int first = 0; first < t; first += 4) {
      const Floats4 row = load_floats4(matrix + t * kChunkRow + first);
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (first + j < t) sum[j] = fused_product(row.at[j], column[first + j], sum[j]);
      }
    }
    column[t] = (t == lane ? 1.0f : 0.0f) - ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  warp_barrier();
  QGEN_UNROLL
  for (int t = 0; t < kRecurChunk; ++t) matrix[t * kChunkRow + lane] = tf32_operand(column[t] * rate);
}

// Tile `tile` of a matrix (kRecurChunk, kChunkRow) as a left operand.
QGEN_DEVICE void store_tile(const float* matrix, int tile, float* out) {
  const int m = tile < steps_of(0) ? 0 : 1, step = tile - tile_of(m, 0);
  const float* const from = matrix + (m * kTile + lane_index() / 4) * kChunkRow + step * kStep + lane_index() % 4 * 2;
  store_floats4(out + tile * kTileFloats + lane_index() * 4,
                {{from[0], from[8 * kChunkRow], from[1], from[8 * kChunkRow + 1]}});
}

// Of a chunk (x of the grid) and a key head (y): keys and queries in TF32; products of queries with keys; and of each
// of its heads the decays' sums, the rates and T.
QGEN_KERNEL(kPrepareWarps* kWarp, 2) recur_prepare_kernel(const RecurArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int number = int(block_index().x), key_head = int(block_index().y);
  const int first = number * kRecurChunk, tokens = chunk_tokens(args.tokens - first);
  const int warp = warp_index(), lane = lane_index(), key_row = int(round_up(args.key_dim, kStep));
  float* const shared = shared_memory<float>();
  float* const products = shared + RecurPrepare::rows(key_row);
  prepare_rows(args, first, tokens, key_head, key_row, shared);
  barrier();
  multiply_rows(args.delta, shared, key_row, products);
  barrier();
  float* const out = args.products + (int64_t(number) * args.key_heads + key_head) * kRecurTileFloats;
  for (int tile = warp; tile < kRecurTiles; tile += kPrepareWarps)
    store_tile(products + RecurPrepare::kProducts, tile, out);

  // A warp a head, a lane a token.
  float* const matrix = shared + warp * RecurPrepare::kSolve;
  float* const decays = matrix + kRecurChunk * kChunkRow;
  float* const rates = decays + kRecurChunk;
  const int sharing = args.heads / args.key_heads;
  const int64_t token = first + lane;
  QGEN_UNROLL_BY(1)
  for (int i = warp; i < sharing; i += kPrepareWarps) {
    const int h = args.key_heads_repeat ? i * args.key_heads + key_head : key_head * sharing + i;
    const RecurRates own = lane < tokens ? rates_of(args, token, h) : RecurRates{0, 0};
    // Not below what exp2_fast() makes zero of: the sum would lose what comes behind it, or be infinite.
    constexpr float kLeast = -127;
    const float decay = sum_up_to(larger(own.log_decay, kLeast));
    if (lane < tokens) {
      float* const of_token = args.rates + (token * args.heads + h) * 2;
      of_token[0] = decay;
      of_token[1] = own.rate;
    }
    if (!args.delta) continue;
    decays[lane] = decay;
    rates[lane] = own.rate;
    warp_barrier();
    QGEN_UNROLL_BY(4)
    for (int t = 0; t < kRecurChunk; ++t) {
      matrix[t * kChunkRow + lane] =
          lane < t ? rates[t] * exp2_fast(decays[t] - decay) * products[t * kChunkRow + lane] : 0;
    }
    warp_barrier();
    solve(matrix, own.rate);
    warp_barrier();
    QGEN_UNROLL_BY(1)
    for (int tile = 0; tile < kRecurTiles; ++tile)
      store_tile(matrix, tile, args.solved + (int64_t(number) * args.heads + h) * kRecurTileFloats);
    warp_barrier();
  }
}

}  // namespace qgen::QGEN_BACKEND
