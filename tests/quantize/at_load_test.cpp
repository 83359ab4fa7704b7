// Weights that are quantized while a model is loaded.
#include "quantize/at_load.h"

#include <cstring>
#include <map>

#include "quantize/recipe.h"
#include "tests/support.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;
using test::shared_folder;

std::unique_ptr<Plan> load(const fs::path& model, Format format, bool head) {
  auto plan = make_plan(open_checkpoint(locate_model(model.string())));
  quantize_at_load(*plan, format, head);
  const size_t bytes = plan->weight_bytes();
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  repack_weights(weights);
  test::scan_weights(weights);
  CHECK(plan->weight_bytes() == bytes);  // as the headers said
  return plan;
}

TEST_CASE("GPT-2 in INT8 has the codes, scales and scores of its document") {
  if (shared_folder().empty()) {
    test::skipped_without_shared("quantizer/gpt2-int8.safetensors");
    return;
  }
  const FileMap file(shared_folder() / "fixtures/quantizer/gpt2-int8.safetensors");
  std::map<std::string, TensorView> tensors;
  for (const TensorView& tensor : parse_safetensors(file.bytes(), "gpt2-int8").tensors) tensors[tensor.name] = tensor;
  for (const bool head : {false, true}) {
    const auto plan = load(shared_folder() / "data/models/gpt-nano-sort/hf", Format::kInt8Tensor, head);
    std::map<std::string, int64_t> begins;  // of the parts of a module, along its outputs
    size_t compared = 0;
    for (const Weight& weight : plan->weights) {
      constexpr std::string_view kPrefix = "transformer.";
      const std::string name = weight.name.starts_with(kPrefix) ? weight.name.substr(kPrefix.size()) : weight.name;
      const auto found = tensors.find(name + ".weight.codes");
      if (found == tensors.end() || !weight.quantized()) continue;
      INFO(name);
      const TensorView& codes = found->second;
      const bool transposed = name != "lm_head";
      CHECK(weight.scale.value(0, 0) == tensor_values(tensors.at(name + ".weight.scale")).front());
      int64_t& begin = begins[name];
      for (int64_t n = 0; n < weight.rows; ++n) {
        for (int64_t k = 0; k < weight.cols; ++k) {
          const int64_t at = transposed ? k * codes.shape[1] + begin + n : (begin + n) * codes.shape[1] + k;
          REQUIRE(*weight.code_at(n, k) == codes.bytes[size_t(at)]);
        }
      }
      begin += weight.rows;
      ++compared;
    }
    CHECK(compared == 18 + (head ? 1 : 0));  // q, k and v apart
    EngineOptions options;
    options.context = 11;  // all the model has positions for
    options.kv = KvType::kF32;
    options.activations = Activations::kF32;
    for (const EngineRow* row : {&find_engine("reference", options), &find_engine("cpu", options)}) {
      for (int prompt = 0; tensors.contains(fmt::format("prompt{}.ids", prompt)); ++prompt) {
        const TensorView& ids_tensor = tensors.at(fmt::format("prompt{}.ids", prompt));
        std::vector<TokenId> ids;
        for (int64_t i = 0; i < ids_tensor.elements(); ++i) {
          int64_t id = 0;
          std::memcpy(&id, ids_tensor.bytes.data() + i * dtype_bits(ids_tensor.dtype) / 8,
                      size_t(dtype_bits(ids_tensor.dtype) / 8));
          ids.push_back(TokenId(id));
        }
        test::TestEngine engine(row->make_engine(*plan, options), 11);
        std::vector<float> logits;
        engine.sequence.run(ids, [&](int64_t, std::span<const float> scores) {
          logits.insert(logits.end(), scores.begin(), scores.end());
        });
        const auto expected = tensor_values(
            tensors.at(fmt::format("prompt{}.logits.{}", prompt, head ? "weight_only_head_too" : "weight_only")));
        CHECK(test::normwise_error(logits, expected) < 1e-5);
      }
    }
  }
}

TEST_CASE("Tables and the head stay; a tied head that is asked for lies beside the table") {
  const fs::path model = test::source_folder() / "tests/golden/gemma-bf16";
  const int64_t parameters = make_plan(open_checkpoint(locate_model(model.string())))->parameters();
  for (const bool head : {false, true}) {
    const auto plan = load(model, Format::kInt8, head);
    CHECK(plan->parameters() == parameters);
    CHECK(plan->method() == "int8 channel, rounded from bf16");
    const Weight *table = nullptr, *last = nullptr;
    for (const Step& step : plan->steps) {
      if (const auto* lookup = std::get_if<LookupStep>(&step.op)) table = lookup->table;
      if (const auto* linear = std::get_if<LinearStep>(&step.op)) last = linear->projections.back().weight;
    }
    REQUIRE(table != nullptr);
    CHECK(!table->quantized());
    CHECK(last->quantized() == head);
    CHECK((last == table) == !head);
  }
}

TEST_CASE("A model that is quantized already is refused") {
  if (shared_folder().empty()) {
    test::skipped_without_shared("gguf-q8_0-qwen3");
    return;
  }
  auto plan = make_plan(open_checkpoint(locate_model((shared_folder() / "fixtures/gguf-q8_0-qwen3").string())));
  CHECK(test::contains(test::error_of([&] { quantize_at_load(*plan, Format::kFp8, false); }), "no unquantized matrix"));
}

}  // namespace
}  // namespace qgen::quantize
