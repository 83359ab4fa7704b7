// A whole matrix by a recipe: its scales, and its codes strip by strip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quantize/group_scale.h"
#include "quantize/source.h"

namespace qgen::quantize {

// Rows that are worked on together: those of a block, else about a million elements.
int64_t strip_rows(const SourceMatrix& matrix);
int64_t strip_rows(const SourceMatrix& matrix, const Recipe& recipe);
// The pages of rows that are done leave this process again, where they are those of a file.
void release_rows(const SourceMatrix& matrix, int64_t first, int64_t rows);

// Throws the model Error about NaN or infinity in a tensor that is copied.
[[noreturn]] void fail_values(const TensorView& tensor);
// The same for a matrix, that is ready to be read, whose values have no finite codes or elements of `type`: where they
// are numbers, they are beyond it.
[[noreturn]] void fail_values(const SourceMatrix& matrix, Dtype type = Dtype::kF32);

class MatrixQuantizer {
 public:
  // `weights`: (cols), how much the error of each column counts, or nullptr. Both outlive the object. kOfStrips: it
  // keeps no scales but gives those of each strip.
  enum class Scales { kKept, kOfStrips };
  MatrixQuantizer(const SourceMatrix& matrix, const Recipe& recipe, const float* weights = nullptr,
                  Scales scales = Scales::kKept);

  // Before the first strip, where one scale serves the matrix (else nothing is done): looks at all of it, on all cores
  // or on this one. Throws a model Error where the matrix holds NaN or infinity, as strip() does.
  void find_whole_scale(bool on_all_cores);
  // The same for a scale that is known, for parts of a matrix.
  void set_whole_scale(Scale scale);
  // The largest magnitude; a model Error as above.
  float largest(bool on_all_cores) const;

  // The codes of `rows` rows from `first` on, whole blocks, into `out`, (rows, cols). From any thread.
  void strip(int64_t first, int64_t rows, std::span<std::byte> out);
  // The same with the scales of these rows' groups in `scales` instead, where a matrix has none that serves all of it.
  void strip(int64_t first, int64_t rows, std::span<std::byte> out, std::span<float> scales) const;

  // After all strips: the scales of the groups, row by row, and the bytes of their stored type.
  const std::vector<float>& scales() const { return scales_; }
  std::vector<std::byte> stored_scales() const;

 private:
  template <typename Look>
  void for_strips(bool on_all_cores, const Look& look) const;
  bool has_whole_scale() const;
  size_t strips() const;  // that a whole matrix is looked at in

  const SourceMatrix& matrix_;
  const Recipe& recipe_;
  const float* weights_;
  int64_t group_cols_, grid_cols_;
  std::vector<float> scales_;
  std::optional<Scale> whole_;
};

}  // namespace qgen::quantize
