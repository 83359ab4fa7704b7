// Attention of one token: how the sums of a block's warps become one, and those of the parts that its keys are split
// into.
#pragma once

#include "kernels/device/attend_shape.cuh"

namespace qgen::QGEN_BACKEND {

// What a block comes back to behind its keys; meanwhile it lies in shared memory, where it takes no registers.
struct alignas(16) AttendPlace {
  int first_head, queries, counter, parts;
  float own_factors[2];  // of the token's key and value
  uint32_t flag;
};

// What a head's weighted values are multiplied and divided by: all that was weighed, the sink too.
struct Share {
  float factor, sum;
};
QGEN_DEVICE Share share_of(const AttendArgs& args, int head, const Running& all) {
  if (args.sinks == nullptr) return {1, all.sum};
  const float sink = args.sinks[head], largest = larger(all.largest, sink), factor = worth(all.largest, largest);
  return {factor, all.sum * factor + worth(sink, largest)};
}

// A warp's sums lie in its shared memory: weighted values, (kQueries, row), then what the keys of each query weigh,
// (kQueries, 2). A warp puts those of query i there.
template <int kQueries, int kWidth>
QGEN_DEVICE void put_sums(float* sums, int row, int i, const float (&values)[kWidth][4], const Running& weighed) {
  QGEN_UNROLL
  for (int p = 0; p < kWidth; ++p) {
    const int c = p * kFour + 4 * lane_index();
    if (c < row) store_floats4(sums + i * row + c, {{values[p][0], values[p][1], values[p][2], values[p][3]}});
  }
  if (lane_index() == 0) {
    sums[kQueries * row + 2 * i] = weighed.largest;
    sums[kQueries * row + 2 * i + 1] = weighed.sum;
  }
}

// Of a block, behind its keys. kWidth: times kFour elements are room for a row. kMatrices: a block may have fewer
// queries than kQueries, for which its kernel is.
template <int kQueries, int kWidth, int kWarps, bool kMatrices>
class AttendSums {
 public:
  // `regions`: the shared memory of the warps, each of `warp_bytes`; `row_of_call`: of the token among those of the
  // launch.
  QGEN_DEVICE AttendSums(const AttendArgs& args, const AttendPlace& place, uint8_t* regions, int warp_bytes,
                         int row_of_call, int split)
      : args_(args),
        place_(place),
        regions_(reinterpret_cast<float*>(regions)),
        pitch_(warp_bytes / 4),
        row_of_call_(row_of_call),
        split_(split),
        row_(padded(args.value_dim)) {}

  // The sums of the warps become one: results, or a part.
  QGEN_DEVICE void add_warps(bool all_parts) const {
    QGEN_UNROLL_BY(1)
    for (int i = warp_index(); i < place_.queries; i += kWarps) {
      const int head = place_.first_head + i;
      const float* const pairs = regions_ + kQueries * row_ + 2 * i;
      float share[kWarps], largest = pairs[0];
      QGEN_UNROLL
      for (int w = 1; w < kWarps; ++w) largest = larger(largest, pairs[w * pitch_]);
      float sum = 0;
      QGEN_UNROLL
      for (int w = 0; w < kWarps; ++w) {
        share[w] = worth(pairs[w * pitch_], largest);
        sum += share[w] * pairs[w * pitch_ + 1];
      }
      float factor = 1;
      if (all_parts) {
        const Share all = share_of(args_, head, {largest, sum});
        factor = all.factor / all.sum;
      }
      QGEN_UNROLL_BY(1)
      for (int c = 4 * lane_index(); c < row_; c += kFour) {
        Floats4 value = {};
        QGEN_UNROLL
        for (int w = 0; w < kWarps; ++w) {
          const Floats4 of_warp = load_floats4(regions_ + w * pitch_ + i * row_ + c);
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) value.at[j] += share[w] * of_warp.at[j];
        }
        if (all_parts)
          write_result(head, c, factor, value);
        else
          store_floats4(args_.partial + part(head, split_) * row_ + c, value);
      }
      if (!all_parts && lane_index() == 0) {
        float* const pair = part_pairs() + part(head, split_) * 2;
        pair[0] = largest;
        pair[1] = sum;
      }
    }
  }

  // All parts, as if they were sums of the warps. A warp has every so many queries, and shares their parts with the
  // other warps that have them; several parts are under way at once.
  QGEN_DEVICE void gather_parts() const {
    int at_once = kMatrices ? 1 : kQueries;  // queries
    while (at_once < kWarps && at_once < place_.queries) at_once *= 2;
    float* const sums = regions_ + warp_index() * pitch_;
    QGEN_UNROLL_BY(1)
    for (int i = 0; i < place_.queries; ++i) {
      float of_parts[kWidth][4] = {};
      Running all = {kLowest, 0};  // nothing of queries that are others'
      if (i % at_once == warp_index() % at_once)
        add_parts(part(place_.first_head + i, 0), warp_index() / at_once, kWarps / at_once, sums + i * row_, of_parts,
                  all);
      put_sums<kQueries>(sums, row_, i, of_parts, all);
    }
  }

 private:
  // Parts under way at once, as there are registers.
  static constexpr int kBatch = kMatrices ? 16 : kWidth > kMediumWidth ? 2 : kWidth == 1 && kQueries <= 4 ? 16 : 8;

  // Parts lie in global memory: (tokens, heads, splits, row), then (tokens, heads, splits, 2) for what they weigh.
  QGEN_DEVICE int64_t part(int head, int p) const {
    return (int64_t(row_of_call_) * args_.heads + head) * args_.splits + p;
  }
  QGEN_DEVICE float* part_pairs() const {
    return args_.partial + int64_t(args_.tokens) * args_.heads * args_.splits * row_;
  }

  // Four elements of a head's result.
  QGEN_DEVICE void write_result(int head, int c, float factor, Floats4 value) const {
    const int d = args_.value_dim, token = args_.first_token + row_of_call_;
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) value.at[j] *= factor;
    if (args_.gate.x != nullptr) [[unlikely]] {
      const float* const gate = head_of(args_.gate, token, head) + c;
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (c + j < d) value.at[j] *= sigmoid(gate[j]);
      }
    }
    float* const y = args_.y + token * args_.y_stride + head * d + c;
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (c + j < d) y[j] = value.at[j];
    }
  }

  // Every `stride`-th part of a head from `begin` on, whose first part is `first_part`. `shares` (kBatch) is shared
  // memory.
  QGEN_DEVICE void add_parts(int64_t first_part, int begin, int stride, float* shares, float (&of_parts)[kWidth][4],
                             Running& all) const {
    constexpr int kSlots = 4 * kWidth;
    const int lane = lane_index(), parts = place_.parts;
    QGEN_UNROLL_BY(1)
    for (int first = begin; first < parts; first += kBatch * stride) {
      const int own_part = first + lane * stride;
      const bool has_part = lane < kBatch && own_part < parts;
      const float* const pair = part_pairs() + (first_part + (has_part ? own_part : first)) * 2;
      const float largest_of_part = pair[0], sum_of_part = pair[1];
      Floats4 of_part[kBatch][kWidth];
      const float* from = args_.partial + (first_part + first) * row_;
      QGEN_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        QGEN_UNROLL
        for (int p = 0; p < kWidth; ++p) {
          const int c = p * kFour + 4 * lane;
          of_part[b][p] = load_floats4(from + (c < row_ ? c : 0));
        }
        if (first + (b + 1) * stride < parts) from += stride * row_;
      }
      const float largest = larger(all.largest, largest_lane(has_part ? largest_of_part : kLowest));
      const float share = has_part ? worth(largest_of_part, largest) : 0, old = worth(all.largest, largest);
      all = {largest, all.sum * old + sum_lanes(has_part ? share * sum_of_part : 0)};
      if (lane < kBatch) shares[lane] = share;
      warp_barrier();
      QGEN_UNROLL
      for (int c = 0; c < kSlots; ++c) of_parts[c / 4][c % 4] *= old;
      QGEN_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const float of_this = shares[b];
        QGEN_UNROLL
        for (int c = 0; c < kSlots; ++c) of_parts[c / 4][c % 4] += of_this * of_part[b][c / 4].at[c % 4];
      }
      warp_barrier();
    }
  }

  const AttendArgs& args_;
  const AttendPlace& place_;
  float* const regions_;
  const int pitch_;  // floats from warp to warp
  const int row_of_call_, split_;
  const int row_;  // floats of a head's values
};

}  // namespace qgen::QGEN_BACKEND
