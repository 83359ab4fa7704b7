#include "cpu/head_linear.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::cpu {
namespace {

constexpr int64_t kTokens = 64;  // of a task

std::vector<const LinearKernel*> kernels_of(const HeadLinearStep& step,
                                            const std::function<const LinearKernel*(const Weight&)>& kernel_of) {
  std::vector<const LinearKernel*> out;
  for (const Weight* weight : step.weights) {
    if (weight->ordered) {
      fail(ErrorKind::kModel,
           fmt::format("{}: heads in the order of their activations are not supported", weight->tensor));
    }
    out.push_back(kernel_of(*weight));
  }
  return out;
}

}  // namespace

HeadLinearKernel::HeadLinearKernel(const HeadLinearStep& step, const IsaTarget& target, int workers,
                                   const std::function<const LinearKernel*(const Weight&)>& kernel_of)
    : step_(step),
      target_(target),
      layers_(kernels_of(step, kernel_of)),
      input_(layers_, workers * kTokens, int(workers * kTokens)) {}

void HeadLinearKernel::run(const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool, int worker,
                           std::byte* scratch) {
  const int64_t tokens = int64_t(batch.tokens.size()), tiles = (tokens + kTokens - 1) / kTokens;
  const RowBuffer &in = rows[size_t(step_.in.row)], &out = rows[size_t(step_.out.row)];
  const int64_t first_row = worker * kTokens;
  pool.share(step_.heads() * tiles, [&](int64_t task) {
    const int64_t head = task / tiles, first = task % tiles * kTokens, count = std::min(kTokens, tokens - first);
    const int64_t from = step_.in.first + head * step_.in.stride, to = step_.out.first + head * step_.out.stride;
    for (int64_t t = 0; t < count; ++t) {
      const float* const x = in.at(first + t, from);
      float* const row = input_.row(first_row + t);
      std::copy_n(x, step_.cols(), row);
      input_.prepare(target_, row, first_row + t, count, batch.kernels);
      std::copy_n(x + step_.cols(), step_.kept, out.at(first + t, to + step_.rows()));
    }
    const Input input = input_.view(size_t(head), input_.row(first_row), count, batch.kernels, first_row);
    layers_[size_t(head)]->multiply(input, batch.kernels, 0, step_.rows(), out.at(first, to), out.stride, scratch);
  });
}

}  // namespace qgen::cpu
