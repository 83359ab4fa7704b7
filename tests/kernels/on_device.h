// What the tests of the kernels for GPUs share: numbers and weights in the memory of a device, and plain double
// arithmetic to compare with. Compiled for the executor that runs kernels without a GPU (QGEN_SIMT), and once more for
// a GPU (on_gpu_test.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <random>

#include "base/rounding.h"
#include "kernels/cuda_backend.h"
#include "kernels/launches.h"
#include "kernels/linear_dispatch.h"
#include "kernels/runtime.h"
#include "kernels/weight_store.h"
#include "tests/random_weight.h"
#include "tests/support.h"

#if defined(QGEN_SIMT)
#include "kernels/simt/launch.h"
#else
#include "kernels/stream.h"
#endif

namespace qgen::test {
using namespace qgen::QGEN_BACKEND;
namespace gpu = qgen::QGEN_BACKEND;

#if defined(QGEN_SIMT)
constexpr Order kOrders[] = {Order::kAscending, Order::kDescending, Order::kShuffled};
#else
// A GPU has an order of its own, another one each time.
enum class Order { kAny1, kAny2, kAscending, kShuffled = kAny2 };
constexpr Order kOrders[] = {Order::kAny1, Order::kAny2, Order::kAny2};
inline void set_order(Order) {}
#endif
// What the executor begins with: blocks have several tiles each then, and wide inputs no room in shared memory.
inline void use_few_processors(Stream& stream) {
  stream.processors = 3;
  stream.shared_of_processor = 100 << 10;
  stream.shared_of_block = 99 << 10;
}

// Says so where there is no library of dense products to compare.
inline bool library_is_missing() {
  if (gemm_library_found()) return false;
  constexpr const char* kReason = "cuBLASLt was not found";
  // Where it is turned off, nothing is missing.
  const char* const setting = std::getenv("QGEN_CUBLASLT");
  if (setting != nullptr && std::string_view(setting) == "off") {
    MESSAGE(kReason);
  } else {
    skipped("its dense products", kReason);
  }
  return true;
}

// Numbers in the memory of the device.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(gpu::Device& device, const std::vector<T>& values)
      : device_(&device), count_(values.size()), memory_(device, std::max<size_t>(16, count_ * sizeof(T)), "test") {
    copy_to_device(device.stream(), memory_.data(), values.data(), count_ * sizeof(T));
    device.wait();
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> out(count_);
    copy_to_host(device_->stream(), out.data(), memory_.data(), count_ * sizeof(T));
    device_->wait();
    return out;
  }

 private:
  gpu::Device* device_ = nullptr;
  size_t count_ = 0;
  DeviceMemory memory_;
};

// Memory that lay_out(layout) has laid out, with this in every byte; of 0xFF floats are NaN.
template <typename LayOut>
DeviceMemory memory_for(gpu::Device& device, uint8_t byte, const LayOut& lay_out) {
  DeviceLayout size;
  lay_out(size);
  DeviceMemory memory(device, size.bytes(), "test");
  const std::vector<uint8_t> bytes(size.bytes(), byte);
  copy_to_device(device.stream(), memory.data(), bytes.data(), bytes.size());
  device.wait();
  DeviceLayout placed(memory.data());
  lay_out(placed);
  return memory;
}

// Rows of random activations as the kernels have them, zeros between a row's end and its stride.
struct Rows {
  Rows(std::mt19937& random, int64_t count, int64_t width, float size)
      : rows(count), cols(width), stride(round_up(width, kPad)), values(size_t(rows * stride)) {
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = normal(random, size_t(cols), size);
      std::copy(row.begin(), row.end(), values.begin() + r * stride);
    }
  }
  float at(int64_t r, int64_t c) const { return values[size_t(r * stride + c)]; }
  float* row(int64_t r) { return values.data() + r * stride; }

  int64_t rows, cols, stride;
  std::vector<float> values;
};

// rms_norm(x) * norm, in doubles.
inline std::vector<double> normed_row(const Rows& x, int64_t r, const std::vector<float>& norm, double eps) {
  double squares = 0;
  for (int64_t c = 0; c < x.cols; ++c) squares += double(x.at(r, c)) * x.at(r, c);
  const double factor = 1 / std::sqrt(squares / double(x.cols) + eps);
  std::vector<double> out(static_cast<size_t>(x.cols));
  for (int64_t c = 0; c < x.cols; ++c) out[size_t(c)] = x.at(r, c) * factor * norm[size_t(c)];
  return out;
}

inline std::vector<double> product(const Weight& weight, const std::vector<double>& x) {
  std::vector<double> out(size_t(weight.rows)), row(size_t(weight.cols));
  for (int64_t n = 0; n < weight.rows; ++n) {
    dequantize_row(weight, n, row);
    for (int64_t k = 0; k < weight.cols; ++k) out[size_t(n)] += row[size_t(k)] * x[size_t(k)];
  }
  return out;
}

// An engine of this device with one open sequence.
inline std::unique_ptr<TestEngine> make_gpu_engine(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<TestEngine>(std::make_unique<Engine>(plan, options, gpu::make_backend(plan, options)),
                                      options.context);
}
inline std::unique_ptr<TestEngine> make_gpu_engine(const Plan& plan, int64_t context, KvType kv = KvType::kF32,
                                                   Activations activations = Activations::k16Bit, int64_t batch = 512) {
  EngineOptions options;
  options.batch = batch;
  options.context = context;
  options.kv = kv;
  options.activations = activations;
  return make_gpu_engine(plan, options);
}

struct Difference {
  double squares = 0, norm = 0;
  void add(double found, double expected) {
    squares += (found - expected) * (found - expected);
    norm += expected * expected;
  }
  double error() const { return std::sqrt(squares / norm); }
};

inline Vector vector_of(std::vector<float> values) {
  Vector out;
  out.size = int64_t(values.size());
  out.given = std::move(values);
  return out;
}

// Weights on the executor's device.
class Layers {
 public:
  explicit Layers(std::vector<Weight> weights) : device_(0) {
    for (Weight& weight : weights) plan_.weights.push_back(std::move(weight));
    for (const Weight& weight : plan_.weights) {
      std::mt19937 random(7);
      plan_.vectors.push_back(vector_of(normal(random, size_t(weight.rows))));
    }
    std::mt19937 random(8);
    plan_.vectors.push_back(vector_of(normal(random, size_t(plan_.weights[0].cols))));
    store_.emplace(plan_);
    store_->load(device_, nullptr);
  }
  const Weight& weight(size_t i) const { return plan_.weights[i]; }
  const std::vector<float>& bias(size_t i) const { return plan_.vectors[i].given; }
  const std::vector<float>& norm() const { return plan_.vectors.back().given; }
  // The norm on the device.
  DeviceNorm device_norm(double eps) const {
    return store_->norm({Norm::Kind::kRms, &plan_.vectors.back(), nullptr, eps, plan_.vectors.back().size});
  }
  float norm_peak() const { return store_->largest(plan_.vectors.back()); }
  const float* norm_on_device() const { return store_->vector(&plan_.vectors.back()); }
  Matrix matrix(size_t i) const { return store_->matrix(plan_.weights[i], &plan_.vectors[i]); }
  Stream& stream() { return device_.stream(); }
  gpu::Device& device() { return device_; }

 private:
  Plan plan_;
  gpu::Device device_;
  std::optional<WeightStore> store_;
};

}  // namespace qgen::test
