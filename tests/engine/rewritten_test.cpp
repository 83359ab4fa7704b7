// The same small models in the layouts of other methods: a golden's tensors are written anew, so that the weights, or
// the products, stay what they were, and its scores must come out again.
#include <bit>
#include <functional>

#include "base/numbers.h"
#include "cpu/isa/targets.h"
#include "tests/quant/small_checkpoint.h"

namespace qgen::test {
namespace {

constexpr std::string_view kScale = ".weight_scale";

std::vector<std::string> quantized_modules(const StoredTensors& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : tensors) {
    if (name.ends_with(kScale)) out.push_back(name.substr(0, name.size() - kScale.size()));
  }
  return out;
}

// config.json without its quantization_config, which stands last.
std::string plain_config(const fs::path& golden) {
  const std::string text = read_file(golden / "config.json");
  return text.substr(0, text.find(",\"quantization_config\"")) + "}";
}

// `values` in the tensor's own type, BF16 or F32.
void set_values(StoredTensor& tensor, const std::vector<float>& values) {
  if (tensor.dtype == Dtype::kF32) {
    tensor = StoredTensor::of(Dtype::kF32, tensor.shape, values);
    return;
  }
  REQUIRE(tensor.dtype == Dtype::kBf16);
  std::vector<uint16_t> bits;
  for (const float value : values) {
    bits.push_back(float_to_bf16(value));
    REQUIRE(bf16_to_float(bits.back()) == value);
  }
  tensor = StoredTensor::of(Dtype::kBf16, tensor.shape, bits);
}
void multiply(StoredTensor& tensor, const std::function<float(size_t)>& factor) {
  std::vector<float> values = tensor.values();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factor(i);
  set_values(tensor, values);
}

// A description file that calls all modules the same.
std::string description(const StoredTensors& tensors, const std::string& type) {
  std::string out = fmt::format(R"({{"model_quant_type":"{}")", type);
  for (const auto& [name, tensor] : tensors) {
    const bool quantized = tensor.dtype == Dtype::kI8;
    out += fmt::format(R"(,"{}":"{}")", name, quantized ? type : "FLOAT");
  }
  return out + "}";
}

struct Rewritten {
  std::string name;
  std::string golden;
  std::function<void(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out)> write;
};

void write_w8a16(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  for (const std::string& module : quantized_modules(tensors)) {
    const StoredTensor zeros = tensors.at(module + ".weight_zero_point");
    tensors.erase(module + ".weight_zero_point");
    std::vector<float> offsets;
    for (const char code : zeros.bytes) offsets.push_back(float(static_cast<signed char>(code)));
    tensors[module + ".weight_offset"] = StoredTensor::of(Dtype::kF32, zeros.shape, offsets);
  }
  out.write("config.json", plain_config(golden));
  out.write("quant_model_description_w8a16.json", description(tensors, "W8A16"));
  out.write("quant_model_weight_w8a16.safetensors", write_tensors(tensors));
}

// Static W8A8 without weight_scale, in two files with an index. The offset of the inputs is taken back in quant_bias.
void write_w8a8(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  constexpr float kInputScale = 0.0625f;
  constexpr int kInputOffset = -7;
  for (const std::string& module : quantized_modules(tensors)) {
    const StoredTensor codes = tensors.at(module + ".weight");
    const std::vector<float> scales = tensors.at(module + std::string(kScale)).values();
    tensors.erase(module + std::string(kScale));
    const int64_t rows = codes.shape[0], cols = codes.shape[1];
    std::vector<int64_t> bits;
    std::vector<int32_t> biases;
    for (int64_t n = 0; n < rows; ++n) {
      bits.push_back(std::bit_cast<int32_t>(scales[size_t(n)] * kInputScale));
      int32_t sum = 0;
      for (int64_t k = 0; k < cols; ++k) sum += static_cast<signed char>(codes.bytes[size_t(n * cols + k)]);
      biases.push_back(-sum * kInputOffset);
    }
    tensors[module + ".deq_scale"] = StoredTensor::of(Dtype::kI64, {rows}, bits);
    tensors[module + ".quant_bias"] = StoredTensor::of(Dtype::kI32, {rows}, biases);
    tensors[module + ".input_scale"] = StoredTensor::of(Dtype::kBf16, {1}, std::vector{float_to_bf16(kInputScale)});
    tensors[module + ".input_offset"] = StoredTensor::of(Dtype::kBf16, {1}, std::vector{float_to_bf16(kInputOffset)});
    if (module.ends_with("k_proj"))
      tensors[module + ".kv_cache_scale"] = StoredTensor::of(Dtype::kF32, {rows}, std::vector<float>(size_t(rows), 1));
  }
  out.write("config.json", plain_config(golden));
  out.write("quant_model_description.json", description(tensors, "W8A8"));
  StoredTensors parts[2];
  std::string index;
  const char* const files[] = {"quant_model_weights-00001-of-00002.safetensors",
                               "quant_model_weights-00002-of-00002.safetensors"};
  for (size_t i = 0; const auto& [name, tensor] : tensors) {
    index += fmt::format(R"({}"{}":"{}")", index.empty() ? "" : ",", name, files[i % 2]);
    parts[i++ % 2][name] = tensor;
  }
  for (size_t i = 0; i < 2; ++i) out.write(files[i], write_tensors(parts[i]));
  out.write("quant_model_weights.safetensors.index.json", R"({"weight_map":{)" + index + "}}");
}

// Norms that are smoothed for quantized layers; v_proj is a float layer behind the same norm, whose own weight counts
// there.
void write_smoothed_norms(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  const auto two = [](size_t) { return 2.0f; };
  const auto half = [](size_t) { return 0.5f; };
  for (const std::string& module : quantized_modules(tensors)) {
    if (module.ends_with("v_proj")) {
      StoredTensor& weight = tensors.at(module + ".weight");
      const std::vector<float> scales = tensors.at(module + std::string(kScale)).values();
      std::vector<float> values;
      for (size_t i = 0; i < weight.bytes.size(); ++i)
        values.push_back(float(static_cast<signed char>(weight.bytes[i])) * scales[i / size_t(weight.shape[1])]);
      weight = StoredTensor::of(Dtype::kF32, weight.shape, values);
      tensors.erase(module + std::string(kScale));
      continue;
    }
    const StoredTensor& scale = tensors.at(module + std::string(kScale));
    tensors[module + ".weight_offset"] =
        StoredTensor::of(Dtype::kF32, scale.shape, std::vector<float>(scale.values().size()));
    if (!module.ends_with("o_proj") && !module.ends_with("down_proj"))
      multiply(tensors.at(module + std::string(kScale)), half);
  }
  for (const char* layer : {"0", "1"}) {
    const std::string attention = fmt::format("model.layers.{}.input_layernorm", layer),
                      feed_forward = fmt::format("model.layers.{}.post_attention_layernorm", layer);
    StoredTensor smoothed = tensors.at(attention + ".weight");
    multiply(smoothed, two);
    tensors[attention + ".module.weight"] = smoothed;
    tensors[attention + ".module.bias"] = StoredTensor::of(Dtype::kF32, {32}, std::vector<float>(32));
    // Both projections are quantized: the norm's own weight is not needed.
    smoothed = tensors.at(feed_forward + ".weight");
    multiply(smoothed, two);
    tensors[feed_forward + ".module.weight"] = smoothed;
    tensors.erase(feed_forward + ".weight");
  }
  tensors["model.norm.bias"] = StoredTensor::of(Dtype::kF32, {32}, std::vector<float>(32));
  out.write("config.json", plain_config(golden));
  out.write("quant_model_description.json", description(tensors, "W8A8_DYNAMIC"));
  out.write("quant_model_weights.safetensors", write_tensors(tensors));
}

// Multipliers of the inputs' columns, different ones for modules behind the same norm.
StoredTensors with_input_scales(StoredTensors tensors, const std::string& place) {
  const auto column = [](size_t k) { return k % 2 == 0 ? 1.0f : 4.0f; };
  int power = 0;
  for (const std::string& module : quantized_modules(tensors)) {
    const bool normed = !module.ends_with("o_proj") && !module.ends_with("down_proj");
    const float factor = std::ldexp(1.0f, power++ % 5 - 2);
    multiply(tensors.at(module + std::string(kScale)), [&](size_t) { return 1 / factor; });
    std::vector<uint16_t> scales;
    const auto cols = size_t(tensors.at(module + ".weight").shape[1]);
    for (size_t k = 0; k < cols; ++k) scales.push_back(float_to_bf16(normed ? factor * column(k) : factor));
    tensors[module + place] = StoredTensor::of(Dtype::kBf16, {int64_t(cols)}, scales);
  }
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with("layernorm.weight")) multiply(tensor, [&](size_t k) { return 1 / column(k); });
  }
  return tensors;
}

void write_pre_quant_scale(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  const std::string config = plain_config(golden);
  out.write("config.json",
            config.substr(0, config.size() - 1) +
                R"(,"quantization_config":{"quant_method":"modelopt","quant_algo":"W8A8_SQ_PER_CHANNEL"}})");
  out.write("model.safetensors", write_tensors(with_input_scales(std::move(tensors), ".pre_quant_scale")));
}

// torchao's names, with scales of rows as columns.
void write_torchao(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  const std::string config = plain_config(golden);
  out.write("config.json",
            config.substr(0, config.size() - 1) + R"(,"quantization_config":{"quant_method":"torchao"}})");
  StoredTensors renamed;
  for (auto& [name, tensor] : with_input_scales(std::move(tensors), "._weight_act_pre_scale")) {
    const bool scale = name.ends_with(kScale), codes = tensor.dtype == Dtype::kI8;
    const std::string module = name.substr(0, name.rfind('.'));
    renamed[scale ? module + "._weight_scale" : codes ? module + "._weight_qdata" : name] = std::move(tensor);
  }
  out.write("model.safetensors", write_tensors(renamed));
}

void write_wrapped_layers(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  tensors = with_input_scales(std::move(tensors), ".div.mul_scale");
  for (const std::string& module : quantized_modules(tensors)) {
    for (const std::string_view suffix : {std::string_view(".weight"), kScale}) {
      auto node = tensors.extract(fmt::format("{}{}", module, suffix));
      node.key() = fmt::format("{}.linear{}", module, suffix);
      tensors.insert(std::move(node));
    }
    const int64_t rows = tensors.at(module + ".linear.weight").shape[0];
    tensors[module + ".linear.weight_offset"] =
        StoredTensor::of(Dtype::kF32, {rows, 1}, std::vector<float>(static_cast<size_t>(rows)));
  }
  out.write("config.json", plain_config(golden));
  out.write("quant_model_description.json", description(tensors, "FLOAT"));
  out.write("quant_model_weights.safetensors", write_tensors(tensors));
}

// E4M3FNUZ codes are worth half of E4M3's; what is their NaN is -0 there.
void write_fnuz(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  for (auto& [name, tensor] : tensors) {
    if (tensor.dtype == Dtype::kF8E4M3) {
      tensor.dtype = Dtype::kF8E4M3Fnuz;
      for (char& code : tensor.bytes) code = uint8_t(code) == 0x80 ? 0 : code;
    } else if (name.ends_with(kScale)) {
      multiply(tensor, [](size_t) { return 2.0f; });
    }
  }
  out.write("config.json", read_file(golden / "config.json"));
  out.write("model.safetensors", write_tensors(tensors));
}

void write_quark_groups(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  const auto transpose = [](StoredTensor& tensor) {
    const auto rows = size_t(tensor.shape[0]), cols = size_t(tensor.shape[1]);
    const size_t size = tensor.bytes.size() / (rows * cols);
    std::string bytes;
    for (size_t c = 0; c < cols; ++c) {
      for (size_t r = 0; r < rows; ++r) bytes += tensor.bytes.substr((r * cols + c) * size, size);
    }
    tensor.bytes = bytes;
    std::swap(tensor.shape[0], tensor.shape[1]);
  };
  for (const std::string& module : quantized_modules(tensors)) {
    for (const char* suffix : {".weight", ".weight_scale", ".weight_zero_point"})
      transpose(tensors.at(module + suffix));
  }
  const std::string config = plain_config(golden);
  out.write("config.json", config.substr(0, config.size() - 1) + R"(,"quantization_config":{"quant_method":"quark"}})");
  out.write("model.safetensors", write_tensors(tensors));
}

// Mistral's own files: their names, and rows of q and k that rotate together side by side.
void write_mistral_native(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  const auto document = JsonDocument::parse(read_file(golden / "config.json"), "config.json");
  const Json config = document->root();
  const auto size = [&](const char* key) { return config.at(key).as_integer(); };
  const std::pair<std::string_view, std::string_view> names[] = {{"model.embed_tokens", "tok_embeddings"},
                                                                 {"model.norm", "norm"},
                                                                 {"lm_head", "output"},
                                                                 {"input_layernorm", "attention_norm"},
                                                                 {"post_attention_layernorm", "ffn_norm"},
                                                                 {"self_attn.q_proj", "attention.wq"},
                                                                 {"self_attn.k_proj", "attention.wk"},
                                                                 {"self_attn.v_proj", "attention.wv"},
                                                                 {"self_attn.o_proj", "attention.wo"},
                                                                 {"mlp.gate_proj", "feed_forward.w1"},
                                                                 {"mlp.down_proj", "feed_forward.w2"},
                                                                 {"mlp.up_proj", "feed_forward.w3"},
                                                                 {"model.layers.", "layers."},
                                                                 {"weight_scale", "qscale_weight"},
                                                                 {"input_scale", "qscale_act"}};
  const auto dim = size_t(size("head_dim"));
  StoredTensors renamed;
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight")) {
      const size_t row = tensor.bytes.size() / size_t(tensor.shape[0]);
      std::string bytes;
      for (size_t n = 0; n < size_t(tensor.shape[0]); ++n) {
        const size_t i = n % dim;
        bytes += tensor.bytes.substr((n - i + i % 2 * (dim / 2) + i / 2) * row, row);
      }
      tensor.bytes = bytes;
    }
    std::string to = name;
    for (const auto& [theirs, ours] : names) {
      if (const size_t at = to.find(theirs); at != to.npos) to.replace(at, theirs.size(), ours);
    }
    renamed[to] = tensor;
  }
  std::string windows;
  if (const auto types = config.get("layer_types")) {
    std::vector<std::string> of_layers;
    for (const Json& type : types->elements())
      of_layers.push_back(type.as_string() == "full_attention" ? "null" : std::to_string(size("sliding_window")));
    windows = R"(,"_sliding_window":)" + json_list(of_layers);
  }
  out.write("params.json",
            fmt::format(R"({{"dim":{},"n_layers":{},"head_dim":{},"hidden_dim":{},"n_heads":{},"n_kv_heads":{},)"
                        R"("norm_eps":{},"vocab_size":{},"rope_theta":10000.0,"max_seq_len":64{}}})",
                        size("hidden_size"), size("num_hidden_layers"), dim, size("intermediate_size"),
                        size("num_attention_heads"), size("num_key_value_heads"),
                        config.get("rms_norm_eps") ? 1e-5 : 1e-6, size("vocab_size"), windows));
  out.write("consolidated.safetensors", write_tensors(renamed));
}

// As mlx-lm saves Qwen3.5's mixtures: its names, convolutions turned, norms with their 1, stacks of gates and of ups.
void write_mlx(const fs::path& golden, StoredTensors tensors, const TemporaryFolder& out) {
  constexpr std::string_view kModel = "model.language_model.", kExperts = "experts.";
  StoredTensors renamed;
  for (auto& [name, tensor] : tensors) {
    std::string to = name.starts_with(kModel)      ? "language_model.model." + name.substr(kModel.size())
                     : name.starts_with("lm_head") ? "language_model." + name
                                                   : name;
    if (name.ends_with("conv1d.weight")) tensor.shape = {tensor.shape[0], tensor.shape[2], 1};
    const bool adds_one = name.ends_with("layernorm.weight") || name.ends_with("language_model.norm.weight") ||
                          name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight");
    if (adds_one) {
      std::vector<float> values = tensor.values();
      for (float& value : values) value += 1;
      tensor = StoredTensor::of(Dtype::kF32, tensor.shape, values);
    }
    if (const size_t at = to.find(kExperts); at != to.npos && tensor.shape.size() == 3) {
      const std::string parent = to.substr(0, at) + "switch_mlp.", matrix = to.substr(at + kExperts.size());
      if (matrix != "gate_up_proj") {
        renamed[parent + matrix + ".weight"] = tensor;
        continue;
      }
      StoredTensor gates = tensor, ups = tensor;
      gates.shape[1] = ups.shape[1] = tensor.shape[1] / 2;
      gates.bytes.clear(), ups.bytes.clear();
      const size_t half = tensor.bytes.size() / size_t(tensor.shape[0]) / 2;
      for (size_t begin = 0; begin < tensor.bytes.size(); begin += 2 * half) {
        gates.bytes += tensor.bytes.substr(begin, half);
        ups.bytes += tensor.bytes.substr(begin + half, half);
      }
      renamed[parent + "gate_proj.weight"] = gates;
      renamed[parent + "up_proj.weight"] = ups;
      continue;
    }
    renamed[to] = tensor;
  }
  out.write("config.json", read_file(golden / "config.json"));
  out.write("model.safetensors", write_tensors(renamed));
}

TEST_CASE("models in the layouts of other methods give the same scores") {
  const Rewritten all[] = {{"msModelSlim W8A16 groups", "llama-ct-int8-asym-group", write_w8a16},
                           {"msModelSlim W8A8", "llama-ct-int8-channel", write_w8a8},
                           {"msModelSlim smoothed norms", "llama-ct-int8-channel", write_smoothed_norms},
                           {"msModelSlim wrapped layers", "llama-ct-int8-channel", write_wrapped_layers},
                           {"ModelOpt pre_quant_scale", "llama-ct-int8-channel", write_pre_quant_scale},
                           {"torchao act_pre_scale", "llama-ct-int8-channel", write_torchao},
                           {"F8_E4M3FNUZ", "llama-fp8-tensor", write_fnuz},
                           {"Quark groups", "llama-ct-int8-asym-group", write_quark_groups},
                           {"Mistral's own files", "mistral-fp8-tensor", write_mistral_native},
                           {"Mistral's own files, windows on some layers", "ministral-bf16", write_mistral_native},
                           {"mlx-lm's mixtures with delta nets", "qwen3_5_moe-bf16", write_mlx}};
  std::vector<std::string> devices = {"reference"};
  for (const cpu::IsaTarget* target : cpu::targets()) {
    if (target->supported()) devices.push_back(std::string("cpu:") + target->name);
  }
  for (const Rewritten& rewritten : all) {
    INFO(rewritten.name);
    const Golden golden = Golden::read(source_folder() / "tests/golden" / rewritten.golden);
    const TemporaryFolder folder;
    rewritten.write(golden.folder, read_tensors(golden.folder / "model.safetensors"), folder);
    const auto plan = load_plan(folder.path());
    for (const std::string& device : devices) {
      INFO(device);
      auto engine = make_engine(*plan, device, int64_t(golden.ids.size()));
      const double tolerance = device == "reference" ? golden.reference_tolerance : golden.cpu_tolerance;
      std::vector<float> prompt, single;
      engine->prefill(golden.ids, [&](int64_t, std::span<const float> row) {
        prompt.insert(prompt.end(), row.begin(), row.end());
      });
      CHECK(normwise_error(prompt, golden.logits) < tolerance);
      engine->rewind(0);
      for (const TokenId id : golden.ids) {
        const std::span<const float> row = engine->decode(id);
        single.insert(single.end(), row.begin(), row.end());
      }
      CHECK(normwise_error(single, golden.logits) < tolerance);
    }
  }
}

TEST_CASE("layers of GPT-2 that bitsandbytes has replaced lie as (outputs, inputs)") {
  const fs::path golden = source_folder() / "tests/golden/gpt2-f32";
  StoredTensors tensors = read_tensors(golden / "model.safetensors");
  const auto name = [&](std::string_view suffix) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& tensor) { return tensor.first.ends_with(suffix); });
    REQUIRE(found != tensors.end());
    return found->first;
  };
  const std::string weight = name("h.0.attn.c_attn.weight"), module = weight.substr(0, weight.rfind('.'));
  const int64_t cols = tensors.at(weight).shape[0], rows = tensors.at(weight).shape[1];
  std::vector<int8_t> codes;
  std::vector<float> scales;
  for (int64_t i = 0; i < rows * cols; ++i) codes.push_back(int8_t(i * 7 % 255 - 127));
  for (int64_t n = 0; n < rows; ++n) scales.push_back(127 * float(n + 1));
  tensors[weight] = StoredTensor::of(Dtype::kI8, {rows, cols}, codes);
  tensors[module + ".SCB"] = StoredTensor::of(Dtype::kF32, {rows}, scales);
  const TemporaryFolder folder;
  folder.write("config.json", read_file(golden / "config.json"));
  folder.write("model.safetensors", write_tensors(tensors));
  const auto plan = load_plan(folder.path());
  int64_t first = 0;
  std::vector<double> row(static_cast<size_t>(cols));
  for (const Weight& part : plan->weights) {
    if (part.name != module) continue;
    for (int64_t n = 0; n < part.rows; ++n, ++first) {
      dequantize_row(part, n, row);
      for (int64_t k = 0; k < cols; ++k) {
        const double expected = double(codes[size_t(first * cols + k)]) * double(first + 1);
        CHECK(std::abs(row[size_t(k)] - expected) <= 1e-6 * std::abs(expected));
      }
    }
  }
  CHECK(first == rows);  // queries, keys and values
}

}  // namespace
}  // namespace qgen::test
