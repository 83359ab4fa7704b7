#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/engine.h"

namespace qgen {

namespace {

bool always() { return true; }
int one_thread(const Plan&) { return 1; }

size_t free_memory_of_host(const EngineOptions&) { return available_memory(); }
bool holds_16_or_32_bits(KvType kv) { return kv != KvType::kFp8 && kv != KvType::kInt8; }

constexpr EngineRow kOfHost[] = {
    {"cpu", "AVX-512 (VNNI, VBMI, BF16, AMX), AVX2 (VNNI) or portable, chosen at run time", "ram", always, nullptr,
     free_memory_of_host, holds_16_or_32_bits, account_cpu_engine, make_cpu_engine, useful_cpu_threads, measure_cpu},
    {"reference", "double precision, slow; what the others are measured against", "ram", always, nullptr,
     free_memory_of_host, holds_16_or_32_bits, account_reference_engine, make_reference_engine, one_thread, nullptr},
};

}  // namespace

std::span<const float> Scores::all() const { return engine_ != nullptr ? engine_->all_scores() : all_; }
bool Scores::finite() const {
  return engine_ != nullptr ? engine_->scores_finite()
                            : std::all_of(all_.begin(), all_.end(), [](float v) { return std::isfinite(v); });
}
TopScores Scores::top(size_t count, double temperature) const {
  return engine_ != nullptr ? engine_->top_scores(count, temperature) : TopScores();
}

std::string_view activations_name(Activations activations) {
  switch (activations) {
    case Activations::kF32: return "f32";
    case Activations::k16Bit: return "16bit";
    case Activations::k8Bit: return "8bit";
  }
  return "?";
}

std::span<const EngineRow> engines() {
  static const std::vector<EngineRow> rows = [] {
    std::vector<EngineRow> out;
    if (const EngineRow* gpu = gpu_engine()) out.push_back(*gpu);
    out.insert(out.end(), std::begin(kOfHost), std::end(kOfHost));
    return out;
  }();
  return rows;
}

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
  const std::string_view name = device.substr(0, colon), which = colon == device.npos ? "" : device.substr(colon + 1);
  if (name == "cpu") options.body = which;
  if (name == "cuda" && colon != device.npos) {
    const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), options.device_index);
    if (error != std::errc{} || end != which.data() + which.size() || options.device_index < 0)
      fail(ErrorKind::kUsage,
           fmt::format("--device {}: no number of a GPU (expected cuda:N, found '{}')", device, which),
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
