// GGUF files: damaged and hostile ones, split ones, where they are found; every kind of model against the same model as
// Hugging Face stores it; tokenizers.
#include <fmt/format.h>

#include "base/config_tokens.h"
#include "base/numbers.h"
#include "chat/template.h"
#include "model/families/table.h"
#include "model/gguf_model.h"
#include "model/open.h"
#include "tests/model/gguf_support.h"
#include "tests/support.h"
#include "tokenizer/tokenizer.h"

namespace qgen::test {
namespace {

std::string bytes_of(std::span<const float> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::string parse_error(const std::string& file) {
  ErrorKind kind = ErrorKind::kModel;
  const std::string error = error_of([&] { Gguf::parse(std::as_bytes(std::span(file)), "f.gguf"); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return error;
}
template <typename Change>
std::string changed(const GgufFile& file, Change&& change) {
  GgufFile copy = file;
  change(copy);
  return parse_error(copy.bytes());
}

GgufFile small_file() {
  GgufFile file;
  file.text("general.architecture", "llama");
  file.list<std::string>("list", GgufFile::Type::kString, {"a", "", "ccc"});
  file.tensors = {{"a", {2, 3}, 0, std::string(24, 'x')},
                  {"b", {1, 64}, 8, std::string(68, 'y')},
                  {"c", {5}, 30, std::string(10, 'z')}};
  return file;
}

TEST_CASE("gguf: keys and tensors as they were written") {
  GgufFile file = small_file();
  file.number("u64", GgufFile::Type::kU64, UINT64_MAX);
  file.number("i16", GgufFile::Type::kI16, int16_t(-7));
  file.f32("eps", 1e-5);
  file.flag("yes", true);
  file.list<float>("floats", GgufFile::Type::kF32, {1.5f, -2});
  for (const uint32_t version : {2, 3}) {
    file.version = version;
    const std::string bytes = file.bytes();
    const Gguf parsed = Gguf::parse(std::as_bytes(std::span(bytes)), "f.gguf");
    CHECK(parsed.text("general.architecture") == "llama");
    CHECK(*parsed.texts("list") == std::vector<std::string_view>{"a", "", "ccc"});
    CHECK(parsed.integer("i16") == -7);
    CHECK(parsed.decimal("i16") == "-7");
    CHECK(parsed.decimal("eps") == "1e-05");
    CHECK(parsed.flag("yes") == true);
    CHECK(*parsed.floats("floats") == std::vector<float>{1.5f, -2});
    CHECK_FALSE(parsed.text("absent"));
    CHECK(contains(error_of([&] { parsed.integer("u64"); }), "key u64: out of range"));
    CHECK(contains(error_of([&] { parsed.integer("i16", 0, 9); }), "expected 0 to 9, found -7"));
    CHECK(contains(error_of([&] { parsed.integer("eps"); }), "key eps: wrong type (expected an integer, found f32)"));
    for (const char* key : {"yes", "list", "general.architecture"})
      CHECK(contains(error_of([&] { parsed.decimal(key); }), "wrong type (expected a number, found"));
    CHECK(contains(error_of([&] { parsed.text("yes"); }), "expected string, found bool"));
    CHECK(contains(error_of([&] { parsed.floats("list"); }), "expected array of f32, found array of string"));
    CHECK(contains(error_of([&] { parsed.flag("list"); }), "expected bool, found array of string"));
    REQUIRE(parsed.tensors().size() == 3);
    const TensorView& b = parsed.tensors()[1];
    CHECK(b.name == "b");
    CHECK(b.dtype == Dtype::kQ8_0);
    CHECK(b.shape == std::vector<int64_t>{1, 64});
    CHECK(b.bytes.size() == 68);
    CHECK(b.bytes[0] == std::byte{'y'});
  }
  file.alignment = 8;
  file.u32("general.alignment", 8);
  CHECK(parse_error(file.bytes()) == "");
}

TEST_CASE("gguf: every file cut short, and every byte changed, is an error or a file") {
  GgufFile file = small_file();
  const std::string whole = file.bytes();
  for (size_t size = 0; size < whole.size() - 22; ++size) {  // the last tensor's padding need not be there
    INFO(size);
    CHECK(parse_error(whole.substr(0, size)) != "");
  }
  CHECK(parse_error(whole.substr(0, whole.size() - 22)) == "");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\x01', '\x7F', '\xFF'}) {
      std::string other = whole;
      other[at] = value;
      parse_error(other);
    }
  }
}

TEST_CASE("gguf: what is wrong is named") {
  const GgufFile file = small_file();
  const auto with_key = [&](const std::string& name, uint32_t type, const std::string& value) {
    return changed(file, [&](GgufFile& f) {
      std::string bytes;
      put(bytes, type);
      f.keys.emplace_back(name, bytes + value);
    });
  };
  const auto with_tensor = [&](auto&& change) { return changed(file, [&](GgufFile& f) { change(f.tensors[1]); }); };
  CHECK(contains(changed(file, [](GgufFile& f) { f.magic = "GGML"; }), "f.gguf: not a GGUF file"));
  CHECK(contains(parse_error("version https://git-lfs.github.com/spec/v1"), "git lfs pull"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.version = 1; }), "GGUF version 1 is not supported"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.version = 4; }), "GGUF version 4 is not supported"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.version = 0x03000000; }), "big-endian"));
  for (const uint64_t count : {uint64_t{1} << 62, UINT64_MAX, uint64_t{1000}}) {
    CHECK(contains(changed(file, [&](GgufFile& f) { f.tensor_count = count; }), "do not fit into the"));
    CHECK(contains(changed(file, [&](GgufFile& f) { f.key_count = count; }), "do not fit into the"));
  }

  std::string length;
  put(length, uint64_t{1} << 40);
  CHECK(contains(with_key("k", 8, length), "the value of key k is too long"));
  length.clear();
  put(length, uint64_t{100000});
  CHECK(contains(with_key("k", 8, length), "truncated: the value of key k runs beyond the file"));
  CHECK(contains(with_key("k", 13, ""), "key k: unknown type 13"));
  CHECK(contains(with_key("", 7, "x"), "key \"\": empty"));
  CHECK(contains(with_key("a\xFF", 7, "x"), "not plain UTF-8"));
  CHECK(contains(with_key("list", 7, "x"), "key list: occurs twice"));
  std::string array;
  put(array, uint32_t{9});
  CHECK(contains(with_key("k", 9, array + length), "key k: arrays of arrays"));
  array.clear();
  put(array, uint32_t{4});
  put(array, UINT64_MAX);
  CHECK(contains(with_key("k", 9, array), "key k: too many elements"));
  array.clear();
  put(array, uint32_t{8});
  put(array, uint64_t{2});
  put(array, UINT64_MAX);
  CHECK(contains(with_key("k", 9, array), "is too long"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.u32("general.alignment", 24); }), "not a power of two (found 24)"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.u32("general.alignment", 0); }), "not a power of two (found 0)"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.f32("general.alignment", 32); }), "expected u32, found f32"));
  CHECK(contains(changed(file, [](GgufFile& f) { f.u32("general.alignment", 64); }), "tensor b: its data"));

  CHECK(contains(with_tensor([](GgufTensor& t) { t.name = "a"; }), "tensor a: occurs twice"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.name = std::string(64, 'n'); }), "1 to 63 bytes"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.name = ""; }), "1 to 63 bytes"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.name = std::string("a\0b", 3); }), "1 to 63 bytes"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {1, 1, 1, 1, 64}; }), "expected 1 to 4, found 5"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {}; }), "expected 1 to 4, found 0"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {0, 64}; }), "tensor b: dimension 1 is 0"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {-1, 64}; }), "dimension 1 is -1"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {int64_t{1} << 40, int64_t{1} << 40}; }), "overflows"));
  CHECK(contains(with_tensor([](GgufTensor& t) {
                   t.type = 0;
                   t.shape = {int64_t{1} << 31, int64_t{1} << 31};
                 }),
                 "its size overflows"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {2, 48}; }), "not a whole number of blocks of 32"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.shape = {1, 6400}; }), "tensor b: truncated"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.type = 16; }), "tensor b: type IQ2_XXS is not supported"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.type = 40; }), "type NVFP4 is not supported"));
  for (const auto& [type, columns] : {std::pair{12u, 128}, {14u, 250}, {2u, 48}, {39u, 16}, {23u, 32}}) {
    const int64_t block = type == 2 || type == 39 ? 32 : 256;
    INFO("type ", type);
    CHECK(
        contains(with_tensor([&](GgufTensor& t) {
                   t.type = type;
                   t.shape = {2, columns};
                 }),
                 fmt::format("tensor b: rows of {} elements are not a whole number of blocks of {}", columns, block)));
    CHECK(contains(with_tensor([&](GgufTensor& t) {
                     t.type = type;
                     t.shape = {1, 25600};
                   }),
                   "tensor b: truncated"));
  }
  CHECK(contains(with_tensor([](GgufTensor& t) { t.type = 4; }), "unknown type 4"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.type = 1000; }), "unknown type 1000"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.offset = 0; }), "tensor b: its data overlaps"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.offset = 64; }), "expected to begin at 32, found 64"));
  CHECK(contains(with_tensor([](GgufTensor& t) { t.offset = UINT64_MAX - 31; }), "tensor b: its data leaves a hole"));
}

// A model of the goldens as a GGUF file: what llama.cpp's converter does, in few words.
std::string gguf_name(std::string name, bool is_gemma) {
  const std::pair<std::string_view, std::string_view> kGemmaNames[] = {
      {"post_attention_layernorm.", "post_attention_norm."},
      {"pre_feedforward_layernorm.", "ffn_norm."},
      {"post_feedforward_layernorm.", "post_ffw_norm."}};
  for (const auto& [theirs, ours] : kGemmaNames) {
    if (const size_t at = name.find(theirs); is_gemma && at != name.npos) name.replace(at, theirs.size(), ours);
  }
  const std::pair<std::string_view, std::string_view> kNames[] = {{"model.embed_tokens.", "token_embd."},
                                                                  {"model.norm.", "output_norm."},
                                                                  {"lm_head.", "output."},
                                                                  {"model.layers.", "blk."},
                                                                  {"input_layernorm.", "attn_norm."},
                                                                  {"post_attention_layernorm.", "ffn_norm."},
                                                                  {"self_attn.q_proj.", "attn_q."},
                                                                  {"self_attn.k_proj.", "attn_k."},
                                                                  {"self_attn.v_proj.", "attn_v."},
                                                                  {"self_attn.o_proj.", "attn_output."},
                                                                  {"self_attn.q_norm.", "attn_q_norm."},
                                                                  {"self_attn.k_norm.", "attn_k_norm."},
                                                                  {"mlp.gate_proj.", "ffn_gate."},
                                                                  {"mlp.up_proj.", "ffn_up."},
                                                                  {"mlp.down_proj.", "ffn_down."}};
  for (const auto& [theirs, ours] : kNames) {
    if (const size_t at = name.find(theirs); at != name.npos) name.replace(at, theirs.size(), ours);
  }
  return name;
}

// Rows i and i + d/2 of a head become neighbours.
std::string pair_rows(const std::string& data, int64_t rows, int64_t heads) {
  const size_t row = data.size() / size_t(rows);
  const int64_t dim = rows / heads;
  std::string out;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < dim / 2; ++i) {
      out += data.substr(size_t(head * dim + i) * row, row);
      out += data.substr(size_t(head * dim + i + dim / 2) * row, row);
    }
  }
  return out;
}

GgufFile as_gguf(const Plan& plan) {
  const Description model = describe(plan.checkpoint.config());
  const auto& attention = std::get<AttentionSpec>(model.layers[0][0].mixer);
  std::vector<int64_t> windows;
  for (const auto& layer : model.layers) windows.push_back(std::get<AttentionSpec>(layer[0].mixer).window);
  const int64_t layers = int64_t(model.layers.size());
  const bool paired = model.family == "llama" || model.family == "mistral";
  const std::string arch = paired ? "llama" : model.family;
  GgufFile file;
  file.text("general.architecture", arch);
  file.u32(arch + ".block_count", layers);
  file.u32(arch + ".embedding_length", model.hidden);
  file.u32(arch + ".attention.head_count", attention.heads);
  file.list<int32_t>(arch + ".attention.head_count_kv", GgufFile::Type::kI32,
                     std::vector<int32_t>(size_t(layers), int32_t(attention.kv_heads)));
  file.u32(arch + ".attention.key_length", attention.head_dim);
  file.u32(arch + ".attention.value_length", attention.head_dim);
  file.u32(arch + ".feed_forward_length", std::get<FeedForwardSpec>(model.layers[0][1].mixer).width);
  file.u32(arch + ".vocab_size", model.vocab);
  file.u32(arch + ".context_length", model.context);
  file.f32(arch + ".attention.layer_norm_rms_epsilon", model.final_norm.eps);
  file.f32(arch + ".rope.freq_base", model.ropes[0].theta);
  const Rope& rope = model.ropes[0];
  if (rope.scaling == Rope::Scaling::kLinear || rope.scaling == Rope::Scaling::kYarn) {
    const bool yarn = rope.scaling == Rope::Scaling::kYarn;
    file.text(arch + ".rope.scaling.type", yarn ? "yarn" : "linear");
    file.f32(arch + ".rope.scaling.factor", rope.factor);
    if (yarn) {
      file.u32(arch + ".rope.scaling.original_context_length", rope.original_context);
      file.f32(arch + ".rope.scaling.yarn_beta_fast", rope.beta_fast);
      file.f32(arch + ".rope.scaling.yarn_beta_slow", rope.beta_slow);
    }
  } else if (rope.scaling == Rope::Scaling::kLlama3) {
    Rope plain;
    plain.dim = rope.dim;
    plain.theta = rope.theta;
    const auto scaled = inverse_frequencies(rope, 0);
    const auto unscaled = inverse_frequencies(plain, 0);
    std::vector<float> factors;
    for (size_t i = 0; i < scaled.size(); ++i) factors.push_back(float(unscaled[i] / scaled[i]));
    file.tensors.push_back({"rope_freqs.weight", {int64_t(factors.size())}, 0, bytes_of(factors)});
  }
  if (const int64_t window = *std::max_element(windows.begin(), windows.end()); window > 0) {
    file.u32(arch + ".attention.sliding_window", window);
    std::vector<uint8_t> pattern;
    for (const int64_t w : windows) pattern.push_back(w > 0);
    file.list(arch + ".attention.sliding_window_pattern", GgufFile::Type::kBool, pattern);
  }

  const auto add = [&](const std::string& name, std::vector<int64_t> shape, uint32_t type, std::string data) {
    const bool q = contains(name, "q_proj"), k = contains(name, "k_proj");
    if (paired && (q || k)) data = pair_rows(data, shape[0], q ? attention.heads : attention.kv_heads);
    file.tensors.push_back({gguf_name(name, arch == "gemma3"), std::move(shape), type, std::move(data)});
  };
  for (const Weight& weight : plan.weights) {
    const uint32_t type = weight.codes == Codes::kF16 ? 1 : weight.codes == Codes::kBf16 ? 30 : 0;
    std::string data(reinterpret_cast<const char*>(weight.data.data()), weight.data.size());
    if (weight.quantized()) {
      std::vector<float> values;
      std::vector<double> row(size_t(weight.cols));
      for (int64_t n = 0; n < weight.rows; ++n) {
        dequantize_row(weight, n, row);
        values.insert(values.end(), row.begin(), row.end());
      }
      data = bytes_of(values);
    }
    add(weight.name + ".weight", {weight.rows, weight.cols}, type, data);
  }
  for (const TensorView& tensor : plan.checkpoint.tensors()) {
    if (tensor.shape.size() != 1 || (!contains(tensor.name, "norm") && !tensor.name.ends_with(".bias"))) continue;
    std::vector<float> values = tensor_values(tensor);
    for (float& value : values) value += arch == "gemma3" ? 1 : 0;
    add(tensor.name, tensor.shape, 0, bytes_of(values));
  }
  return file;
}

TEST_CASE("gguf: every family, scaling, window and bias gives the logits of the same model from Hugging Face") {
  for (const char* name : {"llama-bf16", "llama-f16", "llama-f32", "llama-bias", "llama-wide-heads",
                           "llama-rope-linear", "llama-rope-llama3", "llama-rope-yarn", "mistral-bf16",
                           "mistral-window", "qwen2-bf16", "qwen2-window", "qwen3-bf16", "qwen3-rope-yarn-betas"}) {
    INFO(name);
    const Golden golden = Golden::read(source_folder() / "tests/golden" / name);
    const auto original = load_plan(golden.folder);
    TemporaryFolder folder;
    const fs::path file = folder.write("model.gguf", as_gguf(*original).bytes());
    const auto plan = load_plan(file);
    CHECK_FALSE(plan->checkpoint.is_blank());
    REQUIRE(plan->states.size() == original->states.size());
    for (size_t i = 0; i < plan->states.size(); ++i) CHECK(plan->states[i].window == original->states[i].window);
    auto engine = make_engine(*plan, "reference", int64_t(golden.ids.size()));
    std::vector<float> logits;
    engine->prefill(golden.ids,
                    [&](int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
    CHECK(normwise_error(logits, golden.logits) < golden.reference_tolerance);
  }
}

TEST_CASE("gguf: Gemma 3 has names of its own, norms with one added, and scores scaled by the length of a head") {
  const Golden golden = Golden::read(source_folder() / "tests/golden/gemma3-fp8");
  TemporaryFolder folder;
  std::string config = read_file(golden.folder / "config.json");
  const std::string_view scalar = "\"query_pre_attn_scalar\": 24";
  REQUIRE(contains(config, scalar));
  config.replace(config.find(scalar), scalar.size(), "\"query_pre_attn_scalar\": 32");
  folder.write("config.json", config);
  fs::copy(golden.folder / "model.safetensors", folder.path() / "model.safetensors");
  const auto original = load_plan(folder.path());
  const auto plan = load_plan(folder.write("model.gguf", as_gguf(*original).bytes()));
  const auto logits = [&](const Plan& of) {
    auto engine = make_engine(of, "reference", int64_t(golden.ids.size()));
    std::vector<float> out;
    engine->prefill(golden.ids,
                    [&](int64_t, std::span<const float> row) { out.insert(out.end(), row.begin(), row.end()); });
    return out;
  };
  CHECK(normwise_error(logits(*plan), logits(*original)) < golden.reference_tolerance);
}

GgufFile golden_gguf(const char* name = "llama-f32") {
  return as_gguf(*load_plan(source_folder() / "tests/golden" / name));
}

template <typename Change>
std::string load_error(Change&& change) {
  GgufFile file = golden_gguf();
  change(file);
  TemporaryFolder folder;
  const fs::path path = folder.write("model.gguf", file.bytes());
  ErrorKind kind = ErrorKind::kModel;
  const std::string error = error_of([&] { load_plan(path); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return error;
}

TEST_CASE("gguf: Gemma 3 without a window sees everything, and Ollama's keys of rotations are read") {
  const auto config = [](auto&& change) {
    GgufFile file = golden_gguf("gemma3-fp8");
    change(file);
    const TemporaryFolder folder;
    return model_files(locate_model(folder.write("t.gguf", file.bytes()).string())).read("config.json");
  };
  const std::string window = "gemma3.attention.sliding_window", pattern = window + "_pattern";
  const std::string full = config([&](GgufFile& file) { file.replace(window); });
  CHECK(contains(full, R"("sliding_window":null)"));
  const std::string second = config([&](GgufFile& file) {
    file.replace(pattern);
    file.u32(pattern, 2);
  });
  CHECK(contains(second, R"("layer_types":["sliding_attention","full_attention")"));
  const std::string words = config([&](GgufFile& file) {
    file.replace(pattern);
    file.list<int32_t>(pattern, GgufFile::Type::kI32, {0, 1, 0, 1, 1, 0});
  });
  CHECK(contains(words, R"("layer_types":["full_attention","sliding_attention","full_attention",)"));
  const std::string base = "gemma3.rope.freq_base";
  CHECK(contains(config([&](GgufFile& file) { file.replace(base); }), R"("rope_theta":1000000,)"));
  const std::string ollama = config([&](GgufFile& file) {
    file.replace(base);
    file.f32("gemma3.rope.global.freq_base", 500);
    file.f32("gemma3.rope.local.freq_base", 50);
  });
  CHECK(contains(ollama, R"("rope_theta":500,)"));
  CHECK(contains(ollama, R"("rope_local_base_freq":50)"));
}

TEST_CASE("gguf: keys and tensors that a model lacks, or that mean another model") {
  const auto key = [](const std::string& name, auto&& add) {
    return load_error([&](GgufFile& file) {
      file.replace(name);
      add(file);
    });
  };
  const auto nothing = [](GgufFile&) {};
  CHECK(load_error(nothing) == "");
  for (const char* name :
       {"general.architecture", "llama.block_count", "llama.embedding_length", "llama.attention.head_count",
        "llama.feed_forward_length", "llama.attention.layer_norm_rms_epsilon"}) {
    INFO(name);
    CHECK(contains(key(name, nothing), fmt::format("model.gguf: key {}: missing", name)));
  }
  CHECK(contains(key("general.architecture", [](GgufFile& f) { f.text("general.architecture", "rwkv7"); }),
                 "\"rwkv7\" is not supported\nsupported: llama, mistral3, qwen2, qwen3"));
  CHECK(contains(key("llama.block_count", [](GgufFile& f) { f.u32("llama.block_count", 0); }), "out of range"));
  CHECK(contains(key("llama.block_count", [](GgufFile& f) { f.u32("llama.block_count", 2000000000); }),
                 "key llama.block_count: 2000000000 (expected at most 4096)"));
  CHECK(contains(key("llama.attention.head_count_kv",
                     [](GgufFile& f) {
                       f.list<int32_t>("llama.attention.head_count_kv", GgufFile::Type::kI32, {1, 2});
                     }),
                 "differs between layers"));
  CHECK(contains(key("llama.attention.value_length", [](GgufFile& f) { f.u32("llama.attention.value_length", 4); }),
                 "key llama.attention.value_length: not supported"));
  CHECK(contains(key("x", [](GgufFile& f) { f.u32("llama.rope.dimension_count", 4); }), "rope.dimension_count"));
  CHECK(contains(key("x", [](GgufFile& f) { f.u32("llama.expert_count", 8); }), "llama.expert_used_count: missing"));
  CHECK(contains(key("x", [](GgufFile& f) { f.text("llama.rope.scaling.type", "longrope"); }), "'longrope'"));
  CHECK(contains(key("llama.rope.freq_base", [](GgufFile& f) { f.f32("llama.rope.freq_base", NAN); }), "not a finite"));
  const auto factors = [](std::vector<float> values) {
    return load_error([&](GgufFile& f) {
      f.tensors.push_back({"rope_freqs.weight", {int64_t(values.size())}, 0, bytes_of(values)});
    });
  };
  CHECK(factors({1, 1, 2, 8}) == "");
  CHECK(contains(factors({1, 1}), "tensor rope_freqs.weight: wrong shape (expected [4], found [2])"));
  // Values are read when the model is loaded.
  const auto bad_factors = [](std::vector<float> values) {
    GgufFile file = golden_gguf();
    file.tensors.push_back({"rope_freqs.weight", {int64_t(values.size())}, 0, bytes_of(values)});
    TemporaryFolder folder;
    const auto plan = load_plan(folder.write("model.gguf", file.bytes()));
    return error_of([&] { make_engine(*plan, "reference", 8); });
  };
  CHECK(bad_factors({1, 2, 1, 1}) == "");
  CHECK(contains(bad_factors({1, 0, 1, 1}), "rope_freqs.weight: holds 0"));
  CHECK(contains(bad_factors({1, INFINITY, 1, 1}), "rope_freqs.weight: holds inf"));
  const auto tensor = [](const std::string& name, auto&& change) {
    return load_error([&](GgufFile& file) {
      for (GgufTensor& t : file.tensors) {
        if (t.name == name) change(t);
      }
    });
  };
  CHECK(contains(tensor("blk.1.ffn_up.weight", [](GgufTensor& t) { t.name = "x.weight"; }),
                 "blk.1.ffn_up.weight is missing"));
  CHECK(contains(load_error([](GgufFile& f) {
                   f.tensors.push_back({"blk.0.ffn_gate_inp.weight", {2}, 0, "12345678"});
                 }),
                 "not part of a llama model"));
  CHECK(contains(load_error([](GgufFile& f) {
                   f.tensors.push_back({"position_embd.weight", {2}, 0, "12345678"});
                 }),
                 "not part of a llama model"));
}

// Blocks whose scales are zero, subnormal, negative, and codes at both ends.
TEST_CASE("gguf: Q8_0 blocks are read exactly, permuted rows included, and scales must be numbers") {
  GgufFile file = golden_gguf();
  const auto plan = load_plan(source_folder() / "tests/golden/llama-f32");
  const uint16_t scales[] = {0x0000, 0x0001, 0x03FF, 0x0400, 0x8001, 0x3C00, 0xBC00, 0x7BFF};
  std::map<std::string, std::vector<float>> expected;
  const auto quantize = [&](bool bad) {
    for (GgufTensor& tensor : file.tensors) {
      if (tensor.name != "blk.0.attn_k.weight" && tensor.name != "blk.1.attn_v.weight") continue;
      tensor.type = 8;
      tensor.data.clear();
      std::vector<float>& values = expected[tensor.name];
      for (int64_t block = 0; block < tensor.shape[0] * tensor.shape[1] / 32; ++block) {
        const uint16_t scale = bad && block == 3 ? 0x7C00 : scales[block % 8];
        put(tensor.data, scale);
        for (int i = 0; i < 32; ++i) {
          const auto code = int8_t(i == 0 ? -128 : i == 1 ? 127 : block * 7 + i);
          put(tensor.data, code);
          values.push_back(f16_to_float(scale) * float(code));
        }
      }
    }
  };
  TemporaryFolder folder;
  quantize(false);
  const fs::path path = folder.write("model.gguf", file.bytes());
  const auto header_only = make_plan(open_checkpoint(locate_model(path.string())));
  const auto loaded = load_plan(path);
  CHECK(header_only->weight_bytes() == loaded->weight_bytes());
  CHECK(header_only->method() == loaded->method());
  size_t found = 0;
  for (const Weight& weight : loaded->weights) {
    if (weight.name != "blk.0.attn_k" && weight.name != "blk.1.attn_v") continue;
    ++found;
    const std::vector<float>& values = expected[weight.name + ".weight"];
    std::vector<double> row(size_t(weight.cols));
    for (int64_t n = 0; n < weight.rows; ++n) {
      dequantize_row(weight, n, row);
      for (int64_t c = 0; c < weight.cols; ++c) CHECK(float(row[size_t(c)]) == values[size_t(n * weight.cols + c)]);
    }
  }
  CHECK(found == 2);
  quantize(true);
  const fs::path bad = folder.write("bad.gguf", file.bytes());
  CHECK(contains(error_of([&] { load_plan(bad); }), "attn_k.weight: 1 scales are NaN or infinite"));
}

TEST_CASE("gguf: one file, parts, folders and the Hugging Face cache") {
  const std::string whole = golden_gguf().bytes();
  GgufFile first = golden_gguf(), second;
  second.tensors.assign(first.tensors.begin() + 5, first.tensors.end());
  first.tensors.resize(5);
  const size_t total = first.tensors.size() + second.tensors.size();
  const auto split = [&](GgufFile file, int number, int count, size_t tensors) {
    file.number("split.no", GgufFile::Type::kU16, uint16_t(number));
    file.number("split.count", GgufFile::Type::kU16, uint16_t(count));
    file.number("split.tensors.count", GgufFile::Type::kI32, int32_t(tensors));
    return file.bytes();
  };
  TemporaryFolder folder;
  folder.write("one/m.gguf", whole);
  folder.write("one/mmproj-m.gguf", "x");
  CHECK(load_plan(folder.path() / "one")->weights.size() == 15);
  folder.write("two/m-00001-of-00002.gguf", split(first, 0, 2, total));
  CHECK(contains(error_of([&] { load_plan(folder.path() / "two"); }), "m-00002-of-00002.gguf: part 2 of 2 is missing"));
  const fs::path last = folder.write("two/m-00002-of-00002.gguf", split(second, 1, 2, total));
  CHECK(load_plan(folder.path() / "two")->weights.size() == 15);
  CHECK(load_plan(last)->weights.size() == 15);
  const auto wrong = [&](const std::string& bytes) {
    folder.write("two/m-00002-of-00002.gguf", bytes);
    return error_of([&] { load_plan(last); });
  };
  CHECK(
      contains(wrong(split(second, 0, 2, total)), "split.no: does not fit the name of the file (expected 1, found 0)"));
  CHECK(contains(wrong(split(second, 1, 3, total)), "split.count: does not fit the names"));
  CHECK(
      contains(wrong(second.bytes()), "split.count: does not fit the names of the files (expected 2, found nothing)"));
  second.tensors.pop_back();
  CHECK(contains(wrong(split(second, 1, 2, total)), "split.tensors.count: does not fit the parts"));
  second.tensors.push_back(first.tensors.front());
  CHECK(contains(wrong(split(second, 1, 2, total)), "is also in"));
  CHECK(contains(error_of([&] { load_plan(folder.write("lone.gguf", split(first, 0, 2, total))); }), "one part of 2"));

  // Beside the config.json and safetensors of a Hugging Face model, a GGUF file is ignored.
  folder.write("both/config.json", "{}");
  folder.write("both/m.gguf", whole);
  CHECK(load_plan(folder.path() / "both")->weights.size() == 15);
  folder.write("both/model.safetensors", "");
  CHECK(locate_model((folder.path() / "both").string()).gguf_files.empty());

  folder.write("many/m-Q4_K_M.gguf", "x");
  folder.write("many/m-BF16.gguf", "x");
  const auto many = [&] { return locate_model((folder.path() / "many").string()).gguf_files.front().filename(); };
  CHECK(
      contains(error_of(many), "many: several GGUF models (expected one, or one in Q8_0):\n  m-BF16.gguf\n  m-Q4_K_M"));
  CHECK(contains(error_of(many), "name one of them: "));
  folder.write("many/sub/m-q8_0-00001-of-00001.gguf", "x");
  CHECK(many() == "m-q8_0-00001-of-00001.gguf");

  const std::string commit(40, 'a'), repo = "hub/models--org--name-GGUF/";
  folder.write(repo + "refs/main", commit);
  folder.write(repo + "snapshots/" + commit + "/name-Q8_0.gguf", whole);
  folder.write(repo + "snapshots/" + commit + "/name-Q6_K.gguf", whole);
  ::setenv("HF_HUB_CACHE", (folder.path() / "hub").c_str(), 1);
  const ModelLocation found = locate_model("org/name-GGUF");
  ::unsetenv("HF_HUB_CACHE");
  CHECK(found.name == "org/name-GGUF");
  CHECK(found.gguf_files.front().filename() == "name-Q8_0.gguf");
}

ModelFiles files_of(const TemporaryFolder& folder, const GgufFile& file) {
  return model_files(locate_model(folder.write("t.gguf", file.bytes()).string()));
}

GgufFile byte_level() {
  GgufFile file;
  file.text("general.architecture", "llama");
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "llama-bpe");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"h", "i", "Ġ", "hi", "Ġhi", "<s>", "<|eot_id|>", "<think>", "", "1", "11", "111"});
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {1, 1, 1, 1, 1, 3, 3, 4, 1, 1, 1, 1});
  file.list<std::string>("tokenizer.ggml.merges", GgufFile::Type::kString, {"h i", "Ġ hi", "1 1", "11 1"});
  file.u32("tokenizer.ggml.bos_token_id", 5);
  file.u32("tokenizer.ggml.eos_token_id", 6);
  file.u32("tokenizer.ggml.padding_token_id", UINT32_MAX);
  return file;
}

TEST_CASE("gguf: byte-level tokenizers, their template and end tokens") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  {
    GgufFile file = byte_level();
    file.text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
    file.f32("general.sampling.temp", 0.6);
    const ModelFiles files = files_of(folder, file);
    const auto tokenizer = Tokenizer::load(files);
    CHECK(tokenizer->encode("hi hi1111<think>").ids == Ids{5, 3, 4, 11, 9, 7});
    CHECK(tokenizer->encode("<s>", {false, true}).ids == Ids{5});
    CHECK(tokenizer->decode(Ids{5, 3, 4, 7}) == "hi hi<think>");
    CHECK(tokenizer->vocabulary_size() == 12);
    CHECK(read_config_tokens(files).names == SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "<|eot_id|>"}});
    CHECK(ChatTemplate::load(files)->render({{"user", "hi", {}}}, {}).size() > 0);
    CHECK(files.read("generation_config.json") == R"({"do_sample":true,"temperature":0.6})");
    CHECK(contains(error_of([&] { files.read("tokenizer.model"); }), "holds no tokenizer.model"));
    file.flag("tokenizer.ggml.add_bos_token", false);
    file.flag("tokenizer.ggml.add_eos_token", true);
    CHECK(Tokenizer::load(files_of(folder, file))->encode("hi").ids == Ids{3, 6});
    const std::string bytes = file.bytes();
    CHECK(gguf_end_tokens(Gguf::parse(std::as_bytes(std::span(bytes)), "t.gguf")) == std::vector<int64_t>{6});
  }
  const auto error = [&](const std::string& key, auto&& add) {
    GgufFile file = byte_level();
    file.replace(key);
    add(file);
    return error_of([&] { Tokenizer::load(files_of(folder, file)); });
  };
  const auto nothing = [](GgufFile&) {};
  const std::string pre = "tokenizer.ggml.pre";
  CHECK(contains(error(pre, nothing), "key tokenizer.ggml.pre: missing"));
  CHECK(contains(error(pre, [&](GgufFile& f) { f.text(pre, "bloom"); }), "'bloom' is not supported"));
  CHECK(contains(error(pre, [&](GgufFile& f) { f.text(pre, "default"); }), "'default' is not supported"));
  for (const char* known : {"a.x-4.0",     "gigachat",     "mellum",         "trillion",   "granite-docling",
                            "kormo",       "megrez",       "solar-open",     "midm-2.0",   "kanana2",
                            "joyai-llm",   "minerva-7b",   "tiny_aya",       "minicpm5",   "gpt-2",
                            "mpt",         "olmo",         "smollm",         "starcoder",  "refact",
                            "llama3",      "llama-v3",     "smaug-bpe",      "qwen2",      "deepseek-r1-qwen",
                            "tekken",      "phi-2",        "command-r",      "dbrx",       "glm4",
                            "chatglm-bpe", "gpt-4o",       "stablelm2",      "seed-coder", "hunyuan-dense",
                            "pixtral",     "lfm2",         "falcon3",        "falcon-h1",  "llama4",
                            "minimax-m2",  "qwen35",       "deepseek-v3",    "exaone4",    "glm5",
                            "hunyuan",     "deepseek-llm", "deepseek-coder", "kimi-k2"}) {
    INFO(known);
    CHECK(error(pre, [&](GgufFile& f) { f.text(pre, known); }) == "");
  }
  CHECK(contains(error("tokenizer.ggml.model", [](GgufFile& f) { f.text("tokenizer.ggml.model", "bert"); }),
                 "'bert' is not supported"));
  CHECK(contains(error("tokenizer.ggml.model", nothing), "no tokenizer"));
  CHECK(contains(error("tokenizer.ggml.tokens", nothing), "key tokenizer.ggml.tokens: missing"));
  CHECK(contains(error("tokenizer.ggml.merges", nothing), "key tokenizer.ggml.merges: missing"));
  CHECK(contains(error("tokenizer.ggml.bos_token_id", [](GgufFile& f) { f.u32("tokenizer.ggml.bos_token_id", 12); }),
                 "out of range (expected 0 to 11, found 12)"));
  CHECK(contains(error("tokenizer.ggml.token_type",
                       [](GgufFile& f) { f.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {1}); }),
                 "expected 12 types, found 1"));
  CHECK(contains(error("tokenizer.ggml.tokens",
                       [](GgufFile& f) {
                         f.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                                             std::vector<std::string>(12, "same"));
                       }),
                 "t.gguf: its keys as tokenizer.json"));
  CHECK(contains(
      error("tokenizer.ggml.tokens",
            [](GgufFile& f) { f.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString, {"\xFF"}); }),
      "element 0: not UTF-8"));
}

TEST_CASE("gguf: SentencePiece pieces") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  GgufFile file;
  file.text("general.architecture", "llama");
  file.text("tokenizer.ggml.model", "llama");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"<unk>", "<s>", "</s>", "<0x0A>", "▁", "h", "i", "hi", "▁hi", "  ", "<|im_end|>"});
  const std::vector<float> scores = {0, 0, 0, 0, -4, -5, -6, -2, -1, -1000, 0};
  file.list("tokenizer.ggml.scores", GgufFile::Type::kF32, scores);
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {2, 3, 3, 6, 1, 1, 1, 1, 1, 4, 3});
  file.u32("tokenizer.ggml.bos_token_id", 1);
  file.u32("tokenizer.ggml.eos_token_id", 2);
  CHECK(Tokenizer::load(files_of(folder, file))->encode("hi hi\n").ids == Ids{1, 8, 8, 3});
  CHECK(Tokenizer::load(files_of(folder, file))->encode("hi  hi").ids == Ids{1, 8, 9, 8});
  CHECK(Tokenizer::load(files_of(folder, file))->decode(Ids{1, 8, 9, 8, 10}) == "hi   hi");
  file.flag("tokenizer.ggml.add_space_prefix", false);
  file.flag("tokenizer.ggml.add_bos_token", false);
  CHECK(Tokenizer::load(files_of(folder, file))->encode("hi hi<|im_end|>").ids == Ids{7, 8, 10});
  file.replace("tokenizer.ggml.scores");
  CHECK(contains(error_of([&] { Tokenizer::load(files_of(folder, file)); }), "expected 11 scores, found 0"));
  file.list<float>("tokenizer.ggml.scores", GgufFile::Type::kF32, std::vector<float>(11, NAN));
  CHECK(contains(error_of([&] { Tokenizer::load(files_of(folder, file)); }),
                 "t.gguf: its keys as tokenizer.model: piece 0"));
}

TEST_CASE("gguf: white space behind the special tokens of Phi-3 goes, and its turns end") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  GgufFile file;
  file.text("general.architecture", "phi3");
  file.text("tokenizer.ggml.model", "llama");
  file.list<std::string>(
      "tokenizer.ggml.tokens", GgufFile::Type::kString,
      {"<unk>", "<s>", "</s>", "<0x0A>", "▁", "h", "i", "hi", "▁hi", "<|endoftext|>", "<|user|>", "<|end|>"});
  file.list<float>("tokenizer.ggml.scores", GgufFile::Type::kF32, {0, 0, 0, 0, -4, -5, -6, -2, -1, 0, 0, 0});
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {2, 3, 3, 6, 1, 1, 1, 1, 1, 3, 3, 3});
  file.u32("tokenizer.ggml.eos_token_id", 9);
  file.flag("tokenizer.ggml.add_space_prefix", false);
  const char* const kText = "<|user|>\nhi<|end|> \n<|endoftext|>\n";
  CHECK(Tokenizer::load(files_of(folder, file))->encode(kText).ids == Ids{10, 3, 7, 11, 4, 3, 9, 3});
  file.text("general.name", "Phi3 Mini 4K");
  CHECK(Tokenizer::load(files_of(folder, file))->encode(kText).ids == Ids{10, 7, 11, 9, 3});
  const auto ends = [&] {
    const std::string bytes = file.bytes();
    return gguf_end_tokens(Gguf::parse(std::as_bytes(std::span(bytes)), "t.gguf"));
  };
  CHECK(ends() == std::vector<int64_t>{2, 9, 11});
  file.list<int32_t>("tokenizer.ggml.eos_token_ids", GgufFile::Type::kI32, {9, 10});
  CHECK(ends() == std::vector<int64_t>{2, 9, 10, 11});
  // In gpt-oss a message ends so, not a turn.
  file.replace("tokenizer.ggml.tokens");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"a", "b", "c", "d", "e", "f", "g", "h", "i", "<|return|>", "<|call|>", "<|end|>"});
  CHECK(ends() == std::vector<int64_t>{9, 10});
}

TEST_CASE("gguf: Gemma 4's pieces are merged in the whole text, spaces and all") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  GgufFile file;
  file.text("general.architecture", "gemma4");
  file.text("tokenizer.ggml.model", "gemma4");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"<pad>", "<eos>", "<bos>", "<unk>", "<0xC3>", "<0xA9>", "\n", "\n\n", "▁", "h", "i", "hi",
                          "▁hi", "i▁", "<turn|>", "<|channel>"});
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32,
                     {3, 3, 3, 2, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4});
  file.list<std::string>("tokenizer.ggml.merges", GgufFile::Type::kString, {"h i", "\n \n", "▁ hi", "i ▁"});
  file.u32("tokenizer.ggml.bos_token_id", 2);
  file.u32("tokenizer.ggml.eos_token_id", 1);
  file.flag("tokenizer.ggml.add_bos_token", false);  // some files say so, and llama.cpp overrides it
  file.flag("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = Tokenizer::load(files_of(folder, file));
  CHECK(tokenizer->encode("hi hi\n\n\ni h").ids == Ids{2, 11, 12, 7, 6, 13, 9});
  CHECK(tokenizer->encode("é<|channel>").ids == Ids{2, 4, 5, 15});
  CHECK(tokenizer->decode(Ids{2, 11, 12, 4, 5, 7}) == "hi hié\n\n");
  const std::string bytes = file.bytes();
  CHECK(gguf_end_tokens(Gguf::parse(std::as_bytes(std::span(bytes)), "t.gguf")) == std::vector<int64_t>{1, 14});
}

TEST_CASE("gguf: published vocabularies and the tokenizers of the fixtures") {
  const fs::path shared = shared_folder();
  if (shared.empty()) {
    skipped_without_shared("GGUF fixtures and the tokenizer vectors of gpt-2 and llama-spm");
    return;
  }
  for (const char* name : {"gguf-q8_0-stories", "gguf-q8_0-stories-split", "gguf-q8_0-qwen3"}) {
    INFO(name);
    const fs::path folder = shared / "fixtures" / name;
    const auto tokenizer = Tokenizer::load(model_files(locate_model(folder.string())));
    const auto expected = JsonDocument::parse(read_file(folder / "expected/expected.json"), "expected.json");
    std::vector<TokenId> ids;
    for (const Json& id : expected->root().at("text_ids").elements()) ids.push_back(TokenId(id.as_integer()));
    CHECK(tokenizer->encode(expected->root().at("text").as_string()).ids == ids);
  }
  const fs::path vectors = shared / "data/tokenizer-vectors";
  for (const char* name : {"gpt-2", "llama-spm"}) {
    INFO(name);
    const std::string stem = fmt::format("ggml-vocab-{}.gguf", name);
    const auto tokenizer = Tokenizer::load(model_files(locate_model((vectors / stem).string())));
    const std::string texts = read_file(vectors / (stem + ".inp")), out = read_file(vectors / (stem + ".out"));
    constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
    size_t count = 0, line = 0;
    for (size_t at = 0; line < out.size(); ++count) {
      const size_t end = std::min(texts.find(kSeparator, at), texts.size());
      const size_t line_end = std::min(out.find('\n', line), out.size());
      const auto ids = tokenizer->encode(std::string_view(texts).substr(at, end - at), {false, true}).ids;
      std::string shown;
      for (const TokenId id : ids) shown += fmt::format(" {}", id);
      std::string expected = out.substr(line, line_end - line);
      while (!expected.empty() && expected.back() == ' ') expected.pop_back();
      CHECK(shown == (expected.empty() || expected.front() == ' ' ? expected : " " + expected));
      at = std::min(end + kSeparator.size(), texts.size());
      line = line_end + 1;
    }
    CHECK(count >= 46);
  }
}

}  // namespace
}  // namespace qgen::test
