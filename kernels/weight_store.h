// A plan's weights in the memory of the device: rows padded for wide loads, Q8_0's blocks split into codes and scales,
// everything else as it is in the file.
#pragma once

#include <map>

#include "kernels/device_layout.h"
#include "kernels/launches.h"
#include "kernels/runtime.h"
#include "model/plan.h"
#include "quant/weight_scan.h"

namespace qgen::QGEN_BACKEND {

class WeightStore {
 public:
  // Lays the weights out; nothing is allocated yet, and no tensor's bytes are read.
  explicit WeightStore(const Plan& plan);
  size_t bytes() const { return bytes_; }
  // From the mapped files to the device, reading and copying side by side on several threads; `scan`, unless null, is
  // shown what goes by. The plan's repacks have run. Throws an Error.
  void load(Device& device, WeightScan* scan);

  Matrix matrix(const Weight& weight, const Vector* bias = nullptr) const;
  // (size up to a multiple of kPad, zeros at the end); null for null.
  const float* vector(const Vector* values) const { return values == nullptr ? nullptr : vectors_.at(values).values; }
  // No element of it is larger.
  float largest(const Vector& values) const { return vectors_.at(&values).largest; }
  DeviceNorm norm(const Norm& norm) const;

 private:
  void lay_out(DeviceLayout& layout);
  void find_nan_codes(Device& device);

  const Plan& plan_;
  size_t bytes_ = 0;
  DeviceMemory memory_;
  std::map<const Weight*, Matrix> matrices_;
  struct DeviceVector {
    float* values = nullptr;
    float largest = 0;  // once it is loaded
  };
  std::map<const Vector*, DeviceVector> vectors_;
};

}  // namespace qgen::QGEN_BACKEND
