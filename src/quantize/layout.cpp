#include "quantize/layout.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/json.h"
#include "base/rounding.h"

namespace qgen::quantize {
namespace {

Dtype dtype_of(ScaleType type) {
  return type == ScaleType::kBf16 ? Dtype::kBf16 : type == ScaleType::kE8M0 ? Dtype::kU8 : Dtype::kF32;
}

std::vector<int64_t> scale_shape(const SourceMatrix& matrix, const Recipe& recipe) {
  const auto groups = [](int64_t n, int64_t group) { return (n + group - 1) / group; };
  const int64_t rows = groups(matrix.rows, recipe.group_rows(matrix.rows));
  const int64_t cols = groups(matrix.cols, recipe.group_cols(matrix.cols));
  const bool tensor = recipe.format == Format::kFp8Tensor || recipe.format == Format::kInt8Tensor;
  return tensor ? std::vector<int64_t>{1} : std::vector<int64_t>{rows, cols};
}

// torch maps each tensor where it lies, so that those of larger elements come first; then by name.
void sort_for_alignment(std::vector<OutputTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const OutputTensor& a, const OutputTensor& b) {
    const int a_bits = dtype_bits(a.shape.dtype), b_bits = dtype_bits(b.shape.dtype);
    return a_bits != b_bits ? a_bits > b_bits : a.shape.name < b.shape.name;
  });
}

bool is_published_name(const std::string& file, size_t count) {
  if (count == 1) return file == "model.safetensors";
  return file.starts_with("model-") && file.ends_with(".safetensors") && file.find("-of-") != file.npos;
}

// A JSON object's member, indented as transformers writes config.json.
std::string member(std::string_view key, std::string_view value, std::string_view indent) {
  return fmt::format("{}{}: {}", indent, json_quote(key), value);
}

std::string quoted_list(const std::vector<std::string>& items, std::string_view indent) {
  if (items.empty()) return "[]";
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i)
    out += fmt::format("{}\n{}  {}", i == 0 ? "" : ",", indent, json_quote(items[i]));
  return out + fmt::format("\n{}]", indent);
}

// Experts that stay as they were have two more kinds of names: transformers asks for the module that holds them all,
// vLLM (get_moe_method() of its compressed-tensors) and SGLang (get_moe_scheme()) for the parts of the first expert, by
// the names that they have in most models.
void add_experts(const std::string& module, std::set<std::string>& out) {
  out.insert(module);
  for (const char* part : {"gate_proj", "up_proj", "down_proj"}) out.insert(fmt::format("{}.0.{}", module, part));
}

// Linear layers that stay as they were, each by its whole name, which all engines match exactly.
std::vector<std::string> unquantized_linears(const Source& source, std::span<const std::string_view> reasons) {
  std::set<std::string> out = {"lm_head"};
  for (size_t i = 0; i < source.matrices.size(); ++i) {
    const std::string_view reason = reasons[i];
    if (reason.empty() || reason == "embedding" || reason == "no matrix of a linear layer") continue;
    const std::string& name = source.matrices[i].name;
    out.insert(name);
    if (const size_t at = name.find(".experts."); at != name.npos) add_experts(name.substr(0, at) + ".experts", out);
  }
  for (const TensorView* tensor : source.copied) {
    const std::string module = module_of_stack(*tensor);
    if (module.empty()) continue;
    out.insert(module);
    // Granite's stacks lie beside each other: X.input_linear and X.output_linear.
    const bool named = module.ends_with(".experts");
    add_experts(named ? module : module.substr(0, module.rfind('.')) + ".experts", out);
  }
  // transformers has Nemotron-H's modules under another name than its files.
  constexpr std::string_view kBackbone = "backbone.";
  std::set<std::string> renamed;
  for (const std::string& name : out) {
    if (name.starts_with(kBackbone)) renamed.insert("model." + name.substr(kBackbone.size()));
  }
  out.merge(renamed);
  return {out.begin(), out.end()};
}

// Of compressed-tensors (its QuantizationConfig), as its release 0.20 writes it.
std::string compressed_tensors(const Recipe& recipe, const std::vector<std::string>& ignored) {
  const bool tensor = recipe.format == Format::kFp8Tensor || recipe.format == Format::kInt8Tensor;
  const bool mx = recipe.format == Format::kMxFp8;
  const std::string_view format = mx ? "mxfp8-quantized" : recipe.is_fp8() ? "float-quantized" : "int-quantized";
  const std::string_view type = recipe.is_fp8() ? "float" : "int";
  const std::string inputs =
      mx ? "null"
         : fmt::format(
               R"({{"dynamic": true, "group_size": null, "num_bits": 8, "strategy": "token", "symmetric": true, "type": "{}"}})",
               type);
  const std::string weights = fmt::format(
      R"({{"dynamic": false, "group_size": {}, "num_bits": 8, {}"strategy": "{}", "symmetric": true, "type": "{}"}})",
      mx ? "32" : "null", mx ? R"("scale_dtype": "torch.uint8", )" : "",
      mx       ? "group"
      : tensor ? "tensor"
               : "channel",
      type);
  return fmt::format(R"({{
    "config_groups": {{
      "group_0": {{
        "format": "{}",
        "input_activations": {},
        "output_activations": null,
        "targets": ["Linear"],
        "weights": {}
      }}
    }},
    "format": "{}",
    "global_compression_ratio": null,
    "ignore": {},
    "kv_cache_scheme": null,
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
    "version": "0.20.0"
  }})",
                     format, inputs, weights, format, quoted_list(ignored, "    "));
}

// Of DeepSeek's and Qwen's block FP8 files.
std::string block_fp8(const Recipe& recipe, const std::vector<std::string>& ignored) {
  return fmt::format(R"({{
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "modules_to_not_convert": {},
    "quant_method": "fp8",
    "weight_block_size": [{}, {}]
  }})",
                     quoted_list(ignored, "    "), recipe.block, recipe.block);
}

bool is_changed(const Source& source, const TensorView* tensor) {
  return std::any_of(source.changed.begin(), source.changed.end(),
                     [&](const Source::Changed& changed) { return &changed.tensor == tensor; });
}

}  // namespace

std::string scale_name(const SourceMatrix& matrix, const Recipe& recipe) {
  return matrix.name + (recipe.format == Format::kFp8 ? ".weight_scale_inv" : ".weight_scale");
}

std::vector<Shard> lay_out(const Source& source, std::span<const std::string_view> reasons, const Recipe& recipe) {
  // In the order of the source's files, by the file of what each tensor is made from.
  std::vector<std::string> files;
  std::map<std::string, std::vector<OutputTensor>> by_file;
  for (const Checkpoint* tensors : {&source.checkpoint, &source.parts}) {
    for (const TensorView& tensor : tensors->tensors()) {
      if (std::ranges::find(files, tensor.file) == files.end()) files.push_back(tensor.file);
    }
  }
  for (const TensorView* tensor : source.copied) {
    OutputTensor out;
    out.shape = {tensor->name, tensor->dtype, tensor->shape};
    out.copied = tensor;
    out.mapped = !is_changed(source, tensor);
    by_file[tensor->file].push_back(std::move(out));
  }
  for (size_t i = 0; i < source.matrices.size(); ++i) {
    const SourceMatrix& matrix = source.matrices[i];
    auto& tensors = by_file[matrix.tensors.front()->file];
    OutputTensor codes;
    codes.matrix = &matrix;
    codes.shape = {matrix.name + ".weight", matrix.type, {matrix.rows, matrix.cols}};
    codes.part = OutputTensor::Part::kDecoded;
    if (reasons[i].empty()) {
      codes.part = OutputTensor::Part::kCodes;
      codes.shape.dtype = recipe.is_fp8() ? Dtype::kF8E4M3 : Dtype::kI8;
      OutputTensor scales;
      scales.matrix = &matrix;
      scales.part = OutputTensor::Part::kScales;
      scales.shape = {scale_name(matrix, recipe), dtype_of(recipe.scale_type(matrix.type)),
                      scale_shape(matrix, recipe)};
      tensors.push_back(std::move(scales));
    }
    tensors.push_back(std::move(codes));
  }
  std::erase_if(files, [&](const std::string& file) { return by_file[file].empty(); });
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(std::filesystem::path(file).filename().string());
  const bool published = std::all_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return is_published_name(name, names.size()); });
  std::vector<Shard> shards;
  for (size_t i = 0; i < files.size(); ++i) {
    Shard shard;
    shard.file = published           ? names[i]
                 : files.size() == 1 ? "model.safetensors"
                                     : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    shard.tensors = std::move(by_file[files[i]]);
    sort_for_alignment(shard.tensors);
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::string index_json(std::span<const Shard> shards) {
  uint64_t total = 0;
  std::map<std::string, std::string_view> file_of;
  for (const Shard& shard : shards) {
    for (const OutputTensor& tensor : shard.tensors) {
      total += tensor.shape.bytes();
      file_of[tensor.shape.name] = shard.file;
    }
  }
  std::string out = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  bool first = true;
  for (const auto& [name, file] : file_of) {
    out += (first ? "\n" : ",\n") + member(name, json_quote(file), "    ");
    first = false;
  }
  return out + "\n  }\n}\n";
}

std::string config_json(const Source& source, std::span<const std::string_view> reasons, const Recipe& recipe) {
  const std::vector<std::string> ignored = unquantized_linears(source, reasons);
  const std::string declared =
      recipe.format == Format::kFp8 ? block_fp8(recipe, ignored) : compressed_tensors(recipe, ignored);
  const Json config = source.checkpoint.config();
  const std::string text = source.checkpoint.files().read("config.json", 64 << 20);
  std::string out = "{";
  std::string_view separator = "\n";
  bool added = false;
  const auto add = [&](std::string_view key, std::string_view value) {
    out += fmt::format("{}{}", separator, member(key, value, "  "));
    separator = ",\n";
  };
  for (const auto& [key, value] : config.members()) {
    if (key == "quantization_config" || key == "quantization" || key == "compression_config") continue;
    // The keys are sorted in published files.
    if (!added && key > "quantization_config") {
      add("quantization_config", declared);
      added = true;
    }
    const auto changed = source.config.find(std::string(key));
    add(key, changed == source.config.end() ? value.written_in(text) : changed->second);
  }
  if (!added) add("quantization_config", declared);
  for (const auto& [key, value] : source.config) {
    if (!config.get(key)) add(key, value);
  }
  return out + "\n}\n";
}

}  // namespace qgen::quantize
