// Speed of the CPU engine on models of published shapes with random weights: decoding against the speed at
// which the same memory can be read, and prefill against decoding.
//
//   engine_bench [--shape 0.6b|4b] [--method fp8|int8|bf16] [--threads N] [--prompt N] [--depth N] [--tokens N]
//                [--rounds N] [--device cpu:BODY] [--kv f16|bf16|f32] [--folder DIR]
//
// The checkpoint is written to DIR (default: the folder for temporary files) once and kept for the next run.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "base/cores.h"
#include "cpu/bodies.h"
#include "engine/engine.h"

namespace {

using namespace qgen;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Shape {
  int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  bool tied;
};
const std::map<std::string, Shape> kShapes = {
    {"0.6b", {28, 1024, 16, 8, 128, 3072, 151936, true}},
    {"4b", {36, 2560, 32, 8, 128, 9728, 151936, true}},
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A Qwen3 checkpoint of random weights that keep activations of order one.
void write_checkpoint(const fs::path& folder, const Shape& shape, const std::string& method) {
  struct Entry {
    std::string name, dtype;
    std::vector<int64_t> dims;
    int64_t element_bytes;
  };
  std::vector<Entry> entries;
  const auto vector = [&](const std::string& name, int64_t n) { entries.push_back({name, "F32", {n}, 4}); };
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    if (method == "bf16") {
      entries.push_back({name + ".weight", "BF16", {n, k}, 2});
    } else if (method == "fp8") {
      entries.push_back({name + ".weight", "F8_E4M3", {n, k}, 1});
      entries.push_back({name + ".weight_scale_inv", "F32", {(n + 127) / 128, (k + 127) / 128}, 4});
    } else {
      entries.push_back({name + ".weight", "I8", {n, k}, 1});
      entries.push_back({name + ".weight_scale", "F32", {n, 1}, 4});
    }
  };
  entries.push_back({"model.embed_tokens.weight", "BF16", {shape.vocab, shape.hidden}, 2});
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    vector(layer + "input_layernorm.weight", shape.hidden);
    vector(layer + "post_attention_layernorm.weight", shape.hidden);
    vector(layer + "self_attn.q_norm.weight", shape.head_dim);
    vector(layer + "self_attn.k_norm.weight", shape.head_dim);
    matrix(layer + "self_attn.q_proj", shape.heads * shape.head_dim, shape.hidden);
    matrix(layer + "self_attn.k_proj", shape.kv_heads * shape.head_dim, shape.hidden);
    matrix(layer + "self_attn.v_proj", shape.kv_heads * shape.head_dim, shape.hidden);
    matrix(layer + "self_attn.o_proj", shape.hidden, shape.heads * shape.head_dim);
    matrix(layer + "mlp.gate_proj", shape.intermediate, shape.hidden);
    matrix(layer + "mlp.up_proj", shape.intermediate, shape.hidden);
    matrix(layer + "mlp.down_proj", shape.hidden, shape.intermediate);
  }
  vector("model.norm.weight", shape.hidden);

  std::string header = "{";
  int64_t offset = 0;
  for (const Entry& entry : entries) {
    const int64_t bytes =
        std::accumulate(entry.dims.begin(), entry.dims.end(), entry.element_bytes, std::multiplies<>());
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", entry.name, entry.dtype, fmt::join(entry.dims, ","), offset,
                          offset + bytes);
    offset += bytes;
  }
  header += "}";
  header.resize((header.size() + 63) / 64 * 64 - 8 + (header.size() % 64 > 56 ? 64 : 0), ' ');
  fs::create_directories(folder);
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header;
  std::mt19937_64 random(7);
  std::vector<char> block;
  for (const Entry& entry : entries) {
    int64_t count = std::accumulate(entry.dims.begin(), entry.dims.end(), int64_t{1}, std::multiplies<>());
    block.resize(count * entry.element_bytes);
    if (entry.dtype == "F32") {
      // Norms are one; scales bring codes of about 100 down to weights of about 1 / sqrt(hidden).
      const float value = entry.dims.size() == 1 ? 1.0f : 0.01f / std::sqrt(float(shape.hidden));
      for (int64_t i = 0; i < count; ++i) std::memcpy(block.data() + 4 * i, &value, 4);
    } else {
      for (size_t i = 0; i + 8 <= block.size(); i += 8) {
        const uint64_t bits = random();
        std::memcpy(block.data() + i, &bits, 8);
      }
      if (entry.dtype == "F8_E4M3") {
        for (char& c : block) c = char((c & 0x80) | ((c & 0x7F) % 0x7F));
      } else if (entry.dtype == "BF16") {  // magnitudes from 2^-6 to 2^-5
        for (size_t i = 1; i < block.size(); i += 2) {
          block[i - 1] = char(block[i - 1] & 0x7F);
          block[i] = char((block[i] & 0x80) | 0x3C);
        }
      }
    }
    file.write(block.data(), std::streamsize(block.size()));
  }
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"model_type":"qwen3","num_hidden_layers":{},"hidden_size":{},"num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},)"
      R"("intermediate_size":{},"vocab_size":{},"rms_norm_eps":1e-6,"rope_theta":1000000,"max_position_embeddings":40960,)"
      R"("tie_word_embeddings":true}})",
      shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.intermediate, shape.vocab);
}

int run(int argc, char** argv) {
  std::map<std::string, std::string> flags = {
      {"shape", "0.6b"}, {"method", "fp8"},
      {"threads", "0"},  {"prompt", "512"},
      {"depth", "0"},    {"tokens", "32"},
      {"rounds", "5"},   {"device", "cpu"},
      {"kv", "f16"},     {"folder", (fs::temp_directory_path() / "qgen-bench").string()}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(2);
    if (!flags.contains(name)) throw std::invalid_argument(argv[i]);
    flags[name] = argv[i + 1];
  }
  const fs::path folder = fs::path(flags["folder"]) / fmt::format("{}-{}", flags["shape"], flags["method"]);
  if (!fs::exists(folder / "config.json")) write_checkpoint(folder, kShapes.at(flags["shape"]), flags["method"]);

  const int64_t prompt = std::stol(flags["prompt"]), depth = std::stol(flags["depth"]),
                tokens = std::stol(flags["tokens"]);
  const int rounds = std::stoi(flags["rounds"]);
  const auto plan = make_plan(Checkpoint::open(locate_model(folder.string())));
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  scan_weights(weights);
  EngineOptions options;
  options.context = std::max(prompt, depth + tokens);
  options.threads = std::stoi(flags["threads"]);
  options.kv = flags["kv"] == "bf16" ? KvType::kBf16 : flags["kv"] == "f32" ? KvType::kF32 : KvType::kF16;
  const EngineRow& row = find_engine(flags["device"], options);
  auto engine = row.make(*plan, options);

  cpu::ThreadPool pool(options.threads > 0 ? options.threads : available_cores());
  const cpu::Body& body = cpu::find_body(options.body);
  std::span<const std::byte> memory;
  // The mapped file as a whole, from its first tensor to its last.
  const auto& tensors = plan->checkpoint.tensors();
  memory = {tensors.front().bytes.data(),
            size_t(tensors.back().bytes.data() + tensors.back().bytes.size() - tensors.front().bytes.data())};

  std::vector<TokenId> text(std::max(prompt, depth));
  for (size_t i = 0; i < text.size(); ++i) text[i] = TokenId(i * 7919 % 1000);
  if (depth > 0) engine->prefill({text.data(), size_t(depth)});
  engine->decode(1);  // touches all memory once
  std::vector<double> bandwidth, decode, prefill, share;
  const double kv_token =
      2.0 * double(plan->model.layers * plan->model.kv_heads * plan->model.head_dim * kv_element_bytes(options.kv));
  const double bytes = double(plan->bytes_per_token()) + kv_token * (double(depth) + double(tokens) / 2);
  for (int round = 0; round < rounds; ++round) {
    bandwidth.push_back(cpu::read_bandwidth(pool, body, memory, 1));
    engine->rewind(depth);
    auto start = Clock::now();
    for (int64_t i = 0; i < tokens; ++i) engine->decode(TokenId(i));
    decode.push_back(seconds_since(start) / double(tokens));
    share.push_back(bytes / decode.back() / bandwidth.back());
  }
  for (int round = 0; round < std::min(rounds, 3) && prompt > 0; ++round) {
    engine->rewind(0);
    const auto start = Clock::now();
    engine->prefill({text.data(), size_t(prompt)});
    prefill.push_back(seconds_since(start) / double(prompt));
  }
  fmt::print("{:<5} {:<5} {} | read {:.1f} GB/s | decode at {}: {:.2f} tok/s, {:.1f} GB/s, {:.0f}% of the read",
             flags["shape"], flags["method"], engine->description(), median(bandwidth) / 1e9, depth, 1 / median(decode),
             bytes / median(decode) / 1e9, 100 * median(share));
  if (prompt > 0)
    fmt::print(" | prefill {}: {:.1f} tok/s, {:.1f}x decode", prompt, 1 / median(prefill),
               median(decode) / median(prefill));
  fmt::print("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const qgen::Error& error) {
    fmt::print(stderr, "engine_bench: {}\n", error.message());
  } catch (const std::exception& error) {
    fmt::print(stderr, "engine_bench: bad argument: {}\n", error.what());
  }
  return 2;
}
