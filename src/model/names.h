// The role table: what each part of a model is called in Hugging Face checkpoints and in GGUF files.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qgen {

enum class Role : uint8_t {
  kEmbed,
  kPositions,  // learned positions
  kFinalNorm,
  kHead,
  kRopeFactors,
  kRopeShortFactors,
  kRopeLongFactors,  // for contexts beyond the original one
  kAttnNorm,         // before attention
  kAttnQ,
  kAttnK,
  kAttnV,
  kAttnQkv,   // q, k and v as one matrix
  kAttnGate,  // what its results are multiplied by a sigmoid of
  kAttnOut,
  kAttnQNorm,
  kAttnKNorm,
  kAttnSinks,    // one more score a head
  kLatentQDown,  // of latent attention: to the latent of queries
  kLatentQNorm,
  kLatentQUp,
  kLatentKvDown,  // to the latent of keys and values, and the part of keys that is rotated
  kLatentKvNorm,
  kLatentKvUp,
  kLatentKUp,  // its halves as stacks over the heads: of keys, transposed, and of values (GGUF)
  kLatentVUp,
  kAttnPostNorm,  // after attention, before its result is added
  kFfnNorm,       // before the feed-forward network
  kFfnGate,
  kFfnUp,
  kFfnGateUp,  // gate and up as one matrix
  kFfnDown,
  kFfnPostNorm,        // after the feed-forward network
  kRouter,             // a mixture's scores of its experts
  kRouterBias,         // added to the scores for the choice of experts only
  kExpertGateUpsBias,  // of all experts
  kExpertDownsBias,
  kExpertGatesBias,
  kExpertUpsBias,
  kExpertGate,  // of expert number '*'
  kExpertUp,
  kExpertDown,
  kExpertGates,  // of all experts, stacked
  kExpertUps,
  kExpertGateUps,  // gate and up as one matrix, stacked
  kExpertDowns,
  kExpertsIn,  // to the latent of the experts, and from it
  kExpertsOut,
  kSharedGate,  // of the expert that all tokens go to
  kSharedUp,
  kSharedDown,
  kSharedScore,  // one number a token, which its result is multiplied with
  kDeltaQkv,     // of a linear attention
  kDeltaZ,       // its output gate
  kDeltaQkvz,    // both as one matrix, key head after key head
  kDeltaDecay,
  kDeltaRate,
  kDeltaRateDecay,  // both as one matrix, key head after key head
  kDeltaConv,
  kDeltaALog,
  kDeltaDecayBias,
  kDeltaNorm,
  kDeltaOut,
  kMambaIn,  // of a state space: gate, input, B, C and step sizes as one matrix
  kMambaConv,
  kMambaALog,
  kMambaStepBias,
  kMambaSkip,
  kMambaNorm,
  kMambaOut,
  kXieluPositive,  // numbers of an xIELU: before their softplus, and beta
  kXieluNegative,
  kXieluBeta,
  kXieluEpsilon,
  kLayerScale,          // one number that the residual is multiplied with behind a layer
  kPerLayerEmbed,       // of inputs of each layer: a table for all of them
  kPerLayerProjection,  // from the embedding
  kPerLayerNorm,
  kPerLayerGate,
  kPerLayerOut,
  kPerLayerPostNorm,
  kRouterNorm,   // before a router that reads the residual itself
  kExpertScale,  // one number for each expert
  kExpertsNorm,  // before and after the experts, where a network beside them has norms of its own
  kExpertsPostNorm,
  kSharedPostNorm,  // after that network
  kConvIn,          // of a gated convolution
  kConv,
  kConvOut,
  kDraftEmbedNorm,   // of a layer that drafts tokens: of the token's embedding
  kDraftHiddenNorm,  // of the hidden row of the token before it
  kDraftJoin,        // the projection of both, concatenated (eh_proj, fc)
  kDraftNorm,        // before the output head
  kCount,
};

// The names of one checkpoint's modules. In a pattern '@' stands for the prefix of the language model, '#' for the
// layer and '*' for the expert; a module's tensors are NAME.weight, NAME.bias and so on.
class Names {
 public:
  // As most Hugging Face checkpoints have them, with the prefix "model.".
  static Names hugging_face();
  static Names gguf();
  // Mistral's own files (consolidated*.safetensors).
  static Names mistral();

  void set(Role role, std::string_view pattern) { patterns_[size_t(role)] = pattern; }
  void set(std::initializer_list<std::pair<Role, std::string_view>> patterns) {
    for (const auto& [role, pattern] : patterns) set(role, pattern);
  }
  // In multimodal checkpoints the language model lies deeper: "model.language_model.". The head keeps its name.
  void set_prefix(std::string_view prefix) { prefix_ = prefix; }
  const std::string& prefix() const { return prefix_; }

  std::string of(Role role, int64_t layer = 0, int64_t expert = 0) const;
  // What the names of all tensors of the language model begin with.
  std::vector<std::string> own_prefixes() const;
  // What those of a layer begin with.
  std::string layer_prefix(int64_t layer) const;

 private:
  std::array<std::string_view, size_t(Role::kCount)> patterns_;
  std::string prefix_;
  std::vector<std::string> own_;  // where no prefix says which tensors are the language model's
};

}  // namespace qgen
