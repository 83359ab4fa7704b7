#include "cpu/mixture.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::cpu {
namespace {

constexpr int64_t kTaskRows = 256;

std::vector<const LinearKernel*> kernels_of(std::initializer_list<const std::vector<const Weight*>*> banks,
                                            const std::function<const LinearKernel*(const Weight&)>& kernel_of) {
  std::vector<const LinearKernel*> out;
  for (size_t e = 0; e < (*(banks.end() - 1))->size(); ++e) {
    for (const auto* bank : banks) {
      if (bank->empty()) continue;
      const Weight& weight = *(*bank)[e];
      out.push_back(kernel_of(weight));
    }
  }
  return out;
}

// The first of an expert's matrices of one input tells the order of its columns; the others must have the same.
void check_orders(const ExpertsStep& step) {
  for (size_t e = 0; e < step.gate.size(); ++e) {
    if (step.gate[e]->column_order != step.up[e]->column_order)
      fail(ErrorKind::kModel, fmt::format("{}: its activation order is another one than that of {}, which is not "
                                          "supported in an expert",
                                          step.up[e]->tensor, step.gate[e]->tensor));
  }
}

Choice choice_of(const Batch& batch) { return {batch.kernels, int64_t(batch.tokens.size())}; }

// Rows [begin, end) of a task.
struct Range {
  int64_t begin, end;
};
Range range_of(int64_t index, int64_t size, int64_t rows) { return {index * size, std::min(rows, (index + 1) * size)}; }

}  // namespace

ExpertsKernel::ExpertsKernel(const ExpertsStep& step, const IsaTarget& target, int64_t tokens, int workers,
                             const std::function<const LinearKernel*(const Weight&)>& kernel_of)
    : step_(step),
      target_(target),
      entries_(tokens * step.chosen()),
      workers_(workers),
      in_(kernels_of({&step.gate, &step.up}, kernel_of)),
      down_(kernels_of({&step.down}, kernel_of)),
      input_(in_, entries_, int(entries_), InputForms::Order::kCallers),
      inner_(down_, entries_, int(entries_), InputForms::Order::kCallers),
      order_(size_t(entries_)),
      group_of_(size_t(entries_)) {
  check_orders(step);
  column_groups_ = std::ranges::any_of(in_, &LinearKernel::has_column_groups) ||
                   std::ranges::any_of(down_, &LinearKernel::has_column_groups);
}

void ExpertsKernel::lay_out(Arena& arena) {
  input_.lay_out(arena);
  inner_.lay_out(arena);
}

int64_t ExpertsKernel::temporary_floats() const {
  // An expert has at most every token once; or a row that is put in order.
  const int64_t of_tokens = entries_ / step_.chosen() * std::max(kTaskRows, target_.panel_rows);
  return std::max({of_tokens, inner_.stride(), column_groups_ ? std::max(step_.width(), step_.out.cols) : 0});
}

void ExpertsKernel::group(const Batch& batch, const std::vector<RowBuffer>& rows) {
  const RowBuffer& route = rows[size_t(step_.route.row)];
  const int64_t chosen = step_.chosen(), tokens = int64_t(batch.tokens.size());
  const auto expert = [&](int64_t token, int64_t i) {
    return size_t(route.at(token, step_.route.first + chosen + i)[0]);
  };
  std::vector<int32_t> counts(size_t(step_.experts()), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < chosen; ++i) ++counts[expert(t, i)];
  }
  groups_.clear();
  std::vector<int32_t> next(counts.size());
  int32_t first = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    next[e] = first;
    if (counts[e] == 0) continue;
    std::fill_n(group_of_.begin() + first, counts[e], int32_t(groups_.size()));
    groups_.push_back({int32_t(e), first, counts[e]});
    first += counts[e];
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < chosen; ++i) order_[size_t(next[expert(t, i)]++)] = int32_t(t * chosen + i);
  }
}

void ExpertsKernel::prepare_input(const Batch& batch, const std::vector<RowBuffer>& rows, int64_t entry) {
  const int64_t chosen = step_.chosen(), token = order_[size_t(entry)] / chosen, i = order_[size_t(entry)] % chosen;
  const float* const x = rows[size_t(step_.in.row)].at(token, step_.in.first);
  float* const row = input_.row(entry);
  const float weight = step_.weighted_input ? *rows[size_t(step_.route.row)].at(token, step_.route.first + i) : 1;
  const std::span<const int32_t> order = in_[first_in(group_of(entry).expert)]->column_order();
  if (order.empty()) {
    target_.scale(x, weight, step_.in.cols, row);
  } else {
    for (size_t k = 0; k < order.size(); ++k) row[k] = x[order[k]] * weight;
  }
  input_.prepare(target_, row, entry, group_of(entry).count, choice_of(batch));
}

// The step's limit and offset.
void ExpertsKernel::bound(float* gate, float* up, int64_t count) const {
  const auto limit = float(step_.limit), offset = float(step_.up_offset);
  for (int64_t n = 0; limit > 0 && n < count; ++n) {
    gate[n] = gate[n] > limit ? limit : gate[n];
    up[n] = up[n] > limit ? limit : up[n] < -limit ? -limit : up[n];
  }
  for (int64_t n = 0; offset != 0 && n < count; ++n) up[n] += offset;
}

void ExpertsKernel::run(const Batch& batch, const std::vector<RowBuffer>& rows, const Biases& biases, ThreadPool& pool,
                        std::byte* scratch, float* temporary) {
  const int64_t entries = int64_t(batch.tokens.size()) * step_.chosen(), width = step_.width();
  pool.share(1, [&](int64_t) { group(batch, rows); });
  pool.share(entries, [&](int64_t entry) { prepare_input(batch, rows, entry); });

  const auto multiply = [&](const InputForms& input, const std::vector<const LinearKernel*>& layers, size_t layer,
                            const Group& of, const float* x, const Range& range, const uint8_t* next_codes,
                            const float* bias, float* y, int64_t y_stride) {
    Input in = input.view(layer, x, of.count, choice_of(batch), of.first);
    in.next_codes = next_codes;
    layers[layer]->multiply(in, choice_of(batch), range.begin, range.end, y, y_stride, scratch);
    if (bias == nullptr) return;
    for (int32_t t = 0; t < of.count; ++t) {
      for (int64_t n = range.begin; n < range.end; ++n)
        y[t * y_stride + n - range.begin] += bias[of.expert * layers[layer]->rows() + n];
    }
  };
  const int64_t unit = target_.panel_rows;
  // Of one token for each expert, products of weights with column groups are best done in few tasks.
  const bool few_tasks = column_groups_ && int64_t(groups_.size()) == entries;
  const int64_t tasks_of_all = few_tasks ? workers_ : workers_ * 8;
  const int64_t most_rows = few_tasks ? std::max(width, step_.out.cols) : kTaskRows;
  const auto task_rows = [&](int64_t most, int64_t tasks) {
    return std::clamp(most / std::max<int64_t>(1, tasks) / unit * unit, unit, std::max(unit, most_rows / unit * unit));
  };

  // Several tasks a worker, however few experts there are.
  const int64_t groups = int64_t(groups_.size()), wanted = (tasks_of_all + groups - 1) / groups;
  const int64_t size = task_rows(width, wanted), blocks = (width + size - 1) / size;
  const auto first_codes = [&](int64_t task) {
    const LinearKernel& layer = *in_[first_in(groups_[size_t(task / blocks)].expert)];
    return layer.codes(range_of(task % blocks, size, width).begin);
  };
  pool.share(groups * blocks, [&](int64_t task) {
    const Group& of = groups_[size_t(task / blocks)];
    const Range range = range_of(task % blocks, size, width);
    const float* const x = input_.row(of.first);
    float* const gate = inner_.row(of.first) + range.begin;
    const int64_t count = range.end - range.begin;
    const bool gated = !step_.gate.empty();
    const size_t layer = first_in(of.expert);
    // A worker's next task is the one behind this, unless another takes it.
    const uint8_t* const next = task + 1 < groups * blocks ? first_codes(task + 1) : nullptr;
    multiply(input_, in_, layer, of, x, range, gated ? in_[layer + 1]->codes(range.begin) : next,
             gated ? biases.gate : biases.up, gate, inner_.stride());
    if (gated) multiply(input_, in_, layer + 1, of, x, range, next, biases.up, temporary, count);
    for (int32_t t = 0; t < of.count; ++t) {
      float *const row = gate + t * inner_.stride(), *const up = temporary + t * count;
      if (gated) bound(row, up, count);
      target_.activate(static_cast<ActivationKind>(step_.activation), row, gated ? up : nullptr, count);
    }
  });
  pool.share(entries, [&](int64_t entry) {
    float* const row = inner_.row(entry);
    const std::span<const int32_t> order = down_[size_t(group_of(entry).expert)]->column_order();
    for (size_t k = 0; k < order.size(); ++k) temporary[k] = row[order[k]];
    std::copy_n(temporary, order.size(), row);
    inner_.prepare(target_, row, entry, group_of(entry).count, choice_of(batch));
  });

  // A task adds up its columns of all experts, so that sums have one order.
  const RowBuffer &out = rows[size_t(step_.out.row)], &route = rows[size_t(step_.route.row)];
  const int64_t hidden = step_.out.cols, out_size = task_rows(hidden, tasks_of_all);
  pool.share((hidden + out_size - 1) / out_size, [&](int64_t task) {
    const Range range = range_of(task, out_size, hidden);
    const int64_t count = range.end - range.begin;
    for (int64_t t = 0; !step_.add && t < int64_t(batch.tokens.size()); ++t)
      std::fill_n(out.at(t, step_.out.first + range.begin), count, 0.0f);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& of = groups_[g];
      const bool last = g + 1 == groups_.size();
      const LinearKernel& later = *down_[size_t(groups_[last ? 0 : g + 1].expert)];
      const uint8_t* const next = last && range.end == hidden ? nullptr : later.codes(last ? range.end : range.begin);
      multiply(inner_, down_, size_t(of.expert), of, inner_.row(of.first), range, next, biases.down, temporary, count);
      for (int32_t t = 0; t < of.count; ++t) {
        const int64_t entry = order_[size_t(of.first + t)], token = entry / step_.chosen();
        const float weight = step_.weighted_input ? 1 : *route.at(token, step_.route.first + entry % step_.chosen());
        target_.add(out.at(token, step_.out.first + range.begin), temporary + t * count, weight, count);
      }
    }
  });
}

}  // namespace qgen::cpu
