#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

// Sorted, so that the same folder reads the same way everywhere.
std::vector<fs::path> safetensors_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// msModelSlim's weight files, which may lie beside those of the model that was quantized.
constexpr std::string_view kSlimWeights = "quant_model_weight";
bool is_slim_file(const fs::path& path) {
  return path.filename().string().starts_with(kSlimWeights) && path.extension() == ".safetensors";
}
bool holds_slim_files(const fs::path& folder) {
  const std::vector<fs::path> files = safetensors_in(folder);
  return std::any_of(files.begin(), files.end(), is_slim_file);
}

}  // namespace

std::unique_ptr<JsonDocument> read_config(const ModelLocation& location) {
  const fs::path path = location.folder / "config.json";
  if (is_there(location.folder / kIncompleteMark)) {
    fail(ErrorKind::kModel,
         fmt::format("{}: this checkpoint is not complete, its quantization has not ended", location.folder.string()),
         "the same `qgen quantize` command with --resume goes on");
  }
  if (!is_there(path)) {
    std::string hint;
    if (location.single_file) {
      hint = "qgen reads the model's sizes from the config.json beside the weights";
    }
    fail(ErrorKind::kModel, fmt::format("{}: config.json is missing", location.folder.string()), hint);
  }
  return JsonDocument::parse(read_file(path, 64 << 20), path.string());
}

WeightFiles parse_index(std::string_view text, const std::string& subject, const fs::path& folder) {
  WeightFiles files;
  files.index_name = subject;
  const auto document = JsonDocument::parse(text, subject);
  std::set<std::string> names;
  for (const auto& [tensor, value] : document->root().at("weight_map").members()) {
    const std::string file(value.as_string());
    if (file.empty() || file == "." || file == ".." ||
        file.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      value.fail(fmt::format("{} is not a plain file name", quoted_name(file)),
                 "an index may only name files in its own folder");
    }
    files.file_of_tensor.emplace(tensor, file);
    names.insert(file);
  }
  if (names.empty()) fail(ErrorKind::kModel, fmt::format("{}: weight_map is empty", subject));
  if (const auto metadata = document->root().get("metadata"); metadata && metadata->is_object()) {
    if (const auto total = metadata->get("total_size"); total && total->is_number())
      files.total_bytes = total->as_number();
  }
  for (const std::string& name : names) files.paths.push_back(folder / name);
  return files;
}

std::optional<fs::path> find_index(const fs::path& folder) {
  constexpr std::string_view kExtension = ".safetensors.index.json";
  std::optional<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kSlimWeights) && name.ends_with(kExtension))
      found = std::min(found.value_or(entry.path()), entry.path());
  }
  if (found || holds_slim_files(folder)) return found;
  for (const char* name : {"model", "consolidated"}) {
    if (const fs::path path = folder / fmt::format("{}{}", name, kExtension); is_there(path)) return path;
  }
  return {};
}

WeightFiles find_weight_files(const fs::path& folder) {
  const std::optional<fs::path> index = find_index(folder);
  WeightFiles files;
  const fs::path whole = folder / "model.safetensors";
  if (index) files = parse_index(read_file(*index), index->string(), folder);
  // A whole file wins over an index that was left beside it and does not name it, as in transformers.
  if (!holds_slim_files(folder) && is_there(whole) &&
      std::find(files.paths.begin(), files.paths.end(), whole) == files.paths.end()) {
    files = {};
    files.paths = {whole};
  } else if (!files.paths.empty()) {
    for (const fs::path& path : files.paths) {
      if (!fs::exists(path)) {
        fail(ErrorKind::kModel,
             fmt::format("{}: names a file that is missing: {}", index->string(), path.filename().string()),
             "an unfinished download? fetch the folder again");
      }
    }
  } else {
    files.paths = safetensors_in(folder);
    // Mistral's own copy of the same weights lies beside the Hugging Face one in some repositories.
    const auto is_native = [](const fs::path& path) { return path.filename().string().starts_with("consolidated"); };
    if (!std::all_of(files.paths.begin(), files.paths.end(), is_native)) std::erase_if(files.paths, is_native);
    if (holds_slim_files(folder)) std::erase_if(files.paths, [](const fs::path& path) { return !is_slim_file(path); });
  }
  if (files.paths.empty()) {
    std::string hint;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
        hint = fmt::format("{} is a pickle; qgen reads safetensors only", entry.path().filename().string());
      }
    }
    fail(ErrorKind::kModel, fmt::format("{}: no .safetensors file", folder.string()), hint);
  }
  return files;
}

Checkpoint Checkpoint::open(const ModelLocation& location, std::unique_ptr<JsonDocument> config, bool headers_only) {
  Checkpoint checkpoint;
  checkpoint.location_ = location;
  checkpoint.model_files_ = ModelFiles(location.folder);
  checkpoint.config_ = std::move(config);
  WeightFiles files;
  if (location.single_file) {
    files.paths = {*location.single_file};
  } else {
    files = find_weight_files(location.folder);
  }
  for (const fs::path& path : files.paths) {
    checkpoint.files_.emplace_back(path);
    BlankData blank;
    if (headers_only) {
      blank = [&](uint64_t bytes) -> std::span<const std::byte> {
        checkpoint.incomplete_ = path.string();
        return checkpoint.missing_.emplace_back(bytes, path.string(), BlankMemory::Kind::kWeights).bytes();
      };
    }
    Safetensors parsed = parse_safetensors(checkpoint.files_.back().bytes(), path.string(), blank);
    std::move(parsed.tensors.begin(), parsed.tensors.end(), std::back_inserter(checkpoint.tensors_));
  }
  checkpoint.index_names();
  for (const auto& [name, file] : files.file_of_tensor) {
    const TensorView* tensor = checkpoint.find(name);
    if (tensor == nullptr || fs::path(tensor->file).filename() != file) {
      fail(ErrorKind::kModel,
           fmt::format("{}: tensor {} is not in {} (found {})", files.index_name, quoted_name(name), file,
                       tensor == nullptr ? "nowhere" : fs::path(tensor->file).filename().string()));
    }
  }
  return checkpoint;
}

Checkpoint Checkpoint::assemble(const ModelLocation& location, ModelFiles files, std::unique_ptr<JsonDocument> config,
                                std::vector<TensorView> tensors, std::string incomplete) {
  Checkpoint checkpoint;
  checkpoint.location_ = location;
  checkpoint.incomplete_ = std::move(incomplete);
  checkpoint.model_files_ = std::move(files);
  checkpoint.config_ = std::move(config);
  checkpoint.tensors_ = std::move(tensors);
  checkpoint.index_names();
  return checkpoint;
}

namespace {

// Where the tensors of a blank checkpoint lie in its data.
struct BlankPlaces {
  std::vector<size_t> offsets;
  size_t total = 0;
};

constexpr size_t kBlankAlignment = 64;

size_t bytes_of(const TensorView& tensor) {
  size_t bits = size_t(dtype_bits(tensor.dtype));
  for (const int64_t size : tensor.shape) bits = checked_product(tensor.name, {bits, size_t(size)});
  return bits / 8;
}

// One after the other.
BlankPlaces places_apart(const std::vector<TensorView>& tensors) {
  BlankPlaces out;
  for (const TensorView& tensor : tensors) {
    out.offsets.push_back(out.total);
    out.total = checked_sum(tensor.name, {out.total, checked_aligned(tensor.name, bytes_of(tensor), kBlankAlignment)});
  }
  return out;
}

// All that have the same byte in one place, as large as the largest of them.
BlankPlaces places_shared(const std::vector<TensorView>& tensors, const std::vector<std::byte>& fills) {
  std::map<std::byte, std::pair<size_t, size_t>> places;  // size and offset by the byte
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t& size = places[fills[i]].first;
    size = std::max(size, checked_aligned(tensors[i].name, bytes_of(tensors[i]), kBlankAlignment));
  }
  BlankPlaces out;
  for (auto& [fill, place] : places) {
    place.second = out.total;
    out.total = checked_sum("all tensors", {out.total, place.first});
  }
  for (const std::byte fill : fills) out.offsets.push_back(places[fill].second);
  return out;
}

}  // namespace

Checkpoint Checkpoint::blank(const ModelLocation& location, std::unique_ptr<JsonDocument> config,
                             std::vector<TensorView> tensors, const std::vector<std::byte>& fills, bool only_plan) {
  Checkpoint checkpoint;
  checkpoint.location_ = location;
  checkpoint.model_files_ = ModelFiles(location.folder);
  checkpoint.config_ = std::move(config);
  const BlankPlaces places = only_plan ? places_shared(tensors, fills) : places_apart(tensors);
  checkpoint.blank_ = BlankMemory(places.total, location.name, BlankMemory::Kind::kWeights);
  const std::span<std::byte> data = checkpoint.blank_.bytes();
  std::map<size_t, size_t> filled;  // how many bytes from an offset on
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::span<std::byte> bytes = data.subspan(places.offsets[i], bytes_of(tensors[i]));
    tensors[i].bytes = bytes;
    if (fills[i] == std::byte{0}) continue;
    size_t& done = filled[places.offsets[i]];
    if (done < bytes.size()) std::fill(bytes.begin() + ptrdiff_t(done), bytes.end(), fills[i]);
    done = std::max(done, bytes.size());
  }
  checkpoint.tensors_ = std::move(tensors);
  checkpoint.index_names();
  return checkpoint;
}

void Checkpoint::index_names() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [other, inserted] = by_name_.emplace(tensors_[i].name, i);
    if (!inserted) {
      fail(ErrorKind::kModel, fmt::format("{}: tensor {} is also in {}", tensors_[i].file,
                                          quoted_name(tensors_[i].name), tensors_[other->second].file));
    }
  }
}

bool Checkpoint::is_file_of_model(const fs::path& path) const {
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  const auto is_it = [&](const fs::path& file) { return fs::equivalent(path, file, error) && !error; };
  std::string_view before;
  for (const TensorView& tensor : tensors_) {
    if (tensor.file != before && is_it(tensor.file)) return true;
    before = tensor.file;
  }
  constexpr std::string_view kEnds[] = {".safetensors", ".gguf", ".json", ".jinja", ".model", ".tiktoken", ".txt"};
  const std::string end = path.extension().string();
  if (std::ranges::find(kEnds, end) == std::end(kEnds)) return false;
  return is_it(location_.folder / path.filename());
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace qgen
