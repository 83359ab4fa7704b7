#include "quant/nibbles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "base/rounding.h"
#include "quant/byte_vectors.h"
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

std::byte held(int code) { return std::byte(uint8_t(code - kMiddle)); }

// Which of the weight's rows value p of four words is, counted from the lowest bits.
constexpr int64_t kWordsInSquare = 4;
constexpr auto rows_of_values(bool interleaved) {
  std::array<int8_t, size_t(kWordsInSquare * kNibblesInWord)> rows{};
  for (int64_t i = 0; i < int64_t(rows.size()); ++i) {
    const int64_t word = i / kNibblesInWord;
    rows[size_t(word * kNibblesInWord + place_of(interleaved, i % kNibblesInWord))] = int8_t(i);
  }
  return rows;
}

// Rows [begin, end) of the weight out of words (K, words of N): in squares of sixteen bytes, which are those of 32 rows
// and 16 columns, a piece after the other whose words and codes are whole cache lines, since rows of either begin in
// few sets of the cache.
template <bool kInterleaved>
void transpose(const Nibbles& codes, Weight& w, int64_t begin, int64_t end) {
  constexpr int64_t kSide = sizeof(Bytes16), kColumns = 4 * kSide;
  constexpr int64_t kSquareRows = kWordsInSquare * kNibblesInWord, kRows = 4 * kSquareRows;
  static constexpr auto kRowOf = rows_of_values(kInterleaved);
  const int64_t pitch = codes.pitch();
  const Bytes16 flips = all_bytes(codes.layout().is_signed ? 0x88 : 0), eight = all_bytes(kMiddle),
                mask = all_bytes(15);
  std::byte piece[kRows][kColumns];
  const auto one_by_one = [&](int64_t top, int64_t bottom, int64_t first) {
    for (int64_t n = top; n < bottom; ++n) {
      for (int64_t k = first; k < w.cols; ++k) w.owned[size_t(n * w.row_bytes + k)] = held(codes.at(k, n));
    }
  };
  const int64_t whole = w.cols / kSide * kSide;
  for (int64_t top = begin / kSquareRows * kSquareRows; top < end; top += kRows) {
    const int64_t from = std::max(top, begin), to = std::min(top + kRows, end);
    // Rows in whole squares: the words of less than one are read code by code below.
    const int64_t squares_end = std::min(top + round_up(to - top, kSquareRows), w.rows / kSquareRows * kSquareRows);
    for (int64_t first = 0; first < whole; first += kColumns) {
      const int64_t last = std::min(first + kColumns, whole);
      for (int64_t k = first; k < last; k += kSide) {
        // The same of the next piece: processors do not see that lines so far apart follow each other.
        for (int64_t next = k + kColumns; next < std::min(k + kColumns + kSide, whole); ++next)
          __builtin_prefetch(codes.word(next, top));
        for (int64_t row = top; row < squares_end; row += kSquareRows) {
          Bytes16 square[kSide];
          const std::byte* const words = codes.word(k, row);
          for (int64_t i = 0; i < kSide; ++i) square[i] = load16(words + i * pitch) ^ flips;
          transpose_square<1>(square);
          for (size_t i = 0; i < size_t(kSide); ++i) {
            std::byte(*const rows)[kColumns] = piece + (row - top);
            store16((square[i] & mask) - eight, &rows[kRowOf[2 * i]][k - first]);
            store16(((square[i] >> 4) & mask) - eight, &rows[kRowOf[2 * i + 1]][k - first]);
          }
        }
      }
      std::byte* const out = w.owned.data() + first;
      const int64_t bottom = std::min(to, squares_end);
      if (last - first == kColumns) {
        for (int64_t n = from; n < bottom; ++n) std::memcpy(out + n * w.row_bytes, piece[n - top], sizeof piece[0]);
      } else {
        for (int64_t n = from; n < bottom; ++n)
          std::memcpy(out + n * w.row_bytes, piece[n - top], size_t(last - first));
      }
    }
    one_by_one(from, std::min(to, squares_end), whole);
    one_by_one(std::max(from, squares_end), to, 0);
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
