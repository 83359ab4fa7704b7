// A checkpoint opened where it lies: its files mapped, its tensors by name, its config.json.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/blank_memory.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/model_files.h"
#include "checkpoint/tensor.h"

namespace qgen {

// Where a model is: the folder that holds config.json and the tokenizer, and the weight files to read.
struct ModelLocation {
  std::string name;  // for the report: "Qwen/Qwen3-8B-FP8", "stories260K-FP8"
  std::filesystem::path folder;
  std::optional<std::filesystem::path> single_file = {};  // when the user named one .safetensors file
  std::vector<std::filesystem::path> gguf_files = {};     // the parts of a GGUF model, in order
};

// `model` is a folder (of one model, or with one GGUF model among its files: FOLDER:Q8_0 names one of several), a
// .safetensors or GGUF file, or what parse_model_reference() takes, in the Hugging Face cache (never the network; a
// bare name will do). Throws a model Error; for an absent org/name its hint is the `hf download` line, and what comes
// close to it.
ModelLocation locate_model(const std::string& model);

// The models of the Hugging Face cache: every model repository, by name, each GGUF model of one that has several. Only
// folders are looked at; whether a model can be run is for make_plan() to say.
struct CachedModel {
  ModelLocation location;
  std::string problem = {};  // why its files cannot be found; empty if they are
};
std::vector<CachedModel> cached_models();
// The cache's folder, by huggingface_hub's environment variables.
std::filesystem::path cache_root();

class Checkpoint {
 public:
  // Maps every safetensors file. `config` is the model's config.json. `headers_only`: the files' data need not be
  // complete; what is missing reads as zeros. Throws a model Error.
  static Checkpoint open(const ModelLocation& location, std::unique_ptr<JsonDocument> config,
                         bool headers_only = false);
  // From tensors whose bytes `files` keeps mapped, or another owner that outlives the checkpoint. `incomplete`: see
  // below.
  static Checkpoint assemble(const ModelLocation& location, ModelFiles files, std::unique_ptr<JsonDocument> config,
                             std::vector<TensorView> tensors, std::string incomplete = {});
  // A checkpoint without files: tensors of these names, types and shapes, each filled with the byte at its place in
  // `fills`; zeros take no memory until they are written. `config` is its config.json. `only_plan`: tensors of the
  // same byte lie in one place, which takes no more addresses than the largest of them and is all the same to a plan.
  static Checkpoint blank(const ModelLocation& location, std::unique_ptr<JsonDocument> config,
                          std::vector<TensorView> tensors, const std::vector<std::byte>& fills, bool only_plan);

  const TensorView* find(std::string_view name) const;  // nullptr if absent
  const std::vector<TensorView>& tensors() const { return tensors_; }
  Json config() const { return config_->root(); }
  const ModelLocation& location() const { return location_; }
  // Whether a path, behind links, is a file with tensors, or one beside them that by its name belongs to a model.
  bool is_file_of_model(const std::filesystem::path& path) const;
  bool is_blank() const { return files_.empty() && location_.gguf_files.empty(); }
  // The data of a blank checkpoint, which all of its tensors lie in; empty for one that was read from files. Not to be
  // written where it is for plans only.
  std::span<std::byte> blank_bytes() { return blank_.bytes(); }
  // config.json and the tokenizer's files.
  const ModelFiles& files() const { return model_files_; }
  // A weight file whose data is not complete; "" where all are.
  const std::string& incomplete() const { return incomplete_; }

 private:
  void index_names();

  ModelLocation location_;
  ModelFiles model_files_{std::filesystem::path()};  // of a GGUF model: keeps its files mapped
  std::vector<FileMap> files_;
  BlankMemory blank_;
  std::vector<BlankMemory> missing_;  // in place of data that files lack
  std::string incomplete_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys view tensors_[i].name
  std::unique_ptr<JsonDocument> config_;
};

// A folder with a file of this name is being written, or was left unfinished: reading its configuration is an error.
constexpr std::string_view kIncompleteMark = "INCOMPLETE.qgen.json";

// The folder's config.json; a model Error, with a hint about what lies there instead, if it is missing.
std::unique_ptr<JsonDocument> read_config(const ModelLocation& location);

// The index of a folder's weight files; nothing where there is none. Besides model.safetensors.index.json that of
// msModelSlim's files and of Mistral's own.
std::optional<std::filesystem::path> find_index(const std::filesystem::path& folder);

// The weight files of a folder: those its index names, else model.safetensors, else every *.safetensors; of copies in
// several layouts one. Files of msModelSlim (quant_model_weight*) come first.
// For each, the tensors that the index expects in it (empty without an index).
struct WeightFiles {
  std::vector<std::filesystem::path> paths;
  std::unordered_map<std::string, std::string> file_of_tensor;  // from the index
  std::string index_name;
  std::optional<double> total_bytes;  // of all tensors, as the index says
};
WeightFiles find_weight_files(const std::filesystem::path& folder);

// Parses model.safetensors.index.json; rejects names that leave the folder.
WeightFiles parse_index(std::string_view text, const std::string& subject, const std::filesystem::path& folder);

}  // namespace qgen
