#include "kernels/device/rows.cuh"

#include <algorithm>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/gemv_any.cuh"
#include "kernels/device/gemv_columns.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr size_t kReduceBytes = 2 * (kRowThreads / kWarp) * sizeof(float);

}  // namespace

void gemv_any(Stream& stream, const GemvArgs& args) {
  if (const Matrix& w = args.part[0]; w.row_period > 0 && w.kind == Codes::kI8) {
    const unsigned rows = blocks_of(w.rows, w.row_period);  // that share a row of the grid
    launch(stream, "gemv columns", gemv_columns_kernel,
           {unsigned(w.row_period), blocks_of(rows, kColumnWarps * kColumnRows)}, kColumnWarps * kWarp, kColumnBytes,
           args);
    return;
  }
  with_codes(args.part[0].kind, [&]<Codes kCodes>() {
    launch(stream, "gemv any", gemv_any_kernel<kCodes>, {blocks_of(args.part[0].rows, kAnyWarps)}, kAnyWarps * kWarp, 0,
           args);
  });
}

void combine(Stream& stream, const CombineArgs& args) {
  constexpr int64_t kSome = 4 * kRowThreads;  // columns of a block
  const DeviceNorm& norm = args.norm;
  const unsigned blocks = norm.kind == Norm::Kind::kNone ? blocks_of(args.cols, kSome)
                          : norm.group == args.cols      ? 1
                                                         : blocks_of(args.cols / norm.group, kRowThreads / kWarp);
  const Dim grid{unsigned(args.tokens), std::max(1u, blocks)};
  if (is_plain_norm(args)) {
    launch(stream, "norm", combine_kernel<true>, grid, kRowThreads, kReduceBytes, args);
  } else {
    launch(stream, "combine", combine_kernel<false>, grid, kRowThreads, kReduceBytes, args);
  }
}

void look_up(Stream& stream, const LookupArgs& args) {
  const unsigned blocks =
      blocks_of(args.table.cols, kRowThreads) + blocks_of(args.inputs.bytes, kRowThreads * int64_t{sizeof(Bytes16)});
  // Kernels read the inputs of their call before they have waited for each other.
  const Start start = args.inputs.bytes > 0 ? Start::kAlone : Start::kEarly;
  with_codes(args.table.kind, [&]<Codes kCodes>() {
    launch(stream, "look up", look_up_kernel<kCodes>, {blocks, unsigned(args.tokens)}, kRowThreads, 0, args, start);
  });
}

}  // namespace qgen::QGEN_BACKEND
