#include "model/families/table.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/common.h"

namespace qgen {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", "llama", true, "Llama 1, 2, 3.x, SmolLM2, TinyLlama", describe_llama},
    {"mistral", "MistralForCausalLM", "", true, "Mistral 7B, Nemo, Mistral Small 3 and its text part",
     describe_mistral},
    {"ministral", "MinistralForCausalLM", "", true, "Ministral 8B", describe_mistral},
    {"ministral3", "Ministral3ForCausalLM", "mistral3", true, "Ministral 3, Devstral 2, their text part",
     describe_ministral3},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", false, "Qwen2, Qwen2.5", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", false, "Qwen3 dense", describe_qwen3},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen2moe", false, "Qwen1.5-MoE, Qwen2-57B-A14B", describe_qwen2_moe},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3moe", false, "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
     describe_qwen3_moe},
    {"mellum", "MellumForCausalLM", "mellum", false, "Mellum 2", describe_mellum},
    {"qwen2_vl_text", "Qwen2VLForConditionalGeneration", "qwen2vl", false, "Qwen2-VL, its text part",
     describe_qwen2_vl},
    {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration", "qwen2vl", false, "Qwen2.5-VL, its text part",
     describe_qwen2_vl},
    {"mixtral", "MixtralForCausalLM", "", true, "Mixtral 8x7B, 8x22B", describe_mixtral},
    {"olmoe", "OlmoeForCausalLM", "olmoe", false, "OLMoE 1B-7B", describe_olmoe},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "minimax-m2", false, "MiniMax-M2", describe_minimax_m2},
    {"glm4_moe", "Glm4MoeForCausalLM", "glm4moe", false, "GLM-4.5, 4.6, 4.7", describe_glm4_moe},
    {"solar_open", "SolarOpenForCausalLM", "", false, "Solar Open 100B", describe_solar_open},
    {"dots1", "Dots1ForCausalLM", "dots1", false, "dots.llm1", describe_dots1},
    {"exaone_moe", "ExaoneMoeForCausalLM", "exaone-moe", false, "K-EXAONE", describe_exaone_moe},
    {"afmoe", "AfmoeForCausalLM", "afmoe", false, "Trinity Nano, Mini and Large", describe_afmoe},
    {"laguna", "LagunaForCausalLM", "laguna", false, "Laguna XS, S and M", describe_laguna},
    {"bailing_moe", "BailingMoeV2ForCausalLM", "bailingmoe2", false, "Ling and Ring 1.5 and 2.0", describe_bailing_moe},
    {"sarvam_moe", "SarvamMoEForCausalLM", "", false, "Sarvam 30B", describe_sarvam_moe},
    {"hy_v3", "HYV3ForCausalLM", "hy_v3", false, "Hy3", describe_hy_v3},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "deepseek2", false, "DeepSeek-V2, V2-Lite, Coder-V2",
     describe_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "deepseek2", false, "DeepSeek-V3, R1, V3.1, Kimi-K2",
     describe_deepseek_v3},
    {"kimi_k2", "DeepseekV3ForCausalLM", "deepseek2", false, "Kimi-K2 as first published", describe_deepseek_v3},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", "deepseek2", false, "GLM-4.7-Flash", describe_glm4_moe_lite},
    {"deepseek_v32", "DeepseekV32ForCausalLM", "deepseek32", false, "DeepSeek-V3.2, up to 2048 tokens",
     describe_deepseek_v32},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", "glm-dsa", false, "GLM-5, 5.1 and 5.2, up to 2048 tokens",
     describe_glm_moe_dsa},
    {"sarvam_mla", "SarvamMLAForCausalLM", "", false, "Sarvam 105B", describe_sarvam_mla},
    {"youtu", "YoutuForCausalLM", "", false, "Youtu-LLM 2B", describe_youtu},
    {"mistral4", "Mistral4ForCausalLM", "mistral4", false, "Mistral Small 4, its text part", describe_mistral4},
    {"gpt_oss", "GptOssForCausalLM", "gpt-oss", false, "gpt-oss 20B and 120B, MXFP4 as published or BF16",
     describe_gpt_oss},
    {"lfm2", "Lfm2ForCausalLM", "lfm2", false, "LFM2 350M to 2.6B", describe_lfm2},
    {"lfm3", "Lfm3ForCausalLM", "", false, "LFM3 1.7B", describe_lfm3},
    {"lfm2_moe", "Lfm2MoeForCausalLM", "lfm2moe", false, "LFM2 8B-A1B and 24B-A2B", describe_lfm2_moe},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", "granitehybrid", true, "Granite 4 hybrids, dense and mixtures",
     describe_granite_hybrid},
    {"bamba", "BambaForCausalLM", "", false, "Bamba 9B", describe_bamba},
    {"falcon_h1", "FalconH1ForCausalLM", "falcon-h1", false, "Falcon-H1 0.5B to 34B", describe_falcon_h1},
    {"qwen3_next", "Qwen3NextForCausalLM", "qwen3next", false, "Qwen3-Next-80B-A3B", describe_qwen3_next},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", "qwen35", false, "Qwen3.5, 3.6 and 3.8 dense, their text part",
     describe_qwen3_5},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen35moe", false, "Qwen3.5 and 3.6 mixtures, their text part",
     describe_qwen3_5_moe},
    {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", "qwen3vl", false, "Qwen3-VL dense, its text part",
     describe_qwen3_vl},
    {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", "qwen3vlmoe", false,
     "Qwen3-VL mixtures, their text part", describe_qwen3_vl_moe},
    {"llama4_text", "Llama4ForCausalLM", "llama4", false, "Llama 4 Scout and Maverick, their text part",
     describe_llama4},
    {"nemotron_h", "NemotronHForCausalLM", "nemotron_h, nemotron_h_moe", false,
     "Nemotron-H, Nemotron Nano 2, Nemotron 3", describe_nemotron_h},
    {"nemotron", "NemotronForCausalLM", "nemotron", false, "Minitron, Nemotron 3 and 4", describe_nemotron},
    {"gemma", "GemmaForCausalLM", "gemma", false, "Gemma 1", describe_gemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", false, "Gemma 2", describe_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", "gemma3", false, "Gemma 3 1B to 27B, their text part", describe_gemma3},
    {"gemma4_text", "Gemma4ForCausalLM", "gemma4", false, "Gemma 4 E2B to 31B, their text part", describe_gemma4},
    {"gpt2", "GPT2LMHeadModel", "gpt2", false, "GPT-2 in all sizes, DistilGPT2", describe_gpt2},
    {"chatglm", "ChatGLMModel", "chatglm", true, "ChatGLM2, ChatGLM3, GLM-4-9B as first published", describe_chatglm},
    {"glm", "GlmForCausalLM", "", true, "GLM-4-9B", describe_glm},
    {"glm4", "Glm4ForCausalLM", "glm4", true, "GLM-4-0414 9B and 32B, GLM-Z1", describe_glm4},
    {"glm4v_text", "Glm4vForConditionalGeneration", "glm4", true, "GLM-4.1V-Thinking, its text part", describe_glm4v},
    {"phi", "PhiForCausalLM", "phi2", false, "Phi-1, Phi-1.5, Phi-2", describe_phi},
    {"phi3", "Phi3ForCausalLM", "phi3", false, "Phi-3, Phi-3.5, Phi-4, Phi-4-mini", describe_phi3},
    {"granite", "GraniteForCausalLM", "granite", true, "Granite 3 and 4, dense", describe_granite},
    {"granite_swa", "GraniteSWAForCausalLM", "", true, "Granite with windows and sinks, dense", describe_granite_swa},
    {"granitemoe_swa", "GraniteMoeSWAForCausalLM", "", true, "Granite with windows and sinks, mixtures",
     describe_granite_moe_swa},
    {"hyperclovax", "HyperCLOVAXForCausalLM", "", true, "HyperCLOVA X SEED Think", describe_hyperclovax},
    {"granitemoe", "GraniteMoeForCausalLM", "granitemoe", true, "Granite 3 mixtures", describe_granite_moe},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM", "granitemoe", true, "Granite mixtures with a shared expert",
     describe_granite_moe},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", false, "OLMo 2", describe_olmo2},
    {"olmo3", "Olmo3ForCausalLM", "", false, "OLMo 3", describe_olmo3},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", true, "SmolLM3", describe_smollm3},
    {"starcoder2", "Starcoder2ForCausalLM", "starcoder2", false, "StarCoder2", describe_starcoder2},
    {"stablelm", "StableLmForCausalLM", "stablelm", false, "StableLM 3B, StableLM 2", describe_stablelm},
    {"cohere", "CohereForCausalLM", "command-r", true, "Command R, R+, Aya 23", describe_cohere},
    {"cohere2", "Cohere2ForCausalLM", "cohere2", true, "Command R7B, Command A", describe_cohere2},
    {"exaone", "ExaoneForCausalLM", "exaone", false, "EXAONE 3, 3.5 and Deep", describe_exaone},
    {"exaone4", "Exaone4ForCausalLM", "exaone4", false, "EXAONE 4", describe_exaone4},
    {"internlm3", "InternLM3ForCausalLM", "", true, "InternLM3", describe_internlm3},
    {"cwm", "CwmForCausalLM", "", true, "Code World Model 32B", describe_cwm},
    {"iquestcoder", "IQuestCoderForCausalLM", "", true, "IQuest-Coder", describe_iquestcoder},
    {"jais2", "Jais2ForCausalLM", "jais2", false, "Jais 2 8B and 70B", describe_jais2},
    {"arcee", "ArceeForCausalLM", "arcee", true, "AFM 4.5B", describe_arcee},
    {"apertus", "ApertusForCausalLM", "", true, "Apertus 8B and 70B", describe_apertus},
    {"seed_oss", "SeedOssForCausalLM", "seed_oss", false, "Seed-OSS", describe_seed_oss},
    {"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", true, "ERNIE 4.5 0.3B", describe_ernie4_5},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "ernie4_5-moe", true, "ERNIE 4.5 mixtures", describe_ernie4_5_moe},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "hunyuan-dense", false, "Hunyuan dense, 0.5B to 7B",
     describe_hunyuan},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "hunyuan-moe", false, "Hunyuan-A13B", describe_hunyuan_moe},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

namespace {

// Multimodal checkpoints keep the language model's part of config.json in text_config, and its tensors deeper.
constexpr Description::NamePlace kNestedPlaces[] = {
    {"model.language_model.", "lm_head"}, {"language_model.model.", "language_model.lm_head"}, {"model.", "lm_head"}};

std::string_view text_or_empty(const Json& config, std::string_view key) {
  const auto value = config.get(key);
  return value ? value->as_string() : std::string_view();
}

// By model_type, else by architectures; null where there is none.
const Family* find_row(const Json& config) {
  const std::string_view type = text_or_empty(config, "model_type");
  const std::string_view architecture = type.empty() ? first_architecture(config) : std::string_view();
  // Early multimodal files have the language model's keys at the top (Qwen2-VL).
  const std::string text_type = config.get("text_config") ? "" : fmt::format("{}_text", type);
  for (const Family& family : kFamilies) {
    if (!type.empty() ? family.name == type || family.name == text_type
                      : !architecture.empty() && family.architecture == architecture)
      return &family;
  }
  return nullptr;
}

Description describe_nested(const Json& config, const Json& text, const Family& family) {
  const std::string_view type = text_or_empty(config, "model_type");
  if (type == "paligemma" && !text.get("use_bidirectional_attention"))
    config.fail("tokens of a prompt that see those behind them are not supported", "paligemma has them by default");
  Description model = family.describe(text);
  model.places.assign(std::begin(kNestedPlaces), std::end(kNestedPlaces));
  model.names.set_prefix(kNestedPlaces[0].prefix);
  // A head that is not there is the embedding where the key at the top says so, whatever text_config says, as in
  // transformers. Of these classes, which tie by default and leave the key out, the files decide.
  constexpr std::string_view kTiedByDefault[] = {"mistral3",       "gemma3",     "gemma4",  "lfm2_vl",
                                                 "cohere2_vision", "aya_vision", "internvl"};
  const auto tied = config.get("tie_word_embeddings");
  if (tied && (tied->as_bool() || !text.find("tie_word_embeddings"))) {
    model.tied_head = tied->as_bool();
  } else if (!tied && model.tied_head == false && std::ranges::find(kTiedByDefault, type) != std::end(kTiedByDefault)) {
    model.tied_head.reset();
  }
  if (model.end_tokens.empty()) model.end_tokens = read_end_tokens(config);
  return model;
}

}  // namespace

const Family* find_family(const Json& config) {
  const auto text = config.get("text_config");
  const Family* const nested = text && text->is_object() ? find_row(*text) : nullptr;
  return nested != nullptr ? nested : find_row(config);
}

Description describe(const Json& config) {
  if (const auto text = config.get("text_config"); text && text->is_object()) {
    if (const Family* family = find_row(*text)) return describe_nested(config, *text, *family);
  }
  if (const Family* family = find_row(config)) {
    Description model = family->describe(config);
    const bool multimodal = family->name.ends_with("_text") && text_or_empty(config, "model_type") != family->name;
    if (multimodal) model.places.assign(std::begin(kNestedPlaces), std::end(kNestedPlaces));
    return model;
  }
  std::string known;
  for (const Family& family : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  const std::string_view type = text_or_empty(config, "model_type"), architecture = first_architecture(config);
  if (type.empty() && architecture.empty()) {
    config.fail("says no model_type", fmt::format("a Hugging Face config.json names one; supported: {}", known));
  }
  config.fail(fmt::format("model_type '{}' is not supported", type.empty() ? architecture : type),
              "supported: " + known);
}

}  // namespace qgen
