#include "kernels/device/rows.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/linear_any.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr size_t kReduceBytes = 2 * (kRowThreads / kWarp) * sizeof(float);

}  // namespace

void multiply_any(Stream& stream, const LinearArgs& args) {
  with_codes(args.part[0].kind, [&]<Codes kCodes>() {
    launch(stream, "any weight", multiply_any_kernel<kCodes>, {blocks_of(args.part[0].rows, kAnyWarps)},
           kAnyWarps * kWarp, 0, args);
  });
}

void normalize(Stream& stream, const NormArgs& args) {
  launch(stream, "normalize", normalize_kernel, {unsigned(args.tokens)}, kRowThreads, kReduceBytes, args);
}

void silu_mul(Stream& stream, float* gate, const float* up, int64_t stride, int cols, int tokens) {
  launch(stream, "silu", silu_mul_kernel, {blocks_of(cols, kRowThreads), unsigned(tokens)}, kRowThreads, 0,
         SiluArgs{gate, up, stride, cols});
}

void embed(Stream& stream, const EmbedArgs& args) {
  with_codes(args.table.kind, [&]<Codes kCodes>() {
    launch(stream, "embed", embed_kernel<kCodes>, {blocks_of(args.table.cols, kRowThreads), unsigned(args.tokens)},
           kRowThreads, 0, args, Start::kAfter);  // after the copy of its inputs
  });
}

}  // namespace qgen::QGEN_BACKEND
