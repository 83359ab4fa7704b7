// How weights are quantized: the format that comes out, and how a group's scale is found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor.h"
#include "quant/weight.h"

namespace qgen::quantize {

// One scale for each group: a block, a row ("channel"), a matrix ("tensor") or 32 columns of a row.
enum class Format : uint8_t { kFp8, kFp8Channel, kFp8Tensor, kInt8, kInt8Tensor, kMxFp8, kQ8_0 };
std::string_view format_name(Format format);
// As format_name() has it; a usage Error that begins with `subject` on anything else.
Format parse_format(std::string_view name, std::string_view subject);
std::string_view format_choices();  // their names: "fp8,fp8-channel,..."

// Where the scale comes from; with L the largest code (448 for E4M3, 127 for int8):
//   max         the largest magnitude / L
//   rms         max(factor * root of the mean square, the largest magnitude) / L, so that nothing is clipped
//   percentile  the p-quantile of the magnitudes / L
//   mse         of L's multiples from half to all of the largest magnitude, the one with the least squared error
enum class Mode : uint8_t { kMax, kRms, kPercentile, kMse };
std::string_view mode_name(Mode mode);
Mode parse_mode(std::string_view name, std::string_view subject);

struct Recipe {
  Format format = Format::kFp8;
  Mode mode = Mode::kMax;
  double rms_factor = 3;
  double percentile = 99.9;
  int mse_steps = 50;
  int64_t block = 128;  // rows and columns of a block (kFp8)
  // As QuixiAI's quantize_fp8.py: codes by the F32 scale, which is rounded to its stored type afterwards; matrices with
  // a side below 128 and stacks of experts are left as they are. Otherwise scales are rounded first.
  bool compat = false;

  bool is_fp8() const { return format != Format::kInt8 && format != Format::kInt8Tensor && !is_gguf(); }
  bool is_gguf() const { return format == Format::kQ8_0; }
  Codes codes() const { return is_fp8() ? Codes::kE4M3 : Codes::kI8; }
  float largest_code() const { return is_fp8() ? 448.0f : 127.0f; }
  // Whether the errors of columns may count differently.
  bool weighs_columns() const { return mode == Mode::kRms || mode == Mode::kMse; }
  // A tie of integers goes away from zero where one scale serves the matrix and in GGUF files, to even elsewhere.
  bool ties_away() const { return format == Format::kInt8Tensor || is_gguf(); }
  // The group that element (0, 0) of a (rows, cols) matrix is in.
  int64_t group_rows(int64_t rows) const;
  int64_t group_cols(int64_t cols) const;
  // The type in which the scales of a matrix of this type are stored.
  ScaleType scale_type(Dtype source) const;
  // "max", "rms (factor 3)", ...
  std::string mode_text() const;
};

}  // namespace qgen::quantize
