// Times of kernels, as the device's own clock has them, and what they say of a token: how long each kernel of a token
// took, and how long the device waited for the next one. Only programs that are built for it have any
// (QGEN_CUDA_TIMESTAMPS).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sequence.h"
#include "kernels/kernel_times.h"
#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {

// When the blocks of a launch passed a stage, nanoseconds of the device's clock: half of them, and all. 0: no block
// did.
struct StageTimes {
  int64_t half = 0, last = 0;
};
enum Stage { kBegan, kReady, kStaged, kEnded, kStageCount };

// One launch, in nanoseconds of the device's clock: its first block began, the first had its inputs, the last ended.
struct KernelTimes {
  std::string step, kernel;
  int64_t begin = 0, ready = 0, end = 0;
  std::array<StageTimes, kStageCount> stages{};
};

// Every launch while it lives, from all streams of one thread. A CUDA graph writes to the places that it was given
// when it was captured, so it can be run and read many times, and must not be run once the log is gone.
class KernelLog {
 public:
  // Room for so many blocks; of launches beyond them nothing is kept.
  KernelLog(Device& device, size_t most_blocks);
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  static KernelLog* current();

  // What launches from now on are a part of.
  void set_step(std::string step) { step_ = std::move(step); }
  // Of a launch of so many blocks.
  LaunchTimes add(const char* kernel, size_t blocks);
  // Forgets all launches.
  void clear();
  // In the order of launches; waits for the device first. Throws an Error where something did not fit.
  std::vector<KernelTimes> read();

 private:
  struct Launch {
    std::string step;
    const char* kernel;
    size_t first, blocks;
  };
  Device& device_;
  size_t most_blocks_, used_ = 0;
  DeviceMemory memory_;
  PinnedMemory host_;
  std::string step_;
  std::vector<Launch> launches_;
};

// A line of the table: all launches of one kernel in one kind of step. Nanoseconds a token.
struct KernelShare {
  std::string step, kernel;
  double launches = 0;
  double running = 0;  // from the inputs being there to the end, or from the end of the kernel before it
  double gap = 0;      // from the end of the kernel before it to the inputs being there
  // The mean of launches, from the end of the kernel before on, until half of the blocks and all of them passed a
  // stage.
  struct StageMean {
    double launches = 0, half = 0, last = 0;
  };
  std::array<StageMean, kStageCount> stages{};
};
struct Profile {
  std::vector<KernelShare> shares;  // in the order of their first launch
  double total = 0;                 // from the first kernel's begin to the last one's end; the sum of all shares
  double early = 0;                 // of kernels that were on the device while the one before them ran, of all
  int64_t tick = 0;                 // the smallest step of the clock that was seen
};
// The mean of `tokens`, each made of the same launches. Throws a runtime Error where they differ.
Profile summarize(const std::vector<std::vector<KernelTimes>>& tokens);
// Times single tokens on an engine of this device that has decoded none yet: `warm_up` tokens (two at least, since
// the second one is captured as a CUDA graph) and then the rest of `ids`, one after the other from where the sequence
// stands.
struct ProfiledTokens {
  Profile profile;
  double host_seconds = 0;  // of a token, as its caller sees it
};
ProfiledTokens profile_decoding(Sequence& sequence, Device& device, std::span<const TokenId> ids, size_t warm_up);
// As text: a head, a line a share, a sum; then a table of when blocks passed each stage. `bytes`: of weights that a
// step of that name reads in all of a token, for a column of speeds.
std::string format_profile(const Profile& profile, const std::map<std::string, double>& bytes);

}  // namespace qgen::QGEN_BACKEND
