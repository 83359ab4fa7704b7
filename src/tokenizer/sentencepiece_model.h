// SentencePiece's protobuf message (sentencepiece_model.proto), of which we read the pieces and what shapes text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::tokenizer {

enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SpmPiece {
  std::string_view text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct SpmModel {
  std::vector<SpmPiece> pieces;  // in the order of their ids
  int64_t model_type = 1;        // 1 unigram, 2 BPE
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Texts point into `bytes`. A model Error that begins with `subject` where it is no such message.
SpmModel read_spm(std::string_view bytes, const std::string& subject);

}  // namespace qgen::tokenizer
