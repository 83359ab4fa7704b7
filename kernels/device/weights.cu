#include "kernels/device/weights.cuh"

#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

// These follow copies and do not wait for their inputs by themselves, so none of them starts early.

void find_nan_codes(Stream& stream, const Matrix& w, uint32_t* found) {
  const int64_t bytes = w.rows * w.row_bytes;
  const unsigned blocks = blocks_of(bytes, kWeightThreads * 16 * kFindPieces);
  launch(stream, "find NaN codes", find_nan_codes_kernel, {blocks}, kWeightThreads, 0,
         FindNanArgs{w.codes, bytes, found}, Start::kAfter);
}

void unpack_q8_0(Stream& stream, const UnpackArgs& args) {
  launch(stream, "unpack Q8_0", unpack_q8_0_kernel,
         {blocks_of(args.rows * (args.cols / kQ8Block), kWeightThreads / 16)}, kWeightThreads, 0, args, Start::kAfter);
}

}  // namespace qgen::QGEN_BACKEND
