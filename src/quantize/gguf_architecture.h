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
  // Of the model's layers: the first attention, which stands for all but those without a window where these have heads
  // of another size; the first of those; the latent attention in place of both; the recurrence of the others.
  const AttentionSpec* attention = nullptr;
  const AttentionSpec* global = nullptr;
  const LatentSpec* latent = nullptr;
  const DeltaSpec* delta = nullptr;
  std::vector<bool> recurrent;  // layers
};

// A model Error where llama.cpp has no such architecture, or its files cannot say what config.json says. The pointers
// are into `model`.
GgufArchitecture gguf_architecture(const Checkpoint& checkpoint);

// A model Error as well.
void write_gguf_keys(const GgufArchitecture& architecture, const Checkpoint& checkpoint, GgufKeys& keys);

// Throws a model Error: what is wrong with the model, or with its files.
[[noreturn]] void refuse_gguf(const std::string& subject, const std::string& problem);

}  // namespace qgen::quantize
