#include "kernels/device/mixture.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void choose_experts(Stream& stream, const RouteArgs& args) {
  const size_t shared = size_t(2 * args.experts + args.groups) * sizeof(float);
  launch(stream, "route", route_kernel, {unsigned(args.tokens)}, kWarp, shared, args);
}

void multiply_heads(Stream& stream, const HeadLinearArgs& args) {
  with_codes(args.kind, [&]<Codes kCodes>() {
    launch(stream, "head linear", head_linear_kernel<kCodes>,
           {blocks_of(args.rows + args.kept, kRowWarps), unsigned(args.tokens), unsigned(args.heads)},
           kRowWarps * kWarp, 0, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
