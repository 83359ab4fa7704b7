#include "kernels/device/inputs.cuh"

#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr size_t kRangeBytes = 2 * (kInputThreads / kWarp) * sizeof(float);

}  // namespace

void round_to_fp16(Stream& stream, const Fp16Args& args) {
  const int64_t strides = args.x_stride | args.part_stride | args.gate_stride | args.cols;
  const auto bytes = reinterpret_cast<uintptr_t>(args.x) | reinterpret_cast<uintptr_t>(args.gate);
  const bool in_pieces = strides % 4 == 0 && bytes % sizeof(Floats4) == 0;
  const auto pieces = [&]<InputGate kGate>() {
    return args.bf16 ? fp16_pieces_kernel<true, kGate> : fp16_pieces_kernel<false, kGate>;
  };
  const auto kernel = !in_pieces                             ? fp16_kernel
                      : args.gate == nullptr                 ? pieces.template operator()<InputGate::kNone>()
                      : args.activation == Activation::kSilu ? pieces.template operator()<InputGate::kSilu>()
                                                             : pieces.template operator()<InputGate::kOther>();
  launch(stream, "to fp16", kernel, {unsigned(args.tokens * args.parts)}, kInputThreads, kRangeBytes, args);
}

void split_to_fp16(Stream& stream, const SplitInputArgs& args) {
  const auto kernel = args.form == SplitForm::kBf16Windows32  ? split_kernel<true, 32>
                      : args.form == SplitForm::kF16Windows32 ? split_kernel<false, 32>
                                                              : split_kernel<false, 64>;
  launch(stream, "to two fp16", kernel, {unsigned(args.tokens)}, kGemvThreads, kGemvWarps * sizeof(float), args);
}

void quantize(Stream& stream, const QuantizeArgs& args) {
  const auto kernel = args.e4m3 ? quantize_kernel<true> : quantize_kernel<false>;
  launch(stream, "quantize", kernel, {unsigned(args.tokens)}, kInputThreads, kRangeBytes, args);
}

}  // namespace qgen::QGEN_BACKEND
