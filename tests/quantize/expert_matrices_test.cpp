// Stacks of experts, straight or stored the other way round, plain or quantized, become single matrices with the same
// values.
#include <fstream>
#include <functional>

#include "base/numbers.h"
#include "quantize/compare_models.h"
#include "quantize/job.h"
#include "quantize/source.h"
#include "tests/quant/small_checkpoint.h"
#include "tests/quantize/job_options.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using namespace quantize;

fs::path golden_folder(const std::string& name) { return source_folder() / "tests/golden" / name; }

StoredTensors tensors_of_golden(const std::string& name) {
  return read_tensors(golden_folder(name) / "model.safetensors");
}

void write_model(const TemporaryFolder& folder, const std::string& golden, const StoredTensors& tensors) {
  folder.write("model.safetensors", write_tensors(tensors));
  folder.write("config.json", read_file(golden_folder(golden) / "config.json"));
}

// A stack of BF16 matrices, each turned over.
void turn_over(StoredTensor& stack) {
  const size_t experts = size_t(stack.shape[0]), rows = size_t(stack.shape[1]), cols = size_t(stack.shape[2]);
  std::string turned(stack.bytes.size(), 0);
  for (size_t e = 0; e < experts; ++e) {
    for (size_t i = 0; i < rows * cols; ++i) {
      stack.bytes.copy(turned.data() + 2 * (e * rows * cols + i % cols * rows + i / cols), 2,
                       2 * (e * rows * cols + i));
    }
  }
  stack.bytes = std::move(turned);
  std::swap(stack.shape[1], stack.shape[2]);
}

// A golden whose experts lie in plain stacks with their stacks as block FP8, which has one scale for each of these
// small matrices.
void write_fp8_stacks(const std::string& golden, const TemporaryFolder& folder) {
  StoredTensors tensors = tensors_of_golden(golden);
  StoredTensors scales;
  for (auto& [name, tensor] : tensors) {
    if (!contains(name, ".experts.")) continue;
    const size_t elements = tensor.bytes.size() / 2;
    tensor.dtype = Dtype::kF8E4M3;
    tensor.bytes.clear();
    for (size_t i = 0; i < elements; ++i) tensor.bytes += char(i * 37 % 127 + (i % 2 == 0 ? 128 : 0));
    StoredTensor& of_stack = scales[name + "_scale_inv"] = {Dtype::kBf16, {tensor.shape[0], 1, 1}, ""};
    for (int64_t e = 0; e < tensor.shape[0]; ++e) {
      const uint16_t scale = float_to_bf16(0.01F * float(e + 1));
      of_stack.bytes.append(reinterpret_cast<const char*>(&scale), sizeof scale);
    }
  }
  tensors.merge(scales);
  folder.write("model.safetensors", write_tensors(tensors));
  std::string config = read_file(golden_folder(golden) / "config.json");
  config.insert(config.find('{') + 1,
                R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},)");
  folder.write("config.json", config);
}

// Quantizes one matrix of no expert, so that any other difference shows, and compares; gives how many experts' matrices
// differ, in whose values a rounding from F32 to BF16 is allowed.
size_t convert_and_compare(const fs::path& model) {
  constexpr const char* kChosen = "layers.1.self_attn.o_proj";
  const TemporaryFolder folder;
  JobOptions options = options_for(model, folder.path() / "out", quantize::Format::kInt8, 0);
  options.selection.only = {kChosen};
  const JobReport report = run_job(options);
  CHECK_FALSE(report.kept.contains("stack of experts"));
  const auto original = make_plan(open_checkpoint(locate_model(model.string())));
  const auto written = make_plan(open_checkpoint(locate_model(options.out.string())));
  CHECK(different_step(*written, *original).empty());
  for (const TensorView& tensor : written->checkpoint.tensors())
    CHECK_MESSAGE((!contains(tensor.name, ".experts.") || tensor.shape.size() == 2), tensor.name);
  size_t experts = 0, quantized = 0;
  for (const Comparison& comparison : compare_models(*written, *original)) {  // of those that differ
    CAPTURE(comparison.name);
    if (contains(comparison.name, kChosen)) {
      ++quantized;
    } else {
      CHECK(contains(comparison.name, ".experts."));
      CHECK(comparison.likeness.cosine > 1 - 1e-5);
      ++experts;
    }
  }
  CHECK(quantized == 1);
  return experts;
}

}  // namespace

TEST_CASE("quantize: stacks of experts become matrices of their own") {
  for (const char* name :
       {"llama4-bf16", "qwen3_vl_moe-bf16", "gemma4-moe-bf16", "qwen3_5_moe-bf16", "mistral4-bf16"}) {
    CAPTURE(name);
    CHECK(convert_and_compare(golden_folder(name)) == 0);
  }
  // The first two are stored (inputs, outputs).
  for (const char* name : {"llama4-bf16", "qwen3_vl_moe-bf16", "qwen3_5_moe-bf16"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    write_fp8_stacks(name, folder);
    CHECK(convert_and_compare(folder.path()) > 5);
  }
}

TEST_CASE("stacks of experts are read whichever way round they are stored, as transformers saves either") {
  for (const std::string golden : {"qwen3_vl_moe-bf16", "llama4-bf16"}) {
    CAPTURE(golden);
    StoredTensors tensors = tensors_of_golden(golden);
    for (auto& [name, tensor] : tensors) {
      if (contains(name, ".experts.")) turn_over(tensor);
    }
    const TemporaryFolder folder;
    write_model(folder, golden, tensors);
    const auto turned = make_plan(open_checkpoint(locate_model(folder.path().string())));
    const auto original = make_plan(open_checkpoint(locate_model(golden_folder(golden).string())));
    CHECK(different_step(*turned, *original).empty());
    CHECK(compare_models(*turned, *original).empty());
    CHECK(convert_and_compare(folder.path()) == 0);
  }
}

TEST_CASE("quantize: a checkpoint that is no whole model is refused, and nothing is written") {
  const std::string golden = "qwen3_5_moe-bf16", experts = "model.language_model.layers.0.mlp.experts.";
  const auto error_with = [&](const std::function<void(StoredTensors&)>& change) {
    StoredTensors tensors = tensors_of_golden(golden);
    change(tensors);
    const TemporaryFolder folder;
    write_model(folder, golden, tensors);
    ErrorKind kind{};
    const fs::path out = folder.path() / "out";
    const std::string error =
        error_of([&] { run_job(options_for(folder.path(), out, quantize::Format::kInt8, 0)); }, &kind);
    CHECK(kind == ErrorKind::kModel);
    CHECK_FALSE(fs::exists(out));
    return error;
  };
  CHECK(contains(error_with([&](StoredTensors& tensors) { tensors.erase(experts + "down_proj"); }), "is missing"));
  CHECK(contains(error_with([&](StoredTensors& tensors) { tensors.erase("model.language_model.norm.weight"); }),
                 "norm.weight is missing"));
  CHECK(contains(error_with([&](StoredTensors& tensors) {
                   tensors[experts + "0.down_proj.weight"] = {Dtype::kBf16, {32, 24}, std::string(32 * 24 * 2, 0)};
                 }),
                 "experts.0.down_proj.weight"));
}

TEST_CASE("quantize: a NaN in a stack is one of an expert, and what begins like a stack's name leads to experts") {
  const std::string golden = "gpt_oss-bf16", stack = "model.layers.1.mlp.experts.gate_up_proj";
  StoredTensors tensors = tensors_of_golden(golden);
  std::string& bytes = tensors.at(stack).bytes;
  const size_t expert = bytes.size() / size_t(tensors.at(stack).shape[0]);
  bytes.replace(2 * expert, 2, "\xC0\x7F");  // in the third's first column
  const TemporaryFolder folder;
  write_model(folder, golden, tensors);
  std::string config = read_file(golden_folder(golden) / "config.json");
  for (const auto& [from, to] : {std::pair<std::string, std::string>(R"("swiglu_limit":1.5)", R"("swiglu_limit":7.0)"),
                                 {R"("beta_fast":1.0,"beta_slow":0.1)", R"("beta_fast":32.0,"beta_slow":1.0)"}})
    config.replace(config.find(from), from.size(), to);
  folder.write("config.json", config);
  const std::string error =
      error_of([&] { run_job(options_for(folder.path(), folder.path() / "out.gguf", quantize::Format::kQ8_0, 0)); });
  CHECK_MESSAGE(contains(error, stack + " (model.layers.1.mlp.experts.2.gate_proj): holds NaN"), error);

  JobOptions options =
      options_for(golden_folder("qwen3_5_moe-bf16"), folder.path() / "kept", quantize::Format::kInt8, 0);
  options.selection.keep = {"experts.gate_up_proj"};
  try {
    run_job(options);
    FAIL("the pattern is no name");
  } catch (const Error& no_name) {
    CHECK(contains(no_name.hint(), "names are like model.language_model.layers.0.mlp.experts.0.gate_proj"));
  }
}

TEST_CASE("quantize: weights that the statistics say nothing of are counted") {
  const TemporaryFolder folder;
  const fs::path statistics = folder.path() / "stats.json";
  JobOptions options = options_for(golden_folder("llama-bf16"), folder.path() / "out", quantize::Format::kInt8, 0);
  options.recipe.mode = Mode::kMse;
  options.statistics = statistics;
  const std::string all = read_file(source_folder() / "tests/golden-calibration/llama-bf16.json");
  std::ofstream(statistics) << all;
  CHECK(run_job(options).warnings.empty());
  options.force = true;
  std::ofstream(statistics) << all.substr(0, all.find("]}") + 2) << "}";
  const JobReport report = run_job(options);
  REQUIRE(report.warnings.size() == 1);
  CHECK_MESSAGE(contains(report.warnings[0], "has no maxima of the inputs of "), report.warnings[0]);
}

}  // namespace qgen::test
