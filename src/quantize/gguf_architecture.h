// A checkpoint's model as one of llama.cpp's architectures: what its files can say of it, and the keys that say it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_writer.h"
#include "model/description.h"
#include "model/families/table.h"

namespace qgen::quantize {

struct GgufArchitecture {
  GgufArchitecture() = default;
  GgufArchitecture(GgufArchitecture&&) = default;

  std::string_view name;  // general.architecture
  const Family* family = nullptr;
  Description model;
  Names names = Names::gguf();
  const AttentionSpec* attention = nullptr;  // of all layers that have one; of Gemma 4 those with a window
  const AttentionSpec* global = nullptr;     // of Gemma 4's layers without a window, whose heads have another size
  const LatentSpec* latent = nullptr;        // latent attention, in place of `attention`
  const DeltaSpec* delta = nullptr;          // of the layers that are recurrent
  const MambaSpec* mamba = nullptr;          // the same
  const ShortConvSpec* convolution = nullptr;
  std::vector<bool> recurrent;  // by layer

  // Whether not all layers have attention, so that their keys tell each layer's heads.
  bool is_mixed() const { return mamba != nullptr || convolution != nullptr; }
};

// Whether GGUF files of a family are read, and neither written nor rewritten as another format.
bool is_only_read(const Family& family);

// A model Error where llama.cpp has no such architecture, or its files cannot say what config.json says. The pointers
// are into `model`.
GgufArchitecture gguf_architecture(const Checkpoint& checkpoint);

// A model Error as well.
void write_gguf_keys(const GgufArchitecture& architecture, const Checkpoint& checkpoint, GgufKeys& keys);

// Throws a model Error: what is wrong with the model, or with its files.
[[noreturn]] void refuse_gguf(const std::string& subject, const std::string& problem);

}  // namespace qgen::quantize
