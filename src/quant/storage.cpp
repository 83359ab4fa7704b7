#include "quant/storage.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
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

// Codes with all magnitude bits at or above `first`: e4m3 NaN is 0x7F, e5m2 infinity and NaN 0x7C to 0x7F. Most weights
// have none, so it looks at many codes at once, and one by one where it found some: loading then waits for memory.
int64_t count_from(std::span<const std::byte> bytes, uint8_t first) {
  constexpr size_t kBlockBytes = 256;  // known to the compiler, which then uses vectors
  constexpr uint64_t kOnes = 0x0101010101010101;
  int64_t count = 0;
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(kBlockBytes, bytes.size()));
    bytes = bytes.subspan(block.size());
    if (block.size() == kBlockBytes) {
      // The sum of a code's magnitude and the rest to 0x80 reaches the byte's upper bit, and never the next byte.
      uint64_t found = 0;
      for (size_t i = 0; i < kBlockBytes; i += sizeof found)
        found |= (load<uint64_t>(block.data() + i) & 0x7F * kOnes) + (0x80 - first) * kOnes;
      if ((found & 0x80 * kOnes) == 0) continue;
    }
    for (const std::byte b : block) count += (static_cast<uint8_t>(b) & 0x7F) >= first;
  }
  return count;
}

int64_t count_bad_scales(std::span<const std::byte> blocks) {
  int64_t count = 0;
  for (size_t at = 0; at < blocks.size(); at += kQ8_0BlockBytes)
    count += (load<uint16_t>(blocks.data() + at) & 0x7C00) == 0x7C00;
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

int64_t paired_row(int64_t rows, int64_t paired_heads, int64_t n) {
  if (paired_heads == 0) return n;
  const int64_t dim = rows / paired_heads, half = dim / 2, i = n % dim;
  return n - i + 2 * (i % half) + i / half;
}

int64_t Weight::row_bytes() const {
  return layout == Layout::kQ8_0Blocks ? cols / kQ8_0BlockElements * kQ8_0BlockBytes : cols * code_bytes(codes);
}

int64_t Weight::stored_row(int64_t n) const { return paired_row(rows, paired_heads, n); }

float Weight::scale_at(int64_t n, int64_t k) const {
  if (layout == Layout::kQ8_0Blocks) {
    return f16_to_float(
        load<uint16_t>(data.data() + stored_row(n) * row_bytes() + k / kQ8_0BlockElements * kQ8_0BlockBytes));
  }
  return scale.empty() ? 1 : scale.at(n, k);
}

size_t Weight::bytes() const {
  const auto grid = [](const Grid& g) { return size_t(g.tile_rows * g.tile_cols) * sizeof(float); };
  return size_t(rows * row_bytes()) + (layout == Layout::kQ8_0Blocks ? 0 : grid(scale)) + grid(offset) +
         column_order.size() * sizeof(int32_t);
}

void decode_codes(const Weight& weight, int64_t n, std::span<double> out) {
  const std::byte* row = weight.data.data() + weight.stored_row(n) * weight.row_bytes();
  if (weight.layout == Layout::kQ8_0Blocks) {
    for (int64_t k = 0; k < weight.cols; ++k)
      out[k] = load<int8_t>(row + k + (k / kQ8_0BlockElements + 1) * (kQ8_0BlockBytes - kQ8_0BlockElements));
    return;
  }
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
    out[k] *= weight.scale_at(n, k);
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

struct WeightScan::State {
  std::vector<Weight*> weights;
  std::function<void(size_t)> progress;
  std::map<const Weight*, std::atomic<int64_t>> counts;  // of what is no number
  std::atomic<size_t> bytes_done{0};
};

WeightScan::WeightScan(std::span<Weight* const> weights, std::function<void(size_t)> progress)
    : state_(std::make_unique<State>()) {
  state_->weights.assign(weights.begin(), weights.end());
  state_->progress = std::move(progress);
  for (const Weight* weight : weights) state_->counts[weight] = 0;
}
WeightScan::~WeightScan() = default;

void WeightScan::look(const Weight& weight, std::span<const std::byte> piece) {
  std::atomic<int64_t>& count = state_->counts.at(&weight);
  if (weight.layout == Layout::kQ8_0Blocks) {
    count += count_bad_scales(piece);
  } else if (weight.codes == Codes::kE4M3) {
    count += count_from(piece, 0x7F);
  } else if (weight.codes == Codes::kE5M2) {
    count += count_from(piece, 0x7C);
  } else {
    touch_pages(piece);
  }
  state_->bytes_done += piece.size();
}

void WeightScan::show() const {
  if (state_->progress) state_->progress(state_->bytes_done);
}

void WeightScan::run() {
  std::vector<std::pair<const Weight*, std::span<const std::byte>>> chunks;
  for (const Weight* weight : state_->weights) {
    const size_t step = kScanChunkBytes / size_t(kQ8_0BlockBytes) * size_t(kQ8_0BlockBytes);
    for (size_t begin = 0; begin < weight->data.size(); begin += step)
      chunks.emplace_back(weight, weight->data.subspan(begin, std::min(step, weight->data.size() - begin)));
  }
  on_all_cores(
      chunks.size(), [&](size_t i) { look(*chunks[i].first, chunks[i].second); }, [&] { show(); });
}

void WeightScan::finish() {
  for (Weight* weight : state_->weights) {
    const int64_t count = state_->counts.at(weight);
    if (weight->layout != Layout::kQ8_0Blocks) {
      weight->nan_codes = count;
    } else if (count > 0) {
      fail(ErrorKind::kModel, fmt::format("{}: {} scales are no finite numbers", weight->tensor, count),
           "the file is damaged, or its scales overflowed when it was made");
    }
  }
}

}  // namespace qgen
