// GGUF models, and those in Mistral's own layout, as sources: what is written has the names, rows, norms and
// config.json of the Hugging Face checkpoint.
#include <set>

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
  // Their others have other recurrences, latents, sinks, or experts that transformers stacks.
  const std::set<std::string> known = {"ernie4_5_moe", "glm4_moe",    "minimax_m2", "olmoe",    "qwen2_moe",
                                       "qwen3_5",      "qwen3_5_moe", "qwen3_moe",  "seed_oss", "smollm3"};
  size_t converted = 0;
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/golden-gguf")) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    // One matrix, or two that are fused, are quantized, so that any other difference shows.
    JobOptions options = options_for(entry.path(), folder.path() / name, quantize::Format::kInt8, 0);
    const bool delta = contains(name, "qwen3_5");
    const std::string only = delta ? "layers.1.linear_attn.in_proj" : "layers.1.self_attn.o_proj";
    options.selection.only = {only};
    ErrorKind kind{};
    const std::string error = error_of([&] { run_job(options); }, &kind);
    CHECK(error.empty() == known.contains(name));
    if (!error.empty()) {
      CHECK(kind == ErrorKind::kModel);
      CHECK_MESSAGE((contains(error, "cannot be converted") || contains(error, "config.json cannot say")), error);
      continue;
    }
    const auto original = plan_of_files(entry.path()), written = plan_of_files(options.out);
    CHECK(different_step(*written, *original).empty());
    CHECK(compare_vectors(*written, *original).empty());
    size_t quantized = 0;
    for (const Comparison& comparison : compare_models(*written, *original)) {
      const bool small = comparison.name.ends_with("_a") || comparison.name.ends_with("_b");  // these stay
      const bool chosen = contains(comparison.name, only) && !small;
      quantized += chosen;
      CHECK((comparison.likeness.largest_error > 0) == chosen);
    }
    CHECK(quantized == (delta ? 2 : 1));
    ++converted;
  }
  CHECK(converted == known.size());
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
  for (const char* family : {"llama", "mistral", "ministral3", "mixtral", "qwen2", "qwen3", "gemma", "granite", "phi3",
                             "olmo2", "cohere2", "glm4", "qwen3_5"})
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
