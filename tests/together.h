// Several sequences of one engine, held to each alone: the same scores bit by bit, for plans of every kind.
#pragma once

#include <functional>

#include "tests/step_plans.h"
#include "tests/support.h"

namespace qgen::test {

using EngineMaker = std::function<std::unique_ptr<Engine>(const Plan& plan, const EngineOptions& options)>;

// Goldens that have each kind of block between them: what a batch of several sequences could mix up.
constexpr const char* kMixedGoldens[] = {"qwen3_next-bf16", "granite_hybrid-fp8", "nemotron_h-bf16",
                                         "falcon_h1-fp8",   "lfm2-fp8",           "deepseek_v2-fp8",
                                         "gpt_oss-bf16",    "llama4-bf16",        "gemma4-small-fp8",
                                         "gemma4-moe-bf16", "mistral-window",     "llama-rope-dynamic"};

// Scores after the last token of each item.
inline std::vector<std::vector<float>> scores_of_items(Engine& engine, std::span<const Work> work, Kernels kernels) {
  std::vector<std::vector<float>> out(work.size());
  engine.run(
      work,
      [&](size_t item, int64_t, const Scores& scores) {
        const std::span<const float> all = scores.all();
        out[item].assign(all.begin(), all.end());
      },
      kernels);
  return out;
}

// Prompts of different lengths in batches that cut them anywhere, then single tokens.
inline void check_together(const Plan& plan, const EngineMaker& make) {
  constexpr int kLengths[] = {37, 3, 20, 1}, kAnswers = 3;
  std::vector<std::vector<TokenId>> texts;
  for (const int length : kLengths) {
    std::vector<TokenId> text;
    for (int i = 0; i < length + kAnswers; ++i)
      text.push_back(TokenId((3 + 7 * i + 11 * length + i * i) % plan.model.vocab));
    texts.push_back(std::move(text));
  }
  EngineOptions options;
  options.context = 64;
  options.threads = 2;
  // By the first call and those behind it, and by sequence.
  const auto run = [&](Engine& engine, const std::vector<size_t>& chosen) {
    std::vector<SequenceId> ids;
    std::vector<Work> work;
    for (const size_t s : chosen) {
      ids.push_back(*engine.open(options.context));
      work.push_back({ids.back(), std::span(texts[s]).first(texts[s].size() - kAnswers), Wanted::kLast});
    }
    std::vector<std::vector<std::vector<float>>> out = {scores_of_items(engine, work, Kernels::kPrompt)};
    for (int i = kAnswers; i > 0; --i) {
      for (size_t s = 0; s < chosen.size(); ++s) {
        const std::vector<TokenId>& text = texts[chosen[s]];
        work[s].tokens = std::span(text).subspan(text.size() - size_t(i), 1);
      }
      out.push_back(scores_of_items(engine, work, Kernels::kGenerate));
    }
    return out;
  };
  options.sequences = int64_t(texts.size());
  options.batch = 16;
  const auto together = run(*make(plan, options), {0, 1, 2, 3});
  options.sequences = 1;
  options.batch = 64;
  for (size_t s = 0; s < texts.size(); ++s) {
    const auto alone = run(*make(plan, options), {s});
    for (size_t call = 0; call < alone.size(); ++call) {
      INFO("sequence ", s, ", call ", call);
      REQUIRE(!alone[call][0].empty());
      CHECK(alone[call][0] == together[call][s]);
    }
  }
}

// A plan whose values are beyond the range of F16 for one token alone, with or without a recurrence behind its
// attention.
constexpr TokenId kOverflowing = 7;
inline std::unique_ptr<Plan> overflowing_plan(TokenId overflowing = kOverflowing, bool recurrent = true) {
  constexpr int64_t kHeads = 2, kDim = 16;
  PlanMaker m;
  AttendStep attend;
  attend.heads = attend.kv_heads = kHeads;
  attend.key_dim = attend.value_dim = kDim;
  attend.scale = 0.25;
  attend.state = m.state(kHeads, kDim, kDim);
  attend.q = {m.products("q", kHeads * kDim).row, 0, kDim};
  attend.k = {m.products("k", kHeads * kDim).row, 0, kDim};
  // Of a table of its own, without a norm between: 1e6 for the token, else 1.
  LookupStep values;
  values.table = m.table([&](int64_t token) { return token == overflowing ? 1e6f : 1.0f; }, kHeads * kDim);
  values.out = m.row("values", kHeads * kDim);
  m.add(values);
  attend.v = {values.out.row, 0, kDim};
  attend.out = m.row("attended", kHeads * kDim);
  m.add(attend);
  LinearStep output;
  output.in = attend.out;
  if (recurrent) {
    ConvStep conv;
    conv.in = attend.out;
    conv.out = output.in = m.row("convolved", kHeads * kDim);
    conv.taps = 3;
    conv.state = m.fixed_state(2 * conv.in.cols);
    conv.weight = m.vector(conv.in.cols * conv.taps);
    m.add(conv);
  }
  Projection projection = m.project(PlanMaker::kHidden, output.in.cols, m.residual);
  projection.add = true;
  output.projections = {projection};
  m.add(output);
  return m.finish();
}

// Items whose tokens overflow the cache end with an Error, at any place of a batch; those beside them do not notice.
inline void check_overflow(const EngineMaker& make) {
  const auto plan = overflowing_plan();
  EngineOptions options;
  options.context = 32;
  options.sequences = 4;
  options.batch = 8;
  const std::vector<std::vector<TokenId>> texts = {
      {1, 2, 3, 4, 5}, {6, kOverflowing, 8, 9, 10, 11}, {12, 13, 14}, {15, 16, 17, 18, 19, 20, 21}};
  const auto run = [&](Engine& engine, const std::vector<size_t>& chosen, std::vector<std::string>& errors) {
    std::vector<SequenceId> ids;
    std::vector<Work> work;
    for (const size_t s : chosen) {
      ids.push_back(*engine.open(options.context));
      work.push_back({ids.back(), texts[s], Wanted::kLast});
    }
    std::vector<std::vector<float>> out;
    errors.assign(chosen.size(), "");
    for (const bool first : {true, false}) {
      // The second call: one token more, of the last sequence the one that overflows.
      static constexpr TokenId kNext[] = {22, kOverflowing};
      for (size_t s = 0; s < chosen.size() && !first; ++s) work[s].tokens = {&kNext[chosen[s] == 3], 1};
      std::vector<std::vector<float>> scores(chosen.size());
      engine.run(
          work,
          [&](size_t item, int64_t, const Scores& given) {
            scores[item].assign(given.all().begin(), given.all().end());
          },
          first ? Kernels::kPrompt : Kernels::kGenerate,
          [&](size_t item, const Error& error) { errors[item] += error.message(); });
      out.insert(out.end(), scores.begin(), scores.end());
    }
    for (size_t s = 0; s < chosen.size(); ++s) {
      // Of a recurrence without a mark nothing is left, to which the second call added its token where it could.
      const int64_t left = chosen[s] == 3 ? 0 : 1;
      CHECK(engine.position(ids[s]) == (errors[s].empty() ? int64_t(texts[chosen[s]].size()) + 1 : left));
      engine.close(ids[s]);
    }
    return out;
  };
  const auto engine = make(*plan, options);
  std::vector<std::string> errors;
  const auto together = run(*engine, {0, 1, 2, 3}, errors);
  CHECK(errors[0].empty());
  CHECK(errors[1] == "keys or values of layer 0 are beyond the range of the f16 cache");
  CHECK(errors[2].empty());
  CHECK(errors[3] == errors[1]);
  for (const size_t s : {0, 2, 3}) {
    std::vector<std::string> own;
    const auto alone = run(*make(*plan, options), {s}, own);
    CHECK(own[0] == errors[s]);
    CHECK(together[s] == alone[0]);
    CHECK(!alone[0].empty());
    CHECK(together[4 + s] == alone[1]);
    CHECK(alone[1].empty() == (s == 3));
  }
  CHECK(together[1].empty());
}

}  // namespace qgen::test
