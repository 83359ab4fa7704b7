#include "quantize/joined_matrices.h"

#include <memory>
#include <span>

#include "quant/binder.h"
#include "quant/transpose.h"
#include "quant/weight_scan.h"

namespace qgen::quantize {
namespace {

using Rows = std::vector<std::pair<int32_t, int64_t>>;

// An F32 matrix whose rows are made when it is needed, in one go: its parts may need a repack of their own, and go away
// with it.
Weight joined_weight(std::string name, std::shared_ptr<const std::vector<Weight>> stored, int64_t cols, Rows rows) {
  Weight out;
  out.name = std::move(name);
  out.rows = int64_t(rows.size());
  out.cols = cols;
  out.codes = Codes::kF32;
  out.row_bytes = cols * code_bytes(out.codes);
  out.tensor = stored->front().tensor;
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [stored = std::move(stored), rows = std::make_shared<const Rows>(std::move(rows))](Weight& weight) {
    std::vector<Weight> ready;
    for (const Weight& part : *stored) ready.push_back(slice_rows(part, 0, part.rows));
    for (Weight& part : ready) {
      Weight* const one = &part;
      repack_weights(std::span(&one, 1));
    }
    weight.owned.resize(size_t(weight.rows * weight.row_bytes));
    weight.data = weight.owned;
    auto* values = reinterpret_cast<float*>(weight.owned.data());
    for (const auto& [part, row] : *rows) {
      decode_row(ready[size_t(part)], row, std::span(values, size_t(weight.cols)));
      values += weight.cols;
    }
  };
  out.repack = std::move(repack);
  return out;
}

}  // namespace

void add_joined(Source& source, std::vector<JoinedMatrix> joined) {
  Binder binder(source.parts, true);  // what is refused for its method has been refused by now
  for (JoinedMatrix& matrix : joined) {
    const size_t before = binder.bindings().size();
    std::vector<Weight> parts;
    const auto add = [&](Weight weight, bool transposed) {
      parts.push_back(transposed ? transposed_rows(weight, 0, weight.cols) : std::move(weight));
    };
    for (const JoinedMatrix::Part& part : matrix.parts) {
      if (part.count == 0) {
        add(binder.matrix(part.module, part.rows, part.cols), part.transposed);
      } else {
        for (Weight& one : binder.stack(part.module, part.count, part.rows, part.cols))
          add(std::move(one), part.transposed);
      }
    }
    SourceMatrix& out = source.matrices.emplace_back();
    out.name = matrix.name;
    out.rows = int64_t(matrix.rows.size());
    out.cols = matrix.cols;
    out.type = source.float_type.value_or(Dtype::kBf16);
    out.parts = std::make_shared<const std::vector<Weight>>(std::move(parts));
    out.weight = std::make_shared<Weight>(joined_weight(matrix.name, out.parts, matrix.cols, std::move(matrix.rows)));
    for (size_t i = before; i < binder.bindings().size(); ++i) {
      for (const std::string& name : binder.bindings()[i].tensors) out.tensors.push_back(source.parts.find(name));
    }
  }
}

}  // namespace qgen::quantize
