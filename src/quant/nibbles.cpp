#include "quant/nibbles.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int kMiddle = 8;

// Where number i of a word lies, counted from its lowest bits.
constexpr int64_t place_of(bool interleaved, int64_t i) {
  return !interleaved ? i : i % 2 == 0 ? i / 2 : kNibblesInWord / 2 + i / 2;
}

// Words that lie in rows of so many each. Repacks have copies of tensors: parts of stacks are the module's, which is
// gone when the model is loaded.
class Nibbles {
 public:
  Nibbles(const TensorView& tensor, NibbleLayout layout)
      : tensor_(tensor), layout_(layout), words_(tensor.shape.back()) {}

  const TensorView& tensor() const { return tensor_; }
  NibbleLayout layout() const { return layout_; }
  // The word of numbers [i, i + 8) of a row, i a multiple of 8; those of the next row are pitch() bytes behind it.
  const std::byte* word(int64_t row, int64_t i) const {
    return tensor_.bytes.data() + row * pitch() + i / kNibblesInWord * int64_t(sizeof(uint32_t));
  }
  int64_t pitch() const { return words_ * int64_t(sizeof(uint32_t)); }
  // Number i of a row; signed ones plus 8.
  int at(int64_t row, int64_t i) const {
    uint32_t bits;
    std::memcpy(&bits, word(row, i), sizeof bits);
    return int(bits >> shift_of(i % kNibblesInWord) & 15) ^ (layout_.is_signed ? kMiddle : 0);
  }

 private:
  int shift_of(int64_t i) const { return int(place_of(layout_.interleaved, i)) * kNibbleBits; }

  TensorView tensor_;
  NibbleLayout layout_;
  int64_t words_;
};

using ZeroPoints = std::optional<Nibbles>;

ZeroPoints zero_points_of(Weight& weight, const TensorView* zeros, NibbleLayout layout) {
  weight.file_codes = bits_name(kNibbleBits);
  if (zeros == nullptr) return std::nullopt;
  weight.code_shift = kMiddle;
  weight.zero_point = byte_zero_points(weight.scale, *zeros);
  return Nibbles(*zeros, layout);
}

// Zero points of (groups, N); where there are none, codes less 8 are the weight's own.
void set_zero_points(Weight& weight, const ZeroPoints& zeros) {
  if (!zeros) return;
  std::vector<std::byte> values(size_t(weight.scale.cols * weight.rows));
  for (int64_t g = 0; g < weight.scale.cols; ++g) {
    for (int64_t n = 0; n < weight.rows; ++n) values[size_t(g * weight.rows + n)] = std::byte(zeros->at(g, n));
  }
  set_byte_zero_points(weight, zeros->tensor(), std::move(values), kMiddle);
}

// Number j of word i becomes number i of word j.
void transpose_nibbles(uint32_t (&words)[8]) {
  constexpr uint32_t kLower[] = {0x0000FFFF, 0x00FF00FF, 0x0F0F0F0F};
#pragma GCC unroll 3
  for (int stage = 0; stage < 3; ++stage) {
    const int step = 4 >> stage, bits = step * kNibbleBits;
    const uint32_t lower = kLower[stage];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      if ((i & step) != 0) continue;
      const uint32_t a = words[i], b = words[i + step];
      words[i] = (a & lower) | (b & lower) << bits;
      words[i + step] = (a >> bits & lower) | (b & ~lower);
    }
  }
}

std::byte held(int code) { return std::byte(uint8_t(code - kMiddle)); }

// Rows [begin, end) of the weight out of words (K, words of N): in squares of eight, a piece after the other whose
// words and codes are whole cache lines, since rows of either begin in few sets of the cache.
template <bool kInterleaved>
void transpose(const Nibbles& codes, Weight& w, int64_t begin, int64_t end) {
  constexpr int64_t kSide = kNibblesInWord, kSquares = 8, kColumns = kSquares * kSide, kRows = 16 * kSide;
  const int64_t pitch = codes.pitch(), whole = w.cols / kSide * kSide;
  const uint32_t flips = codes.layout().is_signed ? 0x88888888 : 0;
  uint64_t piece[kRows][kSquares];
  for (int64_t top = begin / kSide * kSide; top < end; top += kRows) {
    const int64_t from = std::max(top, begin), to = std::min(top + kRows, end);
    for (int64_t first = 0; first < whole; first += kColumns) {
      const int64_t last = std::min(first + kColumns, whole);
      for (int64_t k = first; k < last; k += kSide) {
        const std::byte* const words = codes.word(k, top);
        for (int64_t row = 0; row < to - top; row += kSide) {
          uint32_t square[kSide];
          for (int64_t i = 0; i < kSide; ++i)
            std::memcpy(&square[i], words + i * pitch + row / kNibblesInWord * int64_t(sizeof(uint32_t)),
                        sizeof square[i]);
          transpose_nibbles(square);
#pragma GCC unroll 8
          for (int64_t i = 0; i < kSide; ++i)
            piece[row + i][(k - first) / kSide] = spread_nibbles(square[place_of(kInterleaved, i)] ^ flips);
        }
      }
      std::byte* const out = w.owned.data() + first;
      if (last - first == kColumns) {
        for (int64_t n = from; n < to; ++n) std::memcpy(out + n * w.row_bytes, piece[n - top], sizeof piece[0]);
      } else {
        for (int64_t n = from; n < to; ++n) std::memcpy(out + n * w.row_bytes, piece[n - top], size_t(last - first));
      }
    }
  }
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t k = whole; k < w.cols; ++k) w.owned[size_t(n * w.row_bytes + k)] = held(codes.at(k, n));
  }
}

}  // namespace

void set_transposed_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout) {
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [zeros = zero_points_of(weight, zeros, layout)](Weight& w) {
    set_zero_points(w, zeros);
    own_codes(w);
  };
  repack->rows = [codes = Nibbles(words, layout)](Weight& w, int64_t begin, int64_t end) {
    codes.layout().interleaved ? transpose<true>(codes, w, begin, end) : transpose<false>(codes, w, begin, end);
  };
  weight.repack = std::move(repack);
}

void set_row_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout) {
  weight.repack =
      make_row_repack([zeros = zero_points_of(weight, zeros, layout)](Weight& w) { set_zero_points(w, zeros); },
                      [codes = Nibbles(words, layout)](const Weight&, int64_t n, std::span<std::byte> out) {
                        for (size_t k = 0; k < out.size(); ++k) out[k] = held(codes.at(n, int64_t(k)));
                      });
}

}  // namespace qgen
