#include "kernels/kernel_log.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::QGEN_BACKEND {

namespace {

KernelLog* active = nullptr;

StageTimes stage_times(std::span<const BlockTimes> blocks, uint64_t BlockTimes::*stage) {
  std::vector<uint64_t> times;
  for (const BlockTimes& block : blocks) {
    if (block.*stage > 0) times.push_back(block.*stage);
  }
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  return {int64_t(times[(times.size() - 1) / 2]), int64_t(times.back())};
}

}  // namespace

KernelLog* KernelLog::current() { return active; }

KernelLog::KernelLog(Device& device, size_t most_blocks)
    : device_(device),
      most_blocks_(most_blocks),
      memory_(device, most_blocks * sizeof(BlockTimes), "times of kernels"),
      host_(most_blocks * sizeof(BlockTimes), "times of kernels") {
  device.wait();
  active = this;
}
KernelLog::~KernelLog() { active = nullptr; }

LaunchTimes KernelLog::add([[maybe_unused]] const char* kernel, [[maybe_unused]] size_t blocks) {
  LaunchTimes out;
#if defined(QGEN_CUDA_TIMESTAMPS)
  launches_.push_back({step_, kernel, used_, blocks});
  used_ += blocks;
  if (used_ <= most_blocks_) out.blocks = reinterpret_cast<BlockTimes*>(memory_.data()) + (used_ - blocks);
#endif
  return out;
}

void KernelLog::clear() {
  launches_.clear();
  used_ = 0;
}

std::vector<KernelTimes> KernelLog::read() {
  if (used_ > most_blocks_)
    fail(ErrorKind::kRuntime,
         fmt::format("times of kernels: too many blocks (expected at most {}, found {})", most_blocks_, used_));
  device_.bind_thread();
  copy_to_host(device_.stream(), host_.data(), memory_.data(), used_ * sizeof(BlockTimes));
  device_.wait();
  const auto* const blocks = reinterpret_cast<const BlockTimes*>(host_.data());
  std::vector<KernelTimes> out;
  for (const Launch& launch : launches_) {
    KernelTimes times{launch.step, launch.kernel, INT64_MAX, INT64_MAX, 0};
    for (size_t i = launch.first; i < launch.first + launch.blocks; ++i) {
      times.begin = std::min(times.begin, int64_t(blocks[i].begin));
      if (blocks[i].ready > 0) times.ready = std::min(times.ready, int64_t(blocks[i].ready));
      times.end = std::max(times.end, int64_t(blocks[i].end));
    }
    if (times.ready == INT64_MAX) times.ready = times.begin;
    const std::span<const BlockTimes> of_launch(blocks + launch.first, launch.blocks);
    times.stages[kBegan] = stage_times(of_launch, &BlockTimes::begin);
    times.stages[kReady] = stage_times(of_launch, &BlockTimes::ready);
    times.stages[kStaged] = stage_times(of_launch, &BlockTimes::staged);
    times.stages[kEnded] = stage_times(of_launch, &BlockTimes::end);
    out.push_back(std::move(times));
  }
  return out;
}

Profile summarize(const std::vector<std::vector<KernelTimes>>& tokens) {
  Profile out;
  std::map<std::pair<std::string, std::string>, size_t> places;
  double early = 0, launches = 0;
  if (tokens.empty()) fail(ErrorKind::kRuntime, "times of kernels: none (expected a token or more)");
  for (const std::vector<KernelTimes>& walk : tokens) {
    if (walk.size() != tokens[0].size() || walk.empty())
      fail(ErrorKind::kRuntime, fmt::format("times of kernels: tokens differ (expected {} launches, found {})",
                                            tokens[0].size(), walk.size()));
    int64_t before = walk[0].begin;  // the end of what came before
    for (size_t i = 0; i < walk.size(); ++i) {
      const KernelTimes& kernel = walk[i];
      if (kernel.step != tokens[0][i].step || kernel.kernel != tokens[0][i].kernel)
        fail(ErrorKind::kRuntime, fmt::format("times of kernels: tokens differ (expected '{}', found '{}')",
                                              tokens[0][i].kernel, kernel.kernel));
      const auto [place, is_new] = places.try_emplace({kernel.step, kernel.kernel}, out.shares.size());
      if (is_new) out.shares.push_back({.step = kernel.step, .kernel = kernel.kernel});
      KernelShare& share = out.shares[place->second];
      const int64_t end = std::max(before, kernel.end), ready = std::clamp(kernel.ready, before, end);
      share.launches += 1;
      for (int stage = 0; stage < kStageCount; ++stage) {
        if (kernel.stages[stage].last == 0) continue;
        share.stages[stage].launches += 1;
        share.stages[stage].half += double(kernel.stages[stage].half - before);
        share.stages[stage].last += double(kernel.stages[stage].last - before);
      }
      share.gap += double(ready - before);
      share.running += double(end - ready);
      early += kernel.begin < before;
      launches += 1;
      for (const int64_t step : {kernel.ready - kernel.begin, kernel.end - kernel.ready}) {
        if (step > 0 && (out.tick == 0 || step < out.tick)) out.tick = step;
      }
      before = end;
    }
    out.total += double(before - walk[0].begin);
  }
  const double count = double(tokens.size());
  for (KernelShare& share : out.shares) {
    for (KernelShare::StageMean& stage : share.stages) {
      if (stage.launches == 0) continue;
      stage.half /= stage.launches;
      stage.last /= stage.launches;
    }
    share.launches /= count;
    share.gap /= count;
    share.running /= count;
  }
  out.total /= count;
  out.early = early / launches;
  return out;
}

ProfiledTokens profile_decoding(Sequence& sequence, Device& device, std::span<const TokenId> ids, size_t warm_up) {
  constexpr size_t kMostBlocks = 1 << 20;  // of all kernels of a token; one of 8 billion weights has 60,000
  KernelLog log(device, kMostBlocks);
  std::vector<std::vector<KernelTimes>> walks;
  double seconds = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i == 1)
      log.clear();  // the graph that is captured now, with its places in the log, runs for every further token
    const auto start = std::chrono::steady_clock::now();
    sequence.run(ids[i]);
    const auto end = std::chrono::steady_clock::now();
    if (i < warm_up) continue;
    seconds += std::chrono::duration<double>(end - start).count();
    walks.push_back(log.read());
  }
  return {summarize(walks), seconds / double(walks.size())};
}

std::string format_profile(const Profile& profile, const std::map<std::string, double>& bytes) {
  std::string out = fmt::format("{:<18} {:<14} {:>8} {:>10} {:>10} {:>10} {:>7} {:>7}\n", "step", "kernel", "launches",
                                "us each", "gap each", "us a token", "share", "GB/s");
  const auto line = [&](std::string_view step, std::string_view kernel, double launches, double running, double gap,
                        double read) {
    const double each = launches > 0 ? 1e-3 / launches : 0;
    out += fmt::format("{:<18} {:<14} {:>8.0f} {:>10.2f} {:>10.2f} {:>10.1f} {:>5.1f} % {:>7}\n", step, kernel,
                       launches, running * each, gap * each, 1e-3 * (running + gap),
                       profile.total > 0 ? 100 * (running + gap) / profile.total : 0,
                       read > 0 && running > 0 ? fmt::format("{:.0f}", read / running) : "");
  };
  KernelShare sum;
  double read = 0;
  for (const KernelShare& share : profile.shares) {
    // A step's weights are read by its longest kernel.
    const auto longest =
        std::max_element(profile.shares.begin(), profile.shares.end(), [&](const auto& a, const auto& b) {
          return (a.step == share.step ? a.running : -1) < (b.step == share.step ? b.running : -1);
        });
    const auto known = bytes.find(share.step);
    const double of_step = known != bytes.end() && &share == &*longest ? known->second : 0;
    line(share.step, share.kernel, share.launches, share.running, share.gap, of_step);
    sum.launches += share.launches;
    sum.running += share.running;
    sum.gap += share.gap;
    read += of_step;
  }
  line("all", "", sum.launches, sum.running, sum.gap, read);
  out += fmt::format(
      "gaps {:.1f} us a token; {:.0f} % of the kernels were there before the one before them ended; "
      "the clock ticks every {} ns\n",
      1e-3 * sum.gap, 100 * profile.early, profile.tick);
  out += fmt::format("us from the end of the kernel before until half of the blocks, and all, ...\n{:<18} {:<14}",
                     "step", "kernel");
  for (const char* const stage : {"began", "had inputs", "staged them", "ended"}) out += fmt::format(" {:>15}", stage);
  for (const KernelShare& share : profile.shares) {
    out += fmt::format("\n{:<18} {:<14}", share.step, share.kernel);
    for (const KernelShare::StageMean& stage : share.stages) {
      out += stage.launches > 0 ? fmt::format(" {:>7.2f} {:>7.2f}", 1e-3 * stage.half, 1e-3 * stage.last)
                                : fmt::format(" {:>15}", "");
    }
  }
  return out + "\n";
}

}  // namespace qgen::QGEN_BACKEND
