#include "quantize/statistics.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"

namespace qgen::quantize {

InputStatistics InputStatistics::read(const std::filesystem::path& path) {
  return parse(read_file(path, size_t{1} << 30, ErrorKind::kUsage), path.string());
}

InputStatistics InputStatistics::parse(std::string_view text, const std::string& name_of_file) {
  const auto document = JsonDocument::parse(text, name_of_file, ErrorKind::kUsage);
  InputStatistics out;
  if (!document->root().is_object()) document->root().fail("no object of weights");
  for (const auto& [name, value] : document->root().members()) {
    const auto list = value.is_object() ? value.find("input_channel_max") : std::nullopt;
    if (!list) value.fail("no input_channel_max");
    if (list->elements().empty()) list->fail("is empty (expected a number for each column)");
    std::vector<float>& maxima = out.maxima_[std::string(name)];
    for (const Json& element : list->elements()) {
      const double number = element.as_number();
      if (!(number >= 0 && number <= double(std::numeric_limits<float>::max())))
        element.fail("no maximum of magnitudes (expected a number from 0 to 3.4e38)");
      maxima.push_back(float(number));
    }
  }
  return out;
}

void InputStatistics::add(const std::string& tensor, std::span<const float> maxima) {
  std::vector<float>& ours = maxima_[tensor];
  ours.resize(maxima.size());
  std::ranges::transform(ours, maxima, ours.begin(), [](float a, float b) { return std::max(a, b); });
}

void InputStatistics::use_for(const std::string& module, const std::string& other,
                              const std::vector<int64_t>* columns) {
  const auto found = maxima_.find(other + ".weight");
  if (found == maxima_.end() || !maxima_of(module).empty()) return;
  std::vector<float> maxima = found->second;
  if (columns != nullptr && columns->size() == maxima.size())
    std::ranges::transform(*columns, maxima.begin(), [&](int64_t k) { return found->second[size_t(k)]; });
  maxima_[module + ".weight"] = std::move(maxima);
}

std::string InputStatistics::json() const {
  std::string out = "{";
  for (const auto& [name, maxima] : maxima_) {
    out += fmt::format("{}\n  {}: {{\"input_channel_max\": [{:.6g}]}}", out.size() == 1 ? "" : ",", json_quote(name),
                       fmt::join(maxima, ", "));
  }
  return out + "\n}\n";
}

std::vector<float> InputStatistics::maxima_of(std::string_view module) const {
  const std::string name = std::string(module) + ".weight";
  std::vector<std::string> names = {name};
  for (std::string rest = name; names.size() < 3 && rest.find('.') != rest.npos;) {
    rest = rest.substr(rest.find('.') + 1);
    names.push_back(rest);
  }
  names.push_back("model." + name);
  names.push_back("model.language_model." + name);
  for (const std::string& candidate : names) {
    if (const auto found = maxima_.find(candidate); found != maxima_.end()) return found->second;
  }
  return {};
}

std::vector<float> InputStatistics::weights_of(std::string_view module, int64_t cols, bool& mismatch) const {
  std::vector<float> out = maxima_of(module);
  if (out.empty()) return out;
  if (int64_t(out.size()) != cols) {
    mismatch = true;
    return {};
  }
  const float largest = *std::max_element(out.begin(), out.end());
  if (largest == 0) return {};  // an input that was never seen
  for (float& value : out) value /= largest;
  return out;
}

}  // namespace qgen::quantize
