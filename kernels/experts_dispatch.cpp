#include "kernels/experts_dispatch.h"

#include <algorithm>

#include "kernels/linear_dispatch.h"
#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int64_t kFewestColumns = 128;  // of the result at once

}  // namespace

void ExpertsDispatch::lay_out(DeviceLayout& layout, std::span<const ExpertsSizes> layers,
                              std::span<const HeadsSizes> heads, int64_t tokens, Activations activations,
                              const Limits& limits) {
  activations_ = activations;
  limits_ = limits;
  int64_t inner = 0, most_choices = 0, tiles = 0, x = 0, x_rows = 0;
  product_floats_ = 0;
  for (const ExpertsSizes& sizes : layers) {
    const int64_t choices = tokens * sizes.chosen;
    inner = std::max(inner, choices * round_up(sizes.width, kPad));
    x = std::max(x, tokens * round_up(sizes.cols, kPad));
    x_rows = std::max(x_rows, tokens);
    most_choices = std::max(most_choices, choices);
    tiles = std::max(tiles, most_expert_tiles(choices, sizes.experts, kLeastTileShift));
    product_floats_ = std::max({product_floats_, std::min(choices * sizes.out_cols, limits.product_floats),
                                choices * std::min(sizes.out_cols, kFewestColumns), sizes.chosen * sizes.out_cols});
  }
  inner_ = layout.take<float>(inner);
  products_ = layout.take<float>(product_floats_);
  if (activations == Activations::kF32 || (layers.empty() && heads.empty())) return;
  for (const HeadsSizes& sizes : heads) {
    const int64_t choices = std::min(tokens * sizes.heads, std::max(limits.head_rows, sizes.heads));
    x = std::max(x, choices * round_up(sizes.cols, kPad));
    x_rows = std::max(x_rows, choices);
    most_choices = std::max(most_choices, choices);
    tiles = std::max(tiles, most_expert_tiles(choices, sizes.heads, kLeastTileShift));
  }
  x_.values = layout.take<uint16_t>(x);
  x_.factor = layout.take<float>(x_rows);
  inner_fp16_.values = layout.take<uint16_t>(inner);
  inner_fp16_.factor = layout.take<float>(most_choices);
  choice_ = layout.take<int32_t>(most_choices);
  tile_ = layout.take<ExpertTile>(tiles);
}

void ExpertsDispatch::run(Stream& stream, const ExpertsLayer& layer, int tokens, Kernels choice) {
  const bool on_tensor_cores = runs_on_tensor_cores(layer);
  if (on_tensor_cores && !LinearDispatch::are_few(tokens, choice)) return run_grouped(stream, layer, tokens);
  run_choices(stream, layer, tokens, on_tensor_cores && layer.padded_x ? multiply_chosen : multiply_chosen_any);
}

void ExpertsDispatch::run_choices(Stream& stream, const ExpertsLayer& layer, int tokens,
                                  void (*multiply)(Stream& stream, const ChosenArgs& args)) {
  const int chosen = layer.out.chosen, cols = layer.out.like.rows, width = layer.out.like.cols;
  const int64_t fit = product_floats_ / cols / chosen, inner_stride = round_up(width, kPad);
  for (int first = 0; first < tokens; first += int(fit)) {
    const int some = int(std::min<int64_t>(fit, tokens - first));
    const auto take_tokens = [&](ExpertsProduct& product) {
      product.route += first * product.route_stride;
      product.experts = layer.experts;
      product.tokens = some;
    };
    ChosenArgs in = layer.in;
    take_tokens(in.product);
    in.x += first * in.x_stride;
    in.product.y = inner_;
    in.product.y_stride = chosen * inner_stride;
    in.product.y_choice_stride = inner_stride;
    // Another layer's rows may have left something behind these, which the next product reads.
    if (multiply == multiply_chosen && width % kPad != 0)
      clear_on_device(stream, inner_, size_t(some * in.product.y_stride) * sizeof(float));
    multiply(stream, in);
    ChosenArgs out;
    out.product = layer.out;
    take_tokens(out.product);
    out.x = inner_;
    out.x_stride = in.product.y_stride;
    out.x_choice_stride = inner_stride;
    out.early_route = true;
    out.product.y = products_;
    out.product.y_stride = int64_t{chosen} * cols;
    out.product.y_choice_stride = cols;
    multiply(stream, out);
    AddChoicesArgs sum = layer.sum;
    sum.y = products_;
    sum.y_stride = cols;
    if (sum.route != nullptr) sum.route += first * sum.route_stride;
    sum.out += first * sum.out_stride;
    sum.tokens = some;
    add_choices(stream, sum);
  }
}

void ExpertsDispatch::run_heads(Stream& stream, const HeadLinearArgs& heads, const Matrix& like, bool on_tensor_cores,
                                Kernels choice) {
  if (!on_tensor_cores || activations_ == Activations::kF32 || LinearDispatch::are_few(heads.tokens, choice))
    return multiply_heads(stream, heads);
  int fit = std::max<int>(1, int(limits_.head_rows / heads.heads));
  const int shift = tile_shift(like.kind);
  if (fit >> shift > 0) fit = fit >> shift << shift;  // whole tiles
  for (int first = 0; first < heads.tokens; first += fit) {
    const int some = std::min(fit, heads.tokens - first);
    GroupedArgs args;
    args.product.up = heads.weight;
    args.product.like = like;
    args.product.chosen = heads.heads;
    args.product.y = heads.y + first * heads.y_stride;
    args.product.y_stride = heads.y_stride;
    args.product.y_choice_stride = heads.y_head_stride;
    args.product.tokens = some;
    args.rows = heads.rows;
    args.groups.chosen = heads.heads;
    args.groups.tokens = some;
    args.groups.experts = heads.heads;
    args.groups.choice = choice_;
    args.groups.tile = tile_;
    args.groups.tile_shift = shift;
    args.groups.tiles = int(most_expert_tiles(int64_t{some} * heads.heads, heads.heads, shift));
    if (first == 0 || some < fit) group_choices(stream, args.groups);  // else they are as they were
    x_.stride = round_up(heads.cols, kPad);
    Fp16Args rounded;
    rounded.x = heads.x + first * heads.x_stride;
    rounded.x_stride = heads.x_stride;
    rounded.parts = heads.heads;
    rounded.part_stride = heads.x_head_stride;
    rounded.cols = heads.cols;
    rounded.tokens = some;
    rounded.bf16 = like.kind == Codes::kBf16;
    rounded.out = x_;
    round_to_fp16(stream, rounded);
    args.x = x_;
    args.x_row = GroupedArgs::Of::kChoice;
    multiply_grouped(stream, args);
  }
  if (heads.kept == 0) return;
  HeadLinearArgs kept = heads;
  kept.rows = 0;
  kept.y += heads.rows;
  multiply_heads(stream, kept);
}

void ExpertsDispatch::run_grouped(Stream& stream, const ExpertsLayer& layer, int tokens) {
  const int64_t choices = int64_t{tokens} * layer.out.chosen;
  GroupedArgs in;
  in.product = layer.in.product;
  in.product.tokens = tokens;
  in.groups.route = in.product.route;
  in.groups.route_stride = in.product.route_stride;
  in.groups.chosen = in.product.chosen;
  in.groups.tokens = tokens;
  in.groups.experts = layer.experts;
  in.groups.choice = choice_;
  in.groups.tile = tile_;
  in.groups.tile_shift = std::min(tile_shift(layer.in.product.like.kind), tile_shift(layer.out.like.kind));
  in.groups.tiles = int(most_expert_tiles(choices, layer.experts, in.groups.tile_shift));
  group_choices(stream, in.groups);

  const auto round = [&](const float* x, int64_t stride, const Matrix& like, int64_t rows, Fp16Rows& out) {
    out.stride = round_up(like.cols, kPad);
    Fp16Args args;
    args.x = x;
    args.x_stride = stride;
    args.cols = like.cols;
    args.tokens = int(rows);
    args.bf16 = like.kind == Codes::kBf16;
    args.out = out;
    round_to_fp16(stream, args);
  };
  round(layer.in.x, layer.in.x_stride, in.product.like, tokens, x_);
  in.x = x_;
  in.y_in_places = true;
  in.rows = in.product.like.rows;
  in.product.y = inner_;
  in.product.y_choice_stride = round_up(in.rows, kPad);
  multiply_grouped(stream, in);

  round(inner_, in.product.y_choice_stride, layer.out.like, choices, inner_fp16_);
  GroupedArgs out;
  out.product = layer.out;
  out.product.tokens = tokens;
  out.groups = in.groups;
  out.x = inner_fp16_;
  out.x_row = GroupedArgs::Of::kPlace;
  out.product.y = products_;
  const int cols = layer.out.like.rows;
  const int64_t fit = product_floats_ / choices;
  const int at_once = int(fit >= cols ? cols : fit / kFewestColumns * kFewestColumns);
  for (out.first_row = 0; out.first_row < cols; out.first_row += at_once) {
    out.rows = std::min(at_once, cols - out.first_row);
    out.product.y_stride = int64_t{layer.out.chosen} * out.rows;
    out.product.y_choice_stride = out.rows;
    multiply_grouped(stream, out);
    AddChoicesArgs sum = layer.sum;
    sum.y = products_;
    sum.y_stride = out.rows;
    sum.out += out.first_row;
    sum.cols = out.rows;
    sum.tokens = tokens;
    add_choices(stream, sum);
  }
}

}  // namespace qgen::QGEN_BACKEND
