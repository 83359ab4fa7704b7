// kernels/runtime.h for the executor: memory of the host, and all work done by the thread that asks or waits for it.
#include "kernels/runtime.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/memory_check.h"

namespace qgen::simt {

namespace {
constexpr size_t kAlignment = 256;  // as a GPU's allocator has it
bool graphs_fail = false;

std::byte* allocate(size_t bytes, int value) {
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size_t(round_up(int64_t(bytes), kAlignment))));
  std::memset(data, value, bytes);
  add_buffer(data, bytes);
  return data;
}
void deallocate(std::byte* data) {
  remove_buffer(data);
  std::free(data);
}
}  // namespace

int device_count() { return 1; }
std::string device_problem() { return ""; }
size_t free_device_memory(int) { return size_t{8} << 30; }

struct Device::State {
  DeviceProperties properties{"executor", 4};
  Stream stream;
};
Device::Device(int) : state_(std::make_unique<State>()) {}
Device::~Device() = default;
const DeviceProperties& Device::properties() const { return state_->properties; }
Stream& Device::stream() { return state_->stream; }
void Device::bind_thread() {}
void Device::bring(void* host, const void* device, size_t bytes) { std::memcpy(host, device, bytes); }
void Device::settle() noexcept {
  try {
    wait();
  } catch (...) {
    // settle() reports no errors: the memory is about to be freed.
  }
}
void Device::wait() { state_->stream.work.wait_for(state_->stream.work.deferred()); }

struct Event::State {
  WorkQueue& work;
  size_t deferred = 0;
};
Event::Event(Device& device) : state_(new State{device.stream().work}) {}
Event::~Event() = default;
void Event::record() { state_->deferred = state_->work.deferred(); }
void Event::wait() { state_->work.wait_for(state_->deferred); }

DeviceMemory::DeviceMemory(Device&, size_t bytes, const char*) : data_(allocate(bytes, 0)) {}
void DeviceMemory::Free::operator()(std::byte* data) const { deallocate(data); }
// A GPU's has whatever was there before.
PinnedMemory::PinnedMemory(size_t bytes, const char*) : data_(allocate(bytes, 0xCD)) {}
void PinnedMemory::Free::operator()(std::byte* data) const { deallocate(data); }

void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) {
  stream.work.perform([=] {
    std::memcpy(device, host, bytes);
    check_all_ended();
  });
}
void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) {
  stream.work.perform([=] {
    std::memcpy(host, device, bytes);
    check_all_ended();
  });
}
void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) {
  stream.work.perform([=] {
    std::memcpy(to, from, bytes);
    check_all_ended();
  });
}
void clear_on_device(Stream& stream, void* data, size_t bytes) {
  stream.work.perform([=] {
    std::memset(data, 0, bytes);
    check_all_ended();
  });
}

struct Uploader::State {
  PinnedMemory halves;
  size_t half_bytes;
  int index;
  int next = 0;
  Stream stream;
};
Uploader::Uploader(Device&, size_t half_bytes, int index)
    : state_(new State{PinnedMemory(2 * half_bytes, "upload"), half_bytes, index, 0, {}}) {}
Uploader::~Uploader() = default;
std::byte* Uploader::next_half() {
  return state_->halves.data() + (state_->next = 1 - state_->next) * state_->half_bytes;
}
void Uploader::send(void* device, size_t bytes) {
  std::memcpy(device, state_->halves.data() + state_->next * state_->half_bytes, bytes);
}
void Uploader::send_rows(void* device, size_t pitch, size_t bytes, size_t rows) {
  for (size_t r = 0; r < rows; ++r) {
    std::memcpy(static_cast<std::byte*>(device) + r * pitch,
                state_->halves.data() + state_->next * state_->half_bytes + r * bytes, bytes);
  }
}
Stream& Uploader::stream() { return state_->stream; }
int Uploader::index() const { return state_->index; }
void Uploader::wait() {}

struct CudaGraph::State {
  std::vector<std::function<void()>> work;
};
void fail_graphs(bool all) { graphs_fail = all; }

CudaGraph::CudaGraph(Device&, const std::function<void()>& work) : state_(new State{record(work)}) {
  if (graphs_fail) fail(ErrorKind::kMemory, "capturing a CUDA graph: out of memory");
  if (state_->work.empty()) return;
  // What comes behind it waits for all of it.
  std::function<void()>& last = state_->work.back();
  last = [last] {
    last();
    check_all_ended();
  };
}
CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;
void CudaGraph::run(Device& device) const { device.stream().work.defer(state_->work); }

}  // namespace qgen::simt
