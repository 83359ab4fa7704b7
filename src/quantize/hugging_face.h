// A GGUF model, or one in Mistral's own layout, as the Hugging Face checkpoint of the same model: what llama.cpp's
// converter (conversion/base.py, llama.py, gemma.py) or Mistral's did to names, rows and norms is undone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "quantize/joined_matrices.h"

namespace qgen::quantize {

struct HuggingFaceView {
  // Tensors, config.json and the tokenizer's files as transformers has them, over the bytes of the model's files.
  Checkpoint checkpoint;
  Checkpoint parts;  // what `joined` is made from
  std::vector<JoinedMatrix> joined;
  Dtype float_type = Dtype::kBf16;  // of matrices that are not quantized
  // Of modules whose rows or columns lie in another order: where each is in the files; empty: in the same place.
  struct Order {
    std::vector<int64_t> rows, cols;
  };
  std::map<std::string, Order> orders;
  // By module what it is called in the files; experts of a stack P.X are P.EXPERT.X.
  std::map<std::string, std::string> file_modules;
  std::map<std::string, int64_t> left;  // how many tensors are not in it, by the reason
};

// Whether the tensors of a checkpoint have other names than in Hugging Face's.
bool has_other_layout(const Checkpoint& checkpoint);

// A model Error where the model has a part whose way back is not known.
HuggingFaceView as_hugging_face(Checkpoint checkpoint);

}  // namespace qgen::quantize
