// A run of `qgen quantize`: reads a checkpoint shard by shard, writes an 8-bit one beside it, and looks at the result.
// The folder says that it is incomplete until everything is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/compare.h"
#include "quantize/recipe.h"
#include "quantize/selection.h"

namespace qgen::quantize {

struct JobOptions {
  std::string model;
  bool trust_tensors = false;  // as make_plan() has it
  std::filesystem::path out;
  Recipe recipe;
  Selection selection;
  std::filesystem::path statistics;  // of inputs, for rms, mse and smoothing; "" for none
  std::optional<double> smoothing;   // alpha of smooth.h
  int64_t verified = 5;              // matrices that are compared in each shard; -1: all
  bool resume = false;               // goes on in a folder that an earlier run left incomplete
  bool force = false;                // replaces files of the same names
};

// A matrix that was read back, beside the one it was made from.
struct Comparison {
  std::string name;
  int64_t rows = 0, cols = 0;
  Likeness likeness;
};

struct ShardReport {
  std::string file;
  size_t index = 0, count = 0;  // from 1, of all shards
  bool found = false;           // it was there already
  int64_t quantized = 0;        // matrices
  int64_t copied = 0;           // tensors
  uint64_t bytes_read = 0, bytes_written = 0;
  double seconds = 0, verify_seconds = 0;
  std::vector<Comparison> comparisons;
};

struct JobReport {
  std::vector<ShardReport> shards;
  std::map<std::string, int64_t> kept;  // how many matrices were left as they are, by the reason
  std::vector<std::string> warnings;
  int64_t smoothed = 0;           // norms
  bool source_quantized = false;  // the checkpoint that was read had lost precision before
  uint64_t bytes_read = 0, bytes_written = 0;
  double seconds = 0;
  bool failed() const;  // whether a comparison has the verdict FAIL
};

struct JobControl {
  // Bytes of the shard that are done, and of all; called now and then on the calling thread.
  std::function<void(const ShardReport& shard, uint64_t done, uint64_t total)> progress;
  // Before each of the matrices that are read back.
  std::function<void(const ShardReport& shard, size_t done, size_t all)> comparing;
  std::function<void(const ShardReport& shard)> shard_done;
  std::function<bool()> stopped;  // the run ends with a runtime Error that says how to go on
};

// With a format of GGUF `out` is one file, which appears once it is complete; there is nothing to go on with.
// Throws an Error where something cannot be read, written or quantized. What was written stays for a later run with
// `resume`; the checkpoint that is read is never touched. Matrices with the verdict FAIL are named in a mark beside the
// files, which loading them speaks of.
JobReport run_job(const JobOptions& options, const JobControl& control = {});

}  // namespace qgen::quantize
