#include "base/utf8.h"

namespace qgen {

Utf8Step utf8_step(std::string_view text) {
  Utf8Step step;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    step.code_point = lead;
    step.valid = true;
    return step;
  }
  int length = 0;
  // Table 3-7 of the Unicode standard: the second byte's range depends on the first.
  unsigned low = 0x80, high = 0xBF;
  uint32_t code_point = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code_point = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    code_point = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code_point = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return step;
  }
  for (int i = 1; i < length; ++i) {
    if (size_t(i) >= text.size()) {
      step.length = i;
      step.truncated = true;
      return step;
    }
    const unsigned next = byte(i);
    if (next < low || next > high) {
      step.length = i;
      return step;
    }
    low = 0x80;
    high = 0xBF;
    code_point = code_point << 6 | (next & 0x3F);
  }
  step.code_point = code_point;
  step.length = length;
  step.valid = true;
  return step;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!step.valid) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.valid) {
      out += text.substr(0, step.length);
    } else {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(step.length);
  }
  return out;
}

std::string shortened(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return std::string(text.substr(0, bytes)) + "…";
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t bits) { out += static_cast<char>(bits); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace qgen
