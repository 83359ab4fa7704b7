// How an engine is asked to run a plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/plan.h"
#include "quant/weight_scan.h"

namespace qgen {

// How precisely the inputs of linear layers are multiplied: as floats; as 16-bit integers or floats of 16 bits or more;
// or, where many tokens meet weights that allow it, in 8 bits: on the CPU INT8 weights, with a scale for every 32
// inputs; on GPUs INT8 and FP8 ones, with a scale for every token or every 128. But for the first, attention of many
// tokens is done in 16-bit numbers too.
enum class Activations : uint8_t { kF32, k16Bit, k8Bit };
std::string_view activations_name(Activations activations);

// Which kernels multiply a token: those that are fastest for so many tokens; or, so that a token comes out the same
// whatever runs beside it, those of tokens of a prompt, or of generated ones.
enum class Kernels : uint8_t { kByCount, kPrompt, kGenerate };

struct EngineOptions {
  int64_t context = 0;       // tokens that a sequence may have
  int64_t sequences = 1;     // that may be open at a time
  int64_t cache_tokens = 0;  // that the cache holds for all of them together; 0: sequences * context
  int marks = 0;             // of each sequence, where the model has recurrent states (Engine::mark)
  KvType kv = KvType::kF16;
  Activations activations = Activations::k16Bit;
  int threads = 0;          // 0: a physical core each, fewer for a small model
  std::string target = {};  // CPU: an instruction set by name; "": the best one
  int device_index = 0;     // GPU: which of several
  // Whether an engine that knows how may keep a copy of the output head in 8 bits (engine/shortlist.h).
  bool shortlist = false;
  WeightScan* scan = nullptr;  // engines outside of ram: where given, shown the weights on their way there
  int64_t batch = 0;           // tokens of a prompt that go through the plan together; 0: what the engine likes
};

}  // namespace qgen
