// The table of quantization methods. A method is a file with its row.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quant/binder.h"
#include "quant/declaration.h"

namespace qgen {

struct Format {
  std::string_view name;     // as published files call it
  std::string_view summary;  // for people
  // Whether the tensors that are there for a module are of this method, and the weight that they are.
  bool (*detect)(const Module&);
  Weight (*bind)(Module&);
  // For checkpoints whose weights are not there: whether config.json declares this method, with what it says about it,
  // and the tensors that published files then have for a (rows, cols) module.
  bool (*read)(const QuantSource&, Declaration&);
  std::vector<DeclaredTensor> (*declare)(const Scheme&, int64_t rows, int64_t cols);
  // The tensors of a module and their types, for docs/formats.md (Markdown).
  std::string_view layout = {};
};
std::span<const Format> formats();

// Layouts that are recognized only to be refused by name.
struct UnsupportedLayout {
  std::string_view suffix;  // of the tensor that gives it away
  std::string_view name;
};
std::span<const UnsupportedLayout> unsupported_layouts();

// The rows of the table, a file each.
extern const Format kPlainFormat;
extern const Format kFp8Format;
extern const Format kScaledFormat;
extern const Format kQ8_0Format;
extern const Format kAwqFormat;
extern const Format kGptqFormat;
extern const Format kPackFormat;
extern const Format kBitsandbytesFormat;
extern const Format kMlxFormat;
extern const Format kHqqFormat;
extern const Format kTorchaoFormat;
extern const Format kQuantoFormat;

}  // namespace qgen
