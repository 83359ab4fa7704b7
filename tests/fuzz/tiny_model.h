// A model that could be bound, run by the reference engine: scores of the right size, again after going back.
#pragma once

#include <cstdlib>

#include "engine/engine.h"
#include "model/plan.h"

namespace qgen::fuzz {

inline void run_reference(Checkpoint checkpoint) {
  auto plan = make_plan(std::move(checkpoint));
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  repack_weights(weights);
  WeightScan scan(weights);
  scan.run();
  scan.finish();
  EngineOptions options;
  options.context = 4;
  const auto engine = make_reference_engine(*plan, options);
  const TokenId last = TokenId(plan->model.vocab - 1);
  const std::vector<TokenId> prompt{0, last};
  for (int round = 0; round < 2; ++round) {
    if (engine->prefill(prompt).all().size() != size_t(plan->model.vocab)) std::abort();
    if (engine->decode(0).all().size() != size_t(plan->model.vocab)) std::abort();
    if (engine->position() != 3) std::abort();
    engine->rewind(0);
  }
}

}  // namespace qgen::fuzz
