#include "quantize/selection.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fnmatch.h>

namespace qgen::quantize {
namespace {

// What is left alone, by a part of its name. The first rows are those of QuixiAI's quantize_fp8.py for Qwen3.5, whose
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

// The parts of a matrix that engines fuse: modules of the same parent.
constexpr std::array<std::string_view, 3> kFusedParts[] = {
    {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}, {"in_proj_qkv", "in_proj_z"}, {"w1", "w3"}};

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool matches(const std::string& pattern, const std::string& name) {
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
