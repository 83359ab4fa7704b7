// Kernels over the scores of a whole vocabulary: the best token, and the best few with the softmax denominator of all,
// so that only these are copied to the host.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kScoreThreads = 256, kScoreBlocks = 64;
// Scores are sorted into bins by how far they are below the best.
constexpr int kScoreBins = 1024;
constexpr float kBinsPerUnit = 16;

// Of two, the better; of equals the one that comes first. NaN is below every number, so that the best is the largest
// number there is: score_bin() counts from it.
QGEN_DEVICE bool is_better(const BestScore& b, const BestScore& a) {
  if (a.token < 0 || b.token < 0) return b.token >= 0;
  const bool a_number = a.score == a.score, b_number = b.score == b.score;
  if (a_number != b_number) return b_number;
  return b.score > a.score || (!(b.score < a.score) && b.token < a.token);
}
QGEN_DEVICE void keep_better(BestScore& a, const BestScore& b) {
  const bool all = a.all_finite && b.all_finite;
  if (is_better(b, a)) a = b;
  a.all_finite = all;
}

// The arguments of the block's own row: the blocks of a column of the grid take a row of scores.
QGEN_DEVICE ScoreArgs own_row(ScoreArgs args) {
  const int64_t row = block_index().y;
  args.scores += row * args.stride;
  args.report.best += row;
  if (args.host_report.best != nullptr) args.host_report.best += row;
  args.found += row;
  args.scratch += row;
  if (args.draw != nullptr) args.draw += row;
  if (row > 0) args.report.next_token = args.host_report.next_token = nullptr;
  return args;
}

QGEN_KERNEL(kScoreThreads, 1) best_score_kernel(const ScoreArgs rows, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  BestScore* const shared = shared_memory<BestScore>();
  uint32_t* const flag = reinterpret_cast<uint32_t*>(shared + kScoreThreads);
  const ScoreArgs args = own_row(rows);
  BestScore* const partial = args.scratch->partial;
  const auto of_block = [&](BestScore best) {
    shared[thread_index()] = best;
    barrier();
    for (int half = kScoreThreads / 2; half > 0; half /= 2) {
      if (thread_index() < half) keep_better(shared[thread_index()], shared[thread_index() + half]);
      barrier();
    }
  };
  BestScore best{0, -1, 1, 0};
  for (int i = int(block_index().x) * kScoreThreads + thread_index(); i < args.count; i += kScoreBlocks * kScoreThreads)
    keep_better(best, {args.scores[i], i, finite(args.scores[i]), 0});
  of_block(best);
  if (thread_index() == 0) partial[block_index().x] = shared[0];
  if (!ends_last(&args.scratch->counter, kScoreBlocks, flag)) return;
  of_block(thread_index() < kScoreBlocks ? partial[thread_index()] : BestScore{0, -1, 1, 0});
  if (thread_index() != 0) return;
  const Report &there = args.report, &host = args.host_report;
  *there.best = shared[0];
  if (there.next_token != nullptr) *there.next_token = shared[0].token;
  if (host.best == nullptr) return;
  *host.best = shared[0];
  if (host.next_token == nullptr) return;
  *host.next_token = shared[0].token;
  *host.overflow = *there.overflow;
}

// The bin of a score. The last bin has NaN, and all scores where the best is infinite.
QGEN_DEVICE int score_bin(const ScoreArgs& args, int i) {
  const float below = (args.report.best->score - args.scores[i]) * kBinsPerUnit;
  return below < kScoreBins - 1 ? int(below) : kScoreBins - 1;
}

// The last bin that the best `wanted` scores reach down to, and the softmax denominator of all scores.
QGEN_KERNEL(kScoreThreads, 1) count_scores_kernel(const ScoreArgs rows, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const ScoreArgs args = own_row(rows);
  uint32_t* const counts = shared_memory<uint32_t>();
  uint32_t* const flag = counts + kScoreBins;
  for (int bin = thread_index(); bin < kScoreBins; bin += kScoreThreads) counts[bin] = 0;
  barrier();
  const float inverse_temperature =
      args.draw != nullptr ? args.draw->inverse_mass_temperature : args.inverse_temperature;
  float mass = 0, unused = 0;
  for (int i = int(block_index().x) * kScoreThreads + thread_index(); i < args.count;
       i += kScoreBlocks * kScoreThreads) {
    if (args.scores[i] == kNotListed) continue;
    add_to(counts + score_bin(args, i), 1);
    mass += exp_fast((args.scores[i] - args.report.best->score) * inverse_temperature);
  }
  float* const shared = reinterpret_cast<float*>(flag + 1);
  reduce<kScoreThreads / kWarp>(mass, unused, shared);
  if (thread_index() == 0) args.scratch->mass[block_index().x] = mass;
  for (int bin = thread_index(); bin < kScoreBins; bin += kScoreThreads) {
    if (counts[bin] != 0) add_to(args.scratch->bins + bin, counts[bin]);
  }
  if (!ends_last(&args.scratch->counter, kScoreBlocks, flag)) return;
  for (int bin = thread_index(); bin < kScoreBins; bin += kScoreThreads) {
    counts[bin] = args.scratch->bins[bin];
    args.scratch->bins[bin] = 0;
  }
  mass = thread_index() < kScoreBlocks ? args.scratch->mass[thread_index()] : 0;
  reduce<kScoreThreads / kWarp>(mass, unused, shared);
  if (thread_index() != 0) return;
  args.found->mass = mass;
  const auto wanted = uint32_t(args.draw != nullptr ? args.draw->count : args.wanted);
  uint32_t reached = 0;
  int bin = -1;
  while (reached < wanted && bin + 1 < kScoreBins) reached += counts[++bin];
  args.scratch->last_bin = bin;
  args.found->count = 0;
}

// Collects the scores down to that bin, in any order.
QGEN_KERNEL(kScoreThreads, 1) collect_scores_kernel(const ScoreArgs rows, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const ScoreArgs args = own_row(rows);
  for (int i = int(block_index().x) * kScoreThreads + thread_index(); i < args.count;
       i += kScoreBlocks * kScoreThreads) {
    if (args.scores[i] == kNotListed || score_bin(args, i) > args.scratch->last_bin) continue;
    const uint32_t place = add_to(&args.found->count, 1);
    if (place < uint32_t(kMostBest)) args.found->token[place] = {args.scores[i], i};
  }
}

// The best tokens, and what each weighs: exp((score - the best) / temperature).
struct DrawShared {
  FoundScores::Token token[kMostBest];
  float weight[kMostBest];
};

// One block. Each filter of Sampler keeps some of the best tokens, as far as a rank, a sum of weights or a weight goes;
// ranks and sums are found by comparing all with all.
QGEN_KERNEL(kScoreThreads, 1) draw_token_kernel(const ScoreArgs args, const LaunchTimes times) {
  constexpr int kOfThread = kMostBest / kScoreThreads;
  KernelScope scope(times);
  scope.wait_for_inputs();
  DrawShared& all = *shared_memory<DrawShared>();
  float* const sums = reinterpret_cast<float*>(&all + 1);
  const DrawSettings draw = *args.draw;
  const int count = int(args.found->count);
  FoundScores* const host = args.host_found;
  if (host != nullptr && thread_index() == 0) {
    host->count = uint32_t(count);
    host->mass = args.found->mass;
  }
  if (count > kMostBest) return;  // the best is guessed
  for (int i = thread_index(); i < count; i += kScoreThreads) {
    all.token[i] = args.found->token[i];
    if (host != nullptr) host->token[i] = all.token[i];
    all.weight[i] = exp_fast((all.token[i].score - args.report.best->score) * draw.inverse_temperature);
  }
  barrier();
  const auto mine = [&](int n) { return thread_index() + n * kScoreThreads; };
  float before[kOfThread] = {};  // what the better ones weigh
  bool kept[kOfThread] = {};
  float unused = 0, best_k = 0;
  for (int n = 0; n < kOfThread && mine(n) < count; ++n) {
    const FoundScores::Token own = all.token[mine(n)];
    int rank = 0;
    for (int i = 0; i < count; ++i) {
      const FoundScores::Token other = all.token[i];
      const bool better = other.score > own.score || (other.score == own.score && other.token < own.token);
      rank += better;
      before[n] += better ? all.weight[i] : 0;
    }
    kept[n] = draw.top_k == 0 || rank < draw.top_k;
    if (kept[n]) best_k += all.weight[mine(n)];
  }
  reduce<kScoreThreads / kWarp>(best_k, unused, sums);
  const float top_p = draw.top_p * (draw.top_k > 0 ? best_k : args.found->mass);
  float left = 0;
  for (int n = 0; n < kOfThread && mine(n) < count; ++n) {
    if (draw.top_p < 1) kept[n] = kept[n] && before[n] < top_p;
    kept[n] = kept[n] && all.weight[mine(n)] >= draw.min_p;
    if (kept[n]) left += all.weight[mine(n)];
  }
  barrier();
  reduce<kScoreThreads / kWarp>(left, unused, sums);
  const bool whole = draw.top_k == 0 && draw.top_p >= 1 && draw.min_p <= 0;
  const float point = draw.random * (whole ? args.found->mass : left);
  // Sums in another order may let two tokens have the point: all must go on with the same one.
  uint32_t chosen = 0;  // 1 + its place
  for (int n = 0; n < kOfThread && mine(n) < count; ++n) {
    if (kept[n] && before[n] <= point && point < before[n] + all.weight[mine(n)]) chosen = uint32_t(mine(n)) + 1;
  }
  chosen = largest_lane_bits(chosen);
  uint32_t* const of_warps = reinterpret_cast<uint32_t*>(sums);
  barrier();  // the sums have been read
  if (lane_index() == 0) of_warps[warp_index()] = chosen;
  barrier();
  if (thread_index() != 0) return;
  for (int w = 1; w < kScoreThreads / kWarp; ++w) chosen = larger_bits(chosen, of_warps[w]);
  if (chosen == 0) return;
  const int32_t token = all.token[chosen - 1].token;
  *args.report.next_token = token;
  if (args.host_report.next_token != nullptr) *args.host_report.next_token = token;
}

}  // namespace qgen::QGEN_BACKEND
