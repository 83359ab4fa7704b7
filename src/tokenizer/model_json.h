// The "model" of tokenizer.json, and its parts that other files have too.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenizer/pipeline.h"

namespace qgen::tokenizer {

Model read_model(const Json& json);

// {"piece": id, ...}
Vocabulary read_vocabulary(const Json& json);

// Merges in the order of their ranks. Errors begin with `subject`. The vocabulary must outlive the reader.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, std::string_view continuing_prefix, std::string subject)
      : vocabulary_(vocabulary), prefix_(continuing_prefix), subject_(std::move(subject)) {}
  void reserve(size_t merges) { merges_.reserve(merges); }
  void add(std::string_view line);  // two pieces and a space between them
  void add(std::string_view left, std::string_view right);
  MergeTable take() { return std::move(merges_); }

 private:
  TokenId id_of(std::string_view piece) const;
  const Vocabulary& vocabulary_;
  std::string_view prefix_;
  std::string subject_;
  MergeTable merges_;
  uint32_t rank_ = 0;
  std::string merged_;
};

}  // namespace qgen::tokenizer
