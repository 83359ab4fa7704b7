// Folders, shards, indexes and the Hugging Face cache; configurations that are odd, damaged or hostile; weights
// whose scales are missing or left over.
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/checkpoint.h"
#include "model/families/table.h"
#include "tests/support.h"
#include "tests/tensors.h"

namespace qgen::test {
namespace {

Tensor f32(std::vector<int64_t> shape, float value = 0.5f) {
  Tensor tensor{"F32", shape, ""};
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  for (int64_t i = 0; i < count; ++i) tensor.data.append(reinterpret_cast<const char*>(&value), 4);
  return tensor;
}
Tensor bytes(std::string dtype, std::vector<int64_t> shape, char value) {
  return {std::move(dtype), shape, std::string(size_t(shape[0] * shape[1]), value)};
}

constexpr std::string_view kConfig =
    R"({"model_type":"llama","num_hidden_layers":1,"hidden_size":8,"num_attention_heads":2,"intermediate_size":8,"vocab_size":4,"tie_word_embeddings":true})";

Tensors llama() {
  Tensors t;
  t["model.embed_tokens.weight"] = f32({4, 8});
  t["model.norm.weight"] = f32({8});
  t["model.layers.0.input_layernorm.weight"] = f32({8});
  t["model.layers.0.post_attention_layernorm.weight"] = f32({8});
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    t[fmt::format("model.layers.0.{}.weight", name)] = f32({8, 8});
  }
  return t;
}
const std::string kQ = "model.layers.0.self_attn.q_proj";

std::string load_error(const Tensors& tensors, std::string_view config = kConfig) {
  TemporaryFolder folder;
  folder.write("config.json", std::string(config));
  folder.write("model.safetensors", write_tensors(tensors));
  ErrorKind kind = ErrorKind::kModel;
  const std::string error = error_of([&] { load_plan(folder.path()); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return error;
}

TEST_CASE("a checkpoint can be a folder, a file, shards with or without an index") {
  const std::string config(kConfig);
  const std::string whole = write_tensors(llama());
  Tensors first = llama(), second;
  second[kQ + ".weight"] = first[kQ + ".weight"];
  first.erase(kQ + ".weight");

  TemporaryFolder folder;
  folder.write("single/config.json", config);
  folder.write("single/model.safetensors", whole);
  CHECK(load_plan(folder.path() / "single")->weights.size() == 8);
  folder.write("single/other.safetensors", whole);
  CHECK(load_plan(folder.path() / "single/other.safetensors")->weights.size() == 8);

  folder.write("shards/config.json", config);
  folder.write("shards/a.safetensors", write_tensors(first));
  folder.write("shards/b.safetensors", write_tensors(second));
  CHECK(load_plan(folder.path() / "shards")->weights.size() == 8);
  folder.write("shards/c.safetensors", write_tensors(second));
  CHECK(contains(error_of([&] { load_plan(folder.path() / "shards"); }),
                 "c.safetensors: tensor \"" + kQ + ".weight\" is also in"));

  // One of several files stands for all of them, as a part of a GGUF model does.
  TemporaryFolder parts;
  parts.write("config.json", config);
  parts.write("model-00001-of-00002.safetensors", write_tensors(first));
  parts.write("model-00002-of-00002.safetensors", write_tensors(second));
  CHECK(load_plan(parts.path() / "model-00002-of-00002.safetensors")->weights.size() == 8);

  const auto index = [&](const std::string& map) {
    return R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}";
  };
  const std::string entry = fmt::format(R"("{}.weight":"b.safetensors","model.norm.weight":"a.safetensors")", kQ);
  folder.write("shards/model.safetensors.index.json", index(entry));
  CHECK(load_plan(folder.path() / "shards")->weights.size() == 8);
  const auto index_error = [&](const std::string& map) {
    folder.write("shards/model.safetensors.index.json", index(map));
    return error_of([&] { load_plan(folder.path() / "shards"); });
  };
  CHECK(contains(index_error(R"("x":"gone.safetensors")"), "names a file that is missing: gone.safetensors"));
  for (const char* path : {"../b.safetensors", "/etc/passwd", "sub/b.safetensors", "..", "", "b\\\\c"}) {
    CHECK(contains(index_error(fmt::format(R"("x":"{}")", path)), "not a plain file name"));
  }
  CHECK(contains(index_error(R"("x":"a.safetensors")"), "tensor \"x\" is not in a.safetensors (found nowhere)"));
  CHECK(contains(index_error(fmt::format(R"("{}.weight":"a.safetensors","model.norm.weight":"b.safetensors")", kQ)),
                 "is not in"));
  CHECK(contains(index_error(""), "weight_map is empty"));
  CHECK(contains(index_error(R"("x":1)"), "expected a string"));

  CHECK(contains(error_of([&] { load_plan(folder.path()); }),
                 "several models (expected one, or one in Q8_0):\n  shards\n  single"));
  folder.write("nothing/README.md", "");
  CHECK(contains(error_of([&] { load_plan(folder.path() / "nothing"); }), "config.json is missing"));
  folder.write("empty/config.json", config);
  CHECK(contains(error_of([&] { load_plan(folder.path() / "empty"); }), "no .safetensors file"));
  folder.write("empty/pytorch_model.bin", "x");
  CHECK(contains(error_of([&] { load_plan(folder.path() / "empty"); }), "pickle"));
  CHECK(contains(error_of([&] { load_plan(folder.write("x.txt", "x")); }), "not a model"));
}

// Sets an environment variable for as long as it lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST_CASE("org/name[@revision] is found in the Hugging Face cache and nowhere else") {
  const std::string commit(40, 'a'), other(40, 'b');
  TemporaryFolder cache;
  const std::string repo = "models--org--name/";
  cache.write(repo + "refs/main", commit);
  cache.write(repo + "refs/pr/1", other + "\n");
  cache.write(repo + "snapshots/" + commit + "/config.json", "{}");
  cache.write(repo + "snapshots/" + other + "/config.json", "{}");
  cache.write("models--gpt2/snapshots/" + commit + "/config.json", "{}");
  cache.write("models--org--half/refs/main", commit);
  const Environment set("HF_HUB_CACHE", "$QGEN_TEST_CACHE");
  const Environment expanded("QGEN_TEST_CACHE", cache.path().string());
  const auto snapshot = [&](const std::string& model) { return locate_model(model).folder.filename().string(); };
  CHECK(snapshot("org/name") == commit);
  CHECK(snapshot("org/name@main") == commit);
  CHECK(snapshot("org/name@pr/1") == other);
  CHECK(snapshot("org/name@" + other) == other);
  CHECK(snapshot("gpt2") == commit);  // no refs, but only one snapshot it can be
  const auto error = [](const std::string& model) { return error_of([&] { locate_model(model); }); };
  CHECK(contains(error("org/absent"), "not in the Hugging Face cache"));
  CHECK(contains(error("org/absent"), "hf download org/absent"));
  CHECK(contains(error("org/name@v2"), "hf download org/name --revision v2"));
  CHECK(contains(error("org/half"), "has no snapshot"));
  CHECK(contains(error("org/name@../../etc"), "no such file or folder"));
  CHECK(contains(error("a/b/c"), "no such file or folder"));
  CHECK(contains(error("org/na--me"), "no such file or folder"));
}

TEST_CASE("config.json: numbers that JSON does not know are read") {
  std::string config(kConfig);
  config.insert(1, R"("a":Infinity,"b":[-Infinity,NaN],"c":1e400,"note":"NaN \" Infinity",)");
  CHECK(load_error(llama(), config) == "");
}

TEST_CASE("config.json: absurd values are errors that name the key") {
  const auto with = [](const std::string& key, const std::string& value) {
    std::string config(kConfig);
    const std::string quoted = "\"" + key + "\":";
    if (const size_t at = config.find(quoted); at != config.npos) {
      const size_t end = config.find_first_of(",}", at);
      config.replace(at, end - at, quoted + value);
    } else {
      config.insert(1, quoted + value + ",");
    }
    return load_error(llama(), config);
  };
  for (const char* key :
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"}) {
    for (const char* value :
         {"0", "-1", "1000000000000", "1e30", "Infinity", "NaN", "2.5", "\"8\"", "[8]", "{}", "null", "true"}) {
      INFO(key, " ", value);
      CHECK(contains(with(key, value), std::string("config.json: ") + key));
    }
  }
  CHECK(contains(with("num_hidden_layers", "1000000000"), "num_hidden_layers: 1000000000 is out of range"));
  for (const auto& [key, value] : std::map<std::string, std::string>{{"num_key_value_heads", "3"},
                                                                     {"head_dim", "-4"},
                                                                     {"max_position_embeddings", "0"},
                                                                     {"rms_norm_eps", "-1"},
                                                                     {"rope_theta", "0"},
                                                                     {"hidden_act", "\"xielu\""},
                                                                     {"tie_word_embeddings", "1"},
                                                                     {"eos_token_id", "\"x\""}}) {
    INFO(key);
    CHECK(contains(with(key, value), key));
  }
  CHECK(contains(with("rope_scaling", R"({"type":"longrope","factor":2})"), "rope_scaling.short_factor: missing"));
  CHECK(contains(with("rope_scaling", R"({"type":"longrope","short_factor":[1],"long_factor":[1]})"),
                 "numbers, found 1"));
  CHECK(contains(with("rope_scaling", R"({"type":"ntk","factor":2})"), "'ntk' is not supported"));
  CHECK(contains(with("rope_scaling", R"({"type":"linear"})"), "rope_scaling.factor: missing"));
  CHECK(contains(with("rope_scaling", R"({"type":"linear","factor":-2})"), "rope_scaling.factor"));
  CHECK(contains(with("rope_scaling", "[]"), "rope_scaling: expected an object"));
  CHECK(contains(with("model_type", "\"mamba\""), "model_type 'mamba' is not supported"));
  CHECK(contains(load_error(llama(), "{}"), "says no model_type"));
  CHECK(contains(load_error(llama(), "[]"), "expected an object"));
  CHECK(contains(load_error(llama(), ""), "the file is empty"));
  CHECK(contains(load_error(llama(), R"({"model_type":"llama","model_type":"llama"})"), "occurs twice"));
  CHECK(contains(load_error(llama(), R"({"model_type":"llama"})"), "num_hidden_layers: missing"));
  CHECK(contains(with("quantization_config", R"({"weight_block_size":[0,128]})"), "weight_block_size[0]"));
  CHECK(contains(with("quantization_config", R"({"weight_block_size":[128]})"), "expected 2 sizes, found 1"));
  CHECK(contains(with("quantization_config", R"({"transform_config":{"config_groups":{"u":{"type":"hadamard"}}}})"),
                 "rotations"));
  CHECK(contains(with("quantization_config", R"({"sparsity_config":{"format":"sparse-24-bitmask"}})"), "sparse"));
}

TEST_CASE("tensors that are missing, odd or left over are errors that name them") {
  const auto changed = [](auto&& change) {
    Tensors tensors = llama();
    change(tensors);
    return load_error(tensors);
  };
  CHECK(changed([](Tensors&) {}) == "");
  CHECK(contains(changed([](Tensors& t) { t.erase(kQ + ".weight"); }), kQ + ".weight is missing"));
  CHECK(contains(changed([](Tensors& t) { t.erase("model.norm.weight"); }), "model.norm.weight is missing"));
  CHECK(contains(changed([](Tensors& t) {
                   t[kQ + ".weight"] = f32({8, 4});
                 }),
                 "wrong shape (expected [8, 8], found [8, 4])"));
  CHECK(contains(changed([](Tensors& t) { t["model.norm.weight"] = f32({4}); }),
                 "wrong shape (expected [8], found [4])"));
  CHECK(contains(changed([](Tensors& t) {
                   t[kQ + ".weight"] = bytes("F8_E4M3", {8, 8}, 0x38);
                 }),
                 "F8_E4M3 codes without their scale"));
  CHECK(contains(changed([](Tensors& t) {
                   t[kQ + ".weight"] = bytes("I8", {8, 8}, 1);
                 }),
                 "I8 codes without their scale"));
  CHECK(contains(changed([](Tensors& t) {
                   t[kQ + ".weight"] = bytes("F8_E4M3FNUZ", {8, 8}, 1);
                 }),
                 "F8_E4M3FNUZ codes without their scale"));
  CHECK(contains(changed([](Tensors& t) {
                   t[kQ + ".weight_scale"] = f32({8, 1});
                 }),
                 kQ + ".weight_scale: a quantization parameter that nothing"));
  CHECK(contains(changed([](Tensors& t) { t[kQ + ".weight_packed"] = f32({8, 8}); }), "weight_packed"));
  CHECK(contains(changed([](Tensors& t) { t["model.layers.0.self_attn.q_norm.weight"] = f32({4}); }),
                 "not part of a llama model"));
  CHECK(contains(changed([](Tensors& t) {
                   t["model.layers.1.mlp.up_proj.weight"] = f32({8, 8});
                 }),
                 "not part of a llama model"));
  // Known and without effect, or of another part of the model.
  CHECK(changed([](Tensors& t) { t[kQ + ".input_scale"] = f32({1}); }) == "");
  CHECK(changed([](Tensors& t) { t["model.layers.0.self_attn.rotary_emb.inv_freq"] = f32({2}); }) == "");
  CHECK(changed([](Tensors& t) { t["visual.patch.weight"] = f32({2, 2}); }) == "");
  // A bias is never dropped, whatever config.json says.
  CHECK(changed([](Tensors& t) { t[kQ + ".bias"] = f32({8}); }) == "");
  CHECK(contains(changed([](Tensors& t) { t["model.norm.bias"] = f32({8}); }), "model.norm.bias: not part of"));

  const auto quantized = [&](Tensor scale, const std::string& name = ".weight_scale_inv",
                             std::string dtype = "F8_E4M3") {
    return changed([&](Tensors& t) {
      t[kQ + ".weight"] = bytes(dtype, {8, 8}, 0x38);
      t[kQ + name] = scale;
    });
  };
  CHECK(quantized(f32({1, 1})) == "");
  CHECK(quantized(f32({})) == "");
  CHECK(quantized(f32({8, 1}), ".weight_scale", "I8") == "");
  CHECK(quantized(f32({8}), ".weight_scale", "I8") == "");
  CHECK(quantized(f32({8, 2}), ".weight_scale", "I8") == "");
  CHECK(contains(quantized(f32({3, 5})), "is not a grid of blocks over [8, 8]"));
  CHECK(contains(quantized(f32({5})), "is not a grid of blocks"));
  CHECK(contains(quantized(f32({0})), "is not a grid of blocks"));
  CHECK(contains(quantized(f32({1, 1}, NAN)), "holds nan"));
  CHECK(contains(quantized(f32({1, 1}, INFINITY)), "holds inf"));
  CHECK(contains(quantized(Tensor{"I32", {1}, std::string(4, 1)}), "type I32 cannot be read here"));
  CHECK(contains(changed([](Tensors& t) {
                   t[kQ + ".weight"] = bytes("I8", {8, 8}, 1);
                   t[kQ + ".weight_scale"] = f32({8, 1});
                   t[kQ + ".weight_zero_point"] = f32({8, 2});
                 }),
                 "not the shape of its scale"));
}

TEST_CASE("declared sizes are not guessed around, and bytes of zero points are integers") {
  std::string config(kConfig);
  config.insert(1, R"("quantization_config":{"weight_block_size":[8,4],"transform_config":{"config_groups":{}}},)");
  Tensors tensors = llama();
  tensors[kQ + ".weight"] = bytes("F8_E4M3", {8, 8}, 0x38);
  tensors[kQ + ".weight_scale_inv"] = f32({1, 2});
  CHECK(load_error(tensors, config) == "");
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 8}, {2, 2}, {4, 4}}) {
    tensors[kQ + ".weight_scale_inv"] = f32(shape);
    CHECK(contains(load_error(tensors, config), "is not a grid of blocks over [8, 8] (declared: 8x4)"));
  }
  tensors = llama();
  tensors[kQ + ".weight"] = bytes("I8", {8, 8}, 7);
  tensors[kQ + ".weight_scale"] = f32({8, 1}, 2);
  tensors[kQ + ".weight_zero_point"] = bytes("U8", {8, 1}, 3);
  TemporaryFolder folder;
  folder.write("config.json", std::string(kConfig));
  folder.write("model.safetensors", write_tensors(tensors));
  // An index left behind by an earlier, sharded version of the same folder says nothing.
  folder.write("model.safetensors.index.json", R"({"weight_map":{"x":"model-00001-of-00002.safetensors"}})");
  const auto plan = load_plan(folder.path());
  std::vector<double> row(8);
  for (const Weight& weight : plan->weights) {
    if (weight.name != kQ) continue;
    dequantize_row(weight, 0, row);
    CHECK(row[0] == 8);
  }
}

TEST_CASE("an untied head must be in the files") {
  std::string config(kConfig);
  config.replace(config.find("true"), 4, "false");
  CHECK(contains(load_error(llama(), config), "lm_head.weight is missing"));
  Tensors tensors = llama();
  tensors["lm_head.weight"] = f32({4, 8});
  CHECK(load_error(tensors, config) == "");
}

TEST_CASE("fp8 codes that are NaN are counted, and never read as numbers") {
  TemporaryFolder folder;
  Tensors tensors = llama();
  tensors[kQ + ".weight"] = bytes("F8_E4M3", {8, 8}, 0x38);
  tensors[kQ + ".weight"].data[3] = char(0x7F);
  tensors[kQ + ".weight"].data[9] = char(0xFF);
  tensors[kQ + ".weight_scale"] = f32({1});
  folder.write("config.json", std::string(kConfig));
  folder.write("model.safetensors", write_tensors(tensors));
  const auto plan = load_plan(folder.path());
  CHECK(plan->nan_codes() == 2);
  const TokenId token = 1;
  for (const char* device : {"cpu", "cpu:portable", "reference"}) {
    INFO(device);
    CHECK(std::isnan(make_engine(*plan, device, 4)->prefill({&token, 1}).all()[0]));
  }
}

}  // namespace
}  // namespace qgen::test
