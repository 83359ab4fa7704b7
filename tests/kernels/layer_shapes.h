// What the tests of matrix products share: weights of every kind and odd shape.
#pragma once

#include "tests/kernels/on_device.h"

namespace qgen::test {

struct Shape {
  Codes codes;
  int64_t rows, cols, group_rows, group_cols;
  bool zero_points = false;
};

inline std::vector<Shape> shapes() {
  return {
      {Codes::kF32, 9, 40, 1, 0},          {Codes::kF16, 37, 72, 1, 0},        {Codes::kBf16, 40, 96, 1, 0},
      {Codes::kBf16, 3, 17, 1, 0},         {Codes::kI8, 50, 128, 1, 128},      {Codes::kI8, 35, 100, 35, 100},
      {Codes::kI8, 35, 104, 1, 104, true}, {Codes::kI8, 34, 576, 1, 64},       {Codes::kI8, 34, 256, 1, 64, true},
      {Codes::kI8, 18, 160, 1, 32},        {Codes::kI8, 18, 160, 1, 32, true}, {Codes::kI8, 18, 96, 1, 20, true},
      {Codes::kE4M3, 40, 300, 128, 128},   {Codes::kE4M3, 150, 320, 64, 128},  {Codes::kE4M3, 17, 64, 17, 64},
      {Codes::kE4M3, 17, 64, 1, 64},       {Codes::kE4M3, 20, 64, 1, 32},      {Codes::kE4M3, 20, 90, 3, 7},
      {Codes::kE5M2, 33, 128, 1, 128},     {Codes::kE5M2, 33, 128, 1, 64},     {Codes::kE4M3, 5, 2600, 128, 128},
      {Codes::kI8, 18, 160, 1, 16},        {Codes::kI8, 18, 160, 1, 16, true}, {Codes::kI8, 37, 112, 1, 16},
      {Codes::kI8, 4, 4200, 1, 4200},      {Codes::kI8, 3, 12000, 1, 12000},   {Codes::kI8, 300, 320, 128, 128, true}};
}

// A summary for messages.
inline std::string text(const Shape& s, int tokens) {
  return std::string(codes_name(s.codes)) + " " + std::to_string(s.rows) + "x" + std::to_string(s.cols) + " tiles " +
         std::to_string(s.group_rows) + "x" + std::to_string(s.group_cols) + (s.zero_points ? " zero points" : "") +
         ", " + std::to_string(tokens) + " tokens";
}

inline DeviceMemory lay_out(gpu::Device& device, LinearDispatch& runner, const LinearSizes& sizes,
                            Activations activations) {
  return memory_for(device, 0, [&](DeviceLayout& layout) { runner.lay_out(layout, sizes, activations); });
}

}  // namespace qgen::test
