// What config.json declares about how weights are stored: all there is to know about a checkpoint whose weights have
// not been downloaded. Where the weights are there the tensors themselves say what they are, and only QuantConfig is
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/json.h"
#include "base/model_files.h"
#include "checkpoint/tensor.h"

namespace qgen {

struct Format;

// Where a method is declared: quantization_config of config.json, or a file beside it.
struct QuantSource {
  // quant_method in lower case; "modelopt" where only quant_algo tells, "msmodelslim" where a description file is
  // there;
  // "" for none.
  std::string method;
  std::optional<Json> json;  // the object that says more; none if unquantized
  Dtype plain = Dtype::kBf16;
};

// How the weights of some modules are stored.
struct Scheme {
  std::vector<std::string> targets;  // which modules; empty: all
  Dtype codes = Dtype::kF8E4M3;
  Dtype scales = Dtype::kF32;
  int64_t group_rows = 0, group_cols = 0;  // of a scale; 0: all rows, all columns
  bool zero_points = false;
  bool activation_order = false;
  bool static_inputs = false;  // the files have a scale of the module's input
  bool input_scales = false;   // and multipliers of its columns
  int bits = 8;                // of a code
  bool packed = false;         // codes lie in words
  bool group_index = false;    // the files say of each column which group it is in
  bool whole_groups = false;   // a module whose rows are no whole groups is left unquantized
};

// How a list of modules names them.
enum class Matching {
  kPaths,      // a whole dotted path, or its beginning or end
  kTargets,    // a whole path, a class ("Linear"), or a regular expression after "re:" (compressed-tensors)
  kWildcards,  // a path with * and ? (ModelOpt)
};

struct DeclaredTensor {
  std::string suffix;  // "weight_scale"
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::byte fill{0};  // its bytes, where zeros would say something else
};

struct Declaration {
  const Format* format = nullptr;
  Dtype plain = Dtype::kBf16;  // of unquantized tensors
  std::vector<Scheme> schemes;
  // The scheme of each quantized module, where the files that declare it name every module; else empty.
  std::map<std::string, size_t, std::less<>> scheme_of_module;
  Matching matching = Matching::kPaths;
  std::vector<std::string> excluded;
  bool embeddings = false;  // the embedding is quantized as well

  // Throws a model Error that names what is declared and not supported. `side_file` is hf_quant_config.json, or null;
  // `description` msModelSlim's description file, or null.
  static Declaration read(const Json& config, const JsonDocument* side_file, const JsonDocument* description = nullptr);
  // The scheme of a module, an embedding aside; null for one that is left unquantized.
  const Scheme* scheme_of(std::string_view module) const;
};

// Scale groups of (rows, cols) under a scheme, for the shape of a scale.
int64_t scheme_grid_rows(const Scheme& scheme, int64_t rows);
int64_t scheme_grid_cols(const Scheme& scheme, int64_t cols);

// What config.json says about quantization where the weights are there: hints for reading scale grids, and reasons to
// refuse.
struct QuantConfig {
  std::vector<std::pair<int64_t, int64_t>> groups;  // declared blocks (r, c) and groups (1, g)
  std::optional<Json> json;                         // the object that says it; none if unquantized
  std::string method;                               // as QuantSource has it
  std::shared_ptr<const JsonDocument> side_file;    // as read_side_file() has it
  // Of msModelSlim's description file, where there is one: its name, and what it says each tensor is ("W8A16").
  std::string description;
  std::map<std::string, std::string, std::less<>> types;
  // Whether integer weights must have zero points, and an order of their columns, since all are said to: without them
  // other weights would be read in silence.
  bool zero_points = false, activation_order = false;
  // Modules whose kind of quantization is not known, with the error that says so.
  std::map<std::string, std::exception_ptr, std::less<>> unknown_kinds;

  // Throws a model Error on contents that are wrong or that change the arithmetic (rotations, sparsity), and on a
  // quant_method that is not known unless `trust_tensors`. `files` are those beside the weights.
  static QuantConfig read(const Json& config, const ModelFiles& files, bool trust_tensors = false);
  // Throws the error of unknown_kinds that a module has, by its own name or that of a part of the model around it.
  void check_kind(std::string_view module) const;
  // What the description file says of a tensor; "" where it says nothing.
  std::string_view type_of(std::string_view tensor) const;
  // A member of the object, or of GPTQ's side file where the object has none.
  std::optional<Json> value(std::string_view key) const;
  // checkpoint_format or format, in lower case, of the object or else of GPTQ's side file.
  std::optional<std::string> layout() const;
};

// hf_quant_config.json, ModelOpt's, or quantize_config.json where it is GPTQ's; or null.
std::unique_ptr<JsonDocument> read_side_file(const ModelFiles& files);
// What it says of all weights: ModelOpt's has it in a member.
Json side_object(const JsonDocument& side_file);
// quant_model_description*.json among the files; null if there is none. A model Error where several fit.
std::unique_ptr<JsonDocument> read_description(const ModelFiles& files);

constexpr int64_t kMaxGroup = 1 << 30;  // rows or columns that a block or group may have

// The object of config.json that declares a method; nothing where none is declared.
std::optional<Json> quantization_of(const Json& config);
// Whether a quant_method is AutoRound's, by one of its names.
bool is_auto_round(std::string_view method);

// Whether QuantizationArgs of compressed-tensors ask for groups in the order of activations, under one of its names.
bool orders_columns(const Json& weights);

// Keys that methods share. Each throws a model Error that names the key.
std::pair<int64_t, int64_t> read_block(const Json& json);                       // [rows, columns] or "ROWSxCOLUMNS"
Dtype fp8_type(const Json& name);                                               // e4m3, e5m2 and their other names
Dtype read_fp8_type(const Json& quantization);                                  // fmt: e4m3 where nothing is said
bool read_static_inputs(const Json& quantization);                              // activation_scheme
void read_excluded_paths(const Json& quantization, Declaration&);               // modules_to_not_convert; and the head
std::vector<std::string> read_names(const Json& object, std::string_view key);  // a list of strings, [] if absent

}  // namespace qgen
