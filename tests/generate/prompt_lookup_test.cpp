// Drafts from the text itself: which earlier place they come from, how long they are, when there are none.
#include "generate/prompt_lookup.h"

#include <chrono>
#include <random>

#include "tests/support.h"

namespace qgen::test {
namespace {

using Tokens = std::vector<TokenId>;

PromptLookup lookup_of(const Tokens& text, int64_t most = 8) {
  PromptLookup lookup(most);
  for (const TokenId token : text) lookup.see(token);
  return lookup;
}

TEST_CASE("A draft is what followed the same tokens before") {
  CHECK(lookup_of({1, 2, 3, 4, 5, 6, 1, 2, 3}).draft(8) == Tokens{4, 5, 6});
  // As long as the match.
  CHECK(lookup_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4}).draft(8) == Tokens{5, 6, 7, 8});
}

TEST_CASE("Without an earlier place there is no draft") {
  CHECK(lookup_of({}).draft(8).empty());
  CHECK(lookup_of({1, 1}).draft(8).empty());
  CHECK(lookup_of({1, 2, 3}).draft(8).empty());
  CHECK(lookup_of({1, 2, 3, 4, 5, 6, 7}).draft(8).empty());
  CHECK(lookup_of({1, 2, 9, 9, 1, 2}).draft(8).empty());  // two tokens in common are too few
}

TEST_CASE("The latest of several places is meant") {
  CHECK(lookup_of({1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3}).draft(1) == Tokens{50});
}

TEST_CASE("A longer match wins over a later one") {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 90, 91, 6, 7, 8, 92, 1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(lookup_of(text).draft(2) == Tokens{90, 91});
}

TEST_CASE("A draft keeps to its limits") {
  const PromptLookup lookup = lookup_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3, 4, 5, 6}, 4);
  CHECK(lookup.draft(100) == Tokens{7, 8, 9, 10});
  CHECK(lookup.draft(3) == Tokens{7, 8, 9});
  CHECK(lookup.draft(0).empty());
  CHECK(lookup.draft(-5).empty());
}

TEST_CASE("A period goes on beyond the end of the text") {
  CHECK(lookup_of({7, 8, 9, 7, 8, 9, 7, 8, 9}).draft(8) == Tokens{7, 8, 9, 7, 8, 9});
  CHECK(lookup_of({5, 5, 5, 5, 5, 5}).draft(8) == Tokens{5, 5, 5, 5, 5});
}

TEST_CASE("Drafts that fail ask for longer matches, those that hold for shorter ones") {
  PromptLookup lookup = lookup_of({1, 2, 3, 4, 5, 6, 1, 2, 3});
  REQUIRE(lookup.draft(8).size() == 3);
  lookup.judge(3, 1);
  CHECK(lookup.draft(8).empty());
  lookup.see(4);
  CHECK(lookup.draft(8).empty());
  lookup.see(5);  // five in common
  CHECK(lookup.draft(8).size() == 5);
  lookup.judge(4, 2);
  CHECK(lookup_of({1, 2, 3, 4, 5, 6, 1, 2, 3}).draft(8).size() == 3);
  // However many fail, a text that really repeats is found.
  for (int i = 0; i < 100; ++i) lookup.judge(4, 0);
  for (TokenId token = 100; token < 200; ++token) lookup.see(token);
  for (TokenId token = 100; token < 100 + PromptLookup::kLongestMatch - 1; ++token) lookup.see(token);
  CHECK(lookup.draft(8).empty());
  lookup.see(100 + TokenId(PromptLookup::kLongestMatch) - 1);
  CHECK(lookup.draft(8).size() == 8);
}

TEST_CASE("The index finds what a search from the end finds") {
  std::mt19937 random(1);
  for (const int vocab : {2, 5, 40}) {
    NgramIndex index(3);
    Tokens text;
    for (int i = 0; i < 3000; ++i) {
      text.push_back(TokenId(random() % unsigned(vocab)));
      size_t expected = 0;
      for (size_t end = text.size() - 1; end >= 3 && expected == 0 && text.size() >= 3; --end) {
        if (std::equal(text.end() - 3, text.end(), text.begin() + ptrdiff_t(end) - 3)) expected = end;
      }
      REQUIRE(index.find(text) == expected);
      index.add(text);
    }
  }
}

TEST_CASE("Long texts take time for their length only") {
  constexpr size_t kTokens = 300'000;
  std::mt19937 random(2);
  Tokens noise(kTokens), words(kTokens);
  for (TokenId& token : noise) token = TokenId(random() % 100'000);
  for (TokenId& token : words) token = TokenId(random() % 4);
  const auto start = std::chrono::steady_clock::now();
  for (const Tokens& text : {noise, words, Tokens(kTokens, 7)}) {
    PromptLookup lookup(16);
    size_t drafted = 0;
    for (const TokenId token : text) {
      lookup.see(token);
      drafted += lookup.draft(16).size();
    }
    MESSAGE("drafted: " << drafted);
  }
  // A tenth of a second; a search of the whole text at each token would take hours.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

}  // namespace
}  // namespace qgen::test
