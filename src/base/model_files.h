// The small text files of a model (configuration, tokenizer, chat template): those of a folder, or texts that
// stand in for them where a format keeps the same facts inside its weight file.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qgen {

class ModelFiles {
 public:
  // Texts by the name of the file they stand in for, each made when it is asked for.
  using Texts = std::map<std::string, std::function<std::string()>, std::less<>>;

  ModelFiles(std::filesystem::path folder) : place_(std::move(folder)), is_folder_(true) {}
  // `file` is what the texts come from, for messages.
  ModelFiles(std::filesystem::path file, Texts texts) : place_(std::move(file)), texts_(std::move(texts)) {}

  // Whether something has that name. A link to nothing, a pipe or a folder in a file's place counts, so that read()
  // says what is wrong with it.
  bool has(std::string_view name) const;
  // The contents; a model Error if it is missing, cannot be read or is longer than `limit_bytes`.
  std::string read(std::string_view name, size_t limit_bytes = size_t{1} << 30) const;

  // The names of all of them, sorted.
  std::vector<std::string> names() const;

  // The name of a file in messages: "model/tokenizer.json", or "model/model.gguf: tokenizer.json".
  std::string subject(std::string_view name) const;
  std::string place() const { return place_.string(); }  // the folder, or the file the texts come from

 private:
  std::filesystem::path place_;
  Texts texts_;
  bool is_folder_ = false;
};

}  // namespace qgen
