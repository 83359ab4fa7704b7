// The fuzz targets without a fuzzer: each runs its seeds once, in the ordinary build.
//   fuzz_replay SEEDS     (a folder for each target, as seeds.py writes them)
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

// CMake names the function of each target after the target.
#define QGEN_FUZZ_TARGET(name) extern "C" int name(const uint8_t* data, size_t size);
QGEN_FUZZ_TARGETS
#undef QGEN_FUZZ_TARGET

namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  int (*run)(const uint8_t*, size_t);
};
#define QGEN_FUZZ_TARGET(name) {#name, name},
constexpr Target kTargets[] = {QGEN_FUZZ_TARGETS};
#undef QGEN_FUZZ_TARGET

int replay(const Target& target, const fs::path& folder) {
  std::vector<fs::path> seeds;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) seeds.push_back(entry.path());
  }
  std::sort(seeds.begin(), seeds.end());
  for (const fs::path& seed : seeds) {
    std::fprintf(stderr, "%s\n", seed.c_str());  // what it was, should it end the program
    std::ifstream file(seed, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    target.run(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  return int(seeds.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_replay SEEDS\n");
    return 2;
  }
  for (const Target& target : kTargets) {
    const int seeds = replay(target, fs::path(argv[1]) / target.name);
    std::printf("%s: %d seeds\n", target.name, seeds);
    if (seeds > 0) continue;
    std::fprintf(stderr, "%s: no seeds (expected a folder of them, as seeds.py writes it)\n", target.name);
    return 1;
  }
  return 0;
}
