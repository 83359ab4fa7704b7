#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/engine_table.h"

namespace qgen {

namespace {

bool always() { return true; }
int one_thread(const Plan&) { return 1; }

size_t free_memory_of_host(const EngineOptions&) { return available_memory(); }

constexpr EngineRow kOfHost[] = {
    {.name = "cpu",
     .summary = "AVX-512 (VNNI, VBMI, BF16, AMX), AVX2 (VNNI) or portable, chosen at run time",
     .memory = "ram",
     .available = always,
     .free_memory = free_memory_of_host,
     .shortlist_tokens = cpu_shortlist_tokens,
     .widens_nan_codes = true,
     .account = account_cpu,
     .make = make_cpu_backend,
     .useful_threads = useful_cpu_threads,
     .measure = measure_cpu},
    {.name = "reference",
     .summary = "double precision, slow; what the others are measured against",
     .memory = "ram",
     .available = always,
     .free_memory = free_memory_of_host,
     .account = account_reference,
     .make = make_reference_backend,
     .useful_threads = one_thread},
};

}  // namespace

std::span<const EngineRow> engines() {
  static const std::vector<EngineRow> rows = [] {
    std::vector<EngineRow> out;
    if (const EngineRow* gpu = gpu_engine()) out.push_back(*gpu);
    out.insert(out.end(), std::begin(kOfHost), std::end(kOfHost));
    return out;
  }();
  return rows;
}

const EngineRow& find_engine(std::string_view device, EngineOptions& options) {
  const size_t colon = device.find(':');
  const std::string_view name = device.substr(0, colon), which = colon == device.npos ? "" : device.substr(colon + 1);
  if (name == "cpu") options.target = which;
  if (name == "cuda" && colon != device.npos) {
    const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), options.device_index);
    if (error != std::errc{} || end != which.data() + which.size() || options.device_index < 0)
      fail(ErrorKind::kUsage,
           fmt::format("--device {}: not the number of a GPU (expected cuda:N, found '{}')", device, which),
           "--device cuda takes the first");
  }
  const bool whole = colon == device.npos || (name == "cpu" && !which.empty()) || name == "cuda";
  std::string known = "auto";
  for (const EngineRow& row : engines()) {
    if (device == "auto" ? row.available() : row.name == name && whole) {
      if (!row.available())
        fail(ErrorKind::kDevice, fmt::format("--device {}: {}", device, row.problem()), "--device cpu");
      return row;
    }
    known += fmt::format(", {}", row.name);
  }
  if (name == "cuda") {
    fail(ErrorKind::kDevice, fmt::format("--device {}: this program has no engine for GPUs", device),
         "--device cpu, or a program built with `make cuda`");
  }
  fail(ErrorKind::kUsage, fmt::format("--device {}: unknown device", device), "known: " + known);
}

}  // namespace qgen
