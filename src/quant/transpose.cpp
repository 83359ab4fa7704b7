#include "quant/transpose.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/repack.h"

namespace qgen {
namespace {

// In pieces that the first cache holds.
template <typename Code>
void transpose_rows(const std::byte* codes, int64_t pitch, Weight& weight, int64_t begin, int64_t end) {
  constexpr int64_t kPieceColumns = 64;
  for (int64_t first = 0; first < weight.cols; first += kPieceColumns) {
    const int64_t last = std::min(first + kPieceColumns, weight.cols);
    for (int64_t n = begin; n < end; ++n) {
      std::byte* const row = weight.owned.data() + n * weight.row_bytes;
      for (int64_t k = first; k < last; ++k)
        std::memcpy(row + k * int64_t(sizeof(Code)), codes + (k * pitch + n) * int64_t(sizeof(Code)), sizeof(Code));
    }
  }
}

}  // namespace

std::shared_ptr<const Weight::Repack> make_transposing_repack(const std::byte* codes, int64_t pitch) {
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = own_codes;
  repack->rows = [codes, pitch](Weight& weight, int64_t begin, int64_t end) {
    switch (code_bytes(weight.codes)) {
      case 1: return transpose_rows<uint8_t>(codes, pitch, weight, begin, end);
      case 2: return transpose_rows<uint16_t>(codes, pitch, weight, begin, end);
      default: return transpose_rows<uint32_t>(codes, pitch, weight, begin, end);
    }
  };
  return repack;
}

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

  out.repack = make_transposing_repack(stored.data.data() + first * code_bytes(stored.codes), stored.cols);
  return out;
}

}  // namespace qgen
