// What only a program with an engine's insides can tell of a GPU: where the time of a token goes, kernel by kernel, and
// how much memory is taken against what was planned. Random weights in the shapes that a config.json declares.
//
//     qgen_gpu_probe profile CONFIG_DIR [--depth N] [--tokens N]
//     qgen_gpu_probe memory CONFIG_DIR [--context N]
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/units.h"
#include "generate/loader.h"
#include "kernels/kernel_log.h"
#include "kernels/runtime.h"
#include "model/declare.h"
#include "model/open.h"

namespace qgen {
namespace {

constexpr int kWarmUpTokens = 4;

struct Model {
  std::unique_ptr<Plan> plan;
  Placement placement;

  Model(const std::string& folder, int64_t context) {
    ModelOptions options;
    options.model = folder;
    options.device = "cuda";
    options.context = context;
    plan = make_plan(declare_checkpoint(locate_model(folder)));
    placement = place(*plan, options, context);
    if (!placement.fits) fail_placement(*plan, placement);
    fill_randomly(*plan, 1);
  }
  std::unique_ptr<Engine> load() const { return placement.engine->make_engine(*plan, placement.options); }
};

std::vector<TokenId> some_tokens(const Plan& plan, int64_t count) {
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(TokenId(i * 7919 % std::min<int64_t>(plan.model.vocab, 1000)));
  return out;
}

void profile(const std::string& folder, int64_t depth, int64_t tokens) {
  const Model model(folder, depth + tokens + kWarmUpTokens + 1);
  const std::vector<TokenId> ids = some_tokens(*model.plan, model.placement.options.context);
  const auto engine = model.load();
  std::map<std::string, double> bytes;
  for (const Step& step : model.plan->steps) {
    for_each_weight(step, [&](const Weight& weight, WeightUse use) {
      if (use.multiplies) bytes[step_name(step)] += use.share * double(weight.bytes());
    });
  }
  Sequence sequence(*engine, model.placement.options.context);
  if (depth > 0) sequence.run({ids.data(), size_t(depth)});
  cuda::Device device(model.placement.options.device_index);
  const cuda::ProfiledTokens result =
      cuda::profile_decoding(sequence, device, {ids.data(), size_t(kWarmUpTokens + tokens)}, kWarmUpTokens);
  fmt::print(
      "{} · {} · a token after {}, mean of {}: {:.1f} us on the device, {:.1f} us on the host, stamps included\n{}",
      folder, engine->description(), depth, tokens, 1e-3 * result.profile.total, 1e6 * result.host_seconds,
      cuda::format_profile(result.profile, bytes));
}

void memory(const std::string& folder, int64_t context) {
  const Model model(folder, context);
  const int index = model.placement.options.device_index;
  const cuda::Device device(index);  // the context of the program is there before and after
  const auto mib = [](double bytes) { return bytes / double(1 << 20); };
  const size_t before = cuda::free_device_memory(index);
  const auto taken = [&] { return mib(double(before) - double(cuda::free_device_memory(index))); };
  const auto engine = model.load();
  const double loaded = taken();
  const std::vector<TokenId> ids = some_tokens(*model.plan, context);
  Sequence sequence(*engine, context);
  sequence.run({ids.data(), size_t(context - kWarmUpTokens)});
  const double prompt = taken();
  for (int i = 0; i < kWarmUpTokens; ++i) sequence.run(ids[size_t(i)]);
  const MemoryUse use = model.placement.use;
  fmt::print(
      "{} · {} · context {}: planned {:.0f} MiB ({:.0f} weights, {:.0f} cache, {:.0f} work), taken {:.0f} once loaded, "
      "{:.0f} after a prompt, {:.0f} after recording\n",
      folder, engine->description(), context, mib(double(use.total())), mib(double(use.weights)), mib(double(use.kv)),
      mib(double(use.work)), loaded, prompt, taken());
}

int run(int argc, char** argv) {
  CLI::App app{"Where a token's time goes on a GPU, and what memory is taken"};
  app.require_subcommand(1);
  std::string folder;
  int64_t depth = 0, tokens = 32, context = 4096;
  CLI::App* const profiles = app.add_subcommand("profile", "one token, kernel by kernel");
  profiles->add_option("CONFIG_DIR", folder)->required();
  profiles->add_option("--depth", depth, "tokens before it")->check(CLI::Range(0, 1 << 24));
  profiles->add_option("--tokens", tokens, "that are averaged")->check(CLI::Range(1, 10000));
  CLI::App* const memories = app.add_subcommand("memory", "what is taken, against what was planned");
  memories->add_option("CONFIG_DIR", folder)->required();
  memories->add_option("--context", context, "tokens")->check(CLI::Range(64, 1 << 24));
  CLI11_PARSE(app, argc, argv);
  if (profiles->parsed()) {
    profile(folder, depth, tokens);
  } else {
    memory(folder, context);
  }
  return 0;
}

}  // namespace
}  // namespace qgen

int main(int argc, char** argv) {
  try {
    return qgen::run(argc, argv);
  } catch (const qgen::Error& error) {
    fmt::print(stderr, "qgen_gpu_probe: {}\n", error.message());
    return int(error.kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "qgen_gpu_probe: {}\n", error.what());
    return 1;
  }
}
