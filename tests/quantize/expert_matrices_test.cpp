// Stacks of experts, straight or stored the other way round, plain or quantized, become single matrices with the same
// values.
#include "base/numbers.h"
#include "quantize/compare_models.h"
#include "quantize/job.h"
#include "quantize/source.h"
#include "tests/quantize/job_options.h"
#include "tests/support.h"
#include "tests/tensors.h"

namespace qgen::test {
namespace {

using namespace quantize;

// A golden whose experts lie in plain stacks with their stacks as block FP8, which has one scale for each of these
// small matrices.
void write_fp8_stacks(const fs::path& golden, const TemporaryFolder& folder) {
  const Checkpoint checkpoint = open_checkpoint(locate_model(golden.string()));
  Tensors tensors;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::string_view bytes(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    Tensor& out = tensors[tensor.name] = {std::string(dtype_name(tensor.dtype)), tensor.shape, std::string(bytes)};
    if (!contains(tensor.name, ".experts.")) continue;
    out.dtype = "F8_E4M3";
    out.data.clear();
    for (int64_t i = 0; i < tensor.elements(); ++i) out.data += char(i * 37 % 127 + (i % 2 == 0 ? 128 : 0));
    std::string scales;
    for (int64_t e = 0; e < tensor.shape[0]; ++e) {
      const uint16_t scale = float_to_bf16(0.01F * float(e + 1));
      scales.append(reinterpret_cast<const char*>(&scale), sizeof scale);
    }
    tensors[tensor.name + "_scale_inv"] = {"BF16", {tensor.shape[0], 1, 1}, scales};
  }
  folder.write("model.safetensors", write_tensors(tensors));
  std::string config = read_file(golden / "config.json");
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
    CHECK(convert_and_compare(source_folder() / "tests/golden" / name) == 0);
  }
  // The first two are stored (inputs, outputs).
  for (const char* name : {"llama4-bf16", "qwen3_vl_moe-bf16", "qwen3_5_moe-bf16"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    write_fp8_stacks(source_folder() / "tests/golden" / name, folder);
    CHECK(convert_and_compare(folder.path()) > 5);
  }
}

}  // namespace qgen::test
