// Statistics of the inputs of linear layers, as quantization may weight errors by them: a JSON file
// {"<weight>": {"input_channel_max": [one number a column]}}, which `qgen calibrate` writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::quantize {

class InputStatistics {
 public:
  // Throws a usage Error about a file that is none of these.
  static InputStatistics read(const std::filesystem::path& path);
  static InputStatistics parse(std::string_view text, const std::string& name_of_file);

  // Maxima that were seen, of the tensor X.weight: the larger of these and those from before counts.
  void add(const std::string& tensor, std::span<const float> maxima);
  // Where a module has no maxima, those of another: of column k that one's columns[k] (null: k).
  void use_for(const std::string& module, const std::string& other, const std::vector<int64_t>* columns);
  std::string json() const;

  // The maxima of the inputs of X.weight; empty where the file says nothing. Names are looked for without their first
  // one or two parts as well, and behind "model." and "model.language_model.".
  std::vector<float> maxima_of(std::string_view module) const;
  // For the weight X.weight of so many columns: how much each column's error counts, its maximum over the largest of
  // them; empty where the file says nothing, or of another number of columns (then `mismatch` is set).
  std::vector<float> weights_of(std::string_view module, int64_t cols, bool& mismatch) const;
  size_t size() const { return maxima_.size(); }
  const std::map<std::string, std::vector<float>, std::less<>>& maxima() const { return maxima_; }

 private:
  std::map<std::string, std::vector<float>, std::less<>> maxima_;
};

}  // namespace qgen::quantize
