// What the linear layers of a model see while it reads a text: the largest magnitude of each input column, for
// quantizers that weight errors or smooth inputs by it.
#pragma once

#include <cstdint>
#include <span>

#include "base/token.h"
#include "generate/loader.h"
#include "quantize/statistics.h"

namespace qgen {

struct Calibration {
  quantize::InputStatistics statistics;
  int64_t tokens = 0;  // that were run
};

// Runs the tokens in windows of `window`, each with an empty cache, and looks at the input of every matrix behind its
// norm. Experts see the tokens that are sent to them, an expert without any gets no entry. Stopped early, it returns
// what it has seen so far. Throws as Engine::run().
Calibration calibrate(LoadedModel& model, std::span<const TokenId> ids, int64_t window, const RunControl& control);

}  // namespace qgen
