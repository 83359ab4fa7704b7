// The row of the table of engines that a program with these objects has.
#include "engine/engine_table.h"
#include "kernels/cuda_backend.h"
#include "kernels/measure.h"
#include "kernels/runtime.h"
#include "kernels/shortlist.h"

namespace qgen {
namespace {

bool available() { return cuda::device_count() > 0; }
size_t free_memory(const EngineOptions& options) { return cuda::free_device_memory(options.device_index); }
int one_thread(const Plan&) { return 1; }
// Smaller heads have no shortlist: by the model of the time (bench/gpu_time.py) its launches cost as much as half of a
// head of 311 MB on an H200, and of one of 10 MB on an RTX 4060 Ti.
constexpr size_t kLeastHead = size_t{128} << 20;
int64_t shortlist_tokens(const Plan& plan) {
  const ShortlistHead head = cuda::Shortlist::head_of(plan);
  return head && head.weight().bytes() >= kLeastHead ? int64_t(cuda::Shortlist::kTokens) : 0;
}

DeviceSpeed measure(const EngineOptions& options, bool peaks) {
  cuda::Device device(options.device_index);
  return cuda::measure_device(device, options, peaks);
}

constexpr EngineRow kRow = {.name = "cuda",
                            .summary = "NVIDIA GPUs of compute capability 8.0 and later",
                            .memory = "vram",
                            .available = available,
                            .problem = cuda::device_problem,
                            .free_memory = free_memory,
                            .large_batch = 4096,
                            .shortlist_tokens = shortlist_tokens,
                            .account = cuda::account_backend,
                            .make = cuda::make_backend,
                            .useful_threads = one_thread,
                            .measure = measure};

}  // namespace

const EngineRow* gpu_engine() { return &kRow; }

}  // namespace qgen
