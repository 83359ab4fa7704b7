#include "kernels/weight_store.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "base/numbers.h"
#include "base/rounding.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr size_t kHalfBytes = 8 << 20;     // of an uploader's buffer, where no row is longer
constexpr int64_t kScanBytes = 256 << 10;  // that are looked at when they have just been copied
constexpr int kMostUploaders = 8;          // more do not make the bus faster

// Whether codes of 8 bits less these are numbers of F16.
bool whole(const std::vector<float>& zero_points) {
  return std::all_of(zero_points.begin(), zero_points.end(),
                     [](float v) { return v == std::nearbyint(v) && std::abs(v) <= 255; });
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// The largest |code - zero point| that there can be.
float largest_code(Codes codes, float zero_point) {
  switch (codes) {
    case Codes::kI8: return 128 + zero_point;
    case Codes::kE4M3: return 448 + zero_point;
    case Codes::kE5M2: return 57344 + zero_point;
    default: return 0;  // only codes of 8 bits are scaled into F16
  }
}

// Blocks that the device splits: an F16 scale and 32 codes.
bool is_q8_0(const Weight& weight) {
  return weight.block_cols == kQ8_0BlockElements && weight.block_bytes == kQ8_0BlockBytes && weight.block_offset == 2 &&
         weight.codes == Codes::kI8 && weight.scale.type == ScaleType::kF16 && weight.scale.group_rows == 1 &&
         weight.scale.col_pitch == kQ8_0BlockBytes && weight.scale.factor == 1 && !weight.has_offsets();
}

// Grids that keep both levels on the device: codes of a byte times F16.
bool keeps_levels(const ScaleGrid& grid) {
  return grid.two_levels() && grid.type == ScaleType::kI8 && grid.super.type == ScaleType::kF16 &&
         grid.col_pitch == 1 && grid.cols % (int64_t{1} << grid.super.shift) == 0;
}
bool keeps_levels(const Weight& weight) {
  const ScaleGrid& minimum = weight.minimum;
  return keeps_levels(weight.scale) && weight.scale.factor == 1 && weight.code_shift == 0 &&
         weight.zero_point.empty() && (minimum.empty() || (keeps_levels(minimum) && minimum.factor == -1));
}

std::vector<float> values_of(const ScaleGrid& grid, int64_t first, int64_t rows) {
  std::vector<float> out(size_t(rows * grid.cols));
  const bool floats = grid.type == ScaleType::kF32 && grid.col_pitch == sizeof(float) && grid.factor == 1;
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = out.data() + r * grid.cols;
    if (floats) {
      std::memcpy(row, grid.data + (first + r) * grid.row_pitch, size_t(grid.cols) * sizeof(float));
    } else {
      for (int64_t c = 0; c < grid.cols; ++c) row[c] = grid.value(first + r, c);
    }
  }
  return out;
}

// Zero points without the code shift: code + code_shift - zero_point = code - (zero_point - code_shift).
std::vector<float> zero_points_of(const Weight& weight, int64_t first, int64_t rows) {
  std::vector<float> out(size_t(rows * weight.scale.cols));
  if (!weight.zero_point.empty()) out = values_of(weight.zero_point, first, rows);
  for (float& value : out) value -= float(weight.code_shift);
  return out;
}

// Minimums that zero point and code shift are folded into: W = code * scale + minimum; each is rounded once.
std::vector<float> minimums_of(const Weight& weight, int64_t first, int64_t rows) {
  std::vector<float> out = values_of(weight.minimum, first, rows);
  const std::vector<float> scales = values_of(weight.scale, first, rows);
  const bool zero_points = !weight.zero_point.empty();
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t r = first + int64_t(i) / weight.scale.cols, c = int64_t(i) % weight.scale.cols;
    const double shift = double(weight.code_shift) - (zero_points ? weight.zero_point.value(r, c) : 0);
    out[i] = float(out[i] + shift * scales[i]);
  }
  return out;
}

// The largest |scale| of Q8_0 blocks, as F16 bits, whose order is that of the numbers.
uint32_t largest_scale(const std::byte* blocks, int64_t bytes) {
  uint32_t largest = 0;
  for (int64_t at = 0; at < bytes; at += kQ8_0BlockBytes) {
    uint16_t bits;
    std::memcpy(&bits, blocks + at, sizeof(bits));
    largest = std::max<uint32_t>(largest, bits & 0x7FFF);
  }
  return largest;
}

// A maximum of floats that are not negative, raised by several threads: their bits compare like the numbers.
class SharedMaximum {
 public:
  void raise(float to) {
    const uint32_t bits = std::bit_cast<uint32_t>(to);
    for (uint32_t seen = bits_; seen < bits && !bits_.compare_exchange_weak(seen, bits);) {
    }
  }
  float value() const { return std::bit_cast<float>(bits_.load()); }

 private:
  std::atomic<uint32_t> bits_{0};
};

// Extremes of a weight's scale, zero point and minimum grids, collected during its upload.
struct Extremes {
  SharedMaximum scale, zero_point, minimum;
  std::atomic<bool> whole_zero_points{true};
};

// A piece of an upload, done by one worker.
using Task = std::function<void(Uploader&)>;

// Rows that lie one after the other here and `pitch` bytes apart there.
void add_rows(std::vector<Task>& tasks, const void* device, size_t pitch, const void* host, size_t row_bytes,
              size_t rows) {
  const size_t at_once = std::max<size_t>(1, kHalfBytes / std::max<size_t>(1, row_bytes));
  for (size_t first = 0; first < rows; first += at_once) {
    const size_t count = std::min(at_once, rows - first);
    tasks.push_back([=](Uploader& uploader) {
      std::memcpy(uploader.next_half(), static_cast<const std::byte*>(host) + first * row_bytes, count * row_bytes);
      uploader.send_rows(const_cast<std::byte*>(static_cast<const std::byte*>(device)) + first * pitch, pitch,
                         row_bytes, count);
    });
  }
}

void add_bytes(std::vector<Task>& tasks, const void* device, const void* host, size_t bytes) {
  add_rows(tasks, device, 1, host, 1, bytes);
}

// A grid of the size of `grid` as F32, its rows `grid_cols` apart there: `make` gives values of its rows, `seen` is
// told of them.
using MakeValues = std::function<std::vector<float>(int64_t first, int64_t rows)>;
using SeenValues = std::function<void(const std::vector<float>&)>;
void add_grid(std::vector<Task>& tasks, const void* device, int64_t grid_cols, const ScaleGrid& grid,
              const MakeValues& make, const SeenValues& seen) {
  if (grid.empty()) return;
  const int64_t row_bytes = grid.cols * int64_t(sizeof(float));
  const int64_t at_once = std::max<int64_t>(1, int64_t(kHalfBytes) / row_bytes);
  for (int64_t first = 0; first < grid.rows; first += at_once) {
    const int64_t count = std::min(at_once, grid.rows - first);
    tasks.push_back([=, &grid](Uploader& uploader) {
      const std::vector<float> values = make(first, count);
      seen(values);
      std::memcpy(uploader.next_half(), values.data(), values.size() * sizeof(float));
      auto* const to = const_cast<std::byte*>(static_cast<const std::byte*>(device));
      uploader.send_rows(to + first * grid_cols * int64_t(sizeof(float)), size_t(grid_cols) * sizeof(float),
                         size_t(row_bytes), size_t(count));
    });
  }
}

// Both levels of a grid as they are; `seen` is told of the largest of them.
void add_levels(std::vector<Task>& tasks, const void* codes, const void* super, const ScaleGrid& grid,
                SharedMaximum& seen) {
  const int64_t super_bytes = grid.super_cols() * int64_t(sizeof(uint16_t)),
                at_once = std::max<int64_t>(1, int64_t(kHalfBytes) / std::max(grid.cols, super_bytes));
  for (int64_t first = 0; first < grid.rows; first += at_once) {
    const int64_t count = std::min(at_once, grid.rows - first);
    const auto send = [=](Uploader& uploader, const void* to, const std::byte* from, int64_t pitch, int64_t row_bytes) {
      std::byte* const half = uploader.next_half();
      for (int64_t r = 0; r < count; ++r)
        std::memcpy(half + r * row_bytes, from + (first + r) * pitch, size_t(row_bytes));
      uploader.send(const_cast<std::byte*>(static_cast<const std::byte*>(to)) + first * row_bytes,
                    size_t(count * row_bytes));
    };
    tasks.push_back([=, &grid, &seen](Uploader& uploader) {
      seen.raise(largest_of(values_of(grid, first, count)));
      send(uploader, codes, grid.data, grid.row_pitch, grid.cols);
      send(uploader, super, grid.super.data, grid.super.row_pitch, super_bytes);
    });
  }
}

// Rows [first, first + count) of a weight as they are in the file. `scan`, unless null, sees them while they are in the
// processor's caches.
void gather_rows(const Weight& weight, int64_t first, int64_t count, std::byte* out, WeightScan* scan) {
  const int64_t bytes = weight.row_bytes, at_once = std::max<int64_t>(1, kScanBytes / bytes);
  for (int64_t done = 0; done < count; done += at_once) {
    const size_t piece = size_t(std::min(at_once, count - done) * bytes);
    std::memcpy(out + done * bytes, weight.data.data() + (first + done) * bytes, piece);
    if (scan != nullptr) scan->look(weight, {out + done * bytes, piece});
  }
}

// The codes of such rows, side by side, out of blocks that the device does not split.
void gather_codes(const Weight& weight, int64_t first, int64_t count, std::byte* out, WeightScan* scan) {
  const int64_t element = code_bytes(weight.codes), bytes = weight.cols * element;
  for (int64_t n = first; n < first + count; ++n, out += bytes) {
    for (int64_t k = 0; k < weight.cols; k += weight.block_cols) {
      const int64_t codes = std::min(weight.block_cols, weight.cols - k);
      std::memcpy(out + k * element, weight.code_at(n, k), size_t(codes * element));
    }
    if (scan != nullptr)
      scan->look(weight, weight.data.subspan(size_t(n * weight.row_bytes), size_t(weight.row_bytes)));
  }
}

void add_codes(std::vector<Task>& tasks, const Weight& weight, const Matrix& m, std::byte* blocks_on_device,
               size_t half_bytes, WeightScan* scan, Extremes& extremes) {
  const int64_t row_bytes = std::max(weight.row_bytes, weight.cols * code_bytes(weight.codes));
  const int64_t rows_at_once = std::max<int64_t>(1, int64_t(half_bytes) / row_bytes);
  for (int64_t first = 0; first < weight.rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, weight.rows - first);
    auto* const codes = const_cast<uint8_t*>(m.codes) + first * m.row_bytes;
    if (!is_q8_0(weight)) {
      tasks.push_back([=, &weight](Uploader& uploader) {
        const auto gather = weight.in_blocks() ? gather_codes : gather_rows;
        gather(weight, first, count, uploader.next_half(), scan);
        uploader.send_rows(codes, size_t(m.row_bytes), size_t(weight.cols * code_bytes(weight.codes)), size_t(count));
      });
      continue;
    }
    // The blocks wait in memory of the worker's own until they are split.
    tasks.push_back([=, &weight, &extremes](Uploader& uploader) {
      std::byte* const half = uploader.next_half();
      gather_rows(weight, first, count, half, scan);
      extremes.scale.raise(f16_to_float(uint16_t(largest_scale(half, count * row_bytes))));
      std::byte* const blocks = blocks_on_device + size_t(uploader.index()) * half_bytes;
      uploader.send(blocks, size_t(count * row_bytes));
      UnpackArgs unpack;
      unpack.blocks = reinterpret_cast<const uint8_t*>(blocks);
      unpack.codes = codes;
      unpack.scales = static_cast<uint16_t*>(const_cast<void*>(m.scale)) + first * m.grid_cols;
      unpack.row_bytes = m.row_bytes;
      unpack.rows = count;
      unpack.cols = weight.cols;
      unpack_q8_0(uploader.stream(), unpack);
    });
  }
}

}  // namespace

WeightStore::WeightStore(const Plan& plan) : plan_(plan) {
  DeviceLayout layout;
  lay_out(layout);
  bytes_ = layout.bytes();
}

void WeightStore::lay_out(DeviceLayout& layout) {
  for (const Weight& weight : plan_.weights) {
    Matrix m;
    m.rows = int32_t(weight.rows);
    m.cols = int32_t(weight.cols);
    m.kind = weight.codes;
    m.row_bytes = round_up(weight.cols * code_bytes(weight.codes), kRowAlignment);
    m.codes = layout.take<uint8_t>(weight.rows * m.row_bytes);
    m.group_cols = int32_t(weight.cols);
    // Zero points without scales are as good as none: there are no such weights.
    if (const ScaleGrid& grid = weight.scale; !grid.empty()) {
      m.group_rows = int32_t(grid.group_rows);
      m.group_cols = int32_t(grid.group_cols);
      m.grid_cols = int32_t(grid.cols);
      m.row_origin = int32_t(grid.row_origin);
      m.row_period = int32_t(grid.row_period);
      m.group_shift = uint8_t(std::bit_width(uint32_t(m.group_cols)) - 1);
      m.f16_scales = is_q8_0(weight);
      // cuBLASLt wants rows of scales of blocks to be a multiple of 4 apart.
      if (grid.group_rows == 128 && m.grid_cols > 1) m.grid_cols = int32_t(round_up(m.grid_cols, 4));
      const int64_t groups = grid.rows * m.grid_cols;
      if (keeps_levels(weight)) {
        m.super_shift = uint8_t(grid.super.shift);
        m.scale = layout.take<int8_t>(groups);
        m.super_scale = layout.take<uint16_t>(groups >> m.super_shift);
        if (!weight.minimum.empty()) {
          m.minimum_codes = layout.take<int8_t>(groups);
          m.super_minimum = layout.take<uint16_t>(groups >> m.super_shift);
        }
      } else {
        m.scale =
            m.f16_scales ? static_cast<void*>(layout.take<uint16_t>(round_up(groups, 2))) : layout.take<float>(groups);
        if (!weight.minimum.empty()) {
          m.minimum = layout.take<float>(groups);
        } else if (weight.has_offsets()) {
          m.zero_point = layout.take<float>(groups);
        }
      }
    }
    if (weight.ordered) m.column_order = layout.take<int32_t>(weight.cols);
    matrices_[&weight] = m;
  }
  for (const Vector& vector : plan_.vectors) vectors_[&vector].values = layout.take<float>(round_up(vector.size, kPad));
}

void WeightStore::load(Device& device, WeightScan* scan) {
  const int workers = std::clamp(available_cores(), 1, kMostUploaders);
  memory_ = DeviceMemory(device, bytes_, "weights");
  DeviceLayout layout(memory_.data());
  lay_out(layout);
  size_t half_bytes = kHalfBytes;
  bool any_blocks = false;
  for (const Weight& weight : plan_.weights) {
    half_bytes = std::max({half_bytes, size_t(weight.row_bytes), size_t(weight.cols * code_bytes(weight.codes)),
                           size_t(weight.scale.cols) * sizeof(float)});
    any_blocks |= is_q8_0(weight);
  }
  const DeviceMemory blocks(device, any_blocks ? size_t(workers) * half_bytes : 0, "blocks of Q8_0");

  std::vector<Task> tasks;
  std::vector<Extremes> extremes(plan_.weights.size());
  std::vector<std::vector<float>> vectors;
  vectors.reserve(plan_.vectors.size());
  for (size_t i = 0; const Weight& weight : plan_.weights) {
    Matrix& m = matrices_.at(&weight);
    if (weight.ordered && weight.column_order.empty()) m.column_order = nullptr;  // the natural order after all
    Extremes& seen = extremes[i++];
    add_codes(tasks, weight, m, blocks.data(), half_bytes, scan, seen);
    if (keeps_levels(weight)) {
      add_levels(tasks, m.scale, m.super_scale, weight.scale, seen.scale);
      if (!weight.minimum.empty()) add_levels(tasks, m.minimum_codes, m.super_minimum, weight.minimum, seen.minimum);
    } else if (!is_q8_0(weight)) {
      add_grid(
          tasks, m.scale, m.grid_cols, weight.scale,
          [&](int64_t row, int64_t rows) { return values_of(weight.scale, row, rows); },
          [&](const auto& values) { seen.scale.raise(largest_of(values)); });
    }
    if (m.zero_point != nullptr) {
      add_grid(
          tasks, m.zero_point, m.grid_cols, weight.scale,
          [&](int64_t row, int64_t rows) { return zero_points_of(weight, row, rows); },
          [&](const auto& values) {
            seen.zero_point.raise(largest_of(values));
            if (!whole(values)) seen.whole_zero_points = false;
          });
    }
    if (m.minimum != nullptr) {
      add_grid(
          tasks, m.minimum, m.grid_cols, weight.scale,
          [&](int64_t row, int64_t rows) { return minimums_of(weight, row, rows); },
          [&](const auto& values) { seen.minimum.raise(largest_of(values)); });
    }
    if (m.column_order != nullptr)
      add_bytes(tasks, m.column_order, weight.column_order.data(), weight.column_order.size() * sizeof(int32_t));
  }
  for (const Vector& vector : plan_.vectors) {
    const std::vector<float>& values = vectors.emplace_back(vector.values());
    DeviceVector& there = vectors_.at(&vector);
    there.largest = largest_of(values);
    add_bytes(tasks, there.values, values.data(), values.size() * sizeof(float));
  }

  std::atomic<size_t> next{0};
  const std::thread::id caller = std::this_thread::get_id();
  on_all_cores(size_t(workers), [&](size_t index) {
    try {
      device.bind_thread();
      Uploader uploader(device, half_bytes, int(index));
      for (size_t i; (i = next++) < tasks.size();) {
        tasks[i](uploader);
        if (scan != nullptr && std::this_thread::get_id() == caller) scan->report();
      }
      uploader.wait();
    } catch (...) {
      next = tasks.size();  // the others stop
      throw;
    }
  });
  for (size_t i = 0; const Weight& weight : plan_.weights) {
    const Extremes& seen = extremes[i++];
    Matrix& m = matrices_.at(&weight);
    const float scale = m.scale == nullptr ? 1 : seen.scale.value();
    m.largest = scale * largest_code(weight.codes, seen.zero_point.value()) + seen.minimum.value();
    m.whole_zero_points = seen.whole_zero_points;
  }
  find_nan_codes(device);
}

void WeightStore::find_nan_codes(Device& device) {
  std::vector<Matrix*> searched;
  for (auto& [weight, matrix] : matrices_) {
    if (matrix.kind == Codes::kE4M3) searched.push_back(&matrix);
  }
  if (searched.empty()) return;
  const DeviceMemory found(device, searched.size() * sizeof(uint32_t), "searching weights");
  auto* const counts = reinterpret_cast<uint32_t*>(found.data());
  for (size_t i = 0; i < searched.size(); ++i) QGEN_BACKEND::find_nan_codes(device.stream(), *searched[i], counts + i);
  std::vector<uint32_t> read(searched.size());
  copy_to_host(device.stream(), read.data(), counts, read.size() * sizeof(uint32_t));
  device.wait();
  for (size_t i = 0; i < searched.size(); ++i) searched[i]->nan_codes = read[i] > 0;
}

Matrix WeightStore::matrix(const Weight& weight, const Vector* bias) const {
  Matrix m = matrices_.at(&weight);
  m.bias = vector(bias);
  return m;
}

DeviceNorm WeightStore::norm(const Norm& norm) const {
  DeviceNorm out;
  out.kind = norm.kind;
  out.weight = vector(norm.weight);
  out.bias = vector(norm.bias);
  out.wide_weight = norm.weight != nullptr && norm.weight->size > norm.group;
  out.wide_bias = norm.bias != nullptr && norm.bias->size > norm.group;
  out.group = int(norm.group);
  out.eps = float(norm.eps);
  return out;
}

}  // namespace qgen::QGEN_BACKEND
