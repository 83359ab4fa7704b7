// A run of `qgen quantize` that writes a GGUF file.
#pragma once

#include "quantize/job.h"

namespace qgen::quantize {

// As run_job().
JobReport run_gguf_job(const JobOptions& options, const JobControl& control);

}  // namespace qgen::quantize
