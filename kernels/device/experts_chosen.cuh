// A few tokens and their experts: one choice after the other, as gemv.cuh multiplies, or in F32, a warp a row of a
// weight.
#pragma once

#include "kernels/device/experts.cuh"
#include "kernels/device/gemv.cuh"
#include "kernels/device/row_product.cuh"

namespace qgen::QGEN_BACKEND {

// The second product lets the kernel behind it start at once; the first one when it has its inputs, among them the
// route, which the second then reads before it waits for the first.
QGEN_DEVICE Beside beside_of(const ChosenArgs& args) { return {.previous = false, .next = !args.early_route}; }

// For choice x of the grid and row y of a warp.
template <Codes kCodes>
QGEN_KERNEL(kRowWarps* kWarp, 1)
chosen_any_kernel(const ChosenArgs args, const LaunchTimes times) {
  const Beside beside = beside_of(args);
  KernelScope scope(times, beside);
  scope.wait_for_inputs(beside);
  const ExpertsProduct& product = args.product;
  const int row = int(block_index().y) * kRowWarps + warp_index();
  if (row >= product.like.rows) return;
  const Choice choice = choice_of(product, int(block_index().x));
  const float* const x = input_of(args, choice);
  const float up = row_product<kCodes>(product.up[choice.expert], row, x) * choice.factor;
  float gate = 0;
  if (product.gate != nullptr) gate = row_product<kCodes>(product.gate[choice.expert], row, x) * choice.factor;
  if (lane_index() == 0) result_of(product, choice)[row] = expert_result(product, choice.expert, row, gate, up);
}

struct ChosenKernelArgs {
  ChosenArgs chosen;
  GemvKernelArgs gemv;  // of an expert, but for its matrices and inputs
};
constexpr int kChosenWarps = 8;  // of a block: experts have few columns

// What a block has for itself, at the beginning of shared memory.
struct ChosenShared {
  Matrix parts[2];  // of its expert
  int expert;
  float factor;  // of its inputs
  const float* x;
  float* y;
};
constexpr int kChosenSharedBytes = int(round_up(sizeof(ChosenShared), 128));

// For choice x of the grid and every so many tiles from y on: choices that share an expert read the same rows of it at
// about the same time.
template <typename Traits>
QGEN_KERNEL(Traits::kThreads, Traits::kResident)
chosen_kernel(const ChosenKernelArgs args, const LaunchTimes times) {
  const Beside beside = beside_of(args.chosen);
  const bool early = args.chosen.early_route;
  KernelScope scope(times, beside);
  const ExpertsProduct& product = args.chosen.product;
  // What describes an expert's matrices comes into L2 before it is known whose will be needed.
  if (block_index().y == 0) {
    for (int e = int(block_index().x) * Traits::kThreads + thread_index(); e < product.experts;
         e += int(grid_size().x) * Traits::kThreads) {
      fetch_line(product.up + e);
      if (product.gate != nullptr) fetch_line(product.gate + e);
    }
  }
  ChosenShared& own = *shared_memory<ChosenShared>();
  const int first = int(block_index().y), step = int(grid_size().y);
  GemvBlock<Traits> block(args.gemv, first, step, own.parts);
  GemvWindow<Traits> window;
  block.place_shared_memory(kChosenSharedBytes);
  block.keep_weights();
  if (early) {
    read_anew();
  } else {
    scope.wait_for_inputs(beside);
  }
  const Choice choice = choice_of(product, int(block_index().x));
  copy_matrices(product, choice.expert, own.parts);
  if (thread_index() == 0) {
    own.expert = choice.expert;
    own.factor = choice.factor;
    own.x = input_of(args.chosen, choice);
    own.y = result_of(product, choice);
  }
  barrier();
  block.ask_first();
  block.load_first_groups(window, first);
  if (early) scope.wait_for_inputs(beside);
  block.stage_inputs(own.x);  // and no stamp of that, for which there is no register left
  block.multiply_tiles(window, [&](int tile) {
    block.for_result(tile, [&](int, int, int row, const float(&result)[2]) {
      const float up = product.gate != nullptr ? result[1] : result[0];
      own.y[row] = expert_result(product, own.expert, row, result[0] * own.factor, up * own.factor);
    });
  });
}

constexpr int kAddThreads = 256;

QGEN_KERNEL(kAddThreads, 1) add_choices_kernel(const AddChoicesArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int c = int(block_index().x) * kAddThreads + thread_index();
  if (c >= args.cols) return;
  const int64_t token = block_index().y;
  const float* const weights = args.route != nullptr ? args.route + token * args.route_stride : nullptr;
  float sum = 0;
  for (int i = 0; i < args.chosen; ++i) {
    const float y = args.y[(token * args.chosen + i) * args.y_stride + c];
    sum = fused_product(weights != nullptr ? weights[i] : 1, y, sum);
  }
  float* const out = args.out + token * args.out_stride + c;
  *out = args.add ? *out + sum : sum;
}

}  // namespace qgen::QGEN_BACKEND
