// What people call a model on the Hugging Face hub: org/name, with a revision, a quantization of its GGUF files or one
// of its files, or the address of a page.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qgen {

struct ModelReference {
  std::string id;        // "org/name", or a bare name
  std::string revision;  // "" for the main one
  std::string variant;   // what the name of its GGUF file has: "Q8_0"; "" for any
  std::string file;      // one of its files: "model-q8_0.gguf"; "" for none

  // "hf download org/name …": what fetches it.
  std::string download() const;
};

// ID[@REVISION][:VARIANT], ID/FILE.gguf, or an address like https://huggingface.co/ID/blob/REVISION/FILE; nothing where
// it can be none of these.
std::optional<ModelReference> parse_model_reference(std::string_view text);

}  // namespace qgen
