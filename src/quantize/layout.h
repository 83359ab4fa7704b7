// What a quantized checkpoint holds: the tensors of each file with their names and shapes, and the declaration in
// config.json, as vLLM, SGLang and transformers read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "quantize/recipe.h"
#include "quantize/source.h"

namespace qgen::quantize {

// A tensor that is written, and where its values come from.
struct OutputTensor {
  enum class Part : uint8_t { kCopy, kCodes, kScales, kDecoded };
  TensorShape shape;
  Part part = Part::kCopy;
  const TensorView* copied = nullptr;    // kCopy
  bool mapped = true;                    // kCopy: its bytes lie in a file
  const SourceMatrix* matrix = nullptr;  // all others; kDecoded: its values in its own type
};

struct Shard {
  std::string file;  // its name in the folder
  std::vector<OutputTensor> tensors;
};

// The files, each with what one of the source's files holds. `reasons`: for each matrix of the source why it is left as
// it is, or "".
std::vector<Shard> lay_out(const Source& source, std::span<const std::string_view> reasons, const Recipe& recipe);

// model.safetensors.index.json over the files.
std::string index_json(std::span<const Shard> shards);

// The source's config.json with the declaration of the recipe in place of any other.
std::string config_json(const Source& source, std::span<const std::string_view> reasons, const Recipe& recipe);

// The name of a matrix's scales: "X.weight_scale_inv" for blocks, else "X.weight_scale".
std::string scale_name(const SourceMatrix& matrix, const Recipe& recipe);

}  // namespace qgen::quantize
