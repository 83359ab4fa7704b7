// Output heads that are not quantized, for tests of shortlists.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/numbers.h"
#include "engine/scores.h"
#include "model/plan.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {

inline void set_element(Weight& weight, int64_t n, int64_t k, float value) {
  std::byte* const at = weight.owned.data() + (n * weight.cols + k) * code_bytes(weight.codes);
  const uint16_t two = weight.codes == Codes::kBf16 ? float_to_bf16(value) : float_to_f16(value);
  weight.codes == Codes::kF32 ? std::memcpy(at, &value, 4) : std::memcpy(at, &two, 2);
}

// A head of everything that a bound must hold for: rows that are zero, tiny, large, of one element, and the same twice;
// and a column that is far larger than the others.
inline Weight odd_head(std::mt19937& random, Codes codes, int64_t rows, int64_t cols) {
  Weight head = random_weight(random, codes, rows, cols, 1, 0, false);
  const float large = codes == Codes::kF16 ? 100 : 1e6f, tiny = codes == Codes::kF16 ? 1e-7f : 1e-37f;
  for (int64_t k = 0; k < cols; ++k) {
    set_element(head, 3, k, 0);
    set_element(head, 4, k, k % 3 == 0 ? tiny : -tiny);
    set_element(head, 5, k, k % 2 == 0 ? large : -large);
    set_element(head, 6, k, k == 11 ? 5.0f : 0);
  }
  for (int64_t n = 7; n < rows; ++n) set_element(head, n, 2, n % 2 == 0 ? 8 : -8);
  std::memcpy(head.owned.data() + (rows - 1) * head.row_bytes, head.owned.data() + (rows - 9) * head.row_bytes,
              size_t(head.row_bytes));
  return head;
}

inline Projection projection_of(const Weight& weight, double softcap = 0) {
  Projection out;
  out.weight = &weight;
  out.softcap = softcap;
  return out;
}

inline std::vector<ScoredToken> ranked(const std::vector<float>& scores) {
  std::vector<ScoredToken> out;
  for (size_t n = 0; n < scores.size(); ++n) out.push_back({TokenId(n), scores[n]});
  std::sort(out.begin(), out.end(), better);
  return out;
}

// A table that is the output head as well, without layers between.
inline std::unique_ptr<Plan> large_vocabulary(Codes codes, double softcap = 0) {
  constexpr int64_t kVocab = 66000, kHidden = 128;
  auto plan = std::make_unique<Plan>();
  std::mt19937 random(8);
  plan->model.vocab = kVocab;
  plan->model.hidden = kHidden;
  plan->model.layers = 1;
  plan->model.context = 100;
  plan->weights.push_back(
      random_weight(random, codes, kVocab, kHidden, 1, code_bytes(codes) == 1 ? kHidden : 0, false));
  plan->rows.push_back({"residual", kHidden, false});
  plan->rows.push_back({"scores", kVocab, true});
  plan->scores = 1;
  LookupStep lookup;
  lookup.table = &plan->weights.back();
  lookup.out = {0, 0, kHidden};
  LinearStep head;
  head.in = lookup.out;
  head.norm = {Norm::Kind::kRms, nullptr, nullptr, 1e-5, kHidden};
  head.projections.push_back(projection_of(plan->weights.back()));
  head.projections[0].scale = 0.7;
  head.projections[0].softcap = softcap;
  head.projections[0].out = {1, 0, kVocab};
  plan->steps = {{-1, lookup}, {-1, head}};
  return plan;
}

// The same with a draft head: a guess follows from the sum of the token's row and the hidden row before it. Its head
// reads the hidden row, as those of models do.
inline std::unique_ptr<Plan> drafting_vocabulary(Codes codes) {
  auto plan = large_vocabulary(codes);
  const int64_t cols = plan->model.hidden;
  plan->rows.push_back({"hidden", cols, false});
  plan->draft = DraftHead{3, 2};
  CombineStep keep, join;
  keep.y = join.x = join.out = {0, 0, cols};
  keep.out = join.y = {2, 0, cols};
  CombineStep normalize = keep;
  normalize.norm = {Norm::Kind::kRms, nullptr, nullptr, 1e-5, cols};
  const Step lookup = plan->steps[0], head = plan->steps[1];
  LinearStep of_guess = std::get<LinearStep>(head.op);
  of_guess.in = keep.out;
  of_guess.norm = {};
  plan->steps = {lookup, {-1, keep}, head, lookup, {-1, join}, {-1, normalize}, {-1, of_guess}};
  return plan;
}

// Guesses of an engine with a shortlist beside those of one without, three before each of so many tokens, and the best
// of what follows that; what `use` makes of the scores of each. Of guess `all_at` and of the last token all scores are
// asked for as well.
template <typename Use>
void check_guesses(TestEngine& with, TestEngine& without, int tokens, int all_at, const Use& use) {
  const TokenId first[] = {5, 17};
  TokenId token = 0;
  for (TestEngine* const engine : {&with, &without}) token = *engine->prefill(first).best();
  for (int i = 0; i < tokens; ++i) {
    INFO("token ", i);
    std::vector<std::vector<float>> all[2];
    std::vector<TokenId> guesses[2];
    for (const int which : {0, 1}) {
      TestEngine& engine = which == 0 ? with : without;
      int guess = 3 * i;
      guesses[which] =
          engine.engine->draft(engine.sequence.id(), engine.position(), token, 3, [&](const Scores& scores) {
            if (which == 0) use(scores);
            if (guess++ == all_at) all[which].emplace_back(scores.all().begin(), scores.all().end());
          });
    }
    CHECK(guesses[0].size() == 3);
    CHECK(guesses[0] == guesses[1]);
    CHECK(all[0] == all[1]);
    const Scores expected = without.decode(token), found = with.sequence.run(token, {kGreedyChoices, 1});
    use(found);
    CHECK(found.best() == expected.best());
    if (i == tokens - 1) CHECK(std::ranges::equal(found.all(), expected.all()));
    token = i % 3 == 2 ? TokenId((int64_t{token} * 31 + i) % 60000) : *found.best();
  }
}

// Up to eight tokens together, of one text and of several by turns, of an engine with a shortlist beside one without,
// both with room for eight sequences. `use`: how many of a round's tokens were found by it, of all of them. Of the
// tokens of round `all_at` all scores are asked for as well.
template <typename Use>
void check_together(TestEngine& with, TestEngine& without, int rounds, int all_at, const Use& use) {
  constexpr size_t kMost = 8;
  std::vector<SequenceId> sequences[2];
  for (const int which : {0, 1}) {
    const TestEngine& engine = which == 0 ? with : without;
    sequences[which].push_back(engine.sequence.id());
    while (sequences[which].size() < kMost) sequences[which].push_back(engine.engine->open(20).value());
  }
  TokenChoice few;
  few.count = 30;
  few.top_k = 20;
  for (int round = 0; round < rounds; ++round) {
    INFO("round ", round);
    const size_t count = size_t(round) % kMost + 1;
    const bool one_text = round % 2 == 0;
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(TokenId((round * 7919 + int64_t(i) * 131) % 60000));
    // Of several texts every other one is drawn.
    const auto choice_of = [&](size_t i) { return (one_text ? round / 2 : int(i)) % 2 == 1 ? few : TokenChoice(); };
    const std::vector<TokenChoice> choice_of_text = {choice_of(0), choice_of(1)};
    struct Found {
      std::optional<TokenId> best;
      std::vector<ScoredToken> top, more;
      std::vector<float> all;
    };
    std::vector<Found> found[2];
    for (const int which : {0, 1}) {
      Engine& engine = which == 0 ? *with.engine : *without.engine;
      for (const SequenceId sequence : sequences[which]) engine.rewind(sequence, 0);
      std::vector<Work> work;
      if (one_text) {
        work.push_back({.sequence = sequences[which][0],
                        .tokens = tokens,
                        .scores = Wanted::kAll,
                        .choices = std::span(choice_of_text).first(1)});
      } else {
        for (size_t i = 0; i < count; ++i) {
          work.push_back({.sequence = sequences[which][i],
                          .tokens = {&tokens[i], 1},
                          .choices = std::span(choice_of_text).subspan(i % 2, 1)});
        }
      }
      engine.run(
          work,
          [&](size_t item, int64_t, const Scores& scores) {
            const TokenChoice& choice = choice_of_text[one_text ? 0 : item % 2];
            Found& one = found[which].emplace_back();
            one.top = scores.top(choice.count).best;
            one.best = scores.best();
            one.more = scores.top(choice.count + 1).best;  // which a shortlist does not have
            if (which == 1 || round == all_at) one.all.assign(scores.all().begin(), scores.all().end());
          },
          one_text ? Kernels::kByCount : Kernels::kGenerate);
    }
    REQUIRE(found[0].size() == count);
    size_t listed = 0;
    for (size_t i = 0; i < count; ++i) {
      INFO("token ", i);
      const Found &ours = found[0][i], &theirs = found[1][i];
      const std::vector<ScoredToken> all = ranked(theirs.all);
      CHECK(ours.best == theirs.best);
      for (const auto& top : {ours.top, ours.more}) {
        CHECK(std::equal(top.begin(), top.end(), all.begin(), [](const ScoredToken& a, const ScoredToken& b) {
          return a.token == b.token && a.score == b.score;
        }));
      }
      if (!ours.top.empty()) CHECK(ours.top.size() >= choice_of(i).count);
      if (!ours.more.empty()) CHECK(ours.more.size() > choice_of(i).count);
      listed += !ours.top.empty() && (choice_of(i).count == 1 || ours.top.size() < all.size() / 4);
      if (round == all_at) CHECK(ours.all == theirs.all);
    }
    use(listed, count);
  }
}

}  // namespace qgen::test
