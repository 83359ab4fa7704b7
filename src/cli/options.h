// What the command line can say, as plain data. Each option exists once, with its QGEN_* environment twin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "sample/settings.h"

namespace CLI {
class App;
}

namespace qgen::cli {

// Which model, and where and how it runs.
struct ModelOptions {
  std::string model;
  std::string device = "auto";
  int threads = 0;      // 0: all cores
  int64_t context = 0;  // 0: what the model was made for, as far as it fits
  std::string kv = "f16";
};

// What is printed beside the text.
struct ReportOptions {
  std::string stats;  // "": on a terminal; "text"; "json"
  std::string stats_file;
  bool quiet = false;
  bool verbose = false;
  std::string color = "auto";
};

struct AnswerOptions {
  ModelOptions model;
  ReportOptions report;
  std::optional<std::string> prompt, file, system;
  bool no_stdin = false;
  bool raw = false;
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  std::vector<std::string> stops;
  SamplingFlags sampling;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  int64_t logprobs = 0;
  std::string think = "auto";
  std::string reasoning = "auto";
};

struct ScoreOptions {
  ModelOptions model;
  std::string input;   // "": standard input if something is there; "-": standard input; else a file
  std::string tokens;  // "1,2,3"
  std::string logits;  // a file to write
  bool json = false;
};

struct TokensOptions {
  std::string model;
  std::string input;
  bool decode = false, chat = false, render = false, json = false;
  std::string messages;
  std::optional<std::string> system;
  std::string think = "auto";
};

// The commands; each returns the exit code.
int answer(const AnswerOptions& options);
int score(const ScoreOptions& options);
int tokens(const TokensOptions& options);

// The whole program: parses, runs, reports errors.
int run(int argc, char** argv);

}  // namespace qgen::cli
