#include "quantize/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"

namespace qgen::quantize {

InputStatistics InputStatistics::read(const std::filesystem::path& path) {
  const std::string text = read_file(path, size_t{1} << 30, ErrorKind::kUsage);
  const auto document = JsonDocument::parse(text, path.string(), ErrorKind::kUsage);
  InputStatistics out;
  if (!document->root().is_object()) document->root().fail("no object of weights");
  for (const auto& [name, value] : document->root().members()) {
    const auto list = value.is_object() ? value.find("input_channel_max") : std::nullopt;
    if (!list) value.fail("no input_channel_max");
    std::vector<float>& maxima = out.maxima_[std::string(name)];
    for (const Json& element : list->elements()) {
      const double number = element.as_number();
      if (!(number >= 0) || !std::isfinite(number)) element.fail("no maximum of magnitudes");
      maxima.push_back(float(number));
    }
  }
  return out;
}

std::vector<float> InputStatistics::weights_of(std::string_view module, int64_t cols, bool& mismatch) const {
  const std::string name = std::string(module) + ".weight";
  std::vector<std::string> names = {name};
  for (std::string rest = name; names.size() < 3 && rest.find('.') != rest.npos;) {
    rest = rest.substr(rest.find('.') + 1);
    names.push_back(rest);
  }
  names.push_back("model." + name);
  names.push_back("model.language_model." + name);
  for (const std::string& candidate : names) {
    const auto found = maxima_.find(candidate);
    if (found == maxima_.end()) continue;
    if (int64_t(found->second.size()) != cols) {
      mismatch = true;
      return {};
    }
    std::vector<float> out = found->second;
    const float largest = std::max(*std::max_element(out.begin(), out.end()), 1e-12f);
    for (float& value : out) value /= largest;
    return out;
  }
  return {};
}

}  // namespace qgen::quantize
