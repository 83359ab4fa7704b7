// A GGUF model presented as the Hugging Face folder it was made from: config.json and the tokenizer's files as texts
// made from its keys. Tensors keep their names; the role table (names.h) has both. So nothing beyond this room knows of
// GGUF.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/model_files.h"
#include "checkpoint/gguf_files.h"

namespace qgen {

class GgufModel {
 public:
  // Maps the files of a model, all the parts in order; a model Error if they are not that.
  static std::shared_ptr<const GgufModel> open(const std::vector<std::filesystem::path>& parts,
                                               bool headers_only = false);
  explicit GgufModel(GgufParts parts) : parts_(std::move(parts)) {}

  const Gguf& keys() const { return parts_.first(); }
  const std::string& incomplete() const { return parts_.incomplete(); }
  std::vector<TensorView> tensors() const;
  bool has_tensor(std::string_view name) const;
  std::string config_json() const;
  // What stands in for the tokenizer's and generation's files. The texts keep `model` alive.
  static ModelFiles files(const std::shared_ptr<const GgufModel>& model);

 private:
  std::string arch() const;
  std::string key(std::string_view rest) const;  // ARCHITECTURE.REST
  std::string rope_base(std::string_view family, std::string_view name, std::string_view kind) const;
  std::string rope_scaling_json() const;
  std::string window_json(const std::string& family, int64_t layers) const;
  bool some_layer_has(std::string_view rest) const;
  int64_t recurrent_head_dim() const;
  std::string mamba_json(const std::string& family) const;
  std::string granite_json() const;
  std::vector<bool> windowed_layers(const std::string& family, int64_t layers) const;
  std::string gemma4_json(int64_t layers, const std::vector<bool>& windowed) const;
  std::string laguna_json(int64_t layers, int64_t head_dim) const;
  std::string layer_types_json(const std::string& family, int64_t layers) const;
  std::string family_json(const std::string& family, int64_t layers) const;
  std::optional<int64_t> rows_of(std::string_view tensor) const;  // nothing where there is none

  GgufParts parts_;
};

// The tokenizer of a GGUF file as texts (gguf_tokenizer.cpp). Byte-level BPE and Gemma 4's, over characters with bytes
// for those that are no pieces, become a tokenizer.json, SentencePiece pieces a tokenizer.model; other kinds are a
// model Error that names them.
enum class GgufTokenizer { kNone, kByteLevel, kByteFallback, kSentencePiece, kUnsupported };
GgufTokenizer gguf_tokenizer(const Gguf& keys);
std::string gguf_tokenizer_json(const Gguf& keys);
std::string gguf_sentencepiece_model(const Gguf& keys);
std::string gguf_tokenizer_config_json(const Gguf& keys);
std::string gguf_generation_config_json(const Gguf& keys);
// The way back: what tokenizer.ggml.pre says for a byte-level tokenizer.json; nothing where llama.cpp has no name for
// how that one splits words.
std::optional<std::string_view> gguf_pre_tokenizer_name(const Json& tokenizer);
// Ids that end a text: those of the keys, and control tokens that every chat format uses so.
std::vector<int64_t> gguf_end_tokens(const Gguf& keys);

}  // namespace qgen
