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
           {blocks_of(args.rows + args.kept, kExpertWarps), unsigned(args.tokens), unsigned(args.heads)},
           kExpertWarps * kWarp, 0, args);
  });
}

void run_experts(Stream& stream, const ExpertsArgs& args) {
  const auto tokens = unsigned(args.tokens);
  with_codes(args.in_kind, [&]<Codes kCodes>() {
    launch(stream, "experts in", experts_in_kernel<kCodes>,
           {blocks_of(args.width, kExpertWarps), tokens, unsigned(args.chosen)}, kExpertWarps * kWarp, 0, args);
  });
  with_codes(args.out_kind, [&]<Codes kCodes>() {
    launch(stream, "experts out", experts_out_kernel<kCodes>, {blocks_of(args.cols, kExpertWarps), tokens},
           kExpertWarps * kWarp, 0, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
