// Writes one file of a quantized checkpoint on all cores, strip by strip: what is in memory at a time is a few strips,
// whatever the model, and the bytes do not depend on the number of cores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "quantize/compare.h"
#include "quantize/layout.h"
#include "quantize/matrix_quantizer.h"

namespace qgen::quantize {

// How much the error of each column of a matrix counts; none where all count the same.
using ColumnWeights = std::map<const SourceMatrix*, std::vector<float>>;

// Writes a shard. `told`: now and then how many bytes of the source are done, on the calling
// thread; it may throw. Throws a model Error where a matrix holds NaN or infinity, a runtime Error where the file
// cannot be written.
void write_shard(const Shard& shard, const std::filesystem::path& path, const Recipe& recipe,
                 const ColumnWeights& weights, const std::function<void(uint64_t bytes)>& told);

// Bytes of the source that a shard is made from.
uint64_t source_bytes(const Shard& shard);

// (rows), (cols): where row n, and column k, of a matrix is in another; empty: at n, at k.
struct Places {
  std::vector<int64_t> rows, cols;
};

// A matrix and what became of it, a weight that is ready to be read. `as_tool`: as quantize_fp8.py compares them,
// rounded to the matrix' type and with bands that are the same for all sizes of weights.
Likeness compare(const SourceMatrix& matrix, const Weight& written, bool as_tool, const Places& places = {});

}  // namespace qgen::quantize
