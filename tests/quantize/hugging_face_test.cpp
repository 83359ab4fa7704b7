// GGUF models, and those in Mistral's own layout, as sources: what is written has the names, rows, norms and
// config.json of the Hugging Face checkpoint.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "base/numbers.h"
#include "quantize/compare_models.h"
#include "quantize/job.h"
#include "quantize/source.h"
#include "quantize/source_files.h"
#include "tests/quantize/job_options.h"
#include "tests/support.h"
#include "tokenizer/tokenizer.h"

namespace qgen::test {
namespace {

using namespace quantize;

std::unique_ptr<Plan> plan_of_files(const fs::path& model) {
  return make_plan(open_checkpoint(locate_model(model.string())));
}

}  // namespace

TEST_CASE("quantize: llama.cpp's files become checkpoints with the same values") {
  const TemporaryFolder folder;
  // These have sinks, experts that transformers stacks, an indexer, positions in sections, or the tensors of old files;
  // or they are of families that are only read.
  const std::set<std::string> refused = {"gpt_oss",        "granite_hybrid", "granite_moe", "granite_moe_shared",
                                         "deepseek_v32",   "glm_moe_dsa",    "mixtral_old", "glm4_sections",
                                         "qwen3_next_old", "exaone",         "jais2",       "afmoe",
                                         "bailing_moe",    "mellum",         "hy_v3",       "laguna",
                                         "laguna_elements"};
  size_t converted = 0, files = 0;
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/golden-gguf")) {
    if (entry.path().extension() != ".gguf") continue;
    ++files;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    // One matrix, or two that are fused, are quantized, so that any other difference shows.
    JobOptions options = options_for(entry.path(), folder.path() / name, quantize::Format::kInt8, 0);
    const bool delta = contains(name, "qwen3_5");
    const std::string only = delta                          ? "layers.1.linear_attn.in_proj"
                             : contains(name, "lfm2")       ? "layers.1.self_attn.out_proj"
                             : contains(name, "nemotron_h") ? "layers.2.mixer.o_proj"
                                                            : "layers.1.self_attn.o_proj";
    options.selection.only = {only};
    ErrorKind kind{};
    const std::string error = error_of([&] { run_job(options); }, &kind);
    CHECK_MESSAGE(error.empty() == !refused.contains(name), error);
    if (!error.empty()) {
      CHECK(kind == ErrorKind::kModel);
      CHECK_MESSAGE(contains(error, "cannot be converted"), error);
      continue;
    }
    const auto original = plan_of_files(entry.path()), written = plan_of_files(options.out);
    CHECK(different_step(*written, *original).empty());
    CHECK(compare_vectors(*written, *original).empty());
    const std::vector<TokenId> ids = {5, 9, 1, 7, 3, 11, 2, 8, 30, 12, 17, 4};
    const auto logits_of = [&](const fs::path& model) {
      return reference_logits(*load_plan(model), ids, int64_t(ids.size()));
    };
    // Recurrences keep what was rounded.
    CHECK(normwise_error(logits_of(options.out), logits_of(entry.path())) < (delta ? 0.2 : 0.03));
    ++converted;
    if (name == "qwen3_next") continue;  // stored key head by key head there
    size_t quantized = 0;
    for (const Comparison& comparison : compare_models(*written, *original)) {
      const bool small = comparison.name.ends_with("_a") || comparison.name.ends_with("_b");  // these stay
      const bool chosen = contains(comparison.name, only) && !small;
      quantized += chosen;
      CHECK_MESSAGE((comparison.likeness.largest_error > 0) == chosen, comparison.name);
    }
    CHECK(quantized == (delta ? 2 : 1));
  }
  CHECK(converted + refused.size() == files);
}

TEST_CASE("quantize: a checkpoint that became a GGUF file comes back with the same steps") {
  size_t round_trips = 0;
  std::set<std::string> families;
  for (const fs::path& model : golden_folders()) {
    const std::string name = model.filename().string();
    CAPTURE(name);
    const auto original = plan_of_files(model);
    const bool from_gguf = !original->checkpoint.location().gguf_files.empty();
    TemporaryFolder folder;
    const fs::path gguf = folder.path() / "there.gguf", back = folder.path() / "back";
    // What has no place in GGUF files is tested elsewhere.
    if (!error_of([&] { run_job(options_for(model, gguf, quantize::Format::kQ8_0, 0)); }).empty()) continue;
    const std::string error = error_of([&] { run_job(options_for(gguf, back, quantize::Format::kInt8, 0)); });
    if (contains(error, "cannot be converted") || contains(error, "config.json cannot say") ||
        contains(error, "no matrix can be quantized"))
      continue;
    REQUIRE_MESSAGE(error.empty(), error);
    const auto written = plan_of_files(back);
    // Smoothed norms, multipliers and biases of a quantization were undone on the way there.
    const bool undone = contains(name, "msl-") || contains(name, "-sq-");
    const auto before = undone ? plan_of_files(gguf) : plan_of_files(model);
    CHECK(different_step(*written, *before) == "");
    CHECK(compare_vectors(*written, *before).empty());
    CHECK(!written->checkpoint.config().get("rope_adjacent_pairs").has_value());
    if (original->model.family == "qwen3_5") CHECK(written->checkpoint.config().get("layer_types").has_value());
    if (!from_gguf) families.insert(original->model.family);
    ++round_trips;
  }
  CHECK(round_trips > 40);
  // Qwen3's mixture among the goldens has layers of two kinds, which GGUF files cannot have.
  if (!shared_folder().empty()) CHECK(families.contains("qwen3_moe"));
  for (const char* family :
       {"llama", "mistral", "ministral3", "mixtral", "qwen2", "qwen3", "gemma", "granite", "phi3", "olmo2", "cohere2",
        "glm4", "qwen3_5", "qwen3_next", "gemma4", "deepseek_v3", "granitemoehybrid", "lfm2", "nemotron_h"})
    CHECK_MESSAGE(families.contains(family), std::string(family));
}

TEST_CASE("quantize: a bias that transformers' class lacks is refused") {
  const TemporaryFolder folder;
  const fs::path gguf = folder.path() / "qwen2.gguf";
  run_job(options_for(source_folder() / "tests/golden/qwen2-bf16", gguf, quantize::Format::kQ8_0, 0));
  // The same file as a Llama: biases of q, k and v, none of the output.
  std::string bytes = read_file(gguf);
  for (size_t at = 0; (at = bytes.find("qwen2", at)) != bytes.npos;) bytes.replace(at, 5, "llama");
  const fs::path llama = folder.write("llama.gguf", bytes);
  ErrorKind kind{};
  const std::string error =
      error_of([&] { run_job(options_for(llama, folder.path() / "out", quantize::Format::kInt8, 0)); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  CHECK_MESSAGE(contains(error, "attn_output.bias: no such bias beside others"), error);
  CHECK(!fs::exists(folder.path() / "out"));
}

TEST_CASE("quantize: statistics have the names of a GGUF file, or those that its modules get") {
  const TemporaryFolder folder;
  struct Case {
    std::string name, model, theirs;
    std::vector<std::string> ours;
  };
  const std::string layer = "model.layers.1.";
  for (const Case& c : std::vector<Case>{
           {"llama", "golden/llama-bf16", "blk.1.attn_output", {layer + "self_attn.o_proj"}},
           {"fused", "golden/granite_hybrid-wide-bf16", "blk.1.ffn_gate", {layer + "shared_mlp.input_linear"}},
           {"expert", "golden/mixtral-bf16", "blk.1.2.ffn_up_exps", {layer + "block_sparse_moe.experts.2.w3"}},
           {"apart",
            "golden-gguf/gemma4_fused.gguf",
            "blk.1.attn_qkv",
            {layer + "self_attn.q_proj", layer + "self_attn.k_proj", layer + "self_attn.v_proj"}}}) {
    CAPTURE(c.name);
    fs::path gguf = source_folder() / "tests" / c.model;
    if (gguf.extension() != ".gguf") {
      run_job(options_for(gguf, folder.path() / (c.name + ".gguf"), quantize::Format::kQ8_0, 0));
      gguf = folder.path() / (c.name + ".gguf");
    }
    std::string maxima;
    const int64_t hidden = plan_of_files(gguf)->model.hidden;
    for (int64_t k = 0; k < hidden; ++k) maxima += fmt::format("{}{}", k == 0 ? "" : ",", 1 + k * k);
    int runs = 0;
    const auto written = [&](const std::vector<std::string>& modules) {
      const fs::path out = folder.path() / fmt::format("{}-{}", c.name, runs++);
      JobOptions options = options_for(gguf, out, quantize::Format::kFp8Channel, 0);
      options.recipe.mode = Mode::kMse;
      std::string members;
      for (const std::string& module : modules) {
        members +=
            fmt::format(R"({}"{}.weight":{{"input_channel_max":[{}]}})", members.empty() ? "" : ",", module, maxima);
      }
      if (!modules.empty()) options.statistics = folder.write("stats.json", "{" + members + "}");
      run_job(options);
      return read_file(out / "model.safetensors");
    };
    const std::string weighted = written({c.theirs});
    CHECK(weighted == written(c.ours));
    CHECK(weighted != written({}));
  }
}

TEST_CASE("quantize: parts of joined matrices and decays that cannot be converted have their name in the GGUF file") {
  struct Case {
    std::string model, tensor;
    float value;
    std::string expected;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : std::vector<Case>{
           {"granite_hybrid_dense", "blk.1.ffn_up.weight", kNan,
            "tensor blk.1.ffn_up.weight (model.layers.1.shared_mlp.input_linear): holds NaN or infinity"},
           {"deepseek_v2", "blk.1.attn_v_b.weight", kNan,
            "tensor blk.1.attn_v_b.weight (model.layers.1.self_attn.kv_b_proj): holds NaN or infinity"},
           {"qwen3_5", "blk.0.ssm_a", 0, "tensor blk.0.ssm_a: holds 0 (expected -exp(A_log), below zero)"},
           {"granite_hybrid_dense", "blk.0.ssm_a", -INFINITY, "tensor blk.0.ssm_a: holds -inf (expected"},
           {"nemotron_h_dense", "blk.0.ssm_a", kNan, "tensor blk.0.ssm_a: holds nan (expected"}}) {
    CAPTURE(c.model);
    const TemporaryFolder folder;
    const fs::path original = source_folder() / "tests/golden-gguf" / (c.model + ".gguf");
    std::string bytes = read_file(original);
    {
      const Checkpoint checkpoint = open_checkpoint(locate_model(original.string()));
      const TensorView* const tensor = checkpoint.find(c.tensor);
      REQUIRE(tensor != nullptr);
      const std::string_view values(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
      const size_t at = bytes.find(values);
      REQUIRE(at != bytes.npos);
      const bool f32 = tensor->dtype == Dtype::kF32;
      const uint16_t half = tensor->dtype == Dtype::kF16 ? float_to_f16(c.value) : float_to_bf16(c.value);
      std::memcpy(bytes.data() + at, f32 ? static_cast<const void*>(&c.value) : &half, f32 ? 4 : 2);
    }
    const fs::path model = folder.write("model.gguf", bytes);
    ErrorKind kind{};
    const std::string error =
        error_of([&] { run_job(options_for(model, folder.path() / "out", quantize::Format::kInt8, 0)); }, &kind);
    CHECK(kind == ErrorKind::kModel);
    CHECK_MESSAGE(contains(error, c.expected), error);
  }
}

TEST_CASE("quantize: matrices that are joined are smoothed as others are") {
  const TemporaryFolder folder;
  std::string maxima;
  for (int k = 0; k < 32; ++k) maxima += fmt::format("{}{}", k == 0 ? "" : ",", 1 + k % 5);
  const fs::path gguf = source_folder() / "tests/golden-gguf/granite_hybrid_dense.gguf";
  JobOptions options = options_for(gguf, folder.path() / "out", quantize::Format::kInt8, -1);
  options.smoothing = 0.5;
  options.statistics =
      folder.write("stats.json", fmt::format(R"({{"blk.1.ffn_gate.weight":{{"input_channel_max":[{}]}}}})", maxima));
  const JobReport report = run_job(options);
  CHECK(report.smoothed == 1);
  CHECK_FALSE(report.failed());
}

TEST_CASE("quantize: a GGUF file that says nothing of groups of experts has none in transformers either") {
  const TemporaryFolder folder;
  const fs::path gguf = folder.path() / "there.gguf";
  run_job(options_for(source_folder() / "tests/golden/kimi_k2-bf16", gguf, quantize::Format::kQ8_0, 0));
  run_job(options_for(gguf, folder.path() / "back", quantize::Format::kInt8, 0));
  const std::string config = read_file(folder.path() / "back/config.json");
  CHECK(contains(config, R"("n_group": 1)"));
  CHECK(contains(config, R"("topk_group": 1)"));
}

TEST_CASE("quantize: every part of a GGUF model is a file of the model, also one without tensors") {
  const TemporaryFolder folder;
  const fs::path gguf = folder.path() / "model.gguf", part = folder.write("part.gguf", "keys alone");
  run_job(options_for(source_folder() / "tests/golden/llama-bf16", gguf, quantize::Format::kQ8_0, 0));
  Source source = open_source(gguf.string(), Stacks::kAsServers);
  source.location.gguf_files.push_back(part);
  const SourceFiles files(source, {});
  CHECK(files.contains(gguf));
  CHECK(files.contains(part));
  CHECK_NOTHROW(files.check_unchanged());
  folder.write("part.gguf", "other keys");
  CHECK(contains(error_of([&] { files.check_unchanged(); }), "part.gguf: changed while it was read"));
}

TEST_CASE("quantize: what transformers reads beside the weights of a GGUF model") {
  const TemporaryFolder folder;
  const fs::path gguf = folder.path() / "model.gguf", out = folder.path() / "out";
  run_job(options_for(source_folder() / "models/stories260K-FP8", gguf, quantize::Format::kQ8_0, 0));
  run_job(options_for(gguf, out, quantize::Format::kInt8, 0));
  CHECK(contains(read_file(out / "tokenizer_config.json"), R"("tokenizer_class":"LlamaTokenizer")"));
  CHECK(contains(read_file(out / "generation_config.json"), R"("eos_token_id":[2])"));
  CHECK(contains(read_file(out / "config.json"), R"("LlamaForCausalLM")"));
  const auto tokenizer = Tokenizer::load(model_files(locate_model(out.string())));
  const auto original =
      Tokenizer::load(model_files(locate_model((source_folder() / "models/stories260K-FP8").string())));
  CHECK(tokenizer->encode("Once upon a time, 12").ids == original->encode("Once upon a time, 12").ids);
}

}  // namespace qgen::test
