#include "kernels/device/scores.cuh"

#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

static_assert(kScoreBlocks <= kScoreThreads);

void find_best_score(Stream& stream, const ScoreArgs& args) {
  launch(stream, "best score", best_score_kernel, {unsigned(kScoreBlocks), unsigned(args.rows)}, kScoreThreads,
         kScoreThreads * sizeof(BestScore) + sizeof(uint32_t), args);
}

void find_best_scores(Stream& stream, const ScoreArgs& args) {
  launch(stream, "count scores", count_scores_kernel, {unsigned(kScoreBlocks), unsigned(args.rows)}, kScoreThreads,
         (kScoreBins + 1 + 2 * (kScoreThreads / kWarp)) * sizeof(uint32_t), args);
  launch(stream, "collect scores", collect_scores_kernel, {unsigned(kScoreBlocks), unsigned(args.rows)}, kScoreThreads,
         0, args);
}

void draw_token(Stream& stream, const ScoreArgs& args) {
  launch(stream, "draw token", draw_token_kernel, {1}, kScoreThreads,
         sizeof(DrawShared) + 2 * (kScoreThreads / kWarp) * sizeof(float), args);
}

}  // namespace qgen::QGEN_BACKEND
