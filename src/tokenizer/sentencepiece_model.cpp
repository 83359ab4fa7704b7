#include "tokenizer/sentencepiece_model.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"

namespace qgen::tokenizer {
namespace {

// The fields of one protobuf message.
class Message {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t varint = 0;     // also the bits of fixed-width values
    std::string_view bytes;  // of length-delimited values
  };

  Message(std::string_view bytes, const std::string& subject) : bytes_(bytes), subject_(subject) {}

  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const uint64_t key = varint();
    field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0: field.varint = varint(); break;
      case 1: field.varint = fixed(8); break;
      case 2: {
        const uint64_t length = varint();
        if (length > bytes_.size()) damaged();
        field.bytes = bytes_.substr(0, length);
        bytes_.remove_prefix(length);
        break;
      }
      case 5: field.varint = fixed(4); break;
      default: damaged();
    }
    return true;
  }

 private:
  [[noreturn]] void damaged() const { fail(ErrorKind::kModel, subject_ + ": not a SentencePiece model, or damaged"); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) damaged();
      const uint64_t byte = static_cast<unsigned char>(bytes_[0]);
      bytes_.remove_prefix(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }
  uint64_t fixed(size_t size) {
    if (bytes_.size() < size) damaged();
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return value;
  }
  std::string_view bytes_;
  const std::string& subject_;
};

float as_float(uint64_t bits) {
  const uint32_t low = uint32_t(bits);
  float value;
  std::memcpy(&value, &low, 4);
  return value;
}

}  // namespace

SpmModel read_spm(std::string_view bytes, const std::string& subject) {
  SpmModel model;
  Message message(bytes, subject);
  Message::Field field, inner;
  while (message.next(field)) {
    Message part(field.bytes, subject);
    if (field.number == 1) {
      SpmPiece piece;
      while (part.next(inner)) {
        if (inner.number == 1) piece.text = inner.bytes;
        if (inner.number == 2) piece.score = as_float(inner.varint);
        if (inner.number == 3) piece.type = PieceType(inner.varint);
      }
      if (!is_utf8(piece.text))
        fail(ErrorKind::kModel, fmt::format("{}: piece {}: not UTF-8", subject, model.pieces.size()));
      if (!(piece.score == piece.score))
        fail(ErrorKind::kModel, fmt::format("{}: piece {}: no score", subject, model.pieces.size()));
      model.pieces.push_back(piece);
    } else if (field.number == 2) {
      while (part.next(inner)) {
        if (inner.number == 3) model.model_type = int64_t(inner.varint);
        if (inner.number == 24) model.whitespace_as_suffix = inner.varint != 0;
        if (inner.number == 35) model.byte_fallback = inner.varint != 0;
      }
    } else if (field.number == 3) {
      while (part.next(inner)) {
        if (inner.number == 2) model.charsmap = inner.bytes;
        if (inner.number == 3) model.add_dummy_prefix = inner.varint != 0;
        if (inner.number == 4) model.remove_extra_whitespaces = inner.varint != 0;
        if (inner.number == 5) model.escape_whitespaces = inner.varint != 0;
      }
    }
  }
  if (model.pieces.empty()) fail(ErrorKind::kModel, subject + ": a SentencePiece model without pieces");
  return model;
}

}  // namespace qgen::tokenizer
