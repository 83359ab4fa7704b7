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
bool whole(const std::vector<float>& offsets) {
  return std::all_of(offsets.begin(), offsets.end(),
                     [](float v) { return v == std::nearbyint(v) && std::abs(v) <= 255; });
}

float largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  return largest;
}

// The largest |code - offset| that there can be.
float largest_code(const Weight& weight) {
  switch (weight.codes) {
    case Codes::kI8: return 128 + largest_of(weight.offset.values);
    case Codes::kE4M3: return 448 + largest_of(weight.offset.values);
    case Codes::kE5M2: return 57344 + largest_of(weight.offset.values);
    default: return 0;  // nobody asks
  }
}

// Of blocks of Q8_0, the largest |scale|, as bits of F16, which are in the order of the numbers.
uint32_t largest_scale(const std::byte* blocks, int64_t bytes) {
  uint32_t largest = 0;
  for (int64_t at = 0; at < bytes; at += kQ8_0BlockBytes) {
    uint16_t bits;
    std::memcpy(&bits, blocks + at, sizeof(bits));
    largest = std::max<uint32_t>(largest, bits & 0x7FFF);
  }
  return largest;
}
void raise(std::atomic<uint32_t>& value, uint32_t to) {
  for (uint32_t seen = value; seen < to && !value.compare_exchange_weak(seen, to);) {
  }
}

// What one worker does at once.
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

// A grid whose rows are `tile_cols` apart there.
void add_grid(std::vector<Task>& tasks, const void* device, int64_t tile_cols, const Grid& grid) {
  add_rows(tasks, device, size_t(tile_cols) * sizeof(float), grid.values.data(), size_t(grid.tile_cols) * sizeof(float),
           grid.empty() ? 0 : size_t(grid.tile_rows));
}

// Rows [first, first + count) of a weight, in their logical order, as they are in the file. `scan`, unless null, sees
// them while they are in the processor's caches.
void gather_rows(const Weight& weight, int64_t first, int64_t count, std::byte* out, WeightScan* scan) {
  const int64_t bytes = weight.row_bytes();
  const int64_t at_once = weight.paired_heads > 0 ? 1 : std::max<int64_t>(1, kScanBytes / bytes);
  for (int64_t done = 0; done < count; done += at_once) {
    const size_t piece = size_t(std::min(at_once, count - done) * bytes);
    std::memcpy(out + done * bytes, weight.data.data() + weight.stored_row(first + done) * bytes, piece);
    if (scan != nullptr) scan->look(weight, {out + done * bytes, piece});
  }
}

void add_codes(std::vector<Task>& tasks, const Weight& weight, const Matrix& m, std::byte* blocks_on_device,
               size_t half_bytes, WeightScan* scan, std::atomic<uint32_t>& scale) {
  const int64_t row_bytes = weight.row_bytes();
  const int64_t rows_at_once = std::max<int64_t>(1, int64_t(half_bytes) / row_bytes);
  for (int64_t first = 0; first < weight.rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, weight.rows - first);
    auto* const codes = const_cast<uint8_t*>(m.codes) + first * m.row_bytes;
    if (weight.layout != Layout::kQ8_0Blocks) {
      tasks.push_back([=, &weight](Uploader& uploader) {
        gather_rows(weight, first, count, uploader.next_half(), scan);
        uploader.send_rows(codes, size_t(m.row_bytes), size_t(row_bytes), size_t(count));
      });
      continue;
    }
    // The blocks wait in memory of the worker's own until they are split.
    tasks.push_back([=, &weight, &scale](Uploader& uploader) {
      std::byte* const half = uploader.next_half();
      gather_rows(weight, first, count, half, scan);
      raise(scale, largest_scale(half, count * row_bytes));
      std::byte* const blocks = blocks_on_device + size_t(uploader.index()) * half_bytes;
      uploader.send(blocks, size_t(count * row_bytes));
      UnpackArgs unpack;
      unpack.blocks = reinterpret_cast<const uint8_t*>(blocks);
      unpack.codes = codes;
      unpack.scales = static_cast<uint16_t*>(const_cast<void*>(m.scale)) + first * m.tile_cols;
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
    const bool blocks = weight.layout == Layout::kQ8_0Blocks;
    Matrix m;
    m.rows = int32_t(weight.rows);
    m.cols = int32_t(weight.cols);
    m.kind = weight.codes;
    m.row_bytes = round_up(weight.cols * code_bytes(weight.codes), kRowAlignment);
    m.codes = layout.take<uint8_t>(weight.rows * m.row_bytes);
    m.group_cols = int32_t(weight.cols);
    if (!weight.scale.empty()) {
      m.group_rows = int32_t(weight.scale.group_rows);
      m.group_cols = int32_t(weight.scale.group_cols);
      m.tile_cols = int32_t(weight.scale.tile_cols);
      m.group_shift = uint8_t(std::bit_width(uint32_t(m.group_cols)) - 1);
      m.half_scales = blocks;
      // cuBLASLt wants rows of scales of blocks to be a multiple of 4 apart.
      if (weight.scale.group_rows == 128 && m.tile_cols > 1) m.tile_cols = int32_t(round_up(m.tile_cols, 4));
      const int64_t tiles = weight.scale.tile_rows * m.tile_cols;
      m.scale = blocks ? static_cast<void*>(layout.take<uint16_t>(tiles)) : layout.take<float>(tiles);
    }
    if (!weight.offset.empty()) {
      m.offset = layout.take<float>(weight.offset.tile_rows * m.tile_cols);  // as the scales lie
      m.whole_offsets = m.offset == nullptr || whole(weight.offset.values);  // nobody asks while sizes are learned
    }
    if (!weight.column_order.empty()) m.column_order = layout.take<int32_t>(int64_t(weight.column_order.size()));
    matrices_[&weight] = m;
  }
  for (const auto& vector : plan_.vectors)
    vectors_[&vector].values = layout.take<float>(round_up(int64_t(vector.size()), kPad));
}

void WeightStore::load(Device& device, WeightScan* scan) {
  const int workers = std::clamp(available_cores(), 1, kMostUploaders);
  memory_ = DeviceMemory(device, bytes_, "weights");
  DeviceLayout layout(memory_.data());
  lay_out(layout);
  size_t half_bytes = kHalfBytes;
  bool any_blocks = false;
  for (const Weight& weight : plan_.weights) {
    half_bytes = std::max({half_bytes, size_t(weight.row_bytes()), size_t(weight.scale.tile_cols) * sizeof(float)});
    any_blocks |= weight.layout == Layout::kQ8_0Blocks;
  }
  const DeviceMemory blocks(device, any_blocks ? size_t(workers) * half_bytes : 0, "blocks of Q8_0");

  std::vector<Task> tasks;
  std::vector<std::atomic<uint32_t>> block_scales(plan_.weights.size());  // the largest of each
  for (size_t i = 0; const Weight& weight : plan_.weights) {
    const Matrix& m = matrices_.at(&weight);
    add_codes(tasks, weight, m, blocks.data(), half_bytes, scan, block_scales[i++]);
    if (weight.layout != Layout::kQ8_0Blocks) add_grid(tasks, m.scale, m.tile_cols, weight.scale);
    add_grid(tasks, m.offset, m.tile_cols, weight.offset);
    add_bytes(tasks, m.column_order, weight.column_order.data(), weight.column_order.size() * sizeof(int32_t));
  }
  for (auto& [values, there] : vectors_) {
    there.largest = largest_of(*values);
    add_bytes(tasks, there.values, values->data(), values->size() * sizeof(float));
  }

  std::atomic<size_t> next{0};
  const std::thread::id caller = std::this_thread::get_id();
  on_all_cores(size_t(workers), [&](size_t index) {
    try {
      device.bind_thread();
      Uploader uploader(device, half_bytes, int(index));
      for (size_t i; (i = next++) < tasks.size();) {
        tasks[i](uploader);
        if (scan != nullptr && std::this_thread::get_id() == caller) scan->show();
      }
      uploader.wait();
    } catch (...) {
      next = tasks.size();  // the others stop
      throw;
    }
  });
  for (size_t i = 0; const Weight& weight : plan_.weights) {
    const float scale = weight.layout == Layout::kQ8_0Blocks ? f16_to_float(uint16_t(block_scales[i].load()))
                        : weight.scale.empty()               ? 1
                                                             : largest_of(weight.scale.values);
    matrices_.at(&weight).largest = scale * largest_code(weight);
    ++i;
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

Matrix WeightStore::matrix(const Linear& linear) const {
  Matrix m = matrices_.at(linear.weight);
  m.bias = vector(linear.bias);
  return m;
}

}  // namespace qgen::QGEN_BACKEND
