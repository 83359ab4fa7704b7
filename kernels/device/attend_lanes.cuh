// Attention of one token by lanes: a key to a lane, or to several that share its elements, then four elements of
// values. For caches and heads that attend_matrix.cuh does not have.
#pragma once

#include "kernels/device/attend_sums.cuh"

namespace qgen::QGEN_BACKEND {

// A warp's part of the keys: what they weigh, and their weighted values, for up to kQueries queries. kWidth: times
// kFour elements are room for a row.
template <CacheKind kKind, int kQueries, int kWidth>
class LaneAttention {
 public:
  // `queries`: (kQueries, kWidth * kFour), of the block; `weights`: (keys of a tile, kQueries), of the warp.
  // `key_units`: 16 bytes of a key each; `pitch`: bytes from row to row of keys as of values.
  QGEN_DEVICE LaneAttention(const float* queries, float* weights, int key_units, int value_row, int pitch,
                            int tile_shift)
      : queries_(queries),
        weights_(weights),
        key_units_(key_units),
        value_row_(value_row),
        pitch_(pitch),
        tile_shift_(tile_shift) {
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      running_[i] = {kLowest, 0};
      QGEN_UNROLL
      for (int c = 0; c < kSlots; ++c) sums_[i][c / 4][c % 4] = 0;
    }
  }

  // The scores of a tile's keys, of all queries.
  QGEN_DEVICE void score(const uint8_t* keys) {
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) score_[i] = 0;
    const uint8_t* const key_at = keys + lane_key() * pitch_;
    const int parts_of_key = kWarp >> tile_shift_;
    QGEN_UNROLL
    for (int query = 0; query < kQueries; query += kScored) {
      QGEN_UNROLL_BY(kUnitsAtOnce)
      for (int unit = part(); unit < key_units_; unit += parts_of_key) {
        const Bytes16 stored = reinterpret_cast<const Bytes16*>(key_at)[unit];
        QGEN_UNROLL
        for (int c = 0; c < kUnit; c += 4) {
          constexpr int kWords = bytes_of_element(kKind);  // of four elements
          Elements<kKind, 4> four;
          QGEN_UNROLL
          for (int j = 0; j < kWords; ++j) four.word[j] = stored.word[c / 4 * kWords + j];
          float key[4];
          widen<kKind, 4>(four, key);
          QGEN_UNROLL
          for (int i = query; i < query + kScored; ++i) {
            const Floats4 q = load_floats4(queries_ + i * kWidth * kFour + unit * kUnit + c);
            QGEN_UNROLL
            for (int j = 0; j < 4; ++j) score_[i] += q.at[j] * key[j];
          }
        }
      }
    }
    QGEN_UNROLL_BY(1)
    for (int mask = tile_keys(); mask < kWarp; mask *= 2) {
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) score_[i] += shuffle_xor(score_[i], mask);
    }
  }

  // They become weights, of the first `keys` keys of the tile. `factors`: of the lane's key and its value.
  QGEN_DEVICE void weigh(float scale, float softcap, int keys, const RowFactors& factors) {
    const bool there = lane_key() < keys;
    bool grows = false;
    if constexpr (has_factors(kKind)) scale *= factors.key;
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) score_[i] *= scale;
    if (softcap > 0) [[unlikely]] {
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) score_[i] = capped_score(score_[i], softcap);
    }
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      if (!there) score_[i] = kLowest;
      grows |= !(score_[i] <= running_[i].largest);
    }
    if (any_lane(grows)) rescale();
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      float weight = there ? worth(score_[i], running_[i].largest) : 0;
      running_[i].sum += weight;
      if constexpr (has_factors(kKind)) weight = there ? weight * factors.value : 0;
      if (part() == 0) weights_[lane_key() * kQueries + i] = weight;
    }
  }

  // The values of these keys, weighted: four elements to a lane.
  QGEN_DEVICE void add_values(const uint8_t* values) {
    QGEN_UNROLL_BY(1)
    for (int first = 0; first < tile_keys(); first += kAtOnce) {
      Elements<kKind, 4> stored[kAtOnce][kWidth];
      float weight[kAtOnce][kQueries];
      QGEN_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        QGEN_UNROLL
        for (int p = 0; p < kWidth; ++p) {
          // Where the row has no such element any will do: its sum is not stored.
          const int four = p * kWarp + lane_index();
          stored[u][p] = reinterpret_cast<const Elements<kKind, 4>*>(
              values + (first + u) * pitch_)[4 * four < value_row_ ? four : 0];
        }
        QGEN_UNROLL
        for (int i = 0; i < kQueries; i += 4) {
          if constexpr (kQueries % 4 == 0) {
            const Floats4 w = load_floats4(weights_ + (first + u) * kQueries + i);
            QGEN_UNROLL
            for (int j = 0; j < 4; ++j) weight[u][i + j] = w.at[j];
          } else {
            QGEN_UNROLL
            for (int j = 0; j < kQueries; ++j) weight[u][j] = weights_[(first + u) * kQueries + j];
          }
        }
      }
      QGEN_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        QGEN_UNROLL
        for (int p = 0; p < kWidth; ++p) {
          float value[4];
          widen<kKind, 4>(stored[u][p], value);
          QGEN_UNROLL
          for (int i = 0; i < kQueries; ++i) {
            QGEN_UNROLL
            for (int j = 0; j < 4; ++j) sums_[i][p][j] += weight[u][i] * value[j];
          }
        }
      }
    }
  }

  // As put_sums() has them.
  QGEN_DEVICE void store(float* out) {
    QGEN_UNROLL_BY(1)
    for (int mask = tile_keys() / 2; mask > 0; mask /= 2) {
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) running_[i].sum += shuffle_xor(running_[i].sum, mask);
    }
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) put_sums<kQueries>(out, value_row_, i, sums_[i], running_[i]);
  }

 private:
  static constexpr int kSlots = 4 * kWidth;
  static constexpr int kUnit = 16 / bytes_of_element(kKind);   // elements in 16 bytes
  static constexpr int kUnitsAtOnce = kQueries > 4 ? 1 : 2;    // of a key
  static constexpr int kScored = kQueries < 4 ? kQueries : 4;  // queries at once: with more, registers run out
  static constexpr int kAtOnce = keys_at_once(kQueries, kWidth);

  QGEN_DEVICE int tile_keys() const { return 1 << tile_shift_; }
  QGEN_DEVICE int lane_key() const { return lane_index() & (tile_keys() - 1); }
  QGEN_DEVICE int part() const { return lane_index() >> tile_shift_; }  // of the lane's key

  QGEN_DEVICE void rescale() {
    float highest[kQueries];
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) highest[i] = score_[i];
    QGEN_UNROLL_BY(1)
    for (int mask = tile_keys() / 2; mask > 0; mask /= 2) {
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) highest[i] = larger(highest[i], shuffle_xor(highest[i], mask));
    }
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      const float largest = larger(running_[i].largest, highest[i]);
      const float old = worth(running_[i].largest, largest);
      running_[i] = {largest, running_[i].sum * old};
      QGEN_UNROLL
      for (int c = 0; c < kSlots; ++c) sums_[i][c / 4][c % 4] *= old;
    }
  }

  const float* const queries_;
  float* const weights_;
  const int key_units_, value_row_, pitch_, tile_shift_;
  float score_[kQueries];
  float sums_[kQueries][kWidth][4];  // of elements 4 lane to 4 lane + 3 of each kFour
  Running running_[kQueries];        // the sum: of the lane's keys
};

}  // namespace qgen::QGEN_BACKEND
