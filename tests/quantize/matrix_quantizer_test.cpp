// Scales and codes of whole matrices: beside QuixiAI's quantize_fp8.py, whose results are fixtures, and by what every
// mode promises.
#include "quantize/matrix_quantizer.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "base/numbers.h"
#include "quantize/statistics.h"
#include "tests/support.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;
using test::shared_folder;

struct Result {
  std::vector<float> scales;
  std::vector<std::byte> codes;
};

Result quantize(const SourceMatrix& matrix, const Recipe& recipe, const float* weights = nullptr) {
  MatrixQuantizer quantizer(matrix, recipe, weights);
  quantizer.find_whole_scale(true);
  Result out;
  out.codes.resize(size_t(matrix.rows * matrix.cols));
  const int64_t rows = strip_rows(matrix, recipe);
  for (int64_t first = 0; first < matrix.rows; first += rows) {
    const int64_t count = std::min(rows, matrix.rows - first);
    quantizer.strip(first, count,
                    std::span(out.codes).subspan(size_t(first * matrix.cols), size_t(count * matrix.cols)));
  }
  out.scales = quantizer.scales();
  return out;
}

double squared_error(const SourceMatrix& matrix, const Recipe& recipe, const Result& result,
                     const float* weights = nullptr) {
  RowReader reader(matrix);
  const auto values = reader.tile(0, matrix.rows, 0, matrix.cols);
  const int64_t group_rows = recipe.group_rows(matrix.rows), group_cols = recipe.group_cols(matrix.cols);
  const int64_t grid_cols = (matrix.cols + group_cols - 1) / group_cols;
  double sum = 0;
  for (int64_t n = 0; n < matrix.rows; ++n) {
    for (int64_t k = 0; k < matrix.cols; ++k) {
      const auto code = uint8_t(result.codes[size_t(n * matrix.cols + k)]);
      const float scale = result.scales[size_t(n / group_rows * grid_cols + k / group_cols)];
      const double value = double(recipe.is_fp8() ? e4m3_to_float(code) : float(int8_t(code))) * double(scale);
      const double error = value - double(values[size_t(n * matrix.cols + k)]);
      sum += error * error * (weights == nullptr ? 1.0 : double(weights[k]));
    }
  }
  return sum;
}

// A matrix over values of its own.
struct Values {
  std::vector<float> values;
  SourceMatrix matrix;

  Values(int64_t rows, int64_t cols, const std::function<float(int64_t, int64_t)>& value) {
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) values.push_back(value(n, k));
    }
    matrix.name = "x";
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.type = Dtype::kF32;
    matrix.plain = std::as_bytes(std::span(values));
    matrix.mapped = false;
  }
};

TEST_CASE("--compat gives the tool's scales and codes, and rounding the scale first errs no more") {
  const fs::path folder = shared_folder() / "fixtures/quantizer";
  if (shared_folder().empty()) {
    test::skipped_without_shared("the quantizer's fixtures");
    return;
  }
  const FileMap inputs(folder / "inputs.safetensors"), outputs(folder / "outputs.safetensors");
  std::map<std::string, TensorView> tensors;
  for (const FileMap* file : {&inputs, &outputs}) {
    for (const TensorView& tensor : parse_safetensors(file->bytes(), file->path().string()).tensors)
      tensors[tensor.name] = tensor;
  }
  const auto cases = JsonDocument::parse(read_file(folder / "cases.json"), "cases.json");
  size_t count = 0;
  for (const Json& entry : cases->root().elements()) {
    const std::string name(entry.at("case").as_string());
    INFO(name);
    const TensorView& input = tensors.at(std::string(entry.at("input").as_string()));
    SourceMatrix matrix;
    matrix.name = "x";
    matrix.rows = input.shape[0];
    matrix.cols = input.shape[1];
    matrix.type = input.dtype;
    matrix.plain = input.bytes;
    matrix.tensors = {&input};
    Recipe recipe;
    recipe.compat = true;
    recipe.mode = parse_mode(entry.at("mode").as_string(), "mode");
    const Json parameters = entry.at("parameters");
    if (const auto value = parameters.get("rms_factor")) recipe.rms_factor = value->as_number();
    if (const auto value = parameters.get("percentile")) recipe.percentile = value->as_number();
    if (const auto value = parameters.get("mse_grid")) recipe.mse_steps = int(value->as_integer());
    std::vector<float> weights;
    if (const auto activation = entry.get("activation")) {
      weights = tensor_values(tensors.at(std::string(activation->as_string())));
      const float largest = std::max(*std::max_element(weights.begin(), weights.end()), 1e-12f);
      for (float& weight : weights) weight /= largest;
    }
    const float* const column_weights = weights.empty() ? nullptr : weights.data();
    const Result result = quantize(matrix, recipe, column_weights);

    const std::vector<float> scales = tensor_values(tensors.at(name + ".scale"));
    const std::vector<float> exact = tensor_values(tensors.at(name + ".scale_f32"));
    const TensorView& codes = tensors.at(name + ".codes");
    REQUIRE(scales.size() == result.scales.size());
    size_t other_scales = 0, other_codes = 0;
    for (size_t i = 0; i < scales.size(); ++i) {
      other_scales += result.scales[i] != scales[i];
      CHECK(std::fabs(result.scales[i] - exact[i]) <= exact[i] * 0x1.02p-8f);
    }
    for (size_t i = 0; i < codes.bytes.size(); ++i) {
      const int difference = std::abs(int(uint8_t(result.codes[i])) - int(uint8_t(codes.bytes[i])));
      other_codes += difference != 0;
      CHECK(difference <= 1);
    }
    // Bit for bit where no order of a sum or grid of quantiles can show; then ties may fall the other way.
    CHECK(other_scales == 0);
    CHECK(other_codes <= (recipe.mode == Mode::kMax ? 0 : codes.bytes.size() / 10000));

    Recipe rounded_first = recipe;
    rounded_first.compat = false;
    const double error =
        squared_error(matrix, rounded_first, quantize(matrix, rounded_first, column_weights), column_weights);
    CHECK(error <= squared_error(matrix, recipe, result, column_weights) * (1 + 1e-9));
    ++count;
  }
  CHECK(count > 20);
}

TEST_CASE("A search never errs more than the largest magnitude's scale") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const Values normal_values(70, 160, [&](int64_t, int64_t k) { return normal(random) * (k == 9 ? 15.0f : 0.02f); });
  for (const Format format :
       {Format::kFp8, Format::kFp8Channel, Format::kFp8Tensor, Format::kInt8, Format::kInt8Tensor, Format::kMxFp8}) {
    INFO(format_name(format));
    Recipe recipe;
    recipe.format = format;
    const double most = squared_error(normal_values.matrix, recipe, quantize(normal_values.matrix, recipe));
    recipe.mode = Mode::kMse;
    const double least = squared_error(normal_values.matrix, recipe, quantize(normal_values.matrix, recipe));
    CHECK(least <= most * (1 + 1e-6));
  }
  // Among many normal values the largest are so rare that clipping them pays.
  const Values many(400, 400, [&](int64_t, int64_t) { return normal(random); });
  Recipe recipe;
  recipe.format = Format::kInt8Tensor;
  const double most = squared_error(many.matrix, recipe, quantize(many.matrix, recipe));
  recipe.mode = Mode::kMse;
  CHECK(squared_error(many.matrix, recipe, quantize(many.matrix, recipe)) < 0.99 * most);
}

TEST_CASE("Blocks of zeros, huge and tiny values keep their values") {
  for (const float size : {0.0f, 3e38f, 1e-30f, 1e-37f}) {
    for (const Format format :
         {Format::kFp8, Format::kFp8Channel, Format::kInt8, Format::kInt8Tensor, Format::kMxFp8}) {
      for (const Mode mode : {Mode::kMax, Mode::kRms, Mode::kPercentile, Mode::kMse}) {
        INFO(size, " ", format_name(format), " ", mode_name(mode));
        const Values values(64, 96, [&](int64_t n, int64_t k) { return (n + k) % 3 == 0 ? -size : size; });
        Recipe recipe;
        recipe.format = format;
        recipe.mode = mode;
        const Result result = quantize(values.matrix, recipe);
        for (const float scale : result.scales) CHECK((std::isfinite(scale) && scale > 0));
        const double sum = double(size) * double(size) * 64 * 96;
        CHECK(squared_error(values.matrix, recipe, result) <= sum * 0.01);
      }
    }
  }
}

TEST_CASE("NaN and infinity are errors that name the tensor") {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const Format format : {Format::kFp8, Format::kInt8, Format::kInt8Tensor}) {
      const Values values(64, 64, [&](int64_t n, int64_t k) { return n == 40 && k == 50 ? bad : 1.0f; });
      Recipe recipe;
      recipe.format = format;
      CHECK(test::error_of([&] { quantize(values.matrix, recipe); }).starts_with("x: holds NaN or infinity"));
    }
  }
}

}  // namespace
}  // namespace qgen::quantize
