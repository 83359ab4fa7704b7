// The preparation of a run of `qgen quantize`, before anything is written: the checkpoint, smoothed if asked for, the
// choice of the matrices that are quantized, and the weight of each of their columns in the quantization error.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "quantize/job.h"
#include "quantize/shard_writer.h"
#include "quantize/source.h"

namespace qgen::quantize {

class Preparation {
 public:
  // Throws an Error where the checkpoint cannot be read, or nothing in it can be quantized.
  explicit Preparation(const JobOptions& options);

  const Source& source() const { return source_; }
  std::span<const std::string_view> reasons() const { return reasons_; }  // for each matrix; "": it is quantized
  const ColumnWeights& weights() const { return weights_; }
  JobReport take_report() { return std::move(report_); }  // with what is known by now

 private:
  void check_whole();
  void choose();
  void use_statistics();

  const JobOptions& options_;
  JobReport report_;
  Source source_;
  std::vector<std::string_view> reasons_;
  ColumnWeights weights_;
};

}  // namespace qgen::quantize
