// The table of architectures. A family is one file that describes it and one row here.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "model/description.h"

namespace qgen {

struct Family {
  std::string_view name;          // model_type of config.json
  std::string_view architecture;  // its class in `architectures`
  std::string_view gguf;          // general.architecture of GGUF files, or several with ", " between; empty: none
  bool gguf_adjacent_pairs;       // there q and k are stored for rotations of adjacent pairs
  std::string_view examples;      // for people
  Description (*describe)(const Json& config);
};
std::span<const Family> families();

// The row of that model, whose text part may lie deeper (text_config); null where there is none.
const Family* find_family(const Json& config);
// The description of the model that this config.json declares, by model_type, else by architectures.
Description describe(const Json& config);

Description describe_llama(const Json& config);
Description describe_mistral(const Json& config);
Description describe_qwen2(const Json& config);
Description describe_qwen3(const Json& config);
Description describe_qwen2_vl(const Json& config);
Description describe_lfm2_moe(const Json& config);
Description describe_granite_moe(const Json& config);
Description describe_glm4v(const Json& config);
Description describe_arcee(const Json& config);
Description describe_internlm3(const Json& config);
Description describe_cwm(const Json& config);
Description describe_iquestcoder(const Json& config);
Description describe_jais2(const Json& config);
Description describe_exaone(const Json& config);
Description describe_hyperclovax(const Json& config);
Description describe_granite_swa(const Json& config);
Description describe_granite_moe_swa(const Json& config);
Description describe_laguna(const Json& config);
Description describe_mellum(const Json& config);
Description describe_hy_v3(const Json& config);
Description describe_youtu(const Json& config);
Description describe_sarvam_mla(const Json& config);
Description describe_afmoe(const Json& config);
Description describe_bailing_moe(const Json& config);
Description describe_sarvam_moe(const Json& config);
Description describe_bamba(const Json& config);
Description describe_solar_open(const Json& config);
Description describe_dots1(const Json& config);
Description describe_exaone_moe(const Json& config);
Description describe_nemotron(const Json& config);
Description describe_qwen2_moe(const Json& config);
Description describe_qwen3_moe(const Json& config);
Description describe_mixtral(const Json& config);
Description describe_olmoe(const Json& config);
Description describe_minimax_m2(const Json& config);
Description describe_glm4_moe(const Json& config);
Description describe_deepseek_v2(const Json& config);
Description describe_deepseek_v3(const Json& config);
Description describe_deepseek_v32(const Json& config);
Description describe_glm_moe_dsa(const Json& config);
Description describe_glm4_moe_lite(const Json& config);
Description describe_mistral4(const Json& config);
Description describe_gpt_oss(const Json& config);
Description describe_granite_hybrid(const Json& config);
Description describe_lfm2(const Json& config);
Description describe_apertus(const Json& config);
Description describe_lfm3(const Json& config);
Description describe_qwen3_next(const Json& config);
Description describe_qwen3_5(const Json& config);
Description describe_qwen3_5_moe(const Json& config);
Description describe_gemma3(const Json& config);
Description describe_ministral3(const Json& config);
Description describe_qwen3_vl(const Json& config);
Description describe_gemma(const Json& config);
Description describe_gemma2(const Json& config);
Description describe_gpt2(const Json& config);
Description describe_chatglm(const Json& config);
Description describe_glm(const Json& config);
Description describe_glm4(const Json& config);
Description describe_phi(const Json& config);
Description describe_phi3(const Json& config);
Description describe_granite(const Json& config);
Description describe_olmo2(const Json& config);
Description describe_olmo3(const Json& config);
Description describe_smollm3(const Json& config);
Description describe_starcoder2(const Json& config);
Description describe_stablelm(const Json& config);
Description describe_cohere(const Json& config);
Description describe_cohere2(const Json& config);
Description describe_exaone4(const Json& config);
Description describe_seed_oss(const Json& config);
Description describe_ernie4_5(const Json& config);
Description describe_falcon_h1(const Json& config);
Description describe_hunyuan(const Json& config);
Description describe_hunyuan_moe(const Json& config);
Description describe_qwen3_vl_moe(const Json& config);
Description describe_gemma4(const Json& config);
Description describe_llama4(const Json& config);
Description describe_nemotron_h(const Json& config);
Description describe_ernie4_5_moe(const Json& config);

}  // namespace qgen
