// Matrices of a quantized source, ready to be read a few at a time.
#pragma once

#include <span>
#include <vector>

#include "quantize/source.h"

namespace qgen::quantize {

// Consecutive matrices that are worked on together: what they need beside the files stays small, but that of one matrix
// alone may be more.
std::vector<std::span<const SourceMatrix* const>> in_batches(std::span<const SourceMatrix* const> matrices);

// While it lives, the weights of these matrices have their repack. Afterwards they are as they were, so that they can
// be read again, and pages of their files leave this process.
class Repacked {
 public:
  explicit Repacked(std::span<const SourceMatrix* const> matrices);
  ~Repacked();
  Repacked(const Repacked&) = delete;

 private:
  struct Stored {
    Weight* weight;
    Weight before;
  };
  std::vector<Stored> repacked_;
  std::vector<const SourceMatrix*> decoded_;
};

}  // namespace qgen::quantize
