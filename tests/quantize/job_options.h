// The options of a run of `qgen quantize` in tests.
#pragma once

#include "quantize/job.h"

namespace qgen::test {

// `verified`: matrices that are compared in each shard; -1: all.
inline quantize::JobOptions options_for(const std::filesystem::path& model, const std::filesystem::path& out,
                                        quantize::Format format, int64_t verified = 5) {
  quantize::JobOptions options;
  options.model = model.string();
  options.out = out;
  options.recipe.format = format;
  options.verified = verified;
  return options;
}

}  // namespace qgen::test
