#include "kernels/device/experts_chosen.cuh"

#include <algorithm>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

unsigned choices_of(const ExpertsProduct& product) { return unsigned(product.tokens * product.chosen); }

}  // namespace

void multiply_chosen(Stream& stream, const ChosenArgs& args) {
  const Matrix& like = args.product.like;
  with_expert_grid(like, [&]<typename Grid>() {
    using Traits = GemvTraits<Grid, 1, kChosenWarps>;
    const unsigned choices = choices_of(args.product),
                   tiles = blocks_of(like.rows, Traits::tile_rows(args.product.gate != nullptr));
    const GemvLaunch<Traits> shape(stream, 1, like.cols, int(choices * tiles), kChosenSharedBytes);
    if (!shape.fits) return multiply_chosen_any(stream, args);
    ChosenKernelArgs chosen{args, {{}, {}, int(tiles), shape.slab, shape.tiles_at_once}};
    GemvArgs& gemv = chosen.gemv.linear;
    gemv.part[0] = gemv.part[1] = like;
    gemv.gated = args.product.gate != nullptr;
    gemv.parts = gemv.gated ? 2 : 1;
    gemv.norm = args.norm;
    gemv.norm_eps = args.norm_eps;
    launch(stream, "experts", chosen_kernel<Traits>, {choices, std::max(1u, shape.blocks / choices)}, Traits::kThreads,
           size_t(shape.bytes), chosen);
  });
}

void multiply_chosen_any(Stream& stream, const ChosenArgs& args) {
  with_codes(args.product.like.kind, [&]<Codes kCodes>() {
    launch(stream, "experts any", chosen_any_kernel<kCodes>,
           {choices_of(args.product), blocks_of(args.product.like.rows, kRowWarps)}, kRowWarps * kWarp, 0, args);
  });
}

void add_choices(Stream& stream, const AddChoicesArgs& args) {
  launch(stream, "add choices", add_choices_kernel, {blocks_of(args.cols, kAddThreads), unsigned(args.tokens)},
         kAddThreads, 0, args);
}

}  // namespace qgen::QGEN_BACKEND
