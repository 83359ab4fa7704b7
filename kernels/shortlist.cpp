#include "kernels/shortlist.h"

#include <algorithm>

#include "base/rounding.h"

namespace qgen::QGEN_BACKEND {

namespace {

const Weight& head_of(const Plan& plan, size_t step) {
  return *std::get<LinearStep>(plan.steps[step].op).projections[0].weight;
}

}  // namespace

std::optional<size_t> Shortlist::step_of(const Plan& plan) {
  const std::optional<size_t> step = shortlist_step(plan);
  if (!step) return {};
  const Weight& head = head_of(plan, *step);
  return head.codes != Codes::kF32 && head.cols <= kMostListedCols ? step : std::nullopt;
}

Shortlist::Shortlist(const Plan& plan, std::optional<size_t> step) : step_(step) {
  if (!step) return;
  const Weight& head = head_of(plan, *step);
  copy_.rows = int32_t(head.rows);
  copy_.cols = copy_.group_cols = int32_t(head.cols);
  copy_.row_bytes = round_up(head.cols, kRowAlignment);
  copy_.kind = Codes::kI8;
  padded_rows_ = round_up(head.rows, kBoundBlockRows);
  DeviceLayout size;
  lay_out(size);
  bytes_ = size.bytes();
}

void Shortlist::lay_out(DeviceLayout& layout) {
  codes_ = layout.take<int8_t>(copy_.rows * copy_.row_bytes);
  scale_ = layout.take<float>(copy_.rows);
  copy_.codes = reinterpret_cast<const uint8_t*>(codes_);
  copy_.scale = scale_;
  bounds_ = layout.take<uint16_t>((shortlist_groups(copy_.cols) + 1) * padded_rows_);
  upper_ = layout.take<float>(padded_rows_);
  best_ = layout.take<uint32_t>(padded_rows_ / kBoundWarpRows);
  limit_ = layout.take<ScoreLimit>(1);
  counters_ = layout.take<uint32_t>(3);
  for (float*& kept : kept_) kept = layout.take<float>(round_up(copy_.cols, kPad));
}

void Shortlist::load(Device& device, const Matrix& head) {
  if (!step_) return;
  memory_ = DeviceMemory(device, bytes_, "output head in 8 bits");
  totals_ = PinnedMemory(2 * sizeof(uint32_t), "shortlist");
  DeviceLayout layout(memory_.data());
  lay_out(layout);
  clear_on_device(device.stream(), counters_, 3 * sizeof(uint32_t));
  copy_head(device.stream(), {head, codes_, copy_.row_bytes, scale_, bounds_, padded_rows_});
}

size_t Shortlist::begin(const Batch& batch, size_t first, size_t last) {
  if (!step_ || *step_ < first || *step_ >= last) return 0;
  const size_t count = shortlist_count(batch, size_t(std::min<int64_t>(copy_.rows / kBoundWarpRows, kMostBest)));
  return count == 0 || rest_.rests() ? 0 : count;
}

void Shortlist::find(Stream& stream, const DeviceProjection& head, const LinearInput& input, const DrawSettings* draw,
                     int side) {
  GemvArgs product;
  product.part[0] = copy_;
  product.y[0] = upper_;
  product.x = input.x;
  product.x_stride = input.stride;
  product.norm = input.norm.weight;
  product.norm_eps = input.norm.eps;
  gemv(stream, product);
  BoundScoresArgs bound;
  bound.x = input.x;
  bound.norm = input.norm.weight;
  bound.norm_eps = input.norm.eps;
  bound.bounds = bounds_;
  bound.scores = upper_;
  bound.best = best_;
  bound.counter = counters_;
  bound.draw = draw;
  bound.scale = head.epilogue.scale;
  bound.softcap = head.epilogue.softcap;
  bound.limit = limit_;
  bound.kept = kept_[side];
  bound.padded_rows = padded_rows_;
  bound.rows = copy_.rows;
  bound.cols = copy_.cols;
  bound_scores(stream, bound);
  product.part[0] = head.weight;
  product.y[0] = head.y;
  product.epilogue = head.epilogue;
  ListedArgs listed;
  listed.product = product;
  listed.upper = upper_;
  listed.limit = limit_;
  listed.counter = counters_ + 1;
  listed.total = counters_ + 2;
  listed.host_total = reinterpret_cast<uint32_t*>(totals_.data()) + side;
  multiply_listed(stream, listed);
  input_ = input;
}

LinearInput Shortlist::input(int side) const {
  LinearInput out = input_;
  out.x = kept_[side];
  return out;
}

}  // namespace qgen::QGEN_BACKEND
