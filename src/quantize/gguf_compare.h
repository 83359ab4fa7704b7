// The matrices of a GGUF file that was written, beside those it was made from.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "quantize/gguf_layout.h"
#include "quantize/job.h"

namespace qgen::quantize {

// `most`: so many of them, spread over the file; -1: all. `told`: before each, of so many; it may throw.
std::vector<Comparison> compare_gguf(const GgufLayout& layout, const std::filesystem::path& file, int64_t most,
                                     const std::function<void(size_t done, size_t all)>& told);

}  // namespace qgen::quantize
