#include "kernels/runtime.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/kernel_log.h"
#include "kernels/stream.h"

namespace qgen::cuda {
namespace {

double gib(size_t bytes) { return double(bytes) / double(size_t{1} << 30); }

// What a user can do about an error of the runtime; "" where we know nothing.
std::string advice(cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver: return "install a newer NVIDIA driver, or use --device cpu";
    case cudaErrorNoDevice: return "--device cpu";
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      return "another program holds the GPU for itself alone; --device cpu works meanwhile";
    case cudaErrorNoKernelImageForDevice: return "this program was built for other GPUs: build it here (make cuda)";
    case cudaErrorECCUncorrectable: return "the GPU's memory is damaged; nvidia-smi -q -d ECC says more";
    case cudaErrorMemoryAllocation: return "a smaller --context needs less, or close what else uses the GPU";
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
      return "an error of this program or of the GPU; please report it with the command line";
    case cudaErrorSystemNotReady: return "the GPU's fabric manager is not running (nvidia-fabricmanager)";
    default: return "";
  }
}

[[noreturn]] void fail_cuda(cudaError_t status, const std::string& subject) {
  const bool memory = status == cudaErrorMemoryAllocation;
  const bool device = status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice ||
                      status == cudaErrorDevicesUnavailable || status == cudaErrorDeviceAlreadyInUse ||
                      status == cudaErrorNoKernelImageForDevice || status == cudaErrorSystemNotReady ||
                      status == cudaErrorInitializationError || status == cudaErrorInvalidDevice;
  fail(memory   ? ErrorKind::kMemory
       : device ? ErrorKind::kDevice
                : ErrorKind::kRuntime,
       fmt::format("{}: {} ({})", subject, cudaGetErrorString(status), cudaGetErrorName(status)), advice(status));
}

void check(cudaError_t status, const char* subject) {
  if (status != cudaSuccess) fail_cuda(status, fmt::format("cuda: {}", subject));
}

constexpr int kLeastCapability = 80;  // 8.0

// Without a driver, or with one that is too old, cudaGetDeviceCount() fails and says why.
struct Found {
  int count = 0;  // 0 where none is recent enough
  cudaError_t status = cudaSuccess;
  int best_capability = 0;
};
const Found& found() {
  static const Found value = [] {
    Found f;
    f.status = cudaGetDeviceCount(&f.count);
    if (f.status != cudaSuccess) f.count = 0;
    for (int i = 0; i < f.count; ++i) {
      int major = 0, minor = 0;
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i);
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i);
      f.best_capability = std::max(f.best_capability, 10 * major + minor);
    }
    if (f.best_capability < kLeastCapability) f.count = 0;
    return f;
  }();
  return value;
}

}  // namespace

void check_launch(cudaError_t status, const char* name) {
  if (status != cudaSuccess) fail_cuda(status, fmt::format("cuda: kernel '{}'", name));
}

LaunchTimes times_of_launch(const char* name, size_t blocks) {
  KernelLog* const log = KernelLog::current();
  return log == nullptr ? LaunchTimes() : log->add(name, blocks);
}

bool prepare_kernel(Stream& stream, const void* kernel, const char* name) {
  if (const auto known = stream.kernels.find(kernel); known != stream.kernels.end()) return known->second;
  int device = 0, most = 0;
  cudaFuncAttributes attributes{};
  check_launch(cudaGetDevice(&device), name);
  check_launch(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), name);
  check_launch(cudaFuncGetAttributes(&attributes, kernel), name);
  check_launch(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most - int(attributes.sharedSizeBytes)),
      name);
  check_launch(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
      name);
  // Code for earlier GPUs, which the driver may compile for this one, has nothing in wait_for_inputs().
  const bool overlaps = stream.overlap && attributes.ptxVersion >= 90;
  stream.kernels.emplace(kernel, overlaps);  // once all has worked: what has failed is tried again
  return overlaps;
}

int device_count() { return found().count; }

std::string device_problem() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);  // 0 without one
  cudaRuntimeGetVersion(&runtime);
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  if (found().count > 0) return "";
  if (driver == 0) return "no NVIDIA driver is installed";
  if (found().status == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is too old (expected one for CUDA {}, found one for {})", version(runtime),
                       version(driver));
  }
  if (found().status != cudaSuccess) return cudaGetErrorString(found().status);
  const int capability = found().best_capability;
  return capability == 0 ? "no GPU"
                         : fmt::format("no GPU of compute capability {}.{} or more (found {}.{})",
                                       kLeastCapability / 10, kLeastCapability % 10, capability / 10, capability % 10);
}

size_t free_device_memory(int device) {
  size_t free = 0, total = 0;
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();  // it is asked again, with an error, when the device is used
    return 0;
  }
  return free;
}

struct Device::State {
  int index = 0;
  DeviceProperties properties;
  Stream stream;
  cudaStream_t beside = nullptr;  // for bring()

  ~State() {
    for (cudaStream_t handle : {stream.handle, beside}) {
      if (handle != nullptr) cudaStreamDestroy(handle);
    }
  }
};

Device::Device(int index) : state_(std::make_unique<State>()) {
  if (index >= device_count()) {
    fail(ErrorKind::kDevice,
         device_count() == 0
             ? fmt::format("--device cuda: {}", device_problem())
             : fmt::format("--device cuda:{}: no such GPU (expected 0 to {})", index, device_count() - 1),
         "--device cpu");
  }
  state_->index = index;
  bind_thread();
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, index), "the GPU's properties");
  state_->properties = {p.name, p.multiProcessorCount};
  if (10 * p.major + p.minor < kLeastCapability) {
    fail(ErrorKind::kDevice,
         fmt::format("cuda: {} has compute capability {}.{} (expected {}.{} or more)", p.name, p.major, p.minor,
                     kLeastCapability / 10, kLeastCapability % 10),
         "--device cpu");
  }
  check(cudaStreamCreateWithFlags(&state_->stream.handle, cudaStreamNonBlocking), "a stream");
  check(cudaStreamCreateWithFlags(&state_->beside, cudaStreamNonBlocking), "a stream");
  state_->stream.overlap = p.major >= 9;
  state_->stream.processors = p.multiProcessorCount;
  state_->stream.shared_of_processor = int64_t(p.sharedMemPerMultiprocessor);
  state_->stream.shared_of_block = int64_t(p.sharedMemPerBlockOptin);
}
Device::~Device() = default;
const DeviceProperties& Device::properties() const { return state_->properties; }
Stream& Device::stream() { return state_->stream; }
void Device::bind_thread() { check(cudaSetDevice(state_->index), "choosing the GPU"); }
void Device::bring(void* host, const void* device, size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, state_->beside), "a copy from the GPU");
  check(cudaStreamSynchronize(state_->beside), "a copy from the GPU");
}
void Device::settle() noexcept { cudaStreamSynchronize(state_->stream.handle); }
void Device::wait() { check(cudaStreamSynchronize(state_->stream.handle), "waiting for the GPU"); }

struct Event::State {
  cudaStream_t stream;
  cudaEvent_t event = nullptr;

  ~State() {
    if (event != nullptr) cudaEventDestroy(event);
  }
};
Event::Event(Device& device) : state_(new State{device.stream().handle}) {
  check(cudaEventCreateWithFlags(&state_->event, cudaEventDisableTiming), "an event");
}
Event::~Event() = default;
void Event::record() { check(cudaEventRecord(state_->event, state_->stream), "an event"); }
void Event::wait() { check(cudaEventSynchronize(state_->event), "waiting for the GPU"); }

DeviceMemory::DeviceMemory(Device& device, size_t bytes, const char* subject) {
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail_cuda(status,
              fmt::format("{}: cannot get {:.2f} GiB of {}'s memory", subject, gib(bytes), device.properties().name));
  }
  data_.reset(static_cast<std::byte*>(data));
  check(cudaMemsetAsync(data, 0, bytes, device.stream().handle), subject);
  device.stream().next_waits = true;
}
void DeviceMemory::Free::operator()(std::byte* data) const { cudaFree(data); }

PinnedMemory::PinnedMemory(size_t bytes, const char* subject) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail_cuda(status, fmt::format("{}: cannot pin {:.2f} GiB of memory", subject, gib(bytes)));
  }
  data_.reset(static_cast<std::byte*>(data));
}
void PinnedMemory::Free::operator()(std::byte* data) const { cudaFreeHost(data); }

void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) {
  stream.next_waits = true;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream.handle), "a copy to the GPU");
}
void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) {
  stream.next_waits = true;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.handle), "a copy on the GPU");
}
void clear_on_device(Stream& stream, void* data, size_t bytes) {
  stream.next_waits = true;
  check(cudaMemsetAsync(data, 0, bytes, stream.handle), "clearing memory of the GPU");
}
void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) {
  stream.next_waits = true;
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream.handle), "a copy from the GPU");
}

struct Uploader::State {
  PinnedMemory halves;
  size_t half_bytes = 0;
  int index = 0;
  int next = 0;
  cudaEvent_t sent[2] = {};
  Stream stream;

  ~State() {
    if (stream.handle != nullptr) {
      cudaStreamSynchronize(stream.handle);  // nothing may travel from memory that goes away
      cudaStreamDestroy(stream.handle);
    }
    for (cudaEvent_t event : sent) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
};

Uploader::Uploader(Device& device, size_t half_bytes, int index) : state_(std::make_unique<State>()) {
  state_->halves = PinnedMemory(2 * half_bytes, "upload");
  state_->half_bytes = half_bytes;
  state_->index = index;
  for (cudaEvent_t& event : state_->sent) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  check(cudaStreamCreateWithFlags(&state_->stream.handle, cudaStreamNonBlocking), "a stream");
  device.wait();  // the memory that is written to has been cleared
}
Uploader::~Uploader() = default;
std::byte* Uploader::next_half() {
  state_->next = 1 - state_->next;
  check(cudaEventSynchronize(state_->sent[state_->next]), "an upload");
  return state_->halves.data() + state_->next * state_->half_bytes;
}
void Uploader::send(void* device, size_t bytes) { send_rows(device, bytes, bytes, 1); }
void Uploader::send_rows(void* device, size_t pitch, size_t bytes, size_t rows) {
  const std::byte* half = state_->halves.data() + state_->next * state_->half_bytes;
  if (pitch == bytes) {  // nothing lies between the rows
    pitch = bytes *= rows;
    rows = 1;
  }
  check(cudaMemcpy2DAsync(device, pitch, half, bytes, bytes, rows, cudaMemcpyHostToDevice, state_->stream.handle),
        "an upload");
  check(cudaEventRecord(state_->sent[state_->next], state_->stream.handle), "an upload");
}
Stream& Uploader::stream() { return state_->stream; }
int Uploader::index() const { return state_->index; }
void Uploader::wait() { check(cudaStreamSynchronize(state_->stream.handle), "an upload"); }

struct CudaGraph::State {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;

  ~State() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
};

CudaGraph::CudaGraph(Device& device, const std::function<void()>& work) : state_(std::make_unique<State>()) {
  const cudaStream_t stream = device.stream().handle;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a CUDA graph");
  const auto end = [&] {
    device.stream().next_waits = true;  // for what was launched before: nothing of what was captured has run
    return cudaStreamEndCapture(stream, &state_->graph);
  };
  try {
    work();
  } catch (...) {
    end();  // the stream is usable again
    throw;
  }
  check(end(), "capturing a CUDA graph");
  check(cudaGraphInstantiate(&state_->exec, state_->graph, 0), "capturing a CUDA graph");
}
CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;
void CudaGraph::run(Device& device) const {
  device.stream().next_waits = true;
  check(cudaGraphLaunch(state_->exec, device.stream().handle), "running a CUDA graph");
}

}  // namespace qgen::cuda
