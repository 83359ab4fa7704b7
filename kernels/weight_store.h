// A plan's weights in the memory of the device: rows padded for wide loads, blocks of Q8_0 split into codes and scales,
// everything else as it is in the file.
#pragma once

#include <map>

#include "kernels/device_layout.h"
#include "kernels/runtime.h"
#include "kernels/steps.h"
#include "model/plan.h"

namespace qgen::QGEN_BACKEND {

class WeightStore {
 public:
  // Lays the weights out; nothing is allocated yet.
  explicit WeightStore(const Plan& plan);
  size_t bytes() const { return bytes_; }
  // From the mapped files to the device, reading and copying side by side on several threads; `scan`, unless null, is
  // shown what goes by. Throws an Error.
  void load(Device& device, WeightScan* scan);

  Matrix matrix(const Linear& linear) const;
  Matrix table(const Weight& weight) const { return matrices_.at(&weight); }
  // (size up to a multiple of kPad, zeros at the end); null for null.
  const float* vector(const std::vector<float>* values) const {
    return values == nullptr ? nullptr : vectors_.at(values).values;
  }
  // No number of it is larger.
  float largest(const std::vector<float>& values) const { return vectors_.at(&values).largest; }

 private:
  void lay_out(DeviceLayout& layout);
  void find_nan_codes(Device& device);

  const Plan& plan_;
  size_t bytes_ = 0;
  DeviceMemory memory_;
  std::map<const Weight*, Matrix> matrices_;
  struct Vector {
    float* values = nullptr;
    float largest = 0;  // once it is loaded
  };
  std::map<const std::vector<float>*, Vector> vectors_;
};

}  // namespace qgen::QGEN_BACKEND
