// Checkpoints declared by their config.json alone, against the real files of the same models and against published
// configurations: each is declared, or refused for a reason that is named.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "model/declare.h"
#include "model/open.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

std::unique_ptr<Plan> declare_plan(const fs::path& folder) {
  const ModelLocation location = locate_model(folder.string());
  auto plan = make_plan(declare_checkpoint(location));
  // That tensors lie in one place is all the same to a plan.
  const auto shared = make_plan(declare_checkpoint(location, false, true));
  CHECK(shared->weight_bytes() == plan->weight_bytes());
  CHECK(shared->bytes_per_token() == plan->bytes_per_token());
  CHECK(shared->parameters() == plan->parameters());
  CHECK(shared->method() == plan->method());
  CHECK(shared->ignored.size() == plan->ignored.size());
  return plan;
}

// A folder with what is known of `model` before its weights are there.
void copy_declaration(const fs::path& model, const TemporaryFolder& to, bool with_index) {
  for (const char* name :
       {"config.json", "hf_quant_config.json", "quant_model_description.json", "quant_model_description_w8a16.json",
        "quant_model_description_w8a8.json", "model.safetensors.index.json"}) {
    if (fs::exists(model / name) && (with_index || std::string_view(name) != "model.safetensors.index.json"))
      to.write(name, read_file(model / name));
  }
}

// The index that the files would have if they were several.
std::string index_of(const Checkpoint& checkpoint) {
  std::string names;
  for (const TensorView& tensor : checkpoint.tensors())
    names += fmt::format("{}\"{}\": \"model-00001-of-00002.safetensors\"", names.empty() ? "" : ", ", tensor.name);
  return fmt::format("{{\"weight_map\": {{{}}}}}", names);
}

// Models whose files hold something else than config.json says, or more than it can say.
const std::set<std::string> kUndeclared = {
    "quanto-fp8-stories",  // FP8 and int8 with a map in a file of its own
    "quanto-int8-stories",
    "sgl-w8a8-int8-stories",  // int8, and config.json does not mention it
};
// What config.json cannot say: that a head has a bias.
bool says_fewer(const std::string& name) { return name.starts_with("phi-"); }
bool says_less(const std::string& name, bool with_index) {
  // A scale a channel where quant_method fp8 means one a tensor; unquantized tensors in another type than the declared.
  static const std::set<std::string_view> kOtherValues = {
      "llama-bias", "gpt2-f32", "mlx-affine-mixed-qwen3", "ar-gptq-int8-qwen2", "ar-int8-qwen3", "hqq-axis0-qwen3"};
  if (name.find("-fp8-channel-") != name.npos || kOtherValues.contains(name)) return true;
  // What an index of names makes good: names of a multimodal checkpoint, of GPT-2 without its prefix, of experts that
  // are stacked; routers that are plain though no list says so; quantized heads and embeddings, and modules left
  // unquantized.
  static const std::set<std::string_view> kNames = {"ministral3-bf16",
                                                    "ministral3-fp8",
                                                    "mistral-nested-fp8",
                                                    "qwen3_5_moe-bf16",
                                                    "qwen3_next-fp8",
                                                    "qwen2_moe-fp8",
                                                    "qwen3_moe-fp8",
                                                    "mixtral-fp8",
                                                    "olmoe-fp8",
                                                    "minimax_m2-fp8",
                                                    "glm4_moe-fp8",
                                                    "deepseek_v2-fp8",
                                                    "deepseek_v2-groups-fp8",
                                                    "deepseek_v3-bias-fp8",
                                                    "kimi_k2-fp8",
                                                    "qwen3_5-fp8",
                                                    "qwen3_5_moe-separate-fp8",
                                                    "glm4_moe_lite-fp8",
                                                    "deepseek_v32-fp8",
                                                    "glm_moe_dsa-fp8",
                                                    "hunyuan_moe-fp8",
                                                    "gpt_oss-bf16",
                                                    "gpt_oss-fp8",
                                                    "gpt_oss-published-mxfp4",
                                                    "mistral4-bf16",
                                                    "mistral4-fp8",
                                                    "granite_hybrid-bf16",
                                                    "granite_hybrid-fp8",
                                                    "granitemoe-bf16",
                                                    "granitemoe-fp8",
                                                    "granitemoeshared-bf16",
                                                    "granitemoeshared-fp8",
                                                    "lfm2_moe-fp8",
                                                    "solar_open-fp8",
                                                    "dots1-fp8",
                                                    "exaone_moe-fp8",
                                                    "hy_v3-fp8",
                                                    "afmoe-fp8",
                                                    "bailing_moe-fp8",
                                                    "sarvam_moe-fp8",
                                                    "sarvam_mla-fp8",
                                                    "mellum-fp8",
                                                    "laguna-fp8",
                                                    "laguna-elements-bf16",
                                                    "granitemoe_swa-bf16",
                                                    "granitemoe_swa-fp8",
                                                    "ernie4_5_moe-fp8",
                                                    "gemma4-moe-fp8",
                                                    "gemma4-small-fp8",
                                                    "llama4-bf16",
                                                    "llama4-separate-fp8",
                                                    "nemotron_h-fp8",
                                                    "qwen3_vl_moe-bf16",
                                                    "qwen3_vl_moe-fp8",
                                                    "chatglm-fp8",
                                                    "llama-fp8-head-embed",
                                                    "sgl-w8a8-int8-stories"};
  return !with_index && (name.starts_with("quanto-") || kNames.contains(name));
}

TEST_CASE("a declared checkpoint makes the plan of the real one") {
  std::vector<fs::path> folders;
  const auto add_all = [&](const fs::path& parent) {
    if (!fs::is_directory(parent)) return;
    for (const auto& entry : fs::directory_iterator(parent)) {
      if (fs::exists(entry.path() / "config.json")) folders.push_back(entry.path());
    }
  };
  add_all(source_folder() / "models");
  add_all(source_folder() / "tests/golden");
  if (const fs::path shared = shared_folder(); !shared.empty()) {
    add_all(shared / "fixtures");
    add_all(shared / "fixtures/arch");
  } else {
    skipped_without_shared("fixtures");
  }
  std::sort(folders.begin(), folders.end());
  int compared = 0;
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    INFO(name);
    std::unique_ptr<Plan> real;
    REQUIRE(error_of([&] { real = make_plan(open_checkpoint(locate_model(folder.string()))); }) == "");
    if (name == "ar-fp8-static-stories") continue;  // it has a head, and config.json ties it to the embedding
    for (const bool with_index : {false, true}) {
      TemporaryFolder bare;
      copy_declaration(folder, bare, with_index);
      if (with_index && !fs::exists(folder / "model.safetensors.index.json"))
        bare.write("model.safetensors.index.json", index_of(real->checkpoint));
      std::unique_ptr<Plan> declared;
      const std::string error = error_of([&] { declared = declare_plan(bare.path()); });
      if (kUndeclared.contains(name) && with_index) {
        CHECK(error != "");
        continue;
      }
      CHECK(error == "");
      if (declared == nullptr) continue;
      if (says_fewer(name)) continue;
      CHECK(declared->parameters() == real->parameters());
      REQUIRE(declared->weights.size() == real->weights.size());
      CHECK(declared->vectors.size() == real->vectors.size());
      CHECK(declared->steps.size() == real->steps.size());
      if (says_less(name, with_index)) continue;
      ++compared;
      CHECK(declared->method() == real->method());
      for (size_t i = 0; i < real->weights.size(); ++i) {
        const Weight &a = declared->weights[i], &b = real->weights[i];
        INFO(b.name);
        CHECK(a.name == b.name);
        CHECK(a.rows == b.rows);
        CHECK(a.cols == b.cols);
        CHECK(codes_name(a.codes) == codes_name(b.codes));
        CHECK(method_name(a) == method_name(b));
        // config.json does not say which type scales have.
        CHECK(a.rows * a.row_bytes == b.rows * b.row_bytes);
        CHECK(a.scale.rows == b.scale.rows);
        CHECK(a.scale.cols == b.scale.cols);
      }
    }
  }
  CHECK(compared > 230);
}

// What comes of each published configuration: the method and the billions of parameters, or a part of the error.
struct Expected {
  std::string file;
  std::string outcome;
  double billions = 0;
};
const Expected kPublished[] = {
    {"aiconfigurator/Qwen--Qwen3-0.6B_config.json", "bf16", 0.6},
    {"aiconfigurator/Qwen--Qwen3-1.7B_config.json", "bf16", 1.7},
    {"aiconfigurator/Qwen--Qwen3-235B-A22B-FP8_config.json", "fp8 block 128x128", 235.1},
    {"aiconfigurator/Qwen--Qwen3-235B-A22B_config.json", "bf16", 235.1},
    {"aiconfigurator/Qwen--Qwen3-30B-A3B-FP8_config.json", "fp8 block 128x128", 30.5},
    {"aiconfigurator/Qwen--Qwen3-30B-A3B_config.json", "bf16", 30.5},
    {"aiconfigurator/Qwen--Qwen3-32B-FP8-Static-PerTensor_config.json", "fp8 tensor", 32.8},
    {"aiconfigurator/Qwen--Qwen3-32B-FP8_config.json", "fp8 block 128x128", 32.8},
    {"aiconfigurator/Qwen--Qwen3-32B_config.json", "bf16", 32.8},
    {"aiconfigurator/Qwen--Qwen3-8B_config.json", "bf16", 8.2},
    {"aiconfigurator/Qwen--Qwen3-Coder-480B-A35B-Instruct_config.json", "bf16", 480.2},
    {"aiconfigurator/Qwen--Qwen3-VL-235B-A22B-Instruct_config.json", "bf16", 235.1},
    {"aiconfigurator/Qwen--Qwen3-VL-2B-Instruct_config.json", "bf16", 1.7},
    {"aiconfigurator/Qwen--Qwen3-VL-30B-A3B-Instruct_config.json", "bf16", 30.5},
    {"aiconfigurator/Qwen--Qwen3-VL-32B-Instruct_config.json", "bf16", 32.8},
    {"aiconfigurator/Qwen--Qwen3-VL-32B-Thinking_config.json", "bf16", 32.8},
    {"aiconfigurator/Qwen--Qwen3-VL-4B-Instruct_config.json", "bf16", 4.0},
    {"aiconfigurator/Qwen--Qwen3-VL-8B-Instruct_config.json", "bf16", 8.2},
    {"aiconfigurator/Qwen--Qwen3.5-122B-A10B_config.json", "bf16", 122.1},
    {"aiconfigurator/Qwen--Qwen3.5-27B_config.json", "bf16", 26.9},
    {"aiconfigurator/Qwen--Qwen3.5-35B-A3B_config.json", "bf16", 34.7},
    {"aiconfigurator/Qwen--Qwen3.5-397B-A17B_config.json", "bf16", 396.3},
    {"aiconfigurator/deepseek-ai--DeepSeek-V3_config.json", "fp8 block 128x128", 671.0},
    {"aiconfigurator/google--gemma-4-26B-A4B_config.json", "bf16", 25.2},
    {"aiconfigurator/meta-llama--Llama-4-Maverick-17B-128E-Instruct_config.json", "bf16", 400.7},
    {"aiconfigurator/meta-llama--Llama-4-Scout-17B-16E-Instruct_config.json", "bf16", 107.8},
    {"aiconfigurator/meta-llama--Meta-Llama-3.1-405B_config.json", "bf16", 405.9},
    {"aiconfigurator/meta-llama--Meta-Llama-3.1-70B_config.json", "bf16", 70.6},
    {"aiconfigurator/meta-llama--Meta-Llama-3.1-8B_config.json", "bf16", 8.0},
    {"aiconfigurator/nvidia--Gemma-4-26B-A4B-NVFP4_config.json", "fp4, held as 8, group 16", 25.2},
    {"aiconfigurator/nvidia--Gemma-4-31B-IT-NVFP4_config.json", "fp4, held as 8, group 16", 30.7},
    {"aiconfigurator/nvidia--Llama-3.1-70B-Instruct-FP8_config.json", "fp8 tensor", 70.6},
    {"aiconfigurator/nvidia--Qwen3-235B-A22B-NVFP4_config.json", "fp4, held as 8, group 16", 235.1},
    {"aiconfigurator/nvidia--Qwen3.5-122B-A10B-NVFP4_config.json", "fp4, held as 8, group 16", 122.1},
    {"aiconfigurator/nvidia--Qwen3.5-397B-A17B-NVFP4_config.json", "fp4, held as 8, group 16", 396.3},
    {"aiconfigurator/nvidia--Qwen3.6-27B-NVFP4_config.json", "fp4, held as 8, group 16", 26.9},
    {"aiconfigurator/nvidia--Qwen3.6-35B-A3B-NVFP4_config.json", "fp4, held as 8, group 16", 34.7},
    {"aiconfigurator/zai-org--GLM-5-FP8_config.json", "fp8 block 128x128", 743.2},
    {"inference-sim/codellama-34b-instruct-hf.config.json", "bf16", 33.7},
    {"inference-sim/deepseek-v2-lite.config.json", "bf16", 15.7},
    {"inference-sim/glm-5.2-fp8.config.json", "fp8 block 128x128", 743.2},
    {"inference-sim/llama-2-7b-hf.config.json", "f16", 6.7},
    {"inference-sim/llama-3.1-70b-instruct.config.json", "bf16", 70.6},
    {"inference-sim/llama-3.1-8b-instruct.config.json", "bf16", 8.0},
    {"inference-sim/llama-4-scout-17b-16e-instruct-fp8-dynamic.config.json", "fp8 channel", 107.8},
    {"inference-sim/mistral-nemo-instruct-2407.config.json", "bf16", 12.2},
    {"inference-sim/mixtral-8x7b-v0.1.config.json", "bf16", 46.7},
    {"inference-sim/qwen2.5-7b-instruct.config.json", "bf16", 7.6},
    {"inference-sim/qwen3-14b.config.json", "bf16", 14.8},
    {"inference-sim/qwen3-30b-a3b.config.json", "bf16", 30.5},
    {"inference-sim/yi-34b.config.json", "bf16", 34.4},
    {"rebuilt/Qwen3-1.7B-FP8.config.json", "fp8 block 128x128", 1.7},
    {"rebuilt/Qwen3-14B-FP8.config.json", "fp8 block 128x128", 14.8},
    {"rebuilt/Qwen3-4B-FP8.config.json", "fp8 block 128x128", 4.0},
    {"rebuilt/Qwen3-8B-FP8.config.json", "fp8 block 128x128", 8.2},
    {"rebuilt/Qwen3.8-27B-FP8.config.json", "fp8 block 128x128", 26.9},
    {"tattletale/config-GLM-4.7-EXL3-3.84bpw.json", "quant_method 'exl3' is not supported"},
    {"tattletale/config-GLM-4.7-FP8.json", "fp8 channel", 352.8},
    {"tattletale/config-GLM-4.7-Flash.json", "bf16", 29.9},
    {"tattletale/config-GLM-4.7.json", "bf16", 352.8},
    {"tattletale/config-Kimi-K2.5.json", "4 bits, held as 8, group 32", 1026.4},
    {"tattletale/config-MiniMax-M2.1.json", "fp8 block 128x128", 228.7},
    {"tattletale/config-NVIDIA-Nemotron-3-Nano-30B-A3B-FP8.json", "bf16", 31.6},
    {"tattletale/config-Qwen3-0.6B-FP8.json", "fp8 block 128x128", 0.6},
    {"tattletale/config-Qwen3-0.6B-GPTQ-Int8.json", "int8 group 128", 0.6},
    {"tattletale/config-Qwen3-0.6B.json", "bf16", 0.6},
    {"tattletale/config-Qwen3-235B-A22B-Instruct-2507.json", "bf16", 235.1},
    {"tattletale/config-Qwen3-235B-A22B-Instruct-2507_1m.json", "bf16", 235.1},
    {"tattletale/config-Qwen3-30B-A3B-GPTQ-Int4.json", "4 bits, held as 8, group 128", 30.5},
    {"tattletale/config-Qwen3-4B-AWQ.json", "4 bits, held as 8, group 128 asymmetric", 4.0},
    {"tattletale/config-Qwen3-4B.json", "bf16", 4.0},
    {"tattletale/config-Qwen3-Coder-Next.json", "bf16", 79.7},
};

// The published file, and ModelOpt's beside it, in a folder of their own.
std::unique_ptr<TemporaryFolder> published(const fs::path& path) {
  auto folder = std::make_unique<TemporaryFolder>();
  folder->write("config.json", read_file(path));
  std::string side = path.string();
  if (const size_t at = side.rfind("_config.json"); at != side.npos) {
    side.replace(at, side.npos, "_hf_quant_config.json");
    if (fs::exists(side)) folder->write("hf_quant_config.json", read_file(side));
  }
  return folder;
}

TEST_CASE("published configurations are declared, or refused for a reason that is named") {
  const fs::path configs = shared_folder() / "data/configs";
  if (!fs::is_directory(configs)) {
    skipped_without_shared("published configurations");
    return;
  }
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(configs)) {
    const std::string file = fs::relative(entry.path(), configs).string();
    if (file.ends_with(".json") && !contains(file, "hf_quant_config") && !contains(file, ".quantization_config"))
      files.insert(file);
  }
  for (const Expected& expected : kPublished) {
    INFO(expected.file);
    CHECK(files.erase(expected.file) == 1);
    const auto folder = published(configs / expected.file);
    CHECK(lacks_weights(locate_model(folder->path().string())));
    std::unique_ptr<Plan> plan;
    ErrorKind kind = ErrorKind::kModel;
    const std::string error = error_of([&] { plan = declare_plan(folder->path()); }, &kind);
    if (expected.billions == 0) {
      CHECK(contains(error, expected.outcome));
      CHECK(kind == ErrorKind::kModel);
    } else {
      REQUIRE(error == "");
      CHECK(plan->method() == expected.outcome);
      CHECK(double(plan->parameters()) / 1e9 == doctest::Approx(expected.billions).epsilon(0.05 / expected.billions));
    }
  }
  CHECK(files.empty());
}

constexpr std::string_view kSizes =
    R"("num_hidden_layers":2,"hidden_size":32,"num_attention_heads":4,"intermediate_size":48,"vocab_size":64)";

std::string config_with(const std::string& quantization, const std::string& more = "") {
  return fmt::format(R"({{"model_type":"llama",{}{}{}}})", kSizes,
                     quantization.empty() ? "" : ",\"quantization_config\":" + quantization,
                     more.empty() ? "" : "," + more);
}

// The plan's method, or the error.
std::string declared(const std::string& config, const std::string& side_file = "", const std::string& index = "") {
  TemporaryFolder folder;
  folder.write("config.json", config);
  if (!side_file.empty()) folder.write("hf_quant_config.json", side_file);
  if (!index.empty()) folder.write("model.safetensors.index.json", index);
  std::unique_ptr<Plan> plan;
  const std::string error = error_of([&] { plan = declare_plan(folder.path()); });
  return plan ? plan->method() : error;
}

std::string group(const std::string& weights, const std::string& more = "") {
  return R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"group_0":{"targets":["Linear"],"weights":)" +
         weights + "}}" + more + "}";
}

TEST_CASE("each method is declared by its own keys, and what is not supported is named") {
  CHECK(declared(config_with("")) == "bf16");
  CHECK(declared(config_with("", R"("torch_dtype":"float16")")) == "f16");
  CHECK(declared(config_with("", R"("dtype":"float32","torch_dtype":"bfloat16")")) == "f32");
  CHECK(contains(declared(config_with("", R"("dtype":"int3")")), "dtype: 'int3' is not supported"));
  CHECK(declared(config_with(R"({"quant_method":"fp8","weight_block_size":[16,16]})")) == "fp8 block 16x16");
  CHECK(declared(config_with(R"({"quant_method":"fp8","fmt":"e5m2"})")) == "fp8-e5m2 tensor");
  CHECK(declared(config_with(R"({"quant_method":"fbgemm_fp8"})")) == "fp8 channel");
  CHECK(declared(config_with(group(R"({"num_bits":8,"type":"int","group_size":-1})"))) == "int8 channel");
  CHECK(declared(config_with(group(R"({"num_bits":8,"type":"int","group_size":16,"symmetric":false})"))) ==
        "int8 group 16 asymmetric");
  CHECK(declared(config_with(R"({"quant_method":"compressed-tensors","config_groups":{"FP8_DYNAMIC":["Linear"]}})")) ==
        "fp8 channel");
  CHECK(declared(config_with(""), R"({"quantization":{"quant_algo":"FP8","exclude_modules":["lm_head"]}})") ==
        "fp8 tensor");

  const auto error = [](const std::string& quantization) { return declared(config_with(quantization)); };
  CHECK(error(R"({"quant_method":"gptq","bits":8,"group_size":16,"sym":true,"desc_act":false})") == "int8 group 16");
  CHECK(error(R"({"quant_method":"gptq","bits":4,"group_size":16,"sym":false,"desc_act":false})") ==
        "4 bits, held as 8, group 16 asymmetric");
  CHECK(error(R"({"quant_method":"gptq","bits":8,"group_size":16,"sym":true,"desc_act":true})") ==
        "int8 group 16 act-order");
  CHECK(
      error(
          R"({"quant_method":"auto-round","bits":8,"group_size":16,"sym":true,"packing_format":"auto_round:auto_gptq"})") ==
      "int8 group 16");
  CHECK(error(R"({"quant_method":"auto-round","bits":8,"data_type":"fp","group_size":-1,"fmt":"e4m3"})") ==
        "fp8 channel");
  CHECK(contains(error(R"({"quant_method":"gptq","bits":5})"), "bits: 5 bits are not supported"));
  CHECK(contains(error(R"({"quant_method":"gptq","bits":8,"checkpoint_format":"marlin"})"),
                 "the layout 'marlin' is not supported"));
  CHECK(error(R"({"group_size":16,"bits":8,"mode":"affine"})") == "int8 group 16 asymmetric");
  CHECK(error(R"({"group_size":16,"bits":4})") == "4 bits, held as 8, group 16 asymmetric");
  // A mode says groups and bits that nothing else says.
  CHECK(error(R"({"mode":"nvfp4"})") == "fp4, held as 8, group 16");
  CHECK(contains(error(R"({"group_size":16,"bits":4,"mode":"nvfp5"})"), "mode: 'nvfp5' is not supported"));
  CHECK(error(R"({"quant_method":"bitsandbytes","load_in_8bit":true})") == "int8 channel");
  CHECK(contains(error(R"({"quant_method":"bitsandbytes","load_in_4bit":true})"), "load_in_8bit only"));
  CHECK(
      error(R"({"quant_method":"hqq","quant_config":{"weight_quant_params":{"nbits":8,"group_size":16,"axis":1}}})") ==
      "int8 group 16 asymmetric");
  CHECK(error(R"({"quant_method":"torchao","quant_type":{"default":{"_type":"Float8WeightOnlyConfig","_data":{}}}})") ==
        "fp8 channel");
  const auto torchao = [&](std::string_view type, std::string_view data) {
    return error(fmt::format(
        R"({{"quant_method":"torchao","quant_type":{{"default":{{"_type":"{}","_data":{{{}}}}}}}}})", type, data));
  };
  CHECK(torchao("Int4WeightOnlyConfig", R"("group_size":16,"int4_packing_format":"PLAIN")") ==
        "4 bits, held as 8, group 16 asymmetric");
  CHECK(contains(torchao("Int4WeightOnlyConfig", R"("int4_packing_format":"tile_packed_to_4d")"),
                 "int4_packing_format: 'tile_packed_to_4d' is not supported"));
  CHECK(torchao("NVFP4WeightOnlyConfig", "") == "fp4, held as 8, group 16");
  CHECK(torchao("MXDynamicActivationMXWeightConfig", "") == "fp8 channel");  // rows of one group
  CHECK(torchao("MXDynamicActivationMXWeightConfig", R"("weight_dtype":{"_data":"float4_e2m1fn_x2"})") ==
        "fp4, held as 8, channel");
  CHECK(contains(torchao("MXDynamicActivationMXWeightConfig", R"("weight_dtype":{"_data":"fp6_e2m3"})"),
                 "'fp6_e2m3' is not supported"));
  CHECK(contains(torchao("UIntXWeightOnlyConfig", ""), "torchao's 'UIntXWeightOnlyConfig' is not supported"));
  CHECK(error(R"({"quant_method":"quanto","weights":"int8"})") == "int8 channel");
  CHECK(contains(error(R"({"quant_method":"quanto","weights":"int4"})"), "weights: 'int4' is not supported"));
  CHECK(error(R"({"quant_method":"awq","bits":4,"group_size":16,"version":"gemm"})") ==
        "4 bits, held as 8, group 16 asymmetric");
  CHECK(contains(error(R"({"quant_method":"awq","bits":4,"version":"gemv"})"), "the layout 'gemv' is not supported"));
  const auto quark = [&](std::string_view dtype, std::string_view scheme) {
    return error(fmt::format(
        R"({{"quant_method":"quark","global_quant_config":{{"weight":{{"dtype":"{}","qscheme":"{}","group_size":16}}}}}})",
        dtype, scheme));
  };
  CHECK(quark("uint4", "per_group") == "4 bits, held as 8, group 16 asymmetric");
  CHECK(quark("int4", "per_channel") == "4 bits, held as 8, channel asymmetric");
  CHECK(contains(quark("int4", "per_tensor"), "'per_tensor' with 4 bits is not supported"));
  CHECK(contains(quark("int2", "per_group"), "'int2' is not supported"));
  CHECK(contains(error(R"({"quant_method":"exl3","bits":3.84})"), "'exl3' is not supported"));
  CHECK(contains(error(R"({"quant_method":"modelopt","quant_algo":"W4A8_FOO"})"),
                 "ModelOpt's 'W4A8_FOO' is not supported"));
  CHECK(error(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})") == "fp4, held as 8, group 16");
  CHECK(error(R"({"quant_method":"modelopt","quant_algo":"NVFP4_AWQ"})") == "fp4, held as 8, group 16");
  CHECK(contains(error(R"({"bits":8})"), "says no quant_method"));
  CHECK(contains(error(R"({"quant_method":"fp8","fmt":"e2m1"})"), "fmt: 'e2m1' is not supported"));
  CHECK(contains(error(group(R"({"num_bits":4,"type":"int","group_size":16})")), "num_bits 4 is not supported"));
  CHECK(
      error(
          R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":{"targets":["Linear"],)"
          R"("weights":{"num_bits":8,"group_size":16,"actorder":"group"}}}})") == "int8 group 16 act-order");
  CHECK(
      error(
          R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"W8A16":["Linear"]}})") ==
      error(R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"W8A8":["Linear"]}})"));
  CHECK(contains(error(R"({"quant_method":"compressed-tensors","format":"marlin-24","config_groups":{}})"),
                 "'marlin-24' is not supported"));
}

TEST_CASE("scales of MXFP8 are bytes before the files are there, too") {
  TemporaryFolder folder;
  std::string config =
      config_with(R"({"quant_method":"compressed-tensors","format":"mxfp8-quantized","config_groups":{"a":{)"
                  R"("targets":["Linear"],"weights":{"num_bits":8,"type":"float","group_size":32}}}})");
  config.replace(config.find(":48"), 3, ":96");  // whole groups, more than one in a row
  config.replace(config.find(":32"), 3, ":64");
  folder.write("config.json", config);
  const auto plan = declare_plan(folder.path());
  CHECK(plan->method() == "fp8 group 32");
  CHECK(std::ranges::count_if(plan->weights, [](const Weight& weight) {
          return weight.codes == Codes::kE4M3 && weight.scale.type == ScaleType::kE8M0;
        }) == 15);
}

TEST_CASE("lists say which modules are quantized") {
  const auto quantized = [](const std::string& quantization) {
    TemporaryFolder folder;
    folder.write("config.json", config_with(quantization));
    std::string out;
    const auto plan = declare_plan(folder.path());
    for (const Weight& weight : plan->weights) {
      const std::string short_name = weight.name.substr(weight.name.rfind("layers.") == std::string::npos ? 0 : 13);
      if (weight.quantized()) out += short_name + " ";
    }
    return out;
  };
  const std::string all =
      "0.self_attn.q_proj 0.self_attn.k_proj 0.self_attn.v_proj 0.self_attn.o_proj 0.mlp.gate_proj 0.mlp.up_proj "
      "0.mlp.down_proj ";
  const std::string second = "1" + all.substr(1, all.npos);
  const auto weights = [](const std::string& ignore) {
    return group(R"({"num_bits":8,"type":"int","strategy":"channel"})", R"(,"ignore":)" + ignore);
  };
  CHECK(quantized(weights(R"(["lm_head","re:.*mlp.*","re:model.layers.1.*"])")) ==
        "0.self_attn.q_proj 0.self_attn.k_proj 0.self_attn.v_proj 0.self_attn.o_proj ");
  CHECK(quantized(weights(R"(["re:mlp","re:model.layers.1","re:.*self_attn.[kvo]_proj$","lm_head"])")) ==
        "0.self_attn.q_proj 0.mlp.gate_proj 0.mlp.up_proj 0.mlp.down_proj ");
  CHECK(contains(quantized(weights("[]")), "lm_head"));
  CHECK(!contains(quantized(weights("[]")), "embed"));
  CHECK(
      quantized(
          R"({"quant_method":"fp8","modules_to_not_convert":["mlp.gate","model.layers.1","o_proj","mlp.down_proj"]})") ==
      "0.self_attn.q_proj 0.self_attn.k_proj 0.self_attn.v_proj 0.mlp.gate_proj 0.mlp.up_proj ");
  CHECK(quantized(R"({"quant_algo":"FP8","ignore":["lm_head","model.layers.1*","*mlp.*"]})") ==
        "0.self_attn.q_proj 0.self_attn.k_proj 0.self_attn.v_proj 0.self_attn.o_proj ");
  CHECK(contains(error_of([&] { quantized(weights(R"(["re:("])")); }), "\"re:(\" is not a regular expression"));
}

TEST_CASE("the names in an index decide what is there") {
  const std::string folder_layers[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                       "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  const auto index = [&](const std::string& more, bool scales = true, int64_t total = 0) {
    std::string map = R"("model.embed_tokens.weight":"a.safetensors","model.norm.weight":"a.safetensors")";
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
        map += fmt::format(R"(,"{}{}.weight":"a.safetensors")", prefix, norm);
      for (const std::string& module : folder_layers) {
        map += fmt::format(R"(,"{}{}.weight":"a.safetensors")", prefix, module);
        if (scales) map += fmt::format(R"(,"{}{}.weight_scale_inv":"a.safetensors")", prefix, module);
      }
    }
    return fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{{}{}}}}})", total, map, more);
  };
  const std::string fp8 = config_with(R"({"quant_method":"fp8","weight_block_size":[16,16]})");
  TemporaryFolder folder;
  folder.write("config.json", fp8);
  const auto plan_of = [&](const std::string& text) {
    folder.write("model.safetensors.index.json", text);
    return declare_plan(folder.path());
  };
  // No head of its own, and config.json does not forbid it.
  const auto head_of = [](const Plan& plan) {
    return std::get<LinearStep>(plan.steps.back().op).projections[0].weight;
  };
  const auto tied = plan_of(index(""));
  CHECK(head_of(*tied)->name == "model.embed_tokens");
  CHECK(plan_of(index(R"(,"lm_head.weight":"a.safetensors")"))->weights.back().name == "lm_head");
  const auto biased = plan_of(index(R"(,"model.layers.0.self_attn.q_proj.bias":"a.safetensors")"));
  const auto& projections = std::get<LinearStep>(biased->steps[1].op).projections;
  CHECK(projections[0].bias != nullptr);
  CHECK(projections[1].bias == nullptr);
  CHECK(plan_of(index("", false))->method() == "bf16");
  CHECK(contains(error_of([&] { plan_of(index(R"(,"model.layers.0.self_attn.q_proj.qweight":"a.safetensors")")); }),
                 "marlin or bitblas"));
  CHECK(contains(error_of([&] { plan_of(index(R"(,"model.layers.0.mlp.experts.0.up_proj.weight":"a.safetensors")")); }),
                 "not part of a llama model"));
  // Its total size.
  const auto note = [&](int64_t total) {
    folder.write("model.safetensors.index.json", index("", true, total));
    return declared_size_note(declare_checkpoint(locate_model(folder.path().string())));
  };
  size_t bytes = 0;
  const Checkpoint checkpoint = declare_checkpoint(locate_model(folder.path().string()));
  for (const TensorView& tensor : checkpoint.tensors()) bytes += tensor.bytes.size();
  CHECK(note(int64_t(bytes)) == "");
  CHECK(note(int64_t(double(bytes) * 1.005)) == "");
  CHECK(contains(note(int64_t(bytes) * 2), "total_size is"));
  CHECK(contains(declared(config_with("", R"("tie_word_embeddings":false)"), "", index("", false)),
                 "lm_head.weight is missing"));
  CHECK(contains(declared(config_with(""), "", index("")), "but config.json declares no quantization"));

  CHECK(lacks_weights(locate_model(folder.path().string())));
  folder.write("a.safetensors", "");
  CHECK(!lacks_weights(locate_model(folder.path().string())));
  TemporaryFolder bare;
  bare.write("config.json", fp8);
  CHECK(lacks_weights(locate_model(bare.path().string())));
  bare.write("pytorch_model.bin", "");
  CHECK(!lacks_weights(locate_model(bare.path().string())));
}

TEST_CASE("random weights keep activations of order one, and are the same for the same seed") {
  for (const char* quantization :
       {"", R"({"quant_method":"fp8","weight_block_size":[16,16]})", R"({"quant_method":"fp8","fmt":"e5m2"})"}) {
    for (const char* type : {"bfloat16", "float16", "float32"}) {
      INFO(quantization, " ", type);
      TemporaryFolder folder;
      folder.write("config.json", config_with(quantization, fmt::format(R"("dtype":"{}")", type)));
      const auto scores = [&](uint64_t seed) {
        const auto plan = declare_plan(folder.path());
        fill_randomly(*plan, seed);
        std::vector<Weight*> weights;
        for (Weight& weight : plan->weights) weights.push_back(&weight);
        scan_weights(weights);
        CHECK(plan->nan_codes() == 0);
        const TokenId tokens[] = {1, 2, 3};
        const auto engine = make_engine(*plan, "cpu", 8);
        const std::span<const float> logits = engine->prefill(tokens);
        return std::vector<float>(logits.begin(), logits.end());
      };
      const auto first = scores(1);
      double square = 0;
      for (const float value : first) square += double(value) * value / double(first.size());
      CHECK(std::sqrt(square) > 0.1);
      CHECK(std::sqrt(square) < 10);
      CHECK(scores(1) == first);
      CHECK(scores(2) != first);
    }
  }
}

}  // namespace
}  // namespace qgen::test
