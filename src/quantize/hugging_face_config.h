// config.json in transformers' words, of a model whose files are in another layout: GGUF, or Mistral's own.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"
#include "model/families/table.h"

namespace qgen::quantize {

// Throws the model Error about what transformers' files cannot say of the model of this name.
[[noreturn]] void refuse_conversion(const std::string& name, const std::string& problem);

// What the files say of the model, and what they call its tensors.
struct OtherLayout {
  const Checkpoint& checkpoint;
  const Family& family;
  Description model;
  Names names;

  int64_t layers() const { return int64_t(model.layers.size()); }
  // The tensor of a role; null where there is none.
  const TensorView* find(Role role, int64_t layer, std::string_view suffix) const;
  // Whether some layer has such a tensor.
  bool has(Role role, std::string_view suffix) const;
  [[noreturn]] void refuse(const std::string& problem) const;
};

// The keys that it was read with stay, but for what speaks of the other layout. `float_type`: of what is not quantized.
// A model Error where a rotation cannot be said.
std::string hugging_face_config(const OtherLayout& files, Dtype float_type);

// transformers leaves out a bias that its class does not have, and fills one that is missing with zeros: a model Error
// about these.
void check_biases(const OtherLayout& files);

}  // namespace qgen::quantize
