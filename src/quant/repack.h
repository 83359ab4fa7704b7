// What repacks share: codes of fewer bits that lie densely, and columns in activation order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quant/binder.h"
#include "quant/weight.h"

namespace qgen {

// Values of 1 to 8 bits side by side, the first in the lowest bits of the first byte: out[i] = value - offset, for as
// many as `out` has. `packed` must hold all of them; the values less the offset must fit int8.
void unpack_bits(std::span<const std::byte> packed, int bits, int offset, std::span<std::byte> out);

// E2M1 (OCP MX 1.0): magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign; doubled they are integers.
inline constexpr int8_t kDoubledE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Of codes that lie two to a byte, the first in its lower half: as many as `out` has.
void unpack_doubled_e2m1(std::span<const std::byte> packed, std::span<std::byte> out);

// The eight values of 4 bits of a word as bytes, the lowest first, each less 8.
inline uint64_t spread_nibbles(uint32_t word) {
  uint64_t bytes = word;
  bytes = (bytes | bytes << 16) & 0x0000FFFF0000FFFF;
  bytes = (bytes | bytes << 8) & 0x00FF00FF00FF00FF;
  bytes = (bytes | bytes << 4) & 0x0F0F0F0F0F0F0F0F;
  // No byte borrows from its neighbour: each is 128 more meanwhile.
  return ((bytes | 0x8080808080808080) - 0x0808080808080808) ^ 0x8080808080808080;
}

// Files with activation order say for each column which group it is in. Columns are brought together group by group,
// which is the order the canonical weight has: result[j] is the column that comes j-th; empty for the natural order,
// and where a -1 anywhere means "no order" (compressed-tensors). `index`: I32 (K). A model Error where groups are out
// of range, or do not have the columns that `scale` gives them.
std::vector<int32_t> read_group_order(const TensorView& index, const ScaleGrid& scale, int64_t cols);

// X.<suffix>, I32 (K).
const TensorView& take_group_index(Module& module, std::string_view suffix);

// Whether all values of a grid are this one.
bool all_equal(const ScaleGrid& grid, float value);

// Zero points of the groups of `scale` that are made when the model is loaded, from `tensor`: a byte each, (groups, N).
ScaleGrid byte_zero_points(const ScaleGrid& scale, const TensorView& tensor);
// Their values, of codes that are held less `middle`: where all are `middle` too, there are none and no shift.
void set_byte_zero_points(Weight& weight, const TensorView& tensor, std::vector<std::byte> values, int middle);

// A float of the whole tensor, as a factor of its scales; `divides`: scales are divided by it. A model Error where it
// is not finite.
double tensor_factor(const TensorView& tensor, bool divides = false);

// Gives a weight its memory for the repacked codes, (N, row_bytes).
void own_codes(Weight& weight);

// Row n of a weight's codes, in natural order, into `out`.
using UnpackRow = std::function<void(const Weight& weight, int64_t n, std::span<std::byte> out)>;
// A repack that makes codes of a byte row by row, in the order that `prepare` found.
std::shared_ptr<const Weight::Repack> make_row_repack(std::function<void(Weight&)> prepare, UnpackRow unpack);

// "4 bits", ...; "" for 8.
std::string_view bits_name(int bits);

}  // namespace qgen
