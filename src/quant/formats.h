// The table of quantization methods. A method is a file with its row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/binder.h"
#include "quant/declaration.h"

namespace qgen {

struct Format {
  std::string_view name;     // as published files call it
  std::string_view summary;  // for people
  // Whether the tensors that are there for a module are of this method, and the weight that they are. Null for methods
  // that are another row's tensors under a name of their own.
  bool (*detect)(const Module&);
  Weight (*bind)(Module&);
  // For checkpoints whose weights are not there: whether config.json declares this method, with what it says about it,
  // and the tensors that published files then have for a (rows, cols) module.
  bool (*read)(const QuantSource&, Declaration&);
  std::vector<DeclaredTensor> (*declare)(const Scheme&, int64_t rows, int64_t cols);
  // The tensors of a module and their types, for docs/formats.md (Markdown).
  std::string_view layout = {};
  // The bias of a module where the method's tensors imply one, which then takes the place of `bias`.
  std::optional<Vector> (*bias)(Module&) = nullptr;
  // What the method calls the kind of a module's weights ("W8A16"); without it they are described as what they become.
  std::string (*kind)(const Module&) = nullptr;
  // Of a checkpoint with weights: an error where the keys of `quant` name a kind of the method that is not known, whose
  // tensors may hold something else than they seem to. Where they say so of some modules only, it is one of
  // `config.unknown_kinds`.
  void (*check)(const Json& quant, QuantConfig& config) = nullptr;
};
std::span<const Format> formats();

// Layouts that are recognized only to be refused by name.
struct UnsupportedLayout {
  std::string_view suffix;  // of the tensor that gives it away
  std::string_view name;
};
std::span<const UnsupportedLayout> unsupported_layouts();

// What a quant_method of config.json is to us, in lower case; unknown names are refused, because tensors that look
// known may hold something else.
struct DeclaredMethod {
  std::string_view name;
  bool common = false;            // its tensors are those of the rows `fp8` or `compressed-tensors`
  std::string_view refusal = {};  // why weights of this method cannot be read; empty for one that some row reads
};
std::span<const DeclaredMethod> declared_methods();
// Null for an unknown name.
const DeclaredMethod* find_declared_method(std::string_view name);

// What to do about keys that are not known.
constexpr std::string_view kTrustTensors = "--trust-tensors reads the weights as their tensors look";
// What to do about weights that cannot be read.
constexpr std::string_view kOtherCheckpoint = "look for an FP8, INT8 or GGUF Q8_0 checkpoint of the same model";

// The rows of the table, a file each.
extern const Format kPlainFormat;
extern const Format kFp8Format;
extern const Format kScaledFormat;
extern const Format kGgufFormat;
extern const Format kFp4Format;
extern const Format kAwqFormat;
extern const Format kGptqFormat;
extern const Format kPackFormat;
extern const Format kBitsandbytesFormat;
extern const Format kMlxFormat;
extern const Format kHqqFormat;
extern const Format kTorchaoFormat;
extern const Format kQuantoFormat;
extern const Format kMsModelSlimFormat;
extern const Format kQuarkFormat;
extern const Format kModelOptFormat;

}  // namespace qgen
