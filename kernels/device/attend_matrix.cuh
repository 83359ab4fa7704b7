// Attention of one token in matrix products (MMA): their 16 rows are the upper and the lower parts of up to eight
// queries of a key-value head, 16-bit floats whose sums have 22 bits, and their columns a tile's keys. What comes out
// is where the weights have to be as rows of the products with values, which are two parts as well.
#pragma once

#include "kernels/device/attend_shape.cuh"
#include "kernels/device/split.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kMatrixQueries = 8;  // of a product's rows, whose columns are two times eight keys
static_assert(kMostTileKeys == 16);

// The queries of a block as operands, in its shared memory: for every 16 elements 16 bytes of each lane, then what each
// query's products are to be multiplied by.
constexpr int matrix_query_bytes(int key_row) { return key_row / 16 * kWarp * 16 + kMatrixQueries * 4; }

// No query yet. All threads of a block, before put_query().
QGEN_DEVICE void clear_queries(uint8_t* operands, int key_row, int threads) {
  for (int i = thread_index(); i < matrix_query_bytes(key_row) / 16; i += threads)
    reinterpret_cast<Bytes16*>(operands)[i] = {};
}
// A warp puts query `number`, which lies in `x` (key_row, kDim at most), among them.
template <int kDim>
QGEN_DEVICE void put_query(uint8_t* operands, int key_row, int number, const float* x) {
  constexpr int kPairs = kDim / (2 * kWarp);  // of a lane
  float two[kPairs][2] = {}, peak = 0;
  QGEN_UNROLL
  for (int s = 0; s < kPairs; ++s) {
    const int c = 2 * (lane_index() + s * kWarp);
    QGEN_UNROLL
    for (int j = 0; j < 2; ++j) {
      if (c < key_row) two[s][j] = x[c + j];
      peak = larger(peak, two[s][j] < 0 ? -two[s][j] : two[s][j]);
    }
  }
  const PowerOfTwo range = f16_range(largest_lane(peak));
  QGEN_UNROLL
  for (int s = 0; s < kPairs; ++s) {
    const int c = 2 * (lane_index() + s * kWarp);
    if (c >= key_row) continue;
    Bytes8 parts;
    split<false>(rounded_product(two[s][0], range.factor), rounded_product(two[s][1], range.factor), parts.word[0],
                 parts.word[1]);
    const int lane = number * 4 + c % 8 / 2;
    *reinterpret_cast<Bytes8*>(operands + (c / 16 * kWarp + lane) * 16 + c % 16 / 8 * 8) = parts;
  }
  if (lane_index() == 0) reinterpret_cast<float*>(operands + key_row / 16 * kWarp * 16)[number] = range.inverse;
}

// A warp's part of the keys: what they weigh, and their weighted values. With g = lane / 4 and q = lane % 4, a lane has
// keys 2q and 2q + 1 of every 8, for query g. kDim: elements of a key or value at most.
template <int kDim>
class MatrixAttention {
 public:
  // `pitch`: bytes from row to row of keys as of values, an odd multiple of 16, so that neighbours are in different
  // banks. Behind the last key of a tile of less than 16 the first ones are read again, since nothing was copied there.
  QGEN_DEVICE MatrixAttention(const uint8_t* operands, int key_row, int value_row, int pitch, int tile_keys,
                              int queries)
      : operands_(operands),
        steps_(key_row / 16),
        value_row_(value_row),
        key_at_((key_of_lane() & (tile_keys - 1)) * pitch + lane_index() / 8 % 2 * 16),
        value_at_((lane_index() % 16 & (tile_keys - 1)) * pitch + lane_index() / 16 * 16),
        is_query_(lane_index() / 4 < queries) {}

  // The scores of a tile's keys.
  QGEN_DEVICE void score(const uint8_t* keys) {
    QGEN_UNROLL
    for (int i = 0; i < kChains * 8; ++i) score_[i / 8][i / 4 % 2][i % 4] = 0;
    for_pieces(steps_, [&](int step) { score_step(keys, step); });
    QGEN_UNROLL
    for (int i = 8; i < kChains * 8; ++i) score_[0][i / 4 % 2][i % 4] += score_[i / 8][i / 4 % 2][i % 4];
  }

  // They become weights, of the first `keys` keys of the tile.
  QGEN_DEVICE void weigh(float scale, float softcap, int keys, const RowFactors&) {
    const int q = lane_index() % 4;
    const auto there = [&](int j, int i) { return is_query_ && j * 8 + 2 * q + i < keys; };
    scale *= reinterpret_cast<const float*>(operands_ + steps_ * kWarp * 16)[lane_index() / 4];
    float score[2][2];
    bool grows = false;
    QGEN_UNROLL
    for (int j = 0; j < 2; ++j) {
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        score[j][i] = (score_[0][j][i] + score_[0][j][2 + i]) * scale;
        if (softcap > 0) [[unlikely]]
          score[j][i] = capped_score(score[j][i], softcap);
        if (!there(j, i)) score[j][i] = kLowest;
        grows |= !(score[j][i] <= running_.largest);
      }
    }
    if (any_lane(grows)) {
      const float highest = largest_lane(larger(larger(score[0][0], score[0][1]), larger(score[1][0], score[1][1])), 4);
      const float largest = larger(running_.largest, highest), old = worth(running_.largest, largest);
      running_ = {largest, running_.sum * old};
      QGEN_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        QGEN_UNROLL
        for (int i = 0; i < 4; ++i) sums_[n][i] *= old;
      }
    }
    QGEN_UNROLL
    for (int j = 0; j < 2; ++j) {
      float weight[2];
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        weight[i] = there(j, i) ? worth(score[j][i], running_.largest) : 0;
        running_.sum += weight[i];
      }
      split<false>(rounded_product(weight[0], kWeightRange), rounded_product(weight[1], kWeightRange), weights_[2 * j],
                   weights_[2 * j + 1]);
    }
  }

  // The values of these keys, weighted.
  QGEN_DEVICE void add_values(const uint8_t* values) {
    for_pieces(value_row_ / 16, [&](int n) {
      uint32_t b[4];  // the first and the last 8 keys, at the first and at the last 8 of 16 elements
      load_transposed(b, values + value_at_ + n * 32);
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      mma_f16(sums_[2 * n], weights_, first);
      mma_f16(sums_[2 * n + 1], weights_, second);
    });
  }

  // Weighted values, (kMatrixQueries, value_row), then what each query's keys weigh, (kMatrixQueries, 2): see
  // put_sums().
  QGEN_DEVICE void store(float* out) const {
    const int g = lane_index() / 4, q = lane_index() % 4;
    QGEN_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      const int c = n * 8 + 2 * q;
      if (c >= value_row_) continue;
      constexpr float kBack = 1 / kWeightRange;
      *reinterpret_cast<Bytes8*>(out + g * value_row_ + c) = {
          {float_bits((sums_[n][0] + sums_[n][2]) * kBack), float_bits((sums_[n][1] + sums_[n][3]) * kBack)}};
    }
    const float sum = sum_lanes(running_.sum, 4);
    if (q == 0) {
      float* const pair = out + kMatrixQueries * value_row_ + 2 * g;
      pair[0] = running_.largest;
      pair[1] = sum;
    }
  }

 private:
  // Sums of every second product of their own, where a head has many: a product waits for the one before it.
  static constexpr int kChains = kDim > 128 ? 2 : 1;
  // Weights are at most 1, numbers of F16 at most 65504: with this factor both parts of a weight have all their bits
  // down to 2^-17.
  static constexpr float kWeightRange = 32768;

  // The key of which a lane gives load_matrices() the address.
  QGEN_DEVICE static int key_of_lane() { return lane_index() % 8 + lane_index() / 16 * 8; }

  // use(piece) for so many pieces of 16 elements. The usual numbers have loops without branches, so that the loads of
  // one piece are under way with those of others.
  template <typename Use>
  QGEN_DEVICE static void for_pieces(int pieces, const Use& use) {
    constexpr int kPieces = kDim / 16;
    if (pieces == kPieces) {
      QGEN_UNROLL
      for (int piece = 0; piece < kPieces; ++piece) use(piece);
    } else if (pieces == kPieces / 2) {
      QGEN_UNROLL
      for (int piece = 0; piece < kPieces / 2; ++piece) use(piece);
    } else {
      QGEN_UNROLL
      for (int piece = 0; piece < kPieces; ++piece) {
        if (piece < pieces) use(piece);
      }
    }
  }
  QGEN_DEVICE void score_step(const uint8_t* keys, int step) {
    const Bytes16 a = reinterpret_cast<const Bytes16*>(operands_)[step * kWarp + lane_index()];
    uint32_t b[4];  // the first and the last 8 of 16 elements of the first 8 keys, then of the last 8
    load_matrices(b, keys + key_at_ + step * 32);
    const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
    mma_f16(score_[step % kChains][0], a.word, first);
    mma_f16(score_[step % kChains][1], a.word, second);
  }

  const uint8_t* const operands_;
  const int steps_, value_row_;
  const int key_at_, value_at_;  // bytes from a tile's beginning
  const bool is_query_;
  float score_[kChains][2][4];      // of 8 keys each: upper parts of queries, then lower ones
  uint32_t weights_[4];             // of the first 8 keys, upper and lower parts, then of the last 8
  float sums_[kDim / 8][4] = {};    // with upper parts of weights, then with lower ones
  Running running_ = {kLowest, 0};  // the sum: of the lane's keys
};

}  // namespace qgen::QGEN_BACKEND
