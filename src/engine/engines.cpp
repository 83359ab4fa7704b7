#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/engine.h"

namespace qgen {

namespace {

bool always() { return true; }
int one_thread(const Plan&) { return 1; }

constexpr EngineRow kEngines[] = {
    {"cpu", "AVX-512 (VNNI, VBMI, BF16, AMX), AVX2 (VNNI) or portable, chosen at run time", always, available_memory,
     account_cpu_engine, make_cpu_engine, useful_cpu_threads, measure_cpu},
    {"reference", "double precision, slow; what the others are measured against", always, available_memory,
     account_reference_engine, make_reference_engine, one_thread, nullptr},
};

}  // namespace

std::string_view activations_name(Activations activations) {
  switch (activations) {
    case Activations::kF32: return "f32";
    case Activations::k16Bit: return "16bit";
    case Activations::k8Bit: return "8bit";
  }
  return "?";
}

std::span<const EngineRow> engines() { return kEngines; }

void check_tokens(std::span<const TokenId> tokens, int64_t position, int64_t context, int64_t vocab) {
  const int64_t length = position + int64_t(tokens.size());
  if (length > context) {
    fail(ErrorKind::kRuntime,
         fmt::format("the context is full (expected at most {} tokens, found {})", context, length));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab) {
      fail(ErrorKind::kRuntime,
           fmt::format("token {} is not in the model's vocabulary (expected below {})", token, vocab));
    }
  }
}

const EngineRow& find_engine(std::string_view device, EngineOptions& options) {
  const size_t colon = device.find(':');
  const std::string_view name = device.substr(0, colon);
  if (colon != device.npos && name == "cpu") options.body = device.substr(colon + 1);
  std::string known = "auto";
  for (const EngineRow& row : kEngines) {
    if (device == "auto" ? row.available() : row.name == name && (colon == device.npos || name == "cpu")) {
      if (!row.available()) fail(ErrorKind::kDevice, fmt::format("--device {}: not available on this machine", device));
      return row;
    }
    known += fmt::format(", {}", row.name);
  }
  if (name == "cuda") {
    fail(ErrorKind::kDevice, fmt::format("--device {}: this program has no engine for GPUs", device),
         "--device cpu, or leave it out");
  }
  fail(ErrorKind::kUsage, fmt::format("--device {}: unknown device", device), "known: " + known);
}

}  // namespace qgen
