// Goldens of families as GGUF files, with the names and keys that llama.cpp's converter writes: the same logits.
#include <cmath>

#include "model/families/table.h"
#include "tests/model/gguf_support.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

std::string bytes_of(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// Rows i and i + rotated / 2 of each head become neighbours: what the converter does for families of Llama's kind.
void pair_rows(std::vector<float>& values, int64_t heads, int64_t head_dim) {
  const size_t row = values.size() / size_t(heads * head_dim);
  std::vector<float> out;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < head_dim; ++i) {
      const int64_t from = head * head_dim + i / 2 + i % 2 * (head_dim / 2);
      out.insert(out.end(), values.begin() + from * int64_t(row), values.begin() + (from + 1) * int64_t(row));
    }
  }
  values = std::move(out);
}

// The role that a tensor's module has in a model, and its layer; kCount if it has none.
std::pair<Role, int64_t> role_of(const Description& model, const std::string& module) {
  const auto uses_after = [&](Role role) {
    const auto& layer = model.layers[0];
    return std::any_of(layer.begin(), layer.end(), [&](const auto& b) { return b.after && b.after->role == role; });
  };
  for (int64_t layer = 0; layer < int64_t(model.layers.size()); ++layer) {
    for (int role = 0; role < int(Role::kCount); ++role) {
      const bool after = Role(role) == Role::kAttnPostNorm || Role(role) == Role::kFfnPostNorm;
      if (after && !uses_after(Role(role))) continue;
      if (model.names.of(Role(role), layer) == module) return {Role(role), layer};
    }
  }
  return {Role::kCount, 0};
}

struct Keys {
  GgufFile& file;
  std::string arch;
  void u32(const char* key, int64_t value) { file.u32(arch + "." + key, value); }
  void f32(const char* key, double value) { file.f32(arch + "." + key, value); }
};

void write_rope(Keys& keys, const Description& model) {
  if (model.ropes.empty()) return;
  const Rope& rope = model.ropes[0];
  keys.u32("rope.dimension_count", rope.dim);
  keys.f32("rope.freq_base", rope.theta);
  if (!model.rope_factors.empty()) {
    const auto& factors = model.rope_factors[0];
    keys.u32("rope.scaling.original_context_length", rope.original_context);
    keys.f32("rope.scaling.attn_factor", rope.attention_factor);
    const std::vector<int64_t> shape = {rope.dim / 2};
    keys.file.tensors.push_back({"rope_factors_short.weight", shape, 0, bytes_of(factors.factors)});
    keys.file.tensors.push_back({"rope_factors_long.weight", shape, 0, bytes_of(factors.long_factors)});
  } else if (rope.scaling == Rope::Scaling::kYarn) {
    keys.file.text(keys.arch + ".rope.scaling.type", "yarn");
    keys.f32("rope.scaling.factor", rope.factor);
    keys.u32("rope.scaling.original_context_length", rope.original_context);
    keys.f32("rope.scaling.yarn_beta_fast", rope.beta_fast);
    keys.f32("rope.scaling.yarn_beta_slow", rope.beta_slow);
    if (keys.arch == "mistral3") {
      keys.f32("rope.scaling.yarn_log_multiplier", 1);
    } else {
      keys.f32("rope.scaling.yarn_attn_factor", rope.attention_factor);
    }
  } else if (rope.scaling == Rope::Scaling::kLlama3) {
    Rope plain;
    plain.dim = rope.dim;
    plain.theta = rope.theta;
    const auto scaled = inverse_frequencies(rope, 0), unscaled = inverse_frequencies(plain, 0);
    std::vector<float> factors;
    for (size_t i = 0; i < scaled.size(); ++i) factors.push_back(float(unscaled[i] / scaled[i]));
    keys.file.tensors.push_back({"rope_freqs.weight", {int64_t(factors.size())}, 0, bytes_of(factors)});
  }
}

void write_keys(Keys& keys, const Description& model) {
  const auto& attention = std::get<AttentionSpec>(model.layers[0][0].mixer);
  const bool layer_norm = model.final_norm.kind == Norm::Kind::kLayer;
  keys.file.text("general.architecture", keys.arch);
  keys.u32("block_count", int64_t(model.layers.size()));
  keys.u32("embedding_length", model.hidden);
  keys.u32("attention.head_count", attention.heads);
  keys.u32("attention.head_count_kv", attention.kv_heads);
  keys.u32("attention.key_length", attention.head_dim);
  keys.u32("attention.value_length", attention.head_dim);
  if (const auto* mixture = std::get_if<MixtureSpec>(&model.layers[0][1].mixer)) {
    keys.u32("feed_forward_length", mixture->width);
    keys.u32("expert_count", mixture->experts);
    keys.u32("expert_used_count", mixture->chosen);
  } else {
    keys.u32("feed_forward_length", std::get<FeedForwardSpec>(model.layers[0][1].mixer).width);
  }
  keys.u32("vocab_size", model.vocab);
  keys.u32("context_length", model.context);
  keys.f32(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", model.final_norm.eps);
  if (attention.softcap > 0) keys.f32("attn_logit_softcapping", attention.softcap);
  if (model.logit_softcap > 0) keys.f32("final_logit_softcapping", model.logit_softcap);
  if (keys.arch == "granite") {
    keys.f32("logit_scale", 1 / model.logit_scale);
    keys.f32("embedding_scale", model.embed_scale);
    keys.f32("residual_scale", model.layers[0][0].scale);
    keys.f32("attention.scale", attention.scale);
  } else if (model.logit_scale != 1) {
    keys.f32("logit_scale", model.logit_scale);
  }
  if (attention.temperature_beta > 0) keys.f32("attention.temperature_scale", attention.temperature_beta);
  std::vector<uint8_t> pattern;
  int64_t window = 0;
  for (const auto& layer : model.layers) {
    pattern.push_back(std::get<AttentionSpec>(layer[0].mixer).window > 0);
    window = std::max(window, std::get<AttentionSpec>(layer[0].mixer).window);
  }
  if (window > 0) {
    keys.u32("attention.sliding_window", window);
    keys.file.list(keys.arch + ".attention.sliding_window_pattern", GgufFile::Type::kBool, pattern);
  }
  write_rope(keys, model);
}

// The stack that a matrix of an expert or the norm of a head belongs to, and its layer; kCount if it is none.
std::pair<Role, int64_t> stack_of(const Description& model, const std::string& module) {
  constexpr std::pair<Role, Role> kStacks[] = {{Role::kExpertGate, Role::kExpertGates},
                                               {Role::kExpertUp, Role::kExpertUps},
                                               {Role::kExpertDown, Role::kExpertDowns}};
  const auto* mixture = std::get_if<MixtureSpec>(&model.layers.back()[1].mixer);
  for (int64_t layer = 0; mixture != nullptr && layer < int64_t(model.layers.size()); ++layer) {
    for (const auto& [role, stack] : kStacks) {
      for (int64_t e = 0; e < mixture->experts; ++e) {
        if (model.names.of(role, layer, e) == module) return {stack, layer};
      }
    }
  }
  for (const Role role : {Role::kAttnQNorm, Role::kAttnKNorm}) {
    if (model.names.of(role, 0, 0) == model.names.of(role, 0, 1)) continue;
    for (int64_t layer = 0; layer < int64_t(model.layers.size()); ++layer) {
      for (int64_t head = 0; head < std::get<AttentionSpec>(model.layers[0][0].mixer).heads; ++head) {
        if (model.names.of(role, layer, head) == module) return {role, layer};
      }
    }
  }
  return {Role::kCount, 0};
}

GgufFile as_gguf(const Checkpoint& checkpoint, Description model, std::string_view prefix, const Family& family) {
  model.names.set_prefix(prefix);
  if (prefix == "language_model.model.") model.names.set(Role::kHead, "language_model.lm_head");
  const auto& attention = std::get<AttentionSpec>(model.layers[0][0].mixer);
  GgufFile file;
  const std::string_view arch = family.name == "mixtral" ? "llama" : family.gguf.empty() ? "olmo2" : family.gguf;
  Keys keys{file, std::string(arch)};
  write_keys(keys, model);
  Names names = Names::gguf();
  for (const auto& [role, name] : model.gguf_names) names.set(role, name);
  struct Stack {
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::pair<Role, int64_t>, Stack> stacks;  // of experts and heads, whose tensors come in their order
  for (const TensorView& tensor : checkpoint.tensors()) {
    const size_t dot = tensor.name.rfind('.');
    if (const auto stack = stack_of(model, tensor.name.substr(0, dot)); stack.first != Role::kCount) {
      Stack& all = stacks[stack];
      if (all.shape.empty()) {
        all.shape = tensor.shape;
        all.shape.insert(all.shape.begin(), 0);
      }
      ++all.shape[0];
      all.bytes += bytes_of(tensor_values(tensor));
      continue;
    }
    const auto [role, layer] = role_of(model, tensor.name.substr(0, dot));
    if (role == Role::kCount) continue;
    std::vector<float> values = tensor_values(tensor);
    std::vector<int64_t> shape = tensor.shape;
    const bool matrix = shape.size() == 2 && role != Role::kEmbed && role != Role::kPositions && role != Role::kHead;
    if (model.transposed && matrix) {
      std::vector<float> rows;
      for (int64_t n = 0; n < shape[1]; ++n) {
        for (int64_t k = 0; k < shape[0]; ++k) rows.push_back(values[size_t(k * shape[1] + n)]);
      }
      values = std::move(rows);
      std::swap(shape[0], shape[1]);
    }
    const bool q = role == Role::kAttnQ, k = role == Role::kAttnK;
    const bool half_split = !model.ropes.empty() && model.ropes[0].pairs == Rope::Pairs::kHalfSplit;
    if ((q || k) && half_split && family.gguf_adjacent_pairs)
      pair_rows(values, q ? attention.heads : attention.kv_heads, attention.head_dim);
    if (model.final_norm.plus_one && shape.size() == 1) {
      for (float& value : values) value += 1;
    }
    file.tensors.push_back({names.of(role, layer) + tensor.name.substr(dot), shape, 0, bytes_of(values)});
  }
  for (auto& [place, stack] : stacks)
    file.tensors.push_back({names.of(place.first, place.second) + ".weight", stack.shape, 0, std::move(stack.bytes)});
  return file;
}

TEST_CASE("gguf: models of every family that llama.cpp has give the logits of the same model from Hugging Face") {
  // Of Gemma 2 only models whose scores are scaled by the length of a head, of SmolLM3 only its own pattern, of GPT-2
  // only models whose scores are alike in all layers.
  const std::pair<const char*, std::pair<std::string_view, std::string_view>> kChanges[] = {
      {"gemma2-bf16", {"\"query_pre_attn_scalar\":20", "\"query_pre_attn_scalar\":12"}},
      {"gpt2-bf16", {"\"scale_attn_by_inverse_layer_idx\":true", "\"scale_attn_by_inverse_layer_idx\":false"}},
      {"smollm3-bf16", {"\"no_rope_layers\":[1,0,1]", "\"no_rope_layers\":[1,1,1]"}}};
  for (const char* name :
       {"gpt2-bf16",       "chatglm-bf16",    "gemma-bf16",           "gemma2-bf16",        "glm4-bf16",
        "phi-bf16",        "phi3-bf16",       "granite-bf16",         "olmo2-bf16",         "olmo3-bf16",
        "smollm3-bf16",    "starcoder2-bf16", "stablelm-serial-bf16", "cohere-bf16",        "cohere2-bf16",
        "ministral3-bf16", "qwen3vl-bf16",    "exaone4-bf16",         "exaone4-full-bf16",  "seed_oss-bf16",
        "ernie4_5-bf16",   "hunyuan-bf16",    "mixtral-bf16",         "stablelm-norms-bf16"}) {
    INFO(std::string(name));
    const Golden golden = Golden::read(source_folder() / "tests/golden" / name);
    TemporaryFolder folder;
    std::string config = read_file(golden.folder / "config.json");
    for (const auto& [of, change] : kChanges) {
      if (std::string_view(of) != name) continue;
      REQUIRE(contains(config, change.first));
      config.replace(config.find(change.first), change.first.size(), change.second);
    }
    const fs::path original = folder.path() / "original";
    folder.write("original/config.json", config);
    fs::copy(golden.folder / "model.safetensors", original / "model.safetensors");
    const auto plan = load_plan(original);
    const auto& checkpoint = plan->checkpoint;
    const Description model = describe(checkpoint.config());
    const auto text = checkpoint.config().get("text_config");
    const std::string type((text ? *text : checkpoint.config()).at("model_type").as_string());
    const auto family =
        std::find_if(families().begin(), families().end(), [&](const Family& row) { return row.name == type; });
    REQUIRE(family != families().end());
    std::string prefix = model.names.prefix();
    for (const auto& place : model.places) {
      Names names = model.names;
      names.set_prefix(place.prefix);
      if (checkpoint.find(names.of(Role::kEmbed) + ".weight") == nullptr) continue;
      prefix = place.prefix;
      break;
    }
    const fs::path file = folder.write("model.gguf", as_gguf(checkpoint, model, prefix, *family).bytes());
    const auto plan_of_gguf = load_plan(file);
    const int64_t context = int64_t(golden.ids.size() + golden.greedy.size());
    CHECK(normwise_error(reference_logits(*plan_of_gguf, golden.ids, context),
                         reference_logits(*plan, golden.ids, context)) < golden.reference_tolerance);
  }
}

}  // namespace
}  // namespace qgen::test
