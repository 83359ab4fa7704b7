#include "quant/storage.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/numbers.h"

namespace qgen {
namespace {

constexpr int64_t kScanChunkBytes = 4 << 20;

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Codes with all magnitude bits at or above `first`: e4m3 NaN is 0x7F, e5m2 infinity and NaN 0x7C to 0x7F.
int64_t count_from(std::span<const std::byte> bytes, uint8_t first) {
  int64_t count = 0;
  for (const std::byte b : bytes) count += (static_cast<uint8_t>(b) & 0x7F) >= first;
  return count;
}

void touch_pages(std::span<const std::byte> bytes) {
  constexpr size_t kPageBytes = 4096;
  for (size_t i = 0; i < bytes.size(); i += kPageBytes)
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + i));
}

}  // namespace

std::string_view codes_name(Codes codes) {
  switch (codes) {
    case Codes::kF32: return "f32";
    case Codes::kF16: return "f16";
    case Codes::kBf16: return "bf16";
    case Codes::kI8: return "int8";
    case Codes::kE4M3: return "fp8";
    case Codes::kE5M2: return "fp8-e5m2";
  }
  return "?";
}

int64_t code_bytes(Codes codes) {
  switch (codes) {
    case Codes::kF32: return 4;
    case Codes::kF16:
    case Codes::kBf16: return 2;
    default: return 1;
  }
}

Grid make_grid(int64_t rows, int64_t cols, int64_t group_rows, int64_t group_cols) {
  Grid grid;
  grid.group_rows = group_rows;
  grid.group_cols = group_cols;
  grid.tile_rows = (rows + grid.group_rows - 1) / grid.group_rows;
  grid.tile_cols = (cols + grid.group_cols - 1) / grid.group_cols;
  return grid;
}

int64_t Repack::source_row(int64_t row_count, int64_t n) const {
  if (paired_heads == 0) return n;
  const int64_t dim = row_count / paired_heads, half = dim / 2, i = n % dim;
  return n - i + 2 * (i % half) + i / half;
}

size_t Weight::code_size() const { return size_t(rows * cols * code_bytes(codes)); }

size_t Weight::bytes() const {
  const auto grid = [](const Grid& g) { return size_t(g.tile_rows * g.tile_cols) * sizeof(float); };
  return code_size() + grid(scale) + grid(offset) + column_order.size() * sizeof(int32_t);
}

void decode_codes(const Weight& weight, int64_t n, std::span<double> out) {
  const std::byte* row = weight.data.data() + n * weight.cols * code_bytes(weight.codes);
  for (int64_t k = 0; k < weight.cols; ++k) {
    switch (weight.codes) {
      case Codes::kF32: out[k] = load<float>(row + 4 * k); break;
      case Codes::kF16: out[k] = f16_to_float(load<uint16_t>(row + 2 * k)); break;
      case Codes::kBf16: out[k] = bf16_to_float(load<uint16_t>(row + 2 * k)); break;
      case Codes::kI8: out[k] = load<int8_t>(row + k); break;
      case Codes::kE4M3: out[k] = e4m3_to_float(load<uint8_t>(row + k)); break;
      case Codes::kE5M2: out[k] = e5m2_to_float(load<uint8_t>(row + k)); break;
    }
  }
}

void dequantize_row(const Weight& weight, int64_t n, std::span<double> out) {
  decode_codes(weight, n, out);
  for (int64_t k = 0; k < weight.cols; ++k) {
    if (!weight.offset.empty()) out[k] -= weight.offset.at(n, k);
    if (!weight.scale.empty()) out[k] *= weight.scale.at(n, k);
  }
  if (weight.column_order.empty()) return;
  const std::vector<double> stored(out.begin(), out.end());
  for (int64_t k = 0; k < weight.cols; ++k) out[weight.column_order[k]] = stored[k];
}

std::string method_name(const Weight& weight) {
  std::string name(codes_name(weight.codes));
  const Grid& grid = weight.scale;
  if (grid.empty()) return name;
  if (grid.group_rows == weight.rows && grid.group_cols == weight.cols) {
    name += " tensor";
  } else if (grid.group_rows == 1 && grid.tile_cols == 1) {
    name += " channel";
  } else if (grid.group_rows == 1) {
    name += fmt::format(" group {}", grid.group_cols);
  } else {
    name += fmt::format(" block {}x{}", grid.group_rows, grid.group_cols);
  }
  if (!weight.offset.empty()) name += " asymmetric";
  if (!weight.column_order.empty()) name += " act-order";
  return name;
}

void scan_weights(std::span<Weight* const> weights, const std::function<void(size_t bytes_done)>& progress) {
  struct Chunk {
    size_t weight;
    int64_t begin, end;  // bytes to read, or rows to repack
  };
  std::vector<Chunk> chunks;
  std::vector<Weight*> repacked;
  std::vector<std::atomic<int64_t>> left(weights.size());  // chunks of a source that are still to be read
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool pending = weights[i]->repack.pending();
    if (pending) repacked.push_back(weights[i]);
    const int64_t row_bytes = pending ? int64_t(weights[i]->bytes()) / weights[i]->rows : 1;
    const int64_t step = std::max<int64_t>(1, kScanChunkBytes / row_bytes);
    const int64_t total = pending ? weights[i]->rows : int64_t(weights[i]->data.size());
    for (int64_t begin = 0; begin < total; begin += step) {
      chunks.push_back({i, begin, std::min(begin + step, total)});
      ++left[i];
    }
  }
  // What the repacked weights take, made on all cores as well: that is where their pages come from.
  on_all_cores(repacked.size(), [&](size_t i) {
    Weight& weight = *repacked[i];
    weight.owned.resize(weight.code_size());
    weight.scale.values.resize(size_t(weight.scale.tile_rows * weight.scale.tile_cols));
    weight.data = weight.owned;
  });
  std::vector<std::atomic<int64_t>> counts(weights.size());  // of what is no number
  std::atomic<size_t> bytes_done{0};
  const auto bring = [&](size_t i) {
    const Chunk& chunk = chunks[i];
    Weight& weight = *weights[chunk.weight];
    std::atomic<int64_t>& count = counts[chunk.weight];
    if (weight.repack.pending()) {
      count += weight.repack.rows(weight.repack, weight, chunk.begin, chunk.end);
      // The file's copy has served; a process need not hold both.
      if (--left[chunk.weight] == 0) release_pages(weight.repack.source);
      bytes_done += weight.code_size() / size_t(weight.rows) * size_t(chunk.end - chunk.begin);
      return;
    }
    const auto bytes = weight.data.subspan(size_t(chunk.begin), size_t(chunk.end - chunk.begin));
    if (weight.codes == Codes::kE4M3) count += count_from(bytes, 0x7F);
    if (weight.codes == Codes::kE5M2) count += count_from(bytes, 0x7C);
    if (weight.codes != Codes::kE4M3 && weight.codes != Codes::kE5M2) touch_pages(bytes);
    bytes_done += bytes.size();
  };
  on_all_cores(chunks.size(), bring, [&] {
    if (progress) progress(bytes_done);
  });
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i]->repack.pending()) {
      weights[i]->nan_codes = counts[i];
    } else if (counts[i] > 0) {
      fail(ErrorKind::kModel,
           fmt::format("{}: {} scales are no finite numbers", weights[i]->repack.tensor, counts[i].load()),
           "the file is damaged, or its scales overflowed when it was made");
    }
    weights[i]->repack = {};
  }
}

}  // namespace qgen
