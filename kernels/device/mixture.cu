#include "kernels/device/mixture.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void choose_experts(Stream& stream, const RouteArgs& args) {
  launch(stream, "route", route_kernel, {unsigned(args.tokens)}, kWarp, route_bytes(args), args);
}

void multiply_heads(Stream& stream, const HeadLinearArgs& args) {
  with_codes(args.kind, [&]<Codes kCodes>() {
    launch(stream, "head linear", head_linear_kernel<kCodes>,
           {blocks_of(args.rows + args.kept, kRowWarps), unsigned(args.tokens), unsigned(args.heads)},
           kRowWarps * kWarp, 0, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
