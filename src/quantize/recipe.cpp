#include "quantize/recipe.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::quantize {
namespace {

struct FormatName {
  Format format;
  std::string_view name;
};
constexpr FormatName kFormats[] = {
    {Format::kFp8, "fp8"},   {Format::kFp8Channel, "fp8-channel"}, {Format::kFp8Tensor, "fp8-tensor"},
    {Format::kInt8, "int8"}, {Format::kInt8Tensor, "int8-tensor"}, {Format::kMxFp8, "mxfp8"},
    {Format::kQ8_0, "q8_0"}};
constexpr std::string_view kModes[] = {"max", "rms", "percentile", "mse"};
constexpr int64_t kMxGroup = 32;

}  // namespace

std::string_view format_name(Format format) { return kFormats[size_t(format)].name; }

std::string_view format_choices() {
  static const std::string choices = [] {
    std::string out;
    for (const FormatName& row : kFormats) out += fmt::format("{}{}", out.empty() ? "" : ",", row.name);
    return out;
  }();
  return choices;
}

Format parse_format(std::string_view name, std::string_view subject) {
  for (const FormatName& row : kFormats) {
    if (row.name == name) return row.format;
  }
  fail(ErrorKind::kUsage, fmt::format("{}: '{}' is not allowed (expected {})", subject, name, format_choices()));
}

std::string_view mode_name(Mode mode) { return kModes[size_t(mode)]; }

Mode parse_mode(std::string_view name, std::string_view subject) {
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (kModes[i] == name) return Mode(i);
  }
  fail(ErrorKind::kUsage, fmt::format("{}: '{}' is not allowed (expected {})", subject, name, fmt::join(kModes, ", ")));
}

int64_t Recipe::group_rows(int64_t rows) const {
  switch (format) {
    case Format::kFp8: return block;
    case Format::kFp8Tensor:
    case Format::kInt8Tensor: return rows;
    default: return 1;
  }
}

int64_t Recipe::group_cols(int64_t cols) const {
  switch (format) {
    case Format::kFp8: return block;
    case Format::kMxFp8: return kMxGroup;
    case Format::kQ8_0: return std::min(cols, kQ8_0BlockElements);
    default: return cols;
  }
}

ScaleType Recipe::scale_type(Dtype source) const {
  switch (format) {
    case Format::kFp8: return ScaleType::kBf16;
    case Format::kMxFp8: return ScaleType::kE8M0;
    case Format::kInt8Tensor: return ScaleType::kF32;
    case Format::kQ8_0: return ScaleType::kF16;
    // F16 is too narrow for scales of small weights.
    default: return source == Dtype::kBf16 ? ScaleType::kBf16 : ScaleType::kF32;
  }
}

std::string Recipe::mode_text() const {
  switch (mode) {
    case Mode::kRms: return fmt::format("rms (factor {:g})", rms_factor);
    case Mode::kPercentile: return fmt::format("percentile ({:g})", percentile);
    case Mode::kMse: return fmt::format("mse ({} steps)", mse_steps);
    default: return "max";
  }
}

}  // namespace qgen::quantize
