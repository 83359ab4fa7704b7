// Smoothing changes norms and weights so that their product, and with it what the model computes, stays the same.
#include "quantize/smooth.h"

#include "quantize/layout.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using namespace quantize;

std::vector<float> values_of(const Source& source, const std::string& name) {
  for (const TensorView* tensor : source.copied) {
    if (tensor->name == name) return tensor_values(*tensor);
  }
  FAIL("no tensor " << name);
  return {};
}

const SourceMatrix& matrix_of(const Source& source, const std::string& name) {
  for (const SourceMatrix& matrix : source.matrices) {
    if (matrix.name == name) return matrix;
  }
  FAIL("no matrix " << name);
  return source.matrices.front();
}

std::vector<float> elements_of(const SourceMatrix& matrix) {
  RowReader reader(matrix);
  const auto tile = reader.tile(0, matrix.rows, 0, matrix.cols);
  return {tile.begin(), tile.end()};
}

// Maxima that differ from column to column, for the matrices named.
InputStatistics some_statistics(const Source& source, std::string_view part) {
  InputStatistics out;
  for (const SourceMatrix& matrix : source.matrices) {
    if (!contains(matrix.name, part)) continue;
    std::vector<float> maxima;
    for (int64_t k = 0; k < matrix.cols; ++k) maxima.push_back(k == 3 ? 0.0f : 0.25f * float(1 + k * k % 37));
    out.add(matrix.name + ".weight", maxima);
  }
  return out;
}

}  // namespace

TEST_CASE("smooth: the product of a norm and the weights behind it stays") {
  struct Case {
    std::string golden, norm, reader;
    double add;  // to the norm's weight
    int64_t norms;
  };
  for (const Case& c :
       {Case{"llama-f32", "model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.k_proj", 0, 4},
        Case{"llama-bf16", "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.up_proj", 0, 4},
        Case{"gemma2-bf16", "model.layers.0.pre_feedforward_layernorm.weight", "model.layers.0.mlp.gate_proj", 1, -1},
        Case{"phi-bf16", "model.layers.0.input_layernorm.weight", "model.layers.0.mlp.fc1", 0, -1}}) {
    CAPTURE(c.golden);
    const std::string folder = (source_folder() / "tests/golden" / c.golden).string();
    const Source before = open_source(folder, Stacks::kAsServers);
    Source after = open_source(folder, Stacks::kAsServers);
    const std::vector<std::string_view> reasons(after.matrices.size());
    const int64_t norms = smooth(after, reasons, some_statistics(after, "layers."), 0.5).norms;
    CHECK(norms > 0);
    if (c.norms >= 0) CHECK(norms == c.norms);
    const auto norm = values_of(before, c.norm), smoothed = values_of(after, c.norm);
    const auto weights = elements_of(matrix_of(before, c.reader)), now = elements_of(matrix_of(after, c.reader));
    CHECK(norm != smoothed);
    CHECK(norm[3] == smoothed[3]);  // no input was seen there
    double worst = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const size_t k = i % norm.size();
      const double expected = (norm[k] + c.add) * weights[i], found = (smoothed[k] + c.add) * now[i];
      worst = std::max(worst, std::fabs(found - expected) / std::max(std::fabs(expected), 1e-9));
    }
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("smooth: a norm that experts read, or without a quantized reader, stays") {
  // The norm before a mixture is read by its router and its experts, which share a row.
  const std::string folder = (source_folder() / "tests/golden/qwen3_moe-bf16").string();
  Source source = open_source(folder, Stacks::kAsServers);
  const std::vector<std::string_view> none(source.matrices.size(), "kept");
  CHECK(smooth(source, none, some_statistics(source, "layers."), 0.5).norms == 0);
  CHECK(source.changed.empty());
  const std::vector<std::string_view> all(source.matrices.size());
  CHECK(smooth(source, all, some_statistics(source, "layers."), 0.5).norms > 0);
  for (const Source::Changed& changed : source.changed)
    CHECK(changed.tensor.name != "model.layers.1.post_attention_layernorm.weight");
  for (const SourceMatrix& matrix : source.matrices) {
    const bool read_by_others = contains(matrix.name, "layers.1.mlp") || contains(matrix.name, "down_proj") ||
                                contains(matrix.name, "o_proj") || contains(matrix.name, "embed") ||
                                contains(matrix.name, "lm_head");
    CHECK((matrix.multipliers == nullptr) == read_by_others);
  }
}

}  // namespace qgen::test
