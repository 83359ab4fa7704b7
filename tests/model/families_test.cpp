// Families: what config.json files say that is wrong, names of early releases, and divisors chosen by the context.
#include <cmath>

#include "engine/rope_rows.h"
#include "model/families/table.h"
#include "quant/transpose.h"
#include "quant/weight_scan.h"
#include "tests/quant/small_checkpoint.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// The logits of a golden whose tensors have other names: parts of names are replaced, one rule after the other.
std::vector<float> renamed_logits(const Golden& golden,
                                  const std::vector<std::pair<std::string_view, std::string_view>>& rules) {
  std::string file = read_file(golden.folder / "model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  std::string header = file.substr(8, header_bytes);
  for (const auto& [from, to] : rules) {
    for (size_t at = 0; (at = header.find(from, at)) != header.npos; at += to.size())
      header.replace(at, from.size(), to);
  }
  TemporaryFolder folder;
  fs::copy(golden.folder / "config.json", folder.path() / "config.json");
  folder.write("model.safetensors", safetensors_file(header, file.substr(8 + header_bytes)));
  return reference_logits(*load_plan(folder.path()), golden.ids, int64_t(golden.ids.size()));
}

TEST_CASE("GPT-2: names may begin with nothing, as in the first releases") {
  const Golden golden = Golden::read(source_folder() / "tests/golden/gpt2-f32");
  CHECK(normwise_error(renamed_logits(golden, {{"\"transformer.", "\""}}), golden.logits) < golden.reference_tolerance);
}

TEST_CASE("Mixtral: names of transformers 5, which ModelOpt writes, and of AutoRound") {
  using Rules = std::vector<std::pair<std::string_view, std::string_view>>;
  const Rules projections = {{".w1.", ".gate_proj."}, {".w2.", ".down_proj."}, {".w3.", ".up_proj."}};
  Rules all = projections;
  all.emplace_back(".block_sparse_moe.", ".mlp.");
  for (const char* name : {"mixtral-bf16", "mixtral-fp8"}) {
    INFO(name);
    const Golden golden = Golden::read(source_folder() / "tests/golden" / name);
    const std::vector<float> original = renamed_logits(golden, {});
    for (const Rules& rules : {projections, all}) CHECK(renamed_logits(golden, rules) == original);
  }
}

TEST_CASE("LFM2 mixtures: names of transformers 5") {
  const Golden golden = Golden::read(source_folder() / "tests/golden/lfm2_moe-bf16");
  // Dense layers keep theirs.
  std::vector<std::string> texts;
  for (int e = 0; e < 5; ++e) {
    for (const auto& [from, to] : {std::pair{"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}}) {
      texts.push_back(fmt::format("experts.{}.{}.", e, from));
      texts.push_back(fmt::format("experts.{}.{}.", e, to));
    }
  }
  std::vector<std::pair<std::string_view, std::string_view>> rules;
  for (size_t i = 0; i < texts.size(); i += 2) rules.emplace_back(texts[i], texts[i + 1]);
  CHECK(renamed_logits(golden, rules) == renamed_logits(golden, {}));
}

// Every `step`-th of a stack's matrices' columns from `first` on, or of a bias, as one tensor of BF16 for expert e: a
// matrix turned over.
StoredTensor part_of_stack(const StoredTensor& stack, int64_t e, int64_t first, int64_t step) {
  const bool matrix = stack.shape.size() == 3;
  const int64_t rows = matrix ? stack.shape[1] : 1, cols = stack.shape.back(), kept = cols / step;
  StoredTensor out{Dtype::kBf16, matrix ? std::vector{kept, rows} : std::vector{kept}, ""};
  for (int64_t c = first; c < cols; c += step) {
    for (int64_t r = 0; r < rows; ++r) out.bytes += stack.bytes.substr(size_t(2 * ((e * rows + r) * cols + c)), 2);
  }
  return out;
}

TEST_CASE("gpt-oss: experts one by one, each with biases, as converters to other formats write them") {
  const Golden golden = Golden::read(source_folder() / "tests/golden/gpt_oss-bf16");
  const StoredTensors stacked = read_tensors(golden.folder / "model.safetensors");
  for (const std::string_view list : {"", "experts."}) {
    StoredTensors tensors = stacked;
    for (const auto& [name, tensor] : stacked) {
      const size_t at = name.find(".experts.");
      if (at == name.npos) continue;
      tensors.erase(name);
      const std::string before = name.substr(0, at + 9), last = name.substr(at + 9);
      const std::string suffix = last.ends_with("_bias") ? "bias" : "weight";
      for (int64_t e = 0; e < tensor.shape[0]; ++e) {
        const auto put = [&](std::string_view projection, int64_t first, int64_t step) {
          tensors[fmt::format("{}{}{}.{}.{}", before, list, e, projection, suffix)] =
              part_of_stack(tensor, e, first, step);
        };
        if (last.starts_with("down")) {
          put("down_proj", 0, 1);
        } else {
          put("gate_proj", 0, 2);
          put("up_proj", 1, 2);
        }
      }
    }
    TemporaryFolder folder;
    fs::copy(golden.folder / "config.json", folder.path() / "config.json");
    folder.write("model.safetensors", write_tensors(tensors));
    const std::vector<float> logits =
        reference_logits(*load_plan(folder.path()), golden.ids, int64_t(golden.ids.size()));
    CHECK(normwise_error(logits, golden.logits) < golden.reference_tolerance);
    const std::string missing = fmt::format("model.layers.1.mlp.experts.{}3.up_proj.bias", list);
    REQUIRE(tensors.erase(missing) == 1);
    folder.write("model.safetensors", write_tensors(tensors));
    CHECK(contains(error_of([&] { load_plan(folder.path()); }), fmt::format("tensor {} is missing", missing)));
  }
}

TEST_CASE("GPT-2: a trained model sorts letters") {
  const fs::path shared = shared_folder();
  if (shared.empty()) {
    skipped_without_shared("gpt-nano-sort");
    return;
  }
  const fs::path folder = shared / "data/models/gpt-nano-sort";
  const auto plan = load_plan(folder / "hf");
  const auto document = JsonDocument::parse(read_file(folder / "ref/reference.json"), "reference.json");
  const auto texts = document->root().at("idx").elements(), logits = document->root().at("logits").elements();
  REQUIRE(texts.size() == logits.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<TokenId> ids;
    std::vector<float> expected;
    for (const Json& id : texts[i].elements()) ids.push_back(TokenId(id.as_integer()));
    for (const Json& value : logits[i].elements()) expected.push_back(float(value.as_number()));
    CHECK(normwise_error(reference_logits(*plan, ids, 11), expected) < 1e-5);
  }
  for (const std::string_view device : {"reference", "cpu"}) {
    INFO(std::string(device));
    for (const std::vector<TokenId>& letters :
         {std::vector<TokenId>{2, 1, 0, 1, 2, 0}, {0, 0, 2, 2, 1, 1}, {1, 1, 1, 0, 2, 1}}) {
      auto engine = make_engine(*plan, device, 11);
      std::vector<TokenId> sorted = letters, found;
      std::sort(sorted.begin(), sorted.end());
      std::span<const float> scores = engine->prefill(letters).all();
      while (found.size() < sorted.size()) {
        found.push_back(TokenId(std::max_element(scores.begin(), scores.end()) - scores.begin()));
        if (found.size() < sorted.size()) scores = engine->decode(found.back()).all();
      }
      CHECK(found == sorted);
    }
  }
}

TEST_CASE("learned positions bound the context") {
  const auto plan = load_plan(source_folder() / "tests/golden/gpt2-bf16");
  for (const std::string_view device : {"reference", "cpu"}) {
    CHECK(make_engine(*plan, device, 40) != nullptr);
    ErrorKind kind = ErrorKind::kRuntime;
    const std::string error = error_of([&] { make_engine(*plan, device, 41); }, &kind);
    CHECK(kind == ErrorKind::kUsage);
    CHECK(contains(error, "expected at most 40 tokens, found 41"));
  }
}

TEST_CASE("longrope: the context chooses between short and long divisors") {
  const auto plan = load_plan(source_folder() / "tests/golden/phi3-bf16");
  REQUIRE(plan->ropes.size() == 1);
  const Rope& rope = plan->ropes[0];
  REQUIRE(rope.long_factors != nullptr);
  CHECK(rope.original_context == 16);
  CHECK(rope.attention_factor == doctest::Approx(std::sqrt(1 + std::log(4.0) / std::log(16.0))));
  for (const int64_t context : {16, 17}) {
    RopeRows rows(plan->ropes, context);
    RopeLengths lengths;
    rows.start(lengths, 4);
    rows.add(lengths, 3, 1);
    const std::vector<float> factors = (context == 16 ? rope.factors : rope.long_factors)->values();
    for (int64_t i = 0; i < rope.dim / 2; ++i) {
      const double angle = 3 * std::pow(10000, -2.0 * double(i) / double(rope.dim)) / double(factors[size_t(i)]);
      CHECK(rows.cos(0)[size_t(i)] == doctest::Approx(std::cos(angle) * rope.attention_factor));
    }
  }
}

// The error that a golden's config.json gives with `from` replaced by `to`.
std::string error_with(const char* golden, std::string_view from, std::string_view to) {
  std::string config = read_file(source_folder() / "tests/golden" / golden / "config.json");
  REQUIRE(contains(config, from));
  config.replace(config.find(from), from.size(), to);
  const auto document = JsonDocument::parse(config, "config.json");
  ErrorKind kind = ErrorKind::kRuntime;
  const std::string error = error_of([&] { describe(document->root()); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return error;
}

TEST_CASE("families: wrong values of their keys are named") {
  const struct {
    const char *golden, *from, *to, *error;
  } kCases[] = {
      {"gpt2-bf16", "\"n_head\":4", "\"n_head\":0", "n_head: "},
      {"gpt2-bf16", "\"n_head\":4", "\"n_head\":5", "hidden_size: 32 is not a multiple of the 5 attention heads"},
      {"gpt2-bf16", "\"n_embd\":32", "\"n_embd\":null", "n_embd"},
      {"gpt2-bf16", "\"n_layer\":2,", "", "n_layer"},
      {"gpt2-bf16", "\"n_layer\":2", "\"n_layer\":2,\"add_cross_attention\":true", "add_cross_attention: true is not"},
      {"chatglm-bf16", "\"multi_query_group_num\":2", "\"multi_query_group_num\":3",
       "multi_query_group_num: 3 does not"},
      {"chatglm-bf16", "\"rmsnorm\":true", "\"rmsnorm\":false", "rmsnorm: false is not supported"},
      {"chatglm-bf16", "\"rope_ratio\":2.0", "\"rope_ratio\":0", "rope_ratio: 0 is out of range"},
      {"glm4-bf16", "\"partial_rotary_factor\":0.5", "\"partial_rotary_factor\":1.5", "1.5 is out of range"},
      {"glm4-bf16", "\"partial_rotary_factor\":0.5", "\"partial_rotary_factor\":0.25", "3 of 12 elements"},
      {"gemma2-bf16", "\"attn_logit_softcapping\":5.0", "\"attn_logit_softcapping\":-1", "out of range"},
      {"granite-bf16", "\"logits_scaling\":0.5", "\"logits_scaling\":0", "logits_scaling: 0 is out of range"},
      {"smollm3-bf16", "[1,0,1]", "[1,0]", "no_rope_layers: expected 3 entries, found 2"},
      {"smollm3-bf16", "[1,0,1]", "[1,0,2]", "no_rope_layers"},
      {"cohere2-bf16", "\"sliding_window_pattern\":3", "\"sliding_window_pattern\":0", "sliding_window_pattern"},
      {"cohere2-bf16", "\"sliding_window_pattern\":3", "\"sliding_window_pattern\":\"LLX\"", "letters L and G"},
      {"phi3-bf16", "\"short_factor\":[1.0,", "\"short_factor\":[", "expected 4 numbers, found 3"},
      {"phi3-bf16", "\"short_factor\":[1.0,", "\"short_factor\":[-1.0,", "out of range"},
      {"ministral3-bf16", "\"llama_4_scaling_beta\":0.8", "\"llama_4_scaling_beta\":-2", "llama_4_scaling_beta: -2"},
      {"gemma3-bf16", "\"head_dim\":12", "\"head_dim\":12,\"use_bidirectional_attention\":true",
       "use_bidirectional_attention: tokens that see those behind them"},
      {"gemma4-bf16", "\"head_dim\":12", "\"head_dim\":12,\"use_bidirectional_attention\":\"all\"",
       "use_bidirectional_attention: tokens that see those behind them"},
      {"gemma2-bf16", "\"head_dim\":12", "\"head_dim\":12,\"use_bidirectional_attention\":true",
       "use_bidirectional_attention: tokens that see those behind them"},
      {"gemma3-bf16", "\"rope_parameters\"", "\"rope_scaling\":{\"factor\":2},\"rope_parameters\"",
       "rope_scaling: says no rope_type"},
      {"gpt_oss-bf16", "\"swiglu_limit\":1.5", "\"swiglu_limit\":1.5,\"swiglu_alpha\":1.0", "swiglu_alpha: 1 is not"},
      {"falcon_h1-bf16", "\"mamba_n_groups\":2", "\"mamba_n_groups\":2,\"time_step_limit\":[0.001,0.1]",
       "time_step_limit: bounds of step sizes"},
      {"falcon_h1-bf16", "\"mamba_n_groups\":2", "\"mamba_n_groups\":2,\"hidden_act\":\"gelu\"",
       "hidden_act: 'gelu' is not"},
      {"granite_hybrid-bf16", "\"model_type\"", "\"hidden_act\":\"gelu\",\"model_type\"", "hidden_act: 'gelu' is not"},
      {"qwen3_next-bf16", "\"model_type\"", "\"hidden_act\":\"gelu\",\"model_type\"", "hidden_act: 'gelu' is not"},
      {"nemotron_h-bf16", "\"n_groups\":2", "\"n_groups\":2,\"mamba_hidden_act\":\"gelu\"",
       "mamba_hidden_act: 'gelu' is not"},
      {"nemotron_h-latent-bf16", "\"moe_latent_size\":20", "\"moe_latent_size\":0",
       "moe_latent_size: 0 is out of range"},
      {"ernie4_5_moe-bf16", "\"moe_k\":2", "\"moe_k\":2,\"moe_norm_min\":0.5", "moe_norm_min: 0.5 is not supported"},
      {"bamba-bf16", "\"mamba_n_groups\":2", "\"mamba_n_groups\":2,\"head_dim\":6", "half of heads of 6 elements"},
      {"bailing_moe-bf16", "\"n_group\":3", "\"n_group\":3,\"norm_head\":true", "norm_head: true is not supported"},
      {"iquestcoder-bf16", "\"head_dim\":12", "\"head_dim\":12,\"clip_qkv\":8", "clip_qkv: is not supported"},
      {"ministral-bf16", "\"sliding_attention\"", "\"windowed\"", "layer_types[1]: 'windowed' is not supported"},
  };
  for (const auto& row : kCases) {
    INFO(row.golden, " ", row.to);
    const std::string error = error_with(row.golden, row.from, row.to);
    INFO(error);
    CHECK(contains(error, row.error));
  }
}

TEST_CASE("families: keys that stand elsewhere, or are absent, mean what they do in transformers") {
  const auto described = [](std::string_view config) {
    const auto document = JsonDocument::parse(config, "config.json");
    return describe(document->root());
  };
  const auto read = [&](const char* golden, const std::vector<std::pair<std::string_view, std::string_view>>& changes) {
    std::string config = read_file(source_folder() / "tests/golden" / golden / "config.json");
    for (const auto& [from, to] : changes) {
      REQUIRE(contains(config, from));
      config.replace(config.find(from), from.size(), to);
    }
    return described(config);
  };
  const auto attention = [](const Description& model, size_t layer) {
    return std::get<AttentionSpec>(model.layers[layer][0].mixer);
  };

  // Sizes of the class, where a GGUF file or another family would have as many key-value heads as heads.
  CHECK(attention(read("smollm3-bf16", {{R"("num_key_value_heads":2,)", ""},
                                        {R"("num_attention_heads":4)", R"("num_attention_heads":16)"}}),
                  0)
            .kv_heads == 4);
  CHECK(attention(read("ministral-bf16", {{R"("num_key_value_heads":2,)", ""},
                                          {R"("num_attention_heads":4)", R"("num_attention_heads":16)"}}),
                  0)
            .kv_heads == 8);
  CHECK(attention(read("mistral-nested-fp8", {{R"("num_attention_heads":4,)", ""}}), 0).heads == 32);
  for (const auto& [family, width] : {std::pair("llama", 11008), {"mistral", 14336}}) {
    const Description model =
        described(fmt::format(R"({{"model_type":"llava","text_config":{{"model_type":"{}"}}}})", family));
    CHECK(model.layers.size() == 32);
    CHECK(model.hidden == 4096);
    CHECK(std::get<FeedForwardSpec>(model.layers[0][1].mixer).width == width);
  }
  CHECK(contains(error_with("ministral-bf16", R"("num_attention_heads":4,)", ""), "num_attention_heads: missing"));

  // null: as many as heads.
  CHECK(attention(read("ministral-bf16", {{R"("num_key_value_heads":2,)", R"("num_key_value_heads":null,)"}}), 0)
            .kv_heads == 4);

  // Windows of some layers, by either name of the family.
  for (const char* golden : {"ministral-bf16", "mistral-layers-fp8"}) {
    const Description model = read(golden, {});
    CHECK(attention(model, 0).window == 0);
    CHECK(attention(model, 1).window == 6);
  }
  CHECK(attention(read("ministral-bf16", {{R"("sliding_window":6)", R"("sliding_window":null)"}}), 1).window == 0);

  // A file without a head: the key at the top counts where it says that the embedding is one.
  constexpr std::pair<std::string_view, std::string_view> kText = {R"("vocab_size":48)",
                                                                   R"("vocab_size":48,"tie_word_embeddings":false)"};
  constexpr std::string_view kUntied = R"("tie_word_embeddings":false)", kTied = R"("tie_word_embeddings":true)";
  CHECK(read("qwen3_5-bf16", {{kUntied, kTied}, kText}).tied_head == true);
  CHECK(read("qwen3_5-bf16", {kText}).tied_head == false);
  CHECK(read("qwen3_5-bf16", {}).tied_head == false);
  CHECK(described(R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text"}})").tied_head == true);
  CHECK(contains(error_of([&] {
                   described(R"({"model_type":"paligemma","text_config":{"model_type":"gemma",
                     "use_bidirectional_attention":null}})");
                 }),
                 "tokens of a prompt that see those behind them"));
  CHECK_FALSE(read("mistral-nested-fp8", {kText, {R"("tie_word_embeddings":false,"dtype")", R"("dtype")"}})
                  .tied_head.has_value());

  // Ropes of layers with and without a window.
  const auto ropes = [&](std::string_view from, std::string_view to) {
    return read("gemma3-bf16", {{from, to}}).ropes;
  };
  constexpr std::string_view kTheta = R"("rope_theta":10000.0,"rope_type":"linear")",
                             kLocal = R"("rope_theta":100.0,"rope_type":"default")";
  CHECK(ropes(kTheta, kTheta)[0].theta == 10000);
  CHECK(ropes(kTheta, R"("rope_type":"linear")")[0].theta == 1e6);
  CHECK(ropes(kLocal, R"("rope_type":"default")")[1].theta == 10000);
  CHECK(ropes(R"(,"sliding_attention":{"rope_theta":100.0,"rope_type":"default"})", "")[1].theta == 10000);
  CHECK(ropes(R"("rope_parameters":{"full_attention":{"rope_theta":10000.0,)",
              R"("rope_theta":777,"rope_parameters":{"full_attention":{)")[0]
            .theta == 777);
  CHECK(ropes(R"("full_attention":{"rope_theta":10000.0,"rope_type":"linear","factor":8.0},)", "")[1].theta == 100);
  const Rope scaled =
      ropes(R"("rope_parameters")", R"("rope_scaling":{"rope_type":"linear","factor":2},"rope_parameters")")[0];
  CHECK(scaled.theta == 10000);
  CHECK(scaled.factor == 2);
  CHECK(read("qwen3_5-bf16", {{R"("rope_theta":10000.0,)", ""}}).ropes[0].theta == 10000);

  // Layers that are alike, as transformers writes them.
  const auto global = [&](std::string_view to) {
    return attention(read("gemma4-bf16", {{R"("global_head_dim":16,)", to}}), 1).head_dim;
  };
  CHECK(global(R"("per_layer_config":{},)") == 12);
  CHECK(global("") == 512);
  CHECK(std::get<MixtureSpec>(
            read("ernie4_5_moe-bf16", {{R"("moe_k":2)", R"("num_experts_per_tok":3)"}}).layers[1][1].mixer)
            .chosen == 3);
}

TEST_CASE("families: transposes of weights hold the same values, of all kinds of scale groups") {
  std::mt19937 random(5);
  struct Shape {
    Codes codes;
    int64_t group_rows, group_cols;
    Codes expected;  // of the transpose
  };
  constexpr int64_t kRows = 96, kCols = 80;
  for (const Shape& shape : {Shape{Codes::kBf16, 0, 0, Codes::kBf16},
                             {Codes::kE4M3, 32, 16, Codes::kE4M3},
                             {Codes::kI8, kRows, kCols, Codes::kI8},
                             {Codes::kI8, 1, kCols, Codes::kF32},
                             {Codes::kE4M3, 1, 20, Codes::kF32}}) {
    const Weight stored = random_weight(random, shape.codes, kRows, kCols, shape.group_rows, shape.group_cols, false);
    // A part that begins inside of a group, of all columns and of every third one.
    for (const int64_t step : {1, 3}) {
      Weight part = transposed_rows(stored, 7, 20, step);
      CHECK(part.codes == (step == 1 || shape.group_rows == 0 ? shape.expected : Codes::kF32));
      Weight* const all[] = {&part};
      repack_weights(all);
      std::vector<double> row(kRows), from(kCols);
      for (int64_t n = 0; n < part.rows; ++n) {
        dequantize_row(part, n, row);
        for (int64_t k = 0; k < kRows; ++k) {
          dequantize_row(stored, k, from);
          CHECK(row[size_t(k)] == doctest::Approx(from[size_t(7 + n * step)]).epsilon(1e-6));
        }
      }
    }
  }
}

}  // namespace
}  // namespace qgen::test
