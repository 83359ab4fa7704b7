// Times how fast a tokenizer encodes: every file is cut into chunks of about --chunk bytes at line ends, and all
// chunks are encoded once a round. Prints one JSON line with the load time and the MB/s of every round.
//   tokenizer_bench FOLDER [--chunk BYTES] [--rounds N] FILE...
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file_map.h"
#include "base/model_files.h"
#include "tokenizer/tokenizer.h"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(int argc, char** argv) {
  size_t chunk_bytes = 16384;
  int rounds = 5;
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--chunk" && i + 1 < argc) {
      chunk_bytes = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::atoi(argv[++i]);
    } else {
      files.emplace_back(argument);
    }
  }
  if (argc < 3 || files.empty() || chunk_bytes == 0) {
    std::fprintf(stderr, "usage: tokenizer_bench FOLDER [--chunk BYTES] [--rounds N] FILE...\n");
    return 2;
  }
  const auto load_start = std::chrono::steady_clock::now();
  const auto tokenizer = qgen::Tokenizer::load(qgen::ModelFiles(argv[1]));
  const double load_ms = seconds_since(load_start) * 1e3;

  std::vector<std::string> chunks;
  size_t bytes = 0;
  for (const std::string& file : files) {
    const std::string text = qgen::read_file(file);
    bytes += text.size();
    for (size_t at = 0; at < text.size();) {
      const size_t line = at + chunk_bytes < text.size() ? text.find('\n', at + chunk_bytes) : std::string::npos;
      const size_t end = line == std::string::npos ? text.size() : line + 1;
      chunks.push_back(text.substr(at, end - at));
      at = end;
    }
  }
  std::string speeds;
  size_t tokens = 0;
  for (int round = 0; round < rounds; ++round) {
    tokens = 0;
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& chunk : chunks) tokens += tokenizer->encode(chunk, {}).ids.size();
    speeds += (round ? ", " : "") + std::to_string(double(bytes) / 1e6 / seconds_since(start));
  }
  std::printf("{\"load_ms\": %.1f, \"bytes\": %zu, \"tokens\": %zu, \"mb_per_s\": [%s]}\n", load_ms, bytes, tokens,
              speeds.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const qgen::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return int(error.kind());
  }
}
