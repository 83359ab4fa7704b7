#include "kernels/shortlist.h"

#include <algorithm>
#include <numeric>

namespace qgen::QGEN_BACKEND {

ShortlistHead Shortlist::head_of(const Plan& plan) {
  ShortlistHead head = shortlist_head(plan);
  if (head && (head.weight().codes == Codes::kF32 || head.weight().cols > kMostListedCols)) return {};
  return head;
}

Shortlist::Shortlist(ShortlistHead head) : head_(std::move(head)) {
  if (!head_) return;
  const Weight& weight = head_.weight();
  copy_.rows = int32_t(weight.rows);
  copy_.cols = copy_.group_cols = int32_t(weight.cols);
  copy_.row_bytes = round_up(weight.cols, kRowAlignment);
  copy_.kind = Codes::kI8;
  padded_rows_ = round_up(weight.rows, kBoundBlockRows);
  inputs_.resize(head_.steps.size());
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
  upper_ = layout.take<float>(int64_t(kTokens) * padded_rows_);
  best_ = layout.take<uint32_t>(int64_t(kTokens) * padded_rows_ / kBoundWarpRows);
  limit_ = layout.take<ScoreLimit>(kTokens);
  counters_ = layout.take<uint32_t>(3 * kTokens);
  for (float*& kept : kept_) kept = layout.take<float>(int64_t(kTokens) * kept_stride());
}

void Shortlist::load(Device& device, const Matrix& head) {
  if (!head_) return;
  memory_ = DeviceMemory(device, bytes_, "output head in 8 bits");
  totals_ = PinnedMemory(2 * kTokens * sizeof(uint32_t), "shortlist");
  DeviceLayout layout(memory_.data());
  lay_out(layout);
  clear_on_device(device.stream(), counters_, 3 * kTokens * sizeof(uint32_t));
  copy_head(device.stream(), {head, codes_, copy_.row_bytes, scale_, bounds_, padded_rows_});
}

Shortlist::Use Shortlist::begin(const Batch& batch, size_t first, size_t last) {
  const std::optional<size_t> step = head_.step_in(first, last);
  if (!step) return {};
  const auto most = size_t(std::min<int64_t>(copy_.rows / kBoundWarpRows, kMostBest));
  std::vector<size_t> counts = shortlist_counts(batch, most, kTokens);
  if (counts.empty() || rest_.rests()) return {};
  return {*step, std::move(counts)};
}

void Shortlist::find(Stream& stream, size_t step, const DeviceProjection& head, const LinearInput& input, int tokens,
                     const DrawSettings* draw, int side) {
  GemvArgs product;
  product.part[0] = copy_;
  product.y[0] = upper_;
  product.y_stride[0] = padded_rows_;
  product.tokens = tokens;
  product.x = input.x;
  product.x_stride = input.stride;
  product.norm = input.norm.weight;
  product.norm_eps = input.norm.eps;
  gemv(stream, product);
  BoundScoresArgs bound;
  bound.x = input.x;
  bound.x_stride = input.stride;
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
  bound.tokens = tokens;
  bound_scores(stream, bound);
  product.part[0] = head.weight;
  product.y[0] = head.y;
  product.y_stride[0] = head.y_stride;
  product.epilogue = head.epilogue;
  ListedArgs listed;
  listed.product = product;
  listed.upper = upper_;
  listed.padded_rows = padded_rows_;
  listed.limit = limit_;
  listed.counter = counters_ + kTokens;
  listed.total = counters_ + 2 * kTokens;
  listed.host_total = reinterpret_cast<uint32_t*>(totals_.data()) + size_t(side) * kTokens;
  multiply_listed(stream, listed);
  inputs_[number_of(step)] = input;
}

int64_t Shortlist::rows_multiplied(int side, size_t tokens) const {
  const auto* const of_tokens = reinterpret_cast<const uint32_t*>(totals_.data()) + size_t(side) * kTokens;
  return std::accumulate(of_tokens, of_tokens + tokens, int64_t{0});
}

LinearInput Shortlist::input(size_t step, int side) const {
  LinearInput out = inputs_[number_of(step)];
  out.x = kept_[side];
  out.stride = kept_stride();
  return out;
}

}  // namespace qgen::QGEN_BACKEND
