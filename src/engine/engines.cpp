#include <fmt/format.h>

#include "base/error.h"
#include "engine/engine.h"

namespace qgen {

// The CPU engine lives in src/cpu.
std::unique_ptr<Engine> make_cpu_engine(const Plan& plan, const EngineOptions& options);
size_t cpu_work_bytes(const Plan& plan, const EngineOptions& options);

namespace {

bool always() { return true; }
size_t no_work(const Plan&, const EngineOptions&) { return 0; }

constexpr EngineRow kEngines[] = {
    {"cpu", "all cores; AVX-512 (VNNI, VBMI, BF16), AVX2 or portable, chosen at run time", always, cpu_work_bytes,
     make_cpu_engine},
    {"reference", "double precision, slow; what the others are measured against", always, no_work,
     make_reference_engine},
};

}  // namespace

std::span<const EngineRow> engines() { return kEngines; }

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
  fail(ErrorKind::kUsage, fmt::format("--device {}: unknown device", device), "known: " + known);
}

}  // namespace qgen
