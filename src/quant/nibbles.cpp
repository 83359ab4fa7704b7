#include "quant/nibbles.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int kMiddle = 8;

// Words that lie in rows of so many each. Repacks have copies of tensors: parts of stacks are the module's, which is
// gone when the model is loaded.
class Nibbles {
 public:
  Nibbles(const TensorView& tensor, NibbleLayout layout)
      : tensor_(tensor), layout_(layout), words_(tensor.shape.back()) {}

  const TensorView& tensor() const { return tensor_; }
  // Number i of a row; signed ones plus 8.
  int at(int64_t row, int64_t i) const {
    uint32_t word;
    std::memcpy(&word, tensor_.bytes.data() + (row * words_ + i / kNibblesInWord) * int64_t(sizeof word), sizeof word);
    return int(word >> shift_of(i % kNibblesInWord) & 15) ^ (layout_.is_signed ? kMiddle : 0);
  }

 private:
  int shift_of(int64_t i) const {
    const int64_t place = !layout_.interleaved ? i : i % 2 == 0 ? i / 2 : kNibblesInWord / 2 + i / 2;
    return int(place) * kNibbleBits;
  }

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

}  // namespace

void set_transposed_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout) {
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [zeros = zero_points_of(weight, zeros, layout)](Weight& w) {
    set_zero_points(w, zeros);
    own_codes(w);
  };
  // In pieces that the first cache holds.
  repack->rows = [codes = Nibbles(words, layout)](Weight& w, int64_t begin, int64_t end) {
    constexpr int64_t kPieceColumns = 64;
    for (int64_t first = 0; first < w.cols; first += kPieceColumns) {
      const int64_t last = std::min(first + kPieceColumns, w.cols);
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t k = first; k < last; ++k) w.owned[size_t(n * w.row_bytes + k)] = held(codes.at(k, n));
      }
    }
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
