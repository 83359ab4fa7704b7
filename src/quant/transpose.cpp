#include "quant/transpose.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {

Weight transposed_rows(const Weight& stored, int64_t first, int64_t rows) {
  if (stored.quantized() || !stored.scale.empty() || stored.in_blocks() || stored.repack != nullptr) {
    fail(ErrorKind::kModel, fmt::format("{}: quantized matrices stored (inputs, outputs) are not supported (found {})",
                                        stored.tensor, method_name(stored)));
  }
  Weight out;
  out.name = stored.name;
  out.rows = rows;
  out.cols = stored.rows;
  out.codes = stored.codes;
  out.row_bytes = out.cols * code_bytes(out.codes);
  out.tensor = stored.tensor;
  // As much of the tensor as the part is large: what the account and random weights go by until the repack.
  out.data = stored.data.subspan(size_t(first * out.row_bytes), size_t(rows * out.row_bytes));

  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [](Weight& w) {
    w.owned.resize(size_t(w.rows * w.row_bytes));
    w.data = w.owned;
  };
  const std::byte* const codes = stored.data.data() + first * code_bytes(stored.codes);
  repack->rows = [codes, pitch = stored.row_bytes](Weight& w, int64_t begin, int64_t end) {
    const size_t size = size_t(code_bytes(w.codes));
    for (int64_t n = begin; n < end; ++n) {
      std::byte* const row = w.owned.data() + n * w.row_bytes;
      for (int64_t k = 0; k < w.cols; ++k)
        std::memcpy(row + k * int64_t(size), codes + k * pitch + n * int64_t(size), size);
    }
  };
  out.repack = std::move(repack);
  return out;
}

}  // namespace qgen
