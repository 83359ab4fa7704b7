// A model that could be bound, run by the reference engine: scores of the right size, again after going back.
#pragma once

#include <cstdlib>
#include <vector>

#include "engine/engine_table.h"
#include "engine/sequence.h"
#include "model/planner.h"
#include "quant/weight_scan.h"

namespace qgen::fuzz {

// A usage Error where a model sees fewer tokens than are run here.
constexpr std::initializer_list<ErrorKind> kRunErrors = {ErrorKind::kModel, ErrorKind::kRuntime, ErrorKind::kUsage};

inline void run_reference(Checkpoint checkpoint) {
  const auto plan = make_plan(std::move(checkpoint));
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  repack_weights(weights);
  WeightScan scan(weights);
  scan.run();
  scan.finish();
  EngineOptions options;
  options.context = 4;
  Engine engine(*plan, options, make_reference_backend(*plan, options));
  Sequence sequence(engine, options.context);
  const TokenId last = TokenId(plan->model.vocab - 1);
  const std::vector<TokenId> prompt{0, last};
  for (int round = 0; round < 2; ++round) {
    if (sequence.run(prompt).all().size() != size_t(plan->model.vocab)) std::abort();
    if (sequence.run(0).all().size() != size_t(plan->model.vocab)) std::abort();
    if (sequence.position() != 3) std::abort();
    if (sequence.rewind(0) != 0) std::abort();
  }
}

}  // namespace qgen::fuzz
