// The row of the table of engines that a program with these objects has.
#include "engine/engine.h"
#include "kernels/engine.h"
#include "kernels/measure.h"
#include "kernels/runtime.h"

namespace qgen {
namespace {

bool available() { return cuda::device_count() > 0; }
size_t free_memory(const EngineOptions& options) { return cuda::free_device_memory(options.device_index); }
bool any_cache(KvType) { return true; }
int one_thread(const Plan&) { return 1; }

DeviceSpeed measure(const EngineOptions& options, bool peaks) {
  cuda::Device device(options.device_index);
  return cuda::measure_device(device, options, peaks);
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
