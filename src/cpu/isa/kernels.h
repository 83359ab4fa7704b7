// The kernels of the CPU engine, as a table of functions per instruction set ("body"). The files that
// implement a body are compiled for its instruction set, so this header and they use plain types only: no
// function template or inline function of a library may be instantiated there, or the linker could put a
// copy with wide instructions into a program that runs on a smaller machine.
#pragma once

#include <stdint.h>

#include <utility>  // integer_sequence, a type and nothing else

namespace qgen::cpu {

// Tiles of accumulators are written as pack expansions over 0 .. n - 1: with constant indices the compiler keeps
// the arrays in registers, which it does not for loops that it unrolls later.
template <int... kIndices>
using Indices = std::integer_sequence<int, kIndices...>;
template <int kCount>
using Count = std::make_integer_sequence<int, kCount>;

constexpr int kCodeTypes = 6;              // as quant/storage.h, Codes
constexpr int64_t kInputPad = 64;          // rows of prepared inputs are padded with zeros to a multiple of this
constexpr int kMaxAttendRows = 384;        // query rows that share one pass over the cache
constexpr int64_t kMaxIntegerRun = 65536;  // columns an integer dot product of planes may span without overflow
constexpr int64_t kShortTile = 512;        // columns over which the sum of both planes fits 32 bits as well
constexpr int64_t kSlabTokens = 512;       // tokens whose sums a panel keeps at once
constexpr int64_t kWordGroup = 32;         // columns of the tiles that a one-token kernel is made for
constexpr int64_t kCacheLine = 64;         // bytes
constexpr int64_t kBytesGroup = 32;        // columns that share a scale in the form of bytes
constexpr int kMaxTileTokens = 12;         // tokens whose sums a body's tiles hold in registers, at most
constexpr int64_t kAttendChunk = 256;      // keys whose scores are held at once
constexpr int64_t kKeyBlock = 16;          // keys that lie element by element in the cache
constexpr int64_t kCacheUnit = 32;         // the cache is as long as a multiple of this many tokens

// How a kernel wants its activations.
enum class Form : uint8_t {
  kF32,       // as they are
  kWords,     // x = scale * word: 16-bit integers, one scale a token
  kPlanes,    // the same as x = scale * (256 * high + low), int8 each
  kBytes,     // x = scale * int8, a scale for every kBytesGroup columns
  kBf16,      // rounded to bf16
  kBf16Pair,  // x = high + low, bf16 each: 16 bits of mantissa
};

// W (rows, cols) as storage.h describes it; offsets may be null, and scales where codes are floats of 16 or 32 bits.
struct Matrix {
  const uint8_t* codes;  // the first of row 0
  int64_t rows, cols, row_bytes;
  int64_t tile_bytes;   // from a tile's codes to those of the next in a row
  int64_t paired_head;  // rows of a head whose halves lie in turns (storage.h, paired_heads); 0: rows in order
  bool block_scales;    // the two bytes before a tile's codes are its scale, an f16; `scales` is null
  const float* scales;
  const float* offsets;
  int64_t group_rows, group_cols, tile_cols;
  float decode_scale;  // multiplies what the vector decoder makes of a code
};

// x (tokens, cols) in one form; rows are `stride` elements apart, zero beyond cols.
struct Input {
  Form form;
  int64_t tokens, cols, stride;
  const float* f32;
  const int16_t* words;     // kWords
  const float* word_scale;  // (tokens), of kWords and kPlanes
  const int8_t* high;       // kPlanes; kBytes has its integers here too
  const int8_t* low;
  const float* byte_scales;   // kBytes: (tokens, groups of kBytesGroup)
  const uint16_t* bf16_high;  // kBf16, kBf16Pair
  const uint16_t* bf16_low;
  // Sums over the matrix' column tiles, (tokens, tile_cols), of f32, words or planes of several tokens, where the
  // matrix has offsets.
  const float* sums;
  const int32_t* high_sums;  // of each plane of one token, (tile_cols)
  const int32_t* low_sums;
  // What integer products start from. With unsigned codes, code + 128: -128 times the sum of x's integers, over the
  // tiles where they are short (kPlanes of one token), or over the groups (kBytes). With crossed words (words.inc):
  // minus the sum of their products with each other, over groups of kWordGroup (kWords).
  const int32_t* starts;
};

// y[t * y_stride + n - row_begin] = sum over k of W[n, k] * x[t, k] for rows row_begin to row_end.
// `scratch` holds scratch_bytes(cols, tile_cols) bytes, 64-aligned.
using MultiplyFunction = void (*)(const Matrix& w, const Input& x, int64_t row_begin, int64_t row_end, float* y,
                                  int64_t y_stride, void* scratch);
// For one token (bound by memory), for a few, and for kManyTokens and more, where arithmetic is the bound and
// x may be rounded to any 16-bit type. Attention takes kManyTokens in 16-bit integers, too.
constexpr int64_t kManyTokens = 128;
constexpr int64_t kUnpackedTokens = 4;  // up to so many tokens words row by row cost less than panels of bytes
struct CodeKernels {
  struct Kernel {
    Form form;
    MultiplyFunction multiply;
    bool operator==(const Kernel&) const = default;
  };
  Kernel one, few, many;
  Kernel rows{};  // for 2 to kUnpackedTokens in place of `few`, where that packs panels
  bool operator==(const CodeKernels&) const = default;

  const Kernel& at(int64_t tokens) const {
    if (tokens == 1) return one;
    if (tokens <= kUnpackedTokens && rows.multiply != nullptr) return rows;
    return tokens < kManyTokens ? few : many;
  }
};

// The cache of a layer is made of chunks of kAttendChunk tokens, the last one of what is left of `held`; a chunk has
// its tokens head after head. Keys lie in blocks, [block][head_dim][kKeyBlock]; values in rows of padded_dim. So
// memory is touched as the context grows, and a head's chunk is one stream.
struct CacheShape {
  int64_t held;  // tokens, a multiple of kCacheUnit
  int64_t kv_heads;
  int64_t head_dim, padded_dim;

  // Of the rows of all heads, the first that a head has in the chunk that begins with token `chunk`.
  int64_t first_row(int64_t chunk, int64_t head) const {
    const int64_t tokens = held - chunk < kAttendChunk ? held - chunk : kAttendChunk;
    return chunk * kv_heads + head * tokens;
  }
};

// Rows of queries against keys first[r] <= t < last[r] of one kv head. q rows are already scaled.
struct AttendArguments {
  int rows;  // 1 to kMaxAttendRows
  CacheShape cache;
  int64_t kv_head;
  const void* keys;  // of all heads
  const void* values;
  const float* q[kMaxAttendRows];  // (head_dim)
  int64_t first[kMaxAttendRows], last[kMaxAttendRows];
  void* scratch;  // attend_scratch_bytes(), 64-aligned
  // Results: the highest score, the sum of exp(score - highest), and that of exp(score - highest) * value as
  // (padded_dim) somewhere in the scratch.
  float highest[kMaxAttendRows];
  float sum[kMaxAttendRows];
  float* out[kMaxAttendRows];
};

struct Body {
  const char* name;
  bool (*supported)();
  CodeKernels kernels[kCodeTypes];   // by code type: activations of 16 bits or more
  CodeKernels fallback[kCodeTypes];  // activations in f32; for grids whose tiles the fast kernels cannot follow, too
  CodeKernels::Kernel int8_groups;   // INT8 weights in tiles of kWordGroup columns without offsets, for one token
  CodeKernels::Kernel int8_bytes;    // INT8 weights against activations of 8 bits; without a function: none
  int64_t panel_rows;                // `many` works on panels of this many rows
  // By the type of the cache, as model/plan.h's KvType: f16, bf16, f32.
  void (*attend[3])(AttendArguments& arguments);
  // The same in 16-bit integers, faster for many rows. Null where integers are no faster.
  void (*attend_words[3])(AttendArguments& arguments);
  void (*store_kv[3])(const float* x, int64_t n, void* out, int64_t out_stride);  // elements out_stride apart
  // out = x / rms(x) * weight
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);  // out = x * factor
  // gate = silu(gate) * up
  void (*silu_multiply)(float* gate, const float* up, int64_t n);
  void (*add)(float* y, const float* x, int64_t n);
  // Rotates a head of n elements in place: pairs (i, i + n / 2).
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t n);
  // One row, padded with zeros to `stride`, into the forms, padded so as well.
  void (*to_planes)(const float* x, int64_t stride, int8_t* high, int8_t* low, float* scale);
  // kWords; starts may be null. Null where no kernel wants them.
  void (*to_words)(const float* x, int64_t stride, int16_t* words, float* scale, int32_t* starts);
  void (*to_bf16)(const float* x, int64_t stride, uint16_t* high, uint16_t* low);  // low may be null
  // kBytes, with Input's byte_scales and starts. Null where no kernel wants them.
  void (*to_bytes)(const float* x, int64_t stride, int8_t* out, float* scales, int32_t* starts);
  float (*read_sum)(const uint8_t* bytes, int64_t n);  // reads memory as fast as it comes, for measuring
  // The fastest dot products of the body on registers alone, `rounds` times round: returns how many operations,
  // multiplications and additions, that was: of floats, and of those integers that INT8 weights are multiplied in
  // (16-bit ones without AVX-512 VNNI; floats in the portable body).
  int64_t (*float_peak)(int64_t rounds);
  int64_t (*int8_peak)(int64_t rounds);
};

// Bytes of scratch for `many` with any body.
inline int64_t scratch_bytes(int64_t cols, int64_t tile_cols) {
  return 32 * (cols + kInputPad) * 4 + 2 * 32 * (tile_cols + 1) * 4 + 32 * kSlabTokens * 4 + 4096;
}
inline int64_t attend_scratch_bytes(int64_t padded_dim) {
  constexpr int64_t kRows = kMaxAttendRows + kMaxTileTokens;
  const int64_t run_dim = (padded_dim + 31) / 32 * 32;
  const int64_t floats = (2 * kRows * padded_dim + kMaxTileTokens * kAttendChunk) * 4;
  const int64_t words = kRows * (run_dim * 6 + 8) + kAttendChunk * (run_dim * 4 + 12 + kMaxTileTokens * 6) +
                        kAttendChunk / kCacheUnit * run_dim * 4 + 2048;
  return floats > words ? floats : words;
}

extern const Body kPortableBody;
#if defined(__x86_64__)
extern const Body kAvx2Body;
extern const Body kAvx2VnniBody;
extern const Body kAvx512Body;
extern const Body kAvx512VnniBody;
extern const Body kAvx512Bf16Body;
extern const Body kAvx512AmxBody;
#endif

}  // namespace qgen::cpu
