// AVX-512 with VNNI, VBMI and BF16 (Zen 4, Sapphire Rapids): FP8 codes become bf16 by table lookup in
// registers and are multiplied with vdpbf16ps, as are bf16 weights; INT8 weights by integer dot products.
// x is a pair of bf16 (16 bits of mantissa); for many tokens, where arithmetic is the bound, it is rounded to bf16.
#define QGEN_ADDS_BESIDE_PRODUCTS  // Zen 4 and 5; Sapphire Rapids, which does not, has tiles for most products
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/isa/generic.inc"
#include "cpu/isa/int8_vnni.inc"
#include "cpu/isa/linear_bf16.inc"
#include "cpu/isa/words.inc"
#include "cpu/isa/words_attention.inc"
#include "cpu/isa/words_linear.inc"

}  // namespace

const Body kAvx512Bf16Body = {
    "avx512-bf16",
    supports_avx512_bf16,
    {QGEN_GENERIC_KERNELS(0),
     QGEN_GENERIC_KERNELS(1),
     {{Form::kBf16Pair, bf16_one}, {Form::kBf16Pair, bf16_many<false, true>}, {Form::kBf16, bf16_many<false, false>}},
     {{Form::kPlanes, int8_one}, {Form::kWords, words_many}, {Form::kWords, words_many}},
     {{Form::kBf16Pair, e4m3_one}, {Form::kBf16Pair, bf16_many<true, true>}, {Form::kBf16, bf16_many<true, false>}},
     QGEN_GENERIC_KERNELS(5)},
    QGEN_ALL_GENERIC_KERNELS,
    QGEN_WORD_GROUPS,
    {Form::kBytes, int8_bytes_many},
    32,
    QGEN_COMMON_FUNCTIONS(QGEN_ATTEND_WORDS, to_words),
    to_bytes,
    read_sum,
    bf16_peak,
    int8_peak};

}  // namespace qgen::cpu
