#include "quant/weight_scan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file_map.h"

namespace qgen {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;
constexpr int64_t kRepackRows = 256;
constexpr size_t kReadAheadBytes = 256 << 20;

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Codes with all magnitude bits at or above `first`: e4m3 NaN is 0x7F, e5m2 infinity and NaN 0x7C to 0x7F. Most weights
// have none, so many codes are looked at together, and one by one only where one was found: loading then waits for
// memory.
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

bool holds_its_scales(const Weight& weight) { return weight.in_blocks() && weight.scale.type == ScaleType::kF16; }

// NaN and infinite F16 scales at the beginning of blocks.
int64_t count_bad_scales(std::span<const std::byte> blocks, int64_t block_bytes) {
  int64_t count = 0;
  for (size_t at = 0; at < blocks.size(); at += size_t(block_bytes))
    count += (load<uint16_t>(blocks.data() + at) & 0x7C00) == 0x7C00;
  return count;
}

void touch_pages(std::span<const std::byte> bytes) {
  constexpr size_t kPageBytes = 4096;
  for (size_t i = 0; i < bytes.size(); i += kPageBytes)
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + i));
}

void check_finite(const ScaleGrid& grid) {
  const auto check = [&](float value) {
    if (!std::isfinite(value))
      fail(ErrorKind::kModel, fmt::format("{}: holds {}", grid.tensor, value),
           "the file is damaged, or its scales overflowed when it was made");
  };
  for (int64_t r = 0; r < grid.rows; ++r) {
    for (int64_t c = 0; c < grid.super_cols(); ++c) check(grid.super_scale(r, c << grid.super.shift));
  }
  if (grid.type == ScaleType::kI8 || grid.type == ScaleType::kU8) return;
  for (int64_t r = 0; r < grid.rows; ++r) {
    for (int64_t c = 0; c < grid.cols; ++c) check(grid.value(r, c));
  }
}

}  // namespace

void repack_weights(std::span<Weight* const> weights) {
  struct Piece {
    Weight* weight;
    int64_t begin;
    size_t wanted;  // as many sources, from the first on, are to be on their way from the disk
  };
  std::vector<Weight*> repacked;
  for (Weight* weight : weights) {
    if (weight->repack != nullptr) repacked.push_back(weight);
  }
  // Rows touch pages of the file out of order, which a disk is slow at: their sources are read ahead in the order of
  // the file. What prepare() alone makes has no rows.
  std::vector<Weight*> in_rows;
  std::vector<std::span<const std::byte>> sources;
  for (Weight* weight : repacked) {
    if (!weight->repack->rows) continue;
    in_rows.push_back(weight);
    sources.push_back(weight->data);
  }
  std::vector<Piece> pieces;
  size_t wanted = 0, read = 0, used = 0;
  for (Weight* weight : in_rows) {
    for (; wanted < sources.size() && read < used + kReadAheadBytes; ++wanted) read += sources[wanted].size();
    used += weight->data.size();
    for (int64_t begin = 0; begin < weight->rows; begin += kRepackRows) pieces.push_back({weight, begin, wanted});
  }
  on_all_cores(repacked.size(), [&](size_t i) { repacked[i]->repack->prepare(*repacked[i]); });
  std::atomic<size_t> asked{0};
  on_all_cores(pieces.size(), [&](size_t i) {
    Weight& weight = *pieces[i].weight;
    for (size_t next = asked; next < pieces[i].wanted;) {
      if (asked.compare_exchange_weak(next, next + 1)) read_ahead(sources[next++]);
    }
    weight.repack->rows(weight, pieces[i].begin, std::min(pieces[i].begin + kRepackRows, weight.rows));
  });
  for (Weight* weight : repacked) weight->repack = nullptr;
}

struct WeightScan::State {
  std::vector<Weight*> weights;
  WeightProgress progress;
  std::map<const Weight*, std::atomic<int64_t>> counts;  // of NaN and Inf
  std::atomic<size_t> bytes_done{0};
};

WeightScan::WeightScan(std::span<Weight* const> weights, WeightProgress progress) : state_(std::make_unique<State>()) {
  state_->weights.assign(weights.begin(), weights.end());
  state_->progress = std::move(progress);
  for (const Weight* weight : weights) state_->counts[weight] = 0;
}
WeightScan::~WeightScan() = default;

void WeightScan::look(const Weight& weight, std::span<const std::byte> piece) {
  std::atomic<int64_t>& count = state_->counts.at(&weight);
  if (holds_its_scales(weight)) {
    count += count_bad_scales(piece, weight.block_bytes);
  } else if (weight.codes == Codes::kE4M3) {
    count += count_from(piece, 0x7F);
  } else if (weight.codes == Codes::kE5M2) {
    count += count_from(piece, 0x7C);
  } else {
    touch_pages(piece);
  }
  state_->bytes_done += piece.size();
}

void WeightScan::report() const {
  if (state_->progress) state_->progress(state_->bytes_done);
}

void WeightScan::run() {
  std::vector<std::pair<const Weight*, std::span<const std::byte>>> pieces;
  for (const Weight* weight : state_->weights) {
    const size_t block = weight->in_blocks() ? size_t(weight->block_bytes) : 1;
    const size_t step = size_t(kPieceBytes) / block * block;
    for (size_t begin = 0; begin < weight->data.size(); begin += step)
      pieces.emplace_back(weight, weight->data.subspan(begin, std::min(step, weight->data.size() - begin)));
  }
  on_all_cores(
      pieces.size(), [&](size_t i) { look(*pieces[i].first, pieces[i].second); }, [&] { report(); });
}

void WeightScan::finish() {
  const auto& weights = state_->weights;
  on_all_cores(weights.size(), [&](size_t i) {
    if (!holds_its_scales(*weights[i])) check_finite(weights[i]->scale);
    check_finite(weights[i]->zero_point);
    check_finite(weights[i]->minimum);
  });
  for (Weight* weight : weights) {
    const int64_t count = state_->counts.at(weight);
    if (!holds_its_scales(*weight)) {
      weight->nan_codes = count;
    } else if (count > 0) {
      fail(ErrorKind::kModel, fmt::format("{}: {} scales are NaN or infinite", weight->tensor, count),
           "the file is damaged, or its scales overflowed when it was made");
    }
  }
}

}  // namespace qgen
