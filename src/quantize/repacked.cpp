#include "quantize/repacked.h"

#include <utility>

#include "base/file_map.h"
#include "quant/weight_scan.h"

namespace qgen::quantize {
namespace {

// Codes of at most 2 bytes and an F32 scale for at least 16 of them: 144 MiB; what is joined is F32: 256 MiB.
constexpr int64_t kBatchElements = int64_t{64} << 20;

}  // namespace

std::vector<std::span<const SourceMatrix* const>> in_batches(std::span<const SourceMatrix* const> matrices) {
  std::vector<std::span<const SourceMatrix* const>> out;
  int64_t elements = 0;
  for (size_t begin = 0, i = 0; i < matrices.size(); ++i) {
    elements += matrices[i]->rows * matrices[i]->cols;
    const bool last = i + 1 == matrices.size();
    if (!last && elements + matrices[i + 1]->rows * matrices[i + 1]->cols <= kBatchElements) continue;
    out.push_back(matrices.subspan(begin, i + 1 - begin));
    begin = i + 1;
    elements = 0;
  }
  return out;
}

Repacked::Repacked(std::span<const SourceMatrix* const> matrices) {
  std::vector<Weight*> weights;
  for (const SourceMatrix* matrix : matrices) {
    Weight* const weight = matrix->weight.get();
    if (weight == nullptr) continue;
    decoded_.push_back(matrix);
    if (weight->repack == nullptr) continue;
    repacked_.push_back({weight, slice_rows(*weight, 0, weight->rows)});
    weights.push_back(weight);
  }
  repack_weights(weights);
}

Repacked::~Repacked() {
  for (Stored& stored : repacked_) *stored.weight = std::move(stored.before);
  for (const SourceMatrix* matrix : decoded_) {
    for (const TensorView* tensor : matrix->tensors) release_pages(tensor->bytes);
  }
}

}  // namespace qgen::quantize
