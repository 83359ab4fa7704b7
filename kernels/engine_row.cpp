// The row of the table of engines that a program with these objects has.
#include <algorithm>
#include <chrono>

#include "engine/engine.h"
#include "kernels/engine.h"
#include "kernels/runtime.h"
#include "kernels/speed.h"

namespace qgen {
namespace {

constexpr size_t kReadBytes = size_t{1} << 30;  // far beyond any cache
constexpr int kReadPasses = 10, kBlocksPerProcessor = 8, kPeakRounds = 2000;

bool available() { return cuda::device_count() > 0; }
size_t free_memory(const EngineOptions& options) { return cuda::free_device_memory(options.device_index); }
bool any_cache(KvType) { return true; }
int one_thread(const Plan&) { return 1; }

template <typename Work>
double seconds_of(cuda::Device& device, const Work& work) {
  work();  // brings the kernel into memory
  device.wait();
  const auto start = std::chrono::steady_clock::now();
  work();
  device.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

DeviceSpeed measure(const EngineOptions& options, bool peaks) {
  cuda::Device device(options.device_index);
  const size_t bytes = std::min(kReadBytes, cuda::free_device_memory(options.device_index) / 4);
  const cuda::DeviceMemory memory(device, bytes, "measuring the memory"), sink(device, sizeof(float), "measuring");
  auto* const result = reinterpret_cast<float*>(sink.data());
  const int blocks = kBlocksPerProcessor * device.properties().processors;
  DeviceSpeed speed;
  int64_t read = 0;
  const double read_seconds = seconds_of(device, [&] {
    read = 0;
    for (int i = 0; i < kReadPasses; ++i)
      read += cuda::read_memory(device.stream(), blocks, reinterpret_cast<const uint8_t*>(memory.data()),
                                int64_t(bytes), result);
  });
  speed.read_bytes_per_second = double(read) / read_seconds;
  if (peaks) {
    int64_t operations = 0;
    const double seconds = seconds_of(
        device, [&] { operations = cuda::multiply_registers(device.stream(), blocks, kPeakRounds, result); });
    // Weights of 8 bits meet 16-bit floats too.
    speed.float_ops_per_second = speed.int8_ops_per_second = double(operations) / seconds;
  }
  return speed;
}

constexpr EngineRow kRow = {"cuda",
                            "NVIDIA GPUs of compute capability 8.0 and later",
                            "vram",
                            available,
                            cuda::device_problem,
                            free_memory,
                            any_cache,
                            cuda::account_engine,
                            cuda::make_engine,
                            one_thread,
                            measure};

}  // namespace

const EngineRow* gpu_engine() { return &kRow; }

}  // namespace qgen
