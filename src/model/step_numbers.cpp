#include "model/step_numbers.h"

#include <initializer_list>

namespace qgen {
namespace {

class Numbers {
 public:
  explicit Numbers(const Plan& plan) : plan_(plan) {}

  void operator()(const LookupStep& s) { add({s.scale, there(s.positions)}); }
  void operator()(const LinearStep& s) {
    // Matrices may be stored as one or as several: neighbours that differ in nothing but their rows count as one.
    std::vector<double> last;
    for (const Projection& p : s.projections) {
      std::vector<double> of = {double(p.activation), p.scale,      p.softcap, double(p.add), there(p.gate),
                                there(p.gate_bias),   there(p.bias)};
      if (of == last) {
        numbers.back() += double(p.weight->rows);
        continue;
      }
      numbers.insert(numbers.end(), of.begin(), of.end());
      add({double(p.weight->rows)});
      last = std::move(of);
    }
  }
  void operator()(const HeadLinearStep& s) {
    add({double(s.heads()), double(s.rows()), double(s.cols()), double(s.kept)});
  }
  void operator()(const CombineStep& s) {
    add({there(s.x), s.x_scale, there(s.y), s.y_scale, double(s.gate.cols), double(s.activation)});
  }
  void operator()(const AttendStep& s) {
    add({double(s.stores), double(s.heads), double(s.kv_heads), double(s.key_dim), double(s.value_dim), there(s.v),
         double(s.norm_after_rotation), double(s.rotated_first), s.scale, s.softcap, double(s.window), double(s.chunk),
         s.temperature_beta, there(s.sinks), there(s.gate), double(s.rope >= 0)});
    if (s.temperature_beta != 0) add({double(s.temperature_interval), double(s.temperature_offset)});
    if (s.rope < 0) return;
    const Rope& rope = plan_.ropes[size_t(s.rope)];
    add({double(rope.dim), rope.attention_factor});
    // Less than this is no rotation, of which GGUF files cannot say that it is 0.
    constexpr double kLeastFrequency = 1e-20;
    for (const double frequency : inverse_frequencies(rope, plan_.model.context))
      add({frequency < kLeastFrequency ? 0 : frequency});
  }
  void operator()(const RouteStep& s) {
    add({double(s.chosen), double(s.score), there(s.bias), double(s.groups), double(s.kept_groups), double(s.rank),
         double(s.normalized), s.least_sum, s.scale, there(s.expert_scale)});
  }
  void operator()(const ExpertsStep& s) {
    add({double(s.experts()), double(s.width()), double(s.gate.empty()), there(s.gate_bias), there(s.up_bias),
         there(s.down_bias), double(s.activation), s.limit, s.up_offset, double(s.weighted_input), double(s.add)});
  }
  void operator()(const ConvStep& s) { add({double(s.taps), double(s.in.cols), there(s.bias), double(s.activation)}); }
  void operator()(const RecurStep& s) {
    add({double(s.kind), double(s.heads), double(s.key_heads), double(s.key_dim), double(s.value_dim), there(s.rate),
         there(s.skip), double(s.unit_keys), s.eps, s.scale});
  }

  void add(std::initializer_list<double> more) { numbers.insert(numbers.end(), more); }

  std::vector<double> numbers;

 private:
  template <typename T>
  static double there(const T* pointer) {
    return pointer != nullptr;
  }
  static double there(const View& view) { return bool(view); }
  static double there(const Heads& heads) { return bool(heads); }

  const Plan& plan_;
};

}  // namespace

std::vector<double> step_numbers(const Plan& plan, const Step& step) {
  Numbers out(plan);
  out.add({double(step.op.index()), double(step.layer)});
  for_each_norm(step, [&](const Norm& n) { out.add({double(n.kind), n.eps, double(n.group)}); });
  std::visit(out, step.op);
  return std::move(out.numbers);
}

}  // namespace qgen
