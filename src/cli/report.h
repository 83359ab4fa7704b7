// What a run tells about itself: a few lines for people, one JSON object for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/loader.h"
#include "cli/options.h"
#include "sample/sampler.h"

namespace qgen::cli {

struct LogprobEntry {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

struct Report {
  const LoadedModel* model = nullptr;
  SamplingSettings sampling;
  bool chat_template = false;
  int64_t prompt_tokens = 0;
  double prompt_seconds = 0;
  double first_token_seconds = 0;
  int64_t output_tokens = 0;
  double output_seconds = 0;  // of the tokens after the first
  int64_t thinking_tokens = 0;
  bool thinking_hidden = false;
  std::string stop;         // "end", "max-tokens", "stop-string", "context", "interrupted"
  std::string stop_string;  // the one that was met
  uint32_t logits_hash = 0;
  double read_bandwidth = 0;  // bytes a second; 0 if not measured
  std::vector<LogprobEntry> logprobs;

  // Bytes a second read while decoding: weights, and the cache at its average length.
  double decode_bandwidth() const;
  double tokens_per_second() const;
};

std::string report_text(const Report& report, bool verbose);
std::string report_json(const Report& report, const Tokenizer& tokenizer);

// FNV-1a over the bits of the scores.
uint32_t hash_logits(std::span<const float> logits);

}  // namespace qgen::cli
