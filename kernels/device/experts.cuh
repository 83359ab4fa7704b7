// What products of the experts that tokens have chosen share: experts_chosen.cuh has those of a few tokens,
// experts_grouped.cuh those of many.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

// Of choice i of a token; `route` as ExpertsProduct has it.
QGEN_DEVICE int expert_of(const float* route, int64_t route_stride, int chosen, int64_t token, int i) {
  return route == nullptr ? i : int(route[token * route_stride + chosen + i]);
}

// Choice `index` of a token.
struct Choice {
  int64_t token;
  int index, expert;
  float factor;  // of its input
};
QGEN_DEVICE Choice choice_of(const ExpertsProduct& product, int number) {
  const int token = number / product.chosen, i = number - token * product.chosen;
  const int expert = expert_of(product.route, product.route_stride, product.chosen, token, i);
  return {token, i, expert, product.weighted_input ? product.route[token * product.route_stride + i] : 1};
}
// The input of a choice.
QGEN_DEVICE const float* input_of(const ChosenArgs& args, const Choice& choice) {
  return args.x + choice.token * args.x_stride + choice.index * args.x_choice_stride;
}
QGEN_DEVICE float* result_of(const ExpertsProduct& product, const Choice& choice) {
  return product.y + choice.token * product.y_stride + choice.index * product.y_choice_stride;
}

// Row `row` of the result, of an expert's products without biases; `gate` is ignored without gates.
QGEN_DEVICE float expert_result(const ExpertsProduct& product, int expert, int row, float gate, float up) {
  const int64_t bias = int64_t(expert) * product.like.rows + row;
  if (product.up_bias != nullptr) up += product.up_bias[bias];
  if (product.gate == nullptr) return activated(product.activation, up);
  if (product.gate_bias != nullptr) gate += product.gate_bias[bias];
  if (product.limit > 0) {
    gate = gate > product.limit ? product.limit : gate;
    up = up > product.limit ? product.limit : up < -product.limit ? -product.limit : up;
  }
  return activated(product.activation, gate) * (up + product.up_offset);
}

// An expert's matrices, a gate first, to shared memory.
QGEN_DEVICE void copy_matrices(const ExpertsProduct& product, int expert, Matrix* to) {
  const bool gated = product.gate != nullptr;
  const int i = thread_index();
  if (i < (gated ? 2 : 1)) to[i] = (gated && i == 0 ? product.gate : product.up)[expert];
}

}  // namespace qgen::QGEN_BACKEND
