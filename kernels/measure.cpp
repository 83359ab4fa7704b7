#include "kernels/measure.h"

#include <algorithm>
#include <chrono>

#include "kernels/speed.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr size_t kReadBytes = size_t{1} << 30;  // far beyond any cache
constexpr int kReadPasses = 10, kBlocksPerProcessor = 8, kPeakRounds = 2000;
// Of the library's products: as large as they are fastest, or as fits.
constexpr int kLargestSize = 8192, kSmallestSize = 1024, kTimes = 8;
constexpr int64_t kBytesEach = 2 + 2 + 4;  // two operands of 16 bits and a sum

template <typename Work>
double seconds_of(Device& device, const Work& work) {
  work();  // brings the kernel into memory
  device.wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  device.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double library_speed(Device& device, LibraryGemmKind kind, int size, int times) {
  const int64_t count = int64_t{size} * size, operand = kind == LibraryGemmKind::kF16 ? 2 : 1;
  const DeviceMemory w(device, size_t(count * operand), "measuring"), x(device, size_t(count * operand), "measuring"),
      y(device, size_t(count) * sizeof(float), "measuring"),
      workspace(device, size_t(library_gemm_limits().workspace_bytes), "measuring");
  fill_randomly(device.stream(), w.data(), count * operand, kind, 1);
  fill_randomly(device.stream(), x.data(), count * operand, kind, 2);
  LibraryGemm gemm(device, workspace.data());
  LibraryGemmArgs args;
  args.kind = kind;
  args.w = w.data();
  args.x = x.data();
  args.y = y.data();
  args.rows = args.cols = args.tokens = size;
  args.w_stride = args.x_stride = args.y_stride = size;
  if (!gemm.can(args)) return 0;
  bool done = true;
  const double seconds = seconds_of(device, [&] {
    for (int i = 0; i < times; ++i) done = done && gemm.multiply(args);
  });
  return done ? 2.0 * double(count) * size * times / seconds : 0;
}

DeviceSpeed measure_device(Device& device, const EngineOptions& options, bool peaks) {
  const size_t free = free_device_memory(options.device_index);
  const int blocks = kBlocksPerProcessor * device.properties().processors;
  const DeviceMemory sink(device, sizeof(float), "measuring");
  auto* const result = reinterpret_cast<float*>(sink.data());
  DeviceSpeed speed;
  {
    const size_t bytes = std::min(kReadBytes, free / 4);
    const DeviceMemory memory(device, bytes, "measuring the memory");
    int64_t read = 0;
    const double seconds = seconds_of(device, [&] {
      read = 0;
      for (int i = 0; i < kReadPasses; ++i)
        read += read_memory(device.stream(), blocks, reinterpret_cast<const uint8_t*>(memory.data()), int64_t(bytes),
                            result);
    });
    speed.read_bytes_per_second = double(read) / seconds;
  }
  if (!peaks) return speed;
  int size = kLargestSize;
  while (size > kSmallestSize && size_t(2 * kBytesEach) * size_t(size) * size_t(size) > free) size /= 2;
  const auto library = [&](LibraryGemmKind kind) { return library_speed(device, kind, size, kTimes); };
  speed.float_ops_per_second = library(LibraryGemmKind::kF16);
  if (speed.float_ops_per_second == 0) {
    int64_t operations = 0;
    const double seconds =
        seconds_of(device, [&] { operations = multiply_registers(device.stream(), blocks, kPeakRounds, result); });
    speed.float_ops_per_second = double(operations) / seconds;
  }
  speed.int8_ops_per_second = speed.float_ops_per_second;  // weights of 8 bits meet 16-bit floats, too
  if (options.activations == Activations::k8Bit) {
    speed.int8_ops_per_second = std::max(speed.int8_ops_per_second, library(LibraryGemmKind::kI8));
    speed.float_ops_per_second = std::max(speed.float_ops_per_second, library(LibraryGemmKind::kE4M3));
  }
  return speed;
}

}  // namespace qgen::QGEN_BACKEND
