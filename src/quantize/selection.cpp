#include "quantize/selection.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fnmatch.h>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::quantize {
namespace {

// Matrices left unquantized, by part of name. The first rows are those of QuixiAI's quantize_fp8.py for Qwen3.5, whose
// README gives the reasons; the others say the same for other families.
struct Kept {
  std::string_view part;
  std::string_view reason;
};
constexpr std::string_view kEmbedding = "embedding", kHead = "output head", kVector = "no matrix of a linear layer",
                           kSensitive = "sensitive to rounding", kRouter = "router or gate", kVision = "not text",
                           kNarrow = "too narrow", kPartial = "no whole blocks", kDeselected = "deselected",
                           kFused = "fused with one that is kept";
constexpr Kept kKept[] = {{"embed_tokens", kEmbedding},
                          {"lm_head", kHead},
                          {"norm", kVector},
                          {"A_log", kVector},
                          {"dt_bias", kVector},
                          {"conv1d", kVector},
                          {"linear_attn.out_proj", kSensitive},
                          {"in_proj_a", kSensitive},
                          {"in_proj_b", kSensitive},
                          {"shared_expert_gate", kRouter},
                          {"mlp.gate.", kRouter},
                          {"mlp.shared_expert.", kSensitive},
                          {"mtp.fc", kSensitive},
                          {"visual", kVision},
                          {"bias", kVector}};
constexpr Kept kKeptToo[] = {{"word_embeddings", kEmbedding},
                             {"embed_positions", kEmbedding},
                             {"position_embeddings", kEmbedding},
                             {"embed_in", kEmbedding},
                             {"embedding.", kEmbedding},
                             {"embeddings.", kEmbedding},
                             {"per_layer_model_projection", kSensitive},
                             {"tok_embeddings", kEmbedding},
                             {"wte.", kEmbedding},
                             {"wpe.", kEmbedding},
                             {"embed_out", kHead},
                             {"output_layer.", kHead},
                             {"rotary", kVector},
                             {"mixer.conv", kVector},
                             {"eh_proj", kSensitive},
                             {"router", kRouter},
                             {"ffn_gate_inp", kRouter},
                             {"vision", kVision},
                             {"audio", kVision},
                             {"multi_modal", kVision},
                             {"mm_projector", kVision},
                             {"patch", kVision}};

// The parts of a matrix that engines fuse: modules of the same parent. Source: vLLM's packed_modules_mapping; the
// latents of queries and keys are its fused_qkv_a_proj (deepseek_v2.py).
constexpr std::array<std::string_view, 3> kFusedParts[] = {{"q_proj", "k_proj", "v_proj"},
                                                           {"gate_proj", "up_proj"},
                                                           {"in_proj_qkv", "in_proj_z"},
                                                           {"w1", "w3"},
                                                           {"q_a_proj", "kv_a_proj_with_mqa"}};
// What stands in for a set of parts: all matrices below it are one layer to vLLM, which skips it as a whole where an
// excluded name is in it (quant_utils.py, is_layer_skipped()).
constexpr std::string_view kExperts = ".experts.";

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

std::string without_weight(const std::string& pattern) {
  constexpr std::string_view kWeight = ".weight";
  return pattern.substr(0, pattern.size() - (pattern.ends_with(kWeight) ? kWeight.size() : 0));
}

bool matches(const std::string& pattern_or_weight, const std::string& name) {
  const std::string pattern = without_weight(pattern_or_weight);
  if (pattern.find_first_of("*?") == pattern.npos) return name.find(pattern) != name.npos;
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

std::string_view reason_of_name(const std::string& name, const Recipe& recipe) {
  const std::string tensor = name + ".weight";
  for (const Kept& row : kKept) {
    if (tensor.find(row.part) != tensor.npos) return row.reason;
  }
  if (recipe.compat) return {};
  for (const Kept& row : kKeptToo) {
    if (tensor.find(row.part) != tensor.npos) return row.reason;
  }
  return last_part(name) == "gate" ? kRouter : last_part(name) == "output" ? kHead : std::string_view();
}

std::string_view reason_of_shape(const Candidate& matrix, const Recipe& recipe) {
  const int64_t least = std::min(matrix.rows, matrix.cols);
  constexpr int64_t kLeastSide = 32;
  if (recipe.format == Format::kFp8) {
    if (least < recipe.block) return kNarrow;
    // transformers 5 reads no blocks that are cut off, and vLLM none within fused layers (fp8.py, create_weights()).
    const bool whole = matrix.rows % recipe.block == 0 && matrix.cols % recipe.block == 0;
    return whole || recipe.compat ? std::string_view() : kPartial;
  }
  if (recipe.is_gguf())
    return matrix.cols % recipe.group_cols(matrix.cols) != 0 || matrix.cols < kLeastSide ? kNarrow : std::string_view();
  if (least < kLeastSide) return kNarrow;
  if (recipe.format == Format::kMxFp8 && matrix.cols % recipe.group_cols(matrix.cols) != 0) return kNarrow;
  return {};
}

}  // namespace

void check_patterns(std::span<const Candidate> matrices, const Selection& selection) {
  const auto check = [&](std::string_view option, const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      const auto matched = [&](const Candidate& matrix) { return matches(pattern, matrix.name); };
      if (matrices.empty() || std::ranges::any_of(matrices, matched)) continue;
      // Stacks of experts have been taken apart: what begins like one of their names leads to the experts.
      const std::string name = without_weight(pattern);
      const std::string part = name.substr(0, name.find_last_of('.')) + '.';
      const auto like = std::ranges::find_if(matrices, [&](const Candidate& matrix) {
        return part.size() <= pattern.size() && matrix.name.find(part) != matrix.name.npos;
      });
      fail(ErrorKind::kUsage, fmt::format("{} {}: no matrix has such a name", option, pattern),
           fmt::format("names are like {}; with * or ? a pattern is for the whole of it",
                       like == matrices.end() ? matrices[matrices.size() / 2].name : like->name));
    }
  };
  check("--keep", selection.keep);
  check("--only", selection.only);
}

std::vector<std::string_view> reasons_to_keep(std::span<const Candidate> matrices, const Selection& selection,
                                              const Recipe& recipe) {
  std::vector<std::string_view> out;
  for (const Candidate& matrix : matrices) {
    std::string_view reason = reason_of_name(matrix.name, recipe);
    // llama.cpp quantizes these, too.
    if (recipe.is_gguf() && (reason == kEmbedding || reason == kHead || reason == kSensitive)) reason = {};
    if (reason.empty()) reason = reason_of_shape(matrix, recipe);
    if (reason.empty() && matches_any(selection.keep, matrix.name)) reason = kDeselected;
    if (reason.empty() && !selection.only.empty() && !matches_any(selection.only, matrix.name)) reason = kDeselected;
    out.push_back(reason);
  }
  if (recipe.compat || recipe.is_gguf()) return out;
  // By parent and set of parts: the members' indices.
  std::map<std::pair<std::string_view, size_t>, std::vector<size_t>> fused;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const std::string_view name = matrices[i].name, part = last_part(name);
    if (const size_t experts = name.find(kExperts); experts != name.npos) {
      fused[{name.substr(0, experts + kExperts.size()), std::size(kFusedParts)}].push_back(i);
      continue;
    }
    for (size_t set = 0; set < std::size(kFusedParts); ++set) {
      if (std::find(kFusedParts[set].begin(), kFusedParts[set].end(), part) != kFusedParts[set].end())
        fused[{name.substr(0, name.size() - part.size()), set}].push_back(i);
    }
  }
  for (const auto& [key, members] : fused) {
    if (members.size() < 2) continue;
    std::string_view reason;
    for (const size_t i : members) {
      if (!out[i].empty()) reason = kFused;
    }
    for (const size_t i : members) {
      if (!reason.empty() && out[i].empty()) out[i] = reason;
    }
  }
  return out;
}

}  // namespace qgen::quantize
