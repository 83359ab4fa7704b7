// `quantize --to q8_0`: GGUF files of every family that llama.cpp has give nearly the scores of their source.
#include "quantize/gguf_job.h"

#include <cmath>
#include <cstring>

#include "quantize/compare_models.h"
#include "tests/quantize/job_options.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using namespace quantize;

// A golden with parts of its config.json changed.
fs::path changed_copy(const TemporaryFolder& folder, const fs::path& golden,
                      const std::vector<std::pair<std::string, std::string>>& changes) {
  std::string config = read_file(golden / "config.json");
  for (const auto& [from, to] : changes) {
    REQUIRE(contains(config, from));
    config.replace(config.find(from), from.size(), to);
  }
  // llama.cpp knows no other betas of most families.
  const std::string betas = R"("beta_fast":1.0,"beta_slow":0.1)";
  if (const size_t at = config.find(betas); at != config.npos)
    config.replace(at, betas.size(), R"("beta_fast":32.0,"beta_slow":1.0)");
  const fs::path path = folder.write("model/config.json", config).parent_path();
  for (const auto& entry : fs::directory_iterator(golden)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name != "config.json") fs::copy(entry.path(), path / name);
  }
  return path;
}

}  // namespace

TEST_CASE("quantize to q8_0: every family that llama.cpp has") {
  struct Case {
    std::string golden;
    std::vector<std::pair<std::string, std::string>> changes;  // to what its GGUF files can say
  };
  for (const Case& c : std::vector<Case>{
           {"llama-bf16", {}},
           {"llama-bias", {}},
           {"llama-rope-llama3", {}},
           {"llama-rope-linear", {}},
           {"llama-rope-yarn", {}},
           {"llama-shards-index", {}},
           {"mistral-bf16", {}},
           {"mistral-window", {}},
           {"qwen2-bf16", {}},
           {"qwen3-tied", {}},
           {"qwen3-fp8-block-bf16", {}},
           {"gemma-bf16", {}},
           {"gemma2-bf16", {{"\"query_pre_attn_scalar\":20", "\"query_pre_attn_scalar\":12"}}},
           {"glm4-bf16", {}},
           {"phi-bf16", {}},
           {"phi3-bf16", {}},
           {"granite-bf16", {}},
           {"olmo2-bf16", {}},
           {"olmo3-bf16", {}},
           {"smollm3-bf16", {{"\"no_rope_layers\":[1,0,1]", "\"no_rope_layers\":[1,1,1]"}}},
           {"starcoder2-bf16", {}},
           {"stablelm-serial-bf16", {}},
           {"cohere-bf16", {}},
           {"cohere2-bf16", {}},
           {"ministral3-bf16", {}},
           {"ministral-bf16", {}},
           {"qwen3vl-bf16", {}},
           {"qwen2vl-bf16", {}},
           {"qwen2_5vl-bf16", {}},
           {"glm4v-bf16", {}},
           {"arcee-bf16", {}},
           {"granitemoe-bf16", {}},
           {"granitemoeshared-bf16", {}},
           {"nemotron-bf16", {}},
           {"exaone4-bf16", {}},
           {"seed_oss-bf16", {}},
           {"ernie4_5-bf16", {}},
           {"hunyuan-bf16", {}},
           {"mixtral-bf16", {}},
           {"qwen2_moe-bf16", {}},
           {"glm4_moe-bf16", {}},
           {"minimax_m2-bf16", {}},
           {"qwen3_5-wide-bf16", {}},
           {"qwen3_next-wide-bf16", {}},
           {"gemma4-bf16", {}},
           {"gemma4-moe-bf16", {}},
           {"gemma4-small-fp8", {}},
           {"gpt_oss-bf16", {{"\"swiglu_limit\":1.5", "\"swiglu_limit\":7.0"}}},
           {"gpt_oss-published-mxfp4", {}},
           {"llama4-bf16",
            {{"\"attention_chunk_size\":6", "\"attention_chunk_size\":8192"},
             {"\"floor_scale\":4", "\"floor_scale\":8192"},
             {"\"attn_scale\":0.5", "\"attn_scale\":0.1"}}},
           {"ernie4_5_moe-wide-bf16", {}},
           {"deepseek_v3-bf16", {}},
           {"glm4_moe_lite-bf16", {}},
           {"glm4_moe_lite-wide-bf16", {}},
           {"kimi_k2-bf16", {}},
           {"granite_hybrid-bf16", {}},
           {"granite_hybrid-wide-bf16", {}},
           {"granite_hybrid-wide-bf16", {{"\"nope\"", "\"rope\""}}},
           {"lfm2-wide-bf16", {}},
           {"nemotron_h-bf16", {}},
           {"nemotron_h-latent-bf16", {}},
           {"nemotron_h-wide-bf16", {}},
       }) {
    CAPTURE(c.golden);
    const Golden golden = Golden::read(source_folder() / "tests/golden" / c.golden);
    TemporaryFolder folder;
    const fs::path model = changed_copy(folder, golden.folder, c.changes);
    const fs::path out = folder.path() / "out.gguf";
    const JobReport report = run_job(options_for(model, out, quantize::Format::kQ8_0, -1));
    REQUIRE(report.shards.size() == 1);
    CHECK(report.shards[0].quantized > 0);
    CHECK_FALSE(report.shards[0].comparisons.empty());
    CHECK_FALSE(report.failed());
    const auto written = load_plan(out), original = load_plan(model);
    // llama.cpp asks for them.
    const bool in_sections = contains(c.golden, "qwen") && (contains(c.golden, "vl") || contains(c.golden, "3_5"));
    CHECK(contains(read_file(out), "rope.dimension_sections") == in_sections);
    CHECK(different_step(*written, *original).empty());
    CHECK(compare_vectors(*written, *original).empty());
    const int64_t context = int64_t(golden.ids.size());
    // A router may choose another expert, a recurrence keeps what was rounded.
    const bool moved = std::ranges::any_of(written->steps, [](const Step& step) {
      return std::holds_alternative<RouteStep>(step.op) || std::holds_alternative<RecurStep>(step.op);
    });
    CHECK(normwise_error(reference_logits(*written, golden.ids, context),
                         reference_logits(*original, golden.ids, context)) < (moved ? 0.2 : 0.06));
  }
}

TEST_CASE("quantize to q8_0: what llama.cpp's files cannot say is refused, and nothing is left") {
  const auto error_with = [](const std::string& golden,
                             const std::vector<std::pair<std::string, std::string>>& changes = {}) {
    TemporaryFolder folder, changed;
    const fs::path out = folder.path() / "out.gguf";
    const fs::path model = changed_copy(changed, source_folder() / "tests/golden" / golden, changes);
    ErrorKind kind{};
    const std::string error = error_of([&] { run_job(options_for(model, out, quantize::Format::kQ8_0, -1)); }, &kind);
    CHECK(kind == ErrorKind::kModel);
    CHECK(fs::is_empty(folder.path()));
    return error;
  };
  CHECK(contains(error_with("gemma2-bf16"), "model: llama.cpp's format cannot say how this model computes"));
  CHECK(contains(error_with("smollm3-bf16"), "cannot say how this model computes"));
  CHECK(contains(error_with("llama-rope-dynamic"), "llama.cpp knows no dynamic rotation"));
  CHECK(contains(error_with("gpt2-bf16"), "(inputs, outputs)"));
  CHECK(contains(error_with("qwen3_next-bf16"), "keys and values differ in size"));
  CHECK(contains(error_with("deepseek_v3-bias-bf16"), "latents whose halves are rotated together are not written"));
  CHECK(contains(error_with("falcon_h1-bf16"), "recurrent layers and other kinds of attention are not written"));
  CHECK(contains(error_with("granite_hybrid-dense-fp8"), "biases of Mamba's projections"));
  CHECK(contains(error_with("nemotron_h-dense-fp8"), "biases of Mamba's projections"));
  CHECK(contains(error_with("stablelm-norms-bf16"), "k_layernorm.norms.1.weight has no place in a GGUF"));
  CHECK(contains(error_with("lfm2-bf16"), "biases of short convolutions"));
  CHECK(contains(error_with("qwen3_5-bf16"), "keys and values differ in size"));
  CHECK(contains(error_with("deepseek_v2-bf16"), "latent attention without q_lora_rank"));
  CHECK(contains(error_with("deepseek_v2-groups-fp8"), "ranked by their best one"));
  CHECK(contains(error_with("ernie4_5_moe-bf16"), "layers of different kinds"));
  CHECK(contains(error_with("llama4-bf16"), "cannot say how this model computes"));
  CHECK(contains(error_with("qwen3_moe-bf16"), "dense layers before those with experts"));
  CHECK(contains(error_with("qwen2-rope-yarn-mscale"), "YaRN with betas of 32 and 1 only (found 2 and 0.05)"));
  CHECK(
      contains(error_with("qwen3-bf16", {{R"("rope_type":"default")",
                                          R"("rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,)"
                                          R"("original_max_position_embeddings":16)"}}),
               "Llama 3's scaling of rotations is not written to GGUF files of qwen3"));
  CHECK(contains(error_with("gpt_oss-bf16"), "cannot say how this model computes (layer 0: experts"));
  CHECK(contains(error_with("gpt_oss-bf16", {{"\"swiglu_limit\":1.5", "\"swiglu_limit\":7.0"},
                                             {"\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true"}}),
                 "a head that is the embedding"));
}

TEST_CASE("quantize to q8_0: a number beyond F16 is told apart from an infinity") {
  const TemporaryFolder folder;
  struct Case {
    float value;
    const char *kept, *expected;
  };
  // What is kept is F16 there, and the scale of a group in Q8_0.
  for (const Case& c : {Case{1e6F, "o_proj", ": holds 1000000 (expected numbers of F16)"},
                        Case{-INFINITY, "o_proj", ": holds NaN or infinity"},
                        Case{1e9F, "k_proj", ": holds 1000000000 (expected numbers of Q8_0)"}}) {
    const fs::path model = changed_copy(folder, source_folder() / "tests/golden/llama-f32", {});
    std::string bytes = read_file(model / "model.safetensors");
    const std::string name = "model.layers.0.self_attn.o_proj.weight";
    {
      const Checkpoint checkpoint = open_checkpoint(locate_model(model.string()));
      const auto values = checkpoint.find(name)->bytes;
      const size_t at = bytes.find(std::string_view(reinterpret_cast<const char*>(values.data()), values.size()));
      REQUIRE(at != bytes.npos);
      std::memcpy(bytes.data() + at, &c.value, sizeof c.value);
    }
    folder.write("model/model.safetensors", bytes);
    JobOptions options = options_for(model, folder.path() / "out.gguf", quantize::Format::kQ8_0, 0);
    options.selection.keep = {c.kept};
    const std::string error = error_of([&] { run_job(options); });
    CHECK_MESSAGE(contains(error, "tensor " + name + c.expected), error);
    fs::remove_all(model);
  }
}

TEST_CASE("quantize to q8_0: nothing is overwritten") {
  TemporaryFolder folder;
  const fs::path model = source_folder() / "tests/golden/llama-bf16";
  const fs::path out = folder.write("out.gguf", "mine");
  CHECK(contains(error_of([&] { run_job(options_for(model, out, quantize::Format::kQ8_0, -1)); }), "is there already"));
  CHECK(read_file(out) == "mine");
  JobOptions options = options_for(model, out, quantize::Format::kQ8_0, -1);
  options.force = true;
  CHECK_FALSE(run_job(options).failed());
  CHECK(contains(error_of([&] { run_job(options_for(model, folder.path(), quantize::Format::kQ8_0, -1)); }),
                 "a folder (expected a file)"));
  // A run that is stopped leaves the file that was there.
  const std::string before = read_file(out);
  JobControl control;
  control.stopped = [] { return true; };
  CHECK(contains(error_of([&] { run_job(options, control); }), "stopped"));
  CHECK(read_file(out) == before);
  // So does one whose model the format cannot say.
  options = options_for(source_folder() / "tests/golden/gemma2-bf16", out, quantize::Format::kQ8_0, -1);
  options.force = true;
  CHECK(contains(error_of([&] { run_job(options); }), "cannot say how this model computes"));
  CHECK(read_file(out) == before);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

}  // namespace qgen::test
