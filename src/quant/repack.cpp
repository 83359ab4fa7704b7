#include "quant/repack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/byte_vectors.h"

namespace qgen {

namespace {

// Sixteen of kDoubledE2M1 by their codes; comparisons of vectors are -1 where they hold.
Bytes16 doubled_e2m1(Bytes16 codes) {
  const Bytes16 magnitude = codes & all_bytes(7);
  const auto above_three = reinterpret_cast<Bytes16>(magnitude > all_bytes(3));
  const auto seven = reinterpret_cast<Bytes16>(magnitude == all_bytes(7));
  const auto minus = reinterpret_cast<Bytes16>(codes > all_bytes(7));
  const Bytes16 value = magnitude + (magnitude & above_three & all_bytes(3)) - seven - seven;
  return (value ^ minus) - minus;
}

// Values of 4 bits as change(sixteen of them); how many have been written, the rest is for one by one.
template <typename Change>
size_t unpack_nibbles(const std::byte* from, std::span<std::byte> out, const Change& change) {
  constexpr size_t kTogether = 2 * sizeof(Bytes16);
  size_t i = 0;
  for (; i + kTogether <= out.size(); i += kTogether) {
    const SpreadNibbles values = spread_nibbles(load16(from + i / 2));
    store16(change(values.low), out.data() + i);
    store16(change(values.high), out.data() + i + sizeof(Bytes16));
  }
  return i;
}

}  // namespace

void unpack_bits(std::span<const std::byte> packed, int bits, int offset, std::span<std::byte> out) {
  const auto* from = reinterpret_cast<const uint8_t*>(packed.data());
  auto* to = reinterpret_cast<uint8_t*>(out.data());
  const auto less = uint8_t(offset);
  const Bytes16 all_less = all_bytes(less);
  size_t i = 0;
  if (bits == 8) {
    for (; i + sizeof(Bytes16) <= out.size(); i += sizeof(Bytes16)) store16(load16(from + i) - all_less, to + i);
  } else if (bits == 4) {
    i = unpack_nibbles(packed.data(), out, [&](Bytes16 values) { return values - all_less; });
  }
  const unsigned mask = (1u << bits) - 1;
  for (; i < out.size(); ++i) {
    const size_t bit = i * size_t(bits), byte = bit / 8;
    unsigned word = from[byte];
    if (bit % 8 + size_t(bits) > 8) word |= unsigned(from[byte + 1]) << 8;
    to[i] = uint8_t((word >> bit % 8 & mask) - less);
  }
}

void unpack_doubled_e2m1(std::span<const std::byte> packed, std::span<std::byte> out) {
  for (size_t i = unpack_nibbles(packed.data(), out, doubled_e2m1); i < out.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(packed[i / 2]);
    out[i] = std::byte(uint8_t(kDoubledE2M1[i % 2 == 0 ? byte & 15 : byte >> 4]));
  }
}

std::vector<int32_t> read_group_order(const TensorView& index, const ScaleGrid& scale, int64_t cols) {
  std::vector<int32_t> group(static_cast<size_t>(cols));
  std::memcpy(group.data(), index.bytes.data(), index.bytes.size());
  if (std::find(group.begin(), group.end(), -1) != group.end()) return {};
  std::vector<int64_t> members(static_cast<size_t>(scale.cols));
  for (const int32_t g : group) {
    if (g < 0 || g >= scale.cols)
      fail_tensor(index, fmt::format("group {} is out of range (expected 0 to {})", g, scale.cols - 1));
    ++members[size_t(g)];
  }
  for (size_t g = 0; g < members.size(); ++g) {
    const int64_t expected = std::min(scale.group_cols, cols - int64_t(g) * scale.group_cols);
    if (members[g] != expected) {
      fail_tensor(index, fmt::format("group {} has the wrong number of columns (expected {}, found {})", g, expected,
                                     members[g]));
    }
  }
  if (std::is_sorted(group.begin(), group.end())) return {};
  std::vector<int32_t> order(static_cast<size_t>(cols));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return group[size_t(a)] < group[size_t(b)]; });
  return order;
}

const TensorView& take_group_index(Module& module, std::string_view suffix) {
  return module.take(suffix, {Dtype::kI32}, {module.cols()});
}

bool all_equal(const ScaleGrid& grid, float value) {
  for (int64_t r = 0; r < grid.rows; ++r) {
    for (int64_t c = 0; c < grid.cols; ++c) {
      if (grid.value(r, c) != value) return false;
    }
  }
  return true;
}

ScaleGrid byte_zero_points(const ScaleGrid& scale, const TensorView& tensor) {
  ScaleGrid grid =
      make_grid(scale.rows * scale.group_rows, scale.cols * scale.group_cols, scale.group_rows, scale.group_cols);
  grid.type = ScaleType::kU8;
  grid.row_pitch = 1;
  grid.col_pitch = grid.rows;
  grid.tensor = fmt::format("{}: tensor {}", tensor.file, tensor.name);
  return grid;
}

void set_byte_zero_points(Weight& weight, const TensorView& tensor, std::vector<std::byte> values, int middle) {
  weight.zero_point = {};
  weight.code_shift = 0;
  const bool symmetric =
      std::all_of(values.begin(), values.end(), [&](std::byte value) { return std::to_integer<int>(value) == middle; });
  if (symmetric) return;
  weight.code_shift = middle;
  weight.zero_point = byte_zero_points(weight.scale, tensor);
  set_values(weight.zero_point, ScaleType::kU8, std::move(values));
  weight.zero_point.row_pitch = 1;
  weight.zero_point.col_pitch = weight.zero_point.rows;
}

double tensor_factor(const TensorView& tensor, bool divides) {
  const double value = tensor_values(tensor).front();
  if (!std::isfinite(value) || (divides && value == 0))
    fail_tensor(tensor, fmt::format("holds {}", value), "the file is damaged");
  return divides ? 1 / value : value;
}

void own_codes(Weight& weight) {
  weight.owned.resize(size_t(weight.rows * weight.row_bytes));
  weight.data = weight.owned;
}

std::shared_ptr<const Weight::Repack> make_row_repack(std::function<void(Weight&)> prepare, UnpackRow unpack) {
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [prepare = std::move(prepare)](Weight& weight) {
    if (prepare) prepare(weight);
    weight.ordered = !weight.column_order.empty();
    own_codes(weight);
  };
  repack->rows = [unpack = std::move(unpack)](Weight& weight, int64_t begin, int64_t end) {
    std::vector<std::byte> natural(weight.ordered ? size_t(weight.cols) : 0);
    for (int64_t n = begin; n < end; ++n) {
      const auto row = std::span(weight.owned).subspan(size_t(n * weight.row_bytes), size_t(weight.row_bytes));
      if (!weight.ordered) {
        unpack(weight, n, row);
        continue;
      }
      unpack(weight, n, natural);
      for (size_t k = 0; k < row.size(); ++k) row[k] = natural[size_t(weight.column_order[k])];
    }
  };
  return repack;
}

std::string_view bits_name(int bits) {
  constexpr std::string_view kNames[] = {"", "1 bit", "2 bits", "3 bits", "4 bits", "5 bits", "6 bits", "7 bits", ""};
  return kNames[bits];
}

}  // namespace qgen
