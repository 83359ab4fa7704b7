#include "quant/gguf_blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "quant/repack.h"

namespace qgen {
namespace {

// Source of all layouts: ggml-common.h and dequantize_row_*() of ggml-quants.c (ggml-org/ggml).

void copy(std::byte* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }

// Sixteen bytes: their lower halves are 16 codes, their upper halves the next 16. `code(value, i)` of code i.
template <typename Code>
void take_halves(const uint8_t* bytes, std::byte* out, const Code& code) {
  for (int i = 0; i < 16; ++i) {
    out[i] = std::byte(code(bytes[i] & 15, i));
    out[i + 16] = std::byte(code(bytes[i] >> 4, i + 16));
  }
}

uint32_t load_word(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

void q4_0(const uint8_t* block, const BlockParts& out) {
  copy(out.scales, block, 2);
  take_halves(block + 2, out.codes, [](int value, int) { return uint8_t(value - 8); });
}

void q4_1(const uint8_t* block, const BlockParts& out) {
  copy(out.scales, block, 2);
  copy(out.minimums, block + 2, 2);
  take_halves(block + 4, out.codes, [](int value, int) { return uint8_t(value); });
}

void q5_0(const uint8_t* block, const BlockParts& out) {
  copy(out.scales, block, 2);
  const uint32_t fifth = load_word(block + 2);
  take_halves(block + 6, out.codes, [&](int value, int i) { return uint8_t((value | (fifth >> i & 1) << 4) - 16); });
}

void q5_1(const uint8_t* block, const BlockParts& out) {
  copy(out.scales, block, 2);
  copy(out.minimums, block + 2, 2);
  const uint32_t fifth = load_word(block + 4);
  take_halves(block + 8, out.codes, [&](int value, int i) { return uint8_t(value | (fifth >> i & 1) << 4); });
}

constexpr int8_t kIq4Values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void iq4_nl(const uint8_t* block, const BlockParts& out) {
  copy(out.scales, block, 2);
  take_halves(block + 2, out.codes, [](int value, int) { return uint8_t(kIq4Values[value]); });
}

void mxfp4(const uint8_t* block, const BlockParts& out) {
  copy(out.scales, block, 1);
  take_halves(block + 1, out.codes, [](int value, int) { return uint8_t(kDoubledE2M1[value]); });
}

// Two bits of code 128 c + 32 s + i of a super-block are bits 2 s of byte 32 c + i.
template <typename Code>
void take_quarters(const uint8_t* bytes, std::byte* out, const Code& code) {
  for (int c = 0; c < 2; ++c) {
    for (int s = 0; s < 4; ++s) {
      for (int i = 0; i < 32; ++i) {
        const int k = 128 * c + 32 * s + i;
        out[k] = std::byte(code(bytes[32 * c + i] >> (2 * s) & 3, k));
      }
    }
  }
}

void q2_k(const uint8_t* block, const BlockParts& out) {
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = std::byte(block[g] & 15);
    out.minimums[g] = std::byte(block[g] >> 4);
  }
  take_quarters(block + 16, out.codes, [](int value, int) { return uint8_t(value); });
  copy(out.super, block + 80, 2);
  copy(out.super_minimum, block + 82, 2);
}

void q3_k(const uint8_t* block, const BlockParts& out) {
  const uint8_t *third = block, *scales = block + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = scales[g % 8] >> (g < 8 ? 0 : 4) & 15, high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
    out.scales[g] = std::byte(uint8_t((low | high << 4) - 32));
  }
  take_quarters(block + 32, out.codes,
                [&](int value, int k) { return uint8_t(value - (third[k % 32] >> (k / 32) & 1 ? 0 : 4)); });
  copy(out.super, block + 108, 2);
}

// Eight scales and minimums of 6 bits in 12 bytes.
void take_six_bits(const uint8_t* bytes, const BlockParts& out) {
  for (int j = 0; j < 4; ++j) {
    out.scales[j] = std::byte(bytes[j] & 63);
    out.minimums[j] = std::byte(bytes[4 + j] & 63);
    out.scales[4 + j] = std::byte((bytes[8 + j] & 15) | (bytes[j] >> 2 & 0x30));
    out.minimums[4 + j] = std::byte(bytes[8 + j] >> 4 | (bytes[4 + j] >> 2 & 0x30));
  }
}

// Code 64 c + 32 s + i of a super-block is in half s of byte 32 c + i.
template <typename Code>
void take_super_halves(const uint8_t* bytes, std::byte* out, const Code& code) {
  for (int c = 0; c < 4; ++c) {
    for (int s = 0; s < 2; ++s) {
      for (int i = 0; i < 32; ++i)
        out[64 * c + 32 * s + i] = std::byte(code(bytes[32 * c + i] >> (4 * s) & 15, 2 * c + s, i));
    }
  }
}

void q4_k(const uint8_t* block, const BlockParts& out) {
  copy(out.super, block, 2);
  copy(out.super_minimum, block + 2, 2);
  take_six_bits(block + 4, out);
  take_super_halves(block + 16, out.codes, [](int value, int, int) { return uint8_t(value); });
}

void q5_k(const uint8_t* block, const BlockParts& out) {
  copy(out.super, block, 2);
  copy(out.super_minimum, block + 2, 2);
  take_six_bits(block + 4, out);
  const uint8_t* const fifth = block + 16;
  take_super_halves(block + 48, out.codes,
                    [&](int value, int group, int i) { return uint8_t(value | (fifth[i] >> group & 1) << 4); });
}

void q6_k(const uint8_t* block, const BlockParts& out) {
  for (int c = 0; c < 2; ++c) {
    const uint8_t *low = block + 64 * c, *high = block + 128 + 32 * c;
    for (int s = 0; s < 4; ++s) {
      for (int i = 0; i < 32; ++i) {
        const int value = (low[32 * (s % 2) + i] >> (s / 2 * 4) & 15) | (high[i] >> (2 * s) & 3) << 4;
        out.codes[128 * c + 32 * s + i] = std::byte(uint8_t(value - 32));
      }
    }
  }
  copy(out.scales, block + 192, 16);
  copy(out.super, block + 208, 2);
}

void iq4_xs(const uint8_t* block, const BlockParts& out) {
  copy(out.super, block, 2);
  for (int g = 0; g < 8; ++g) {
    const int low = block[4 + g / 2] >> (g % 2 * 4) & 15, high = (block[2 + g / 4] >> (g % 4 * 2)) & 3;
    out.scales[g] = std::byte(uint8_t((low | high << 4) - 32));
    take_halves(block + 8 + 16 * g, out.codes + 32 * g, [](int value, int) { return uint8_t(kIq4Values[value]); });
  }
}

using Scales = BlockType::Scales;
constexpr BlockType kTypes[] = {
    {Dtype::kQ4_0, "4 bits", 32, Scales::kQ8_0, false, q4_0},
    {Dtype::kQ4_1, "4 bits", 32, Scales::kF16, true, q4_1},
    {Dtype::kQ5_0, "5 bits", 32, Scales::kQ8_0, false, q5_0},
    {Dtype::kQ5_1, "5 bits", 32, Scales::kF16, true, q5_1},
    {Dtype::kIq4Nl, "4 bits", 32, Scales::kQ8_0, false, iq4_nl},
    {Dtype::kMxfp4, "fp4", 32, Scales::kE8M0, false, mxfp4},
    {Dtype::kQ2_K, "2 bits", 16, Scales::kSuper, true, q2_k},
    {Dtype::kQ3_K, "3 bits", 16, Scales::kSuper, false, q3_k},
    {Dtype::kQ4_K, "4 bits", 32, Scales::kSuper, true, q4_k},
    {Dtype::kQ5_K, "5 bits", 32, Scales::kSuper, true, q5_k},
    {Dtype::kQ6_K, "6 bits", 16, Scales::kSuper, false, q6_k},
    {Dtype::kIq4Xs, "4 bits", 32, Scales::kSuper, false, iq4_xs},
};

}  // namespace

const BlockType* find_block_type(Dtype dtype) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const BlockType& type) { return type.dtype == dtype; });
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace qgen
