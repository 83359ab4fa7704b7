#include "quantize/gguf_compare.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "model/open.h"
#include "quant/binder.h"
#include "quantize/repacked.h"
#include "quantize/shard_writer.h"

namespace qgen::quantize {
namespace {

// A matrix of the source, and the tensor that it is in, as one of several where that is a stack.
struct Written {
  size_t tensor, part;
  const SourceMatrix* matrix;
};

std::vector<Written> all_written(const GgufLayout& layout) {
  std::vector<Written> out;
  for (size_t i = 0; i < layout.contents.size(); ++i) {
    const auto& matrices = layout.contents[i].matrices;
    for (size_t part = 0; part < matrices.size(); ++part) out.push_back({i, part, matrices[part]});
  }
  return out;
}

// The matrices of a tensor of the file.
std::vector<Weight> read_back(const Checkpoint& checkpoint, const GgufTensorShape& shape, const Written& written) {
  Binder binder(checkpoint);
  const std::string module = shape.name.substr(0, shape.name.rfind('.'));
  const int64_t rows = written.matrix->rows, cols = written.matrix->cols;
  if (shape.shape.size() == 3) return binder.stack(module, shape.shape[0], rows, cols);
  std::vector<Weight> out;
  out.push_back(binder.matrix(module, rows, cols));
  return out;
}

}  // namespace

std::vector<Comparison> compare_gguf(const GgufLayout& layout, const std::filesystem::path& file, int64_t most,
                                     const std::function<void(size_t done, size_t all)>& told) {
  const std::vector<Written> matrices = all_written(layout);
  const auto all = int64_t(matrices.size()), count = most < 0 ? all : std::min(most, all);
  if (count == 0) return {};
  const Checkpoint checkpoint = open_checkpoint(locate_model(file.string()));
  std::vector<Weight> weights;  // of tensor number `tensor`
  size_t tensor = layout.shapes.size();
  std::vector<Comparison> out;
  for (int64_t turn = 0; turn < count; ++turn) {
    const Written& written = matrices[spread(turn, count, all)];
    const SourceMatrix& matrix = *written.matrix;
    told(size_t(turn), size_t(count));
    if (written.tensor != tensor) weights = read_back(checkpoint, layout.shapes[written.tensor], written);
    tensor = written.tensor;
    const Weight& weight = weights[written.part];
    const Repacked repacked(std::span(&written.matrix, 1));
    const GgufContent& content = layout.contents[written.tensor];
    out.push_back(
        {matrix.name, matrix.rows, matrix.cols, compare(matrix, weight, false, {content.rows, content.cols})});
    release_pages(weight.data);
  }
  return out;
}

}  // namespace qgen::quantize
