#include "quantize/gguf_architecture.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include <fmt/format.h>

#include "base/error.h"
#include "model/planner.h"
#include "quantize/expert_matrices.h"

namespace qgen::quantize {

bool is_only_read(const Family& family) {
  constexpr std::string_view kFamilies[] = {"exaone", "jais2", "afmoe", "bailing_moe", "mellum", "hy_v3", "laguna"};
  return std::ranges::find(kFamilies, family.name) != std::end(kFamilies);
}

namespace {

template <typename Is>
bool any_branch(const Description& model, const Is& is) {
  return std::ranges::any_of(model.layers,
                             [&](const std::vector<BlockSpec>& layer) { return std::ranges::any_of(layer, is); });
}

bool is_mamba(const BlockSpec& block) { return std::holds_alternative<MambaSpec>(block.mixer); }
bool is_mixture(const BlockSpec& block) { return mixture_of(block) != nullptr; }

// The architecture of llama.cpp, which has one for several families, and several for one.
std::string_view architecture_of(const Family& family, const Description& model) {
  if (is_only_read(family)) return "";
  if (family.name == "mistral" || family.name == "ministral" || family.name == "mixtral") return "llama";
  if (family.name == "nemotron_h") return any_branch(model, is_mixture) ? "nemotron_h_moe" : "nemotron_h";
  // Granite 4's models without Mamba declare themselves as hybrids, too.
  if (family.name == "granitemoehybrid" && !any_branch(model, is_mamba) && !any_branch(model, is_mixture))
    return "granite";
  return family.name == "olmo3" ? "olmo2" : family.gguf;
}

bool is_network(const BlockSpec& block) {
  return is_mixture(block) || std::holds_alternative<FeedForwardSpec>(block.mixer);
}

class Check {
 public:
  Check(GgufArchitecture& out, const std::string& name) : out_(out), name_(name) {}

  void run() {
    for (const auto& layer : out_.model.layers) {
      if (!is_network(layer.front())) check_mixer(layer.front().mixer);
      out_.recurrent.push_back(std::holds_alternative<DeltaSpec>(layer.front().mixer));
    }
    if ((out_.attention == nullptr) == (out_.latent == nullptr))
      refuse("models without attention, or with two kinds of it, are not written to GGUF files");
    if (out_.name == "gpt-oss") check_gpt_oss();
    if (out_.name == "gemma4") check_gemma4();
    if (out_.name == "granitehybrid" && out_.mamba == nullptr)
      refuse("mixtures of Granite without Mamba are not written to GGUF files");
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { refuse_gguf(name_, problem); }

  const AttentionSpec& attention_of_layer(size_t i) const {
    return std::get<AttentionSpec>(out_.model.layers[i].front().mixer);
  }

  // What llama.cpp's openai-moe.cpp takes for granted.
  void check_gpt_oss() const {
    for (size_t i = 0; i < out_.model.layers.size(); ++i) {
      if ((attention_of_layer(i).window > 0) != (i % 2 == 0))
        refuse("windows on other layers than each second one are not written to GGUF files");
    }
    if (out_.model.tied_head.value_or(false)) refuse("a head that is the embedding is not written to such GGUF files");
  }

  // What llama.cpp's gemma4.cpp takes for granted.
  void check_gemma4() const {
    const size_t count = out_.model.layers.size();
    size_t shared = 0;  // of layers that read the cache of another
    while (shared < count && attention_of_layer(count - 1 - shared).shares_layer >= 0) ++shared;
    for (size_t i = 0; i < count; ++i) {
      const AttentionSpec& attention = attention_of_layer(i);
      if (attention.qkv_bias || attention.out_bias) refuse("biases of attention are not written to such GGUF files");
      const int64_t read = int64_t(count - shared) - (attention.window > 0 ? 2 : 1);
      if (attention.shares_layer >= 0 && attention.shares_layer != read)
        refuse("caches of other layers than the last two before those that share them are not written to GGUF files");
    }
  }

  void check_mixer(const decltype(BlockSpec::mixer)& mixer) {
    if (const auto* delta = std::get_if<DeltaSpec>(&mixer)) {
      // llama.cpp has one key for both.
      if (delta->key_dim != delta->value_dim)
        refuse("a delta net whose keys and values differ in size is not written to GGUF files");
      out_.delta = delta;
      return;
    }
    if (const auto* latent = std::get_if<LatentSpec>(&mixer); latent != nullptr && out_.name == "deepseek2") {
      check_latent(*latent);
      out_.latent = latent;
      return;
    }
    if (std::holds_alternative<LatentSpec>(mixer))
      refuse("latent attention of this architecture is not written to GGUF files");
    if (const auto* mamba = std::get_if<MambaSpec>(&mixer); mamba != nullptr && has_mamba()) {
      if (mamba->bias || mamba->out_bias) refuse("biases of Mamba's projections are not written to GGUF files");
      out_.mamba = mamba;
      return;
    }
    if (const auto* convolution = std::get_if<ShortConvSpec>(&mixer); convolution != nullptr && out_.name == "lfm2") {
      if (convolution->bias) refuse("biases of short convolutions are not written to GGUF files");
      out_.convolution = convolution;
      return;
    }
    const auto* attention = std::get_if<AttentionSpec>(&mixer);
    const bool gates = out_.name.starts_with("qwen35") || out_.name == "qwen3next";
    using Gate = AttentionSpec::Gate;
    if (attention == nullptr || (attention->sinks && out_.name != "gpt-oss") ||
        !(attention->gate == Gate::kNone || (attention->gate == Gate::kInQueries && gates)))
      refuse("recurrent layers and other kinds of attention are not written to GGUF files");
    if (attention->gate != Gate::kNone && attention->out_bias)
      refuse("biases of gated attention are not written to GGUF files");
    const bool by_kind = out_.name == "gemma4" && attention->window == 0;
    const AttentionSpec*& first = by_kind ? out_.global : out_.attention;
    if (first == nullptr) first = attention;
    if (attention->heads != first->heads || attention->kv_heads != first->kv_heads ||
        attention->head_dim != first->head_dim)
      refuse("layers with heads of different sizes are not written to GGUF files");
  }

  // Falcon-H1's files have its factors in their weights.
  bool has_mamba() const { return out_.name == "granitehybrid" || out_.name.starts_with("nemotron_h"); }

  void check_latent(const LatentSpec& latent) const {
    const Description& model = out_.model;
    const bool halves = !model.ropes.empty() && model.ropes[0].pairs == Rope::Pairs::kHalfSplit;
    if (halves) refuse("latents whose halves are rotated together are not written to GGUF files");
    // llama.cpp knows models without a latent of queries by these numbers (deepseek2, is_lite).
    const size_t layers = model.layers.size();
    const bool lite = layers == 26 || layers == 27 || (layers == 48 && model.vocab == 128256);
    if (latent.q_rank == 0 && !lite)
      refuse("latent attention without q_lora_rank is written to GGUF files of 26 or 27 layers only");
    if (latent.bias) refuse("biases of latents are not written to GGUF files");
    // llama.cpp normalizes latents with the epsilon of all norms, transformers with one of their own.
    constexpr double kNegligible = 1e-4;
    if (std::fabs(latent.norm.eps - model.final_norm.eps) > kNegligible)
      refuse("latents whose norms have another epsilon are not written to GGUF files");
  }

  GgufArchitecture& out_;
  const std::string& name_;
};

}  // namespace

void refuse_gguf(const std::string& subject, const std::string& problem) {
  fail(ErrorKind::kModel, fmt::format("{}: {}", subject, problem), "other formats: --to fp8-channel, --to int8");
}

GgufArchitecture gguf_architecture(const Checkpoint& checkpoint) {
  const std::string& name = checkpoint.location().name;
  GgufArchitecture out;
  out.model = describe(checkpoint.config());
  out.family = find_family(checkpoint.config());
  out.name = architecture_of(*out.family, out.model);
  if (out.name.empty())
    refuse_gguf(name, fmt::format("llama.cpp's files of family {} are not written", out.family->name));
  if (out.model.transposed)
    refuse_gguf(name, "matrices that are stored (inputs, outputs) are not written to GGUF files");
  const auto has = [&](const std::string& tensor) { return checkpoint.find(tensor) != nullptr; };
  if (out.model.names.prefix() != "") find_place(out.model, has);
  for (const auto& [role, pattern] : out.model.gguf_names) out.names.set(role, pattern);
  Check(out, name).run();
  return out;
}

}  // namespace qgen::quantize
