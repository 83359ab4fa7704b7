// The table of engines, best first.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace qgen {

// What a device can do at best, as measured on the spot on the threads that an engine would use. Operations are
// multiplications and additions: of 8-bit integers, and of the floats whose products are fastest there.
struct DeviceSpeed {
  double read_bytes_per_second = 0;
  double int8_ops_per_second = 0;
  double float_ops_per_second = 0;
};

struct EngineRow {
  std::string_view name;  // --device NAME
  std::string_view summary;
  std::string_view memory;  // what it computes in: "ram", "vram"
  bool in_ram() const { return memory == "ram"; }
  bool (*available)() = nullptr;
  std::string (*problem)() = nullptr;                             // why it is not; null for what always is
  size_t (*free_memory)(const EngineOptions& options) = nullptr;  // bytes that a model may take there; 0 if unknown
  // Tokens of a prompt that it runs together where there is plenty of memory: the more, the less often weights are
  // prepared for them. 0: as many as in any case.
  int64_t large_batch = 0;
  // Up to how many tokens together have their best scores sooner with EngineOptions::shortlist; 0: a plan without one.
  // Null: none has.
  int64_t (*shortlist_tokens)(const Plan& plan) = nullptr;
  // Whether FP8 weights with NaN codes are copied to BF16 when they are loaded. Headers do not show such codes, so that
  // account() leaves these copies out; memory() of the engine has them.
  bool widens_nan_codes = false;
  // What memory() of the engine will say, without building it.
  MemoryUse (*account)(const Plan& plan, const EngineOptions& options) = nullptr;
  std::unique_ptr<Backend> (*make)(const Plan& plan, const EngineOptions& options) = nullptr;
  // The default number of threads for a plan; 1 for engines without threads.
  int (*useful_threads)(const Plan& plan) = nullptr;
  // Takes a fraction of a second; the peaks of arithmetic only where they are wanted. Null: not for speed.
  DeviceSpeed (*measure)(const EngineOptions& options, bool peaks) = nullptr;

  std::unique_ptr<Engine> make_engine(const Plan& plan, const EngineOptions& options) const {
    return std::make_unique<Engine>(plan, options, make(plan, options));
  }
};
std::span<const EngineRow> engines();
// Of a program that was built with an engine for GPUs (kernels/); else null.
const EngineRow* gpu_engine();

// The row for `device`: auto, or a row's name, for the CPU also with an instruction set ("cpu:avx2", which goes into
// options.target), for GPUs with which of them ("cuda:1"). Throws a usage Error for an unknown name, a device Error for
// an absent device.
const EngineRow& find_engine(std::string_view device, EngineOptions& options);

std::unique_ptr<Backend> make_reference_backend(const Plan& plan, const EngineOptions& options);
MemoryUse account_reference(const Plan& plan, const EngineOptions& options);
std::unique_ptr<Backend> make_cpu_backend(const Plan& plan, const EngineOptions& options);  // src/cpu
MemoryUse account_cpu(const Plan& plan, const EngineOptions& options);
DeviceSpeed measure_cpu(const EngineOptions& options, bool peaks);
int useful_cpu_threads(const Plan& plan);
int64_t cpu_shortlist_tokens(const Plan& plan);

}  // namespace qgen
