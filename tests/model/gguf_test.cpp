// GGUF files: damaged and hostile ones, split ones, where they are found; every kind of model against the same model as
// Hugging Face stores it.
#include <fmt/format.h>

#include "base/numbers.h"
#include "model/families/table.h"
#include "model/gguf_model.h"
#include "model/open.h"
#include "tests/model/gguf_support.h"
#include "tests/support.h"

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

TEST_CASE("gguf: the factor of YaRN, and the one that multiplies what follows from its stretch") {
  const auto factor = [](auto&& change) {
    GgufFile file = golden_gguf("llama-rope-yarn");
    change(file);
    const TemporaryFolder folder;
    const auto plan = load_plan(folder.write("t.gguf", file.bytes()));
    return describe(plan->checkpoint.config()).ropes[0].attention_factor;
  };
  const double usual = factor([](GgufFile&) {});
  CHECK(usual > 1);
  const auto more = [](GgufFile& file) { file.f32("llama.rope.scaling.attn_factor", 0.5); };
  CHECK(factor(more) == doctest::Approx(0.5 * usual));
  CHECK(factor([&](GgufFile& file) {
          more(file);
          file.f32("llama.rope.scaling.yarn_attn_factor", 1.25);
        }) == doctest::Approx(1.25));
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

}  // namespace
}  // namespace qgen::test
