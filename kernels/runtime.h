// The device as the engine's host side sees it: memory, copies, a stream of work and CUDA graphs captured from it. All
// errors are thrown: a device Error where there is no usable GPU, a memory Error where an allocation fails, a runtime
// Error for what a kernel did, each with what to do about it where we know.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "kernels/namespace.h"

namespace qgen::QGEN_BACKEND {

class Stream;

struct DeviceProperties {
  std::string name;  // "NVIDIA H200"
  int processors = 0;
};

// GPUs that this program can use; 0 where there is no driver. Cheap after the first call.
int device_count();
// Why there is none, for a message.
std::string device_problem();
// Bytes free on a device now, this program's own context taken off; 0 if that cannot be found out.
size_t free_device_memory(int device);
// What cudaMalloc() and its like round to.
constexpr int64_t kAllocationUnit = 2 << 20;

// One device, for as long as the object lives; calls come from one thread at a time.
class Device {
 public:
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;

  const DeviceProperties& properties() const;
  Stream& stream();
  // Each further thread that uses the device says so first.
  void bind_thread();
  // Copies to pinned memory of the host what nothing that is under way writes, beside all that, and waits for the copy.
  void bring(void* host, const void* device, size_t bytes);
  // Waits for all that was asked for, and throws what went wrong with it, or not.
  void wait();
  void settle() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A place in the device's stream that can be waited for, while what was asked for behind it goes on.
class Event {
 public:
  explicit Event(Device& device);
  ~Event();
  Event(const Event&) = delete;

  // Behind all that has been asked for.
  void record();
  // Like Device::wait(), for what was asked for before.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Memory of the device, zero at first.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `subject` is for the error.
  DeviceMemory(Device& device, size_t bytes, const char* subject);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Memory of the host that a device reads and writes by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(size_t bytes, const char* subject);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

// In the stream's order; the host's side is pinned, or the caller waits.
void copy_to_device(Stream& stream, void* device, const void* host, size_t bytes);
void copy_to_host(Stream& stream, void* host, const void* device, size_t bytes);
void copy_on_device(Stream& stream, void* to, const void* from, size_t bytes);
void clear_on_device(Stream& stream, void* data, size_t bytes);  // to zero

// One worker's way of bringing data in: a pinned buffer of two halves, a stream of its own. While one half travels the
// caller fills the other. Several may work side by side on threads of their own.
class Uploader {
 public:
  // `index`: which of several it is.
  Uploader(Device& device, size_t half_bytes, int index);
  ~Uploader();
  Uploader(const Uploader&) = delete;

  // A half that is free, once its last copy is done.
  std::byte* next_half();
  // Sends the first `bytes` of that half.
  void send(void* device, size_t bytes);
  // As rows: `bytes` each, `pitch` apart on the device.
  void send_rows(void* device, size_t pitch, size_t bytes, size_t rows);
  // Where kernels on what was sent can be launched.
  Stream& stream();
  int index() const;
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A CUDA graph: work that is captured once and run again at the cost of one launch.
class CudaGraph {
 public:
  CudaGraph();
  // What `work` launches and copies on the device's stream is captured, not run.
  CudaGraph(Device& device, const std::function<void()>& work);
  ~CudaGraph();
  CudaGraph(CudaGraph&& other) noexcept;
  CudaGraph& operator=(CudaGraph&& other) noexcept;

  bool empty() const { return state_ == nullptr; }
  void run(Device& device) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qgen::QGEN_BACKEND
