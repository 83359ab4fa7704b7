// AVX-512 with VNNI (Cascade Lake and later): INT8 weights by integer dot products, the rest in f32.
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/isa/generic.inc"
#include "cpu/isa/int8_vnni.inc"
#include "cpu/isa/words.inc"
#include "cpu/isa/words_attention.inc"
#include "cpu/isa/words_linear.inc"

bool supported() { return supports_avx512() && __builtin_cpu_supports("avx512vnni"); }

}  // namespace

const Body kAvx512VnniBody = {"avx512-vnni",
                              supported,
                              {QGEN_GENERIC_KERNELS(0),
                               QGEN_GENERIC_KERNELS(1),
                               QGEN_GENERIC_KERNELS(2),
                               {{Form::kPlanes, int8_one}, {Form::kWords, words_many}, {Form::kWords, words_many}},
                               QGEN_GENERIC_KERNELS(4),
                               QGEN_GENERIC_KERNELS(5)},
                              QGEN_ALL_GENERIC_KERNELS,
                              QGEN_WORD_GROUPS,
                              {Form::kBytes, int8_bytes_many},
                              32,
                              QGEN_COMMON_FUNCTIONS(QGEN_ATTEND_WORDS, to_words),
                              to_bytes,
                              read_sum,
                              fma_peak,
                              int8_peak};

}  // namespace qgen::cpu
