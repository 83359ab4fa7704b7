// The kernels of the CPU engine, as a table of functions for each ISA target (an instruction set). The files that
// implement a target are compiled for its instruction set, so this header and they use plain types only: no function
// template or inline function of a library may be instantiated there, or the linker could put a copy with wide
// instructions into a program that runs on a smaller machine.
#pragma once

#include <stdint.h>

#include <utility>  // integer_sequence and integral_constant, types and nothing else

namespace qgen::cpu {

// Register tiles of accumulators are written as pack expansions over 0 .. n - 1: with constant indices the compiler
// keeps the arrays in registers, which it does not for loops that it unrolls later.
template <int... kIndices>
using Indices = std::integer_sequence<int, kIndices...>;
template <int kCount>
using Count = std::make_integer_sequence<int, kCount>;

constexpr int kCodeTypes = 6;              // as quant/weight.h, Codes
constexpr int kCacheTypes = 5;             // as model/plan.h, KvType: f16, bf16, f32, fp8, int8
constexpr int64_t kInputPad = 64;          // rows of prepared inputs are padded with zeros to a multiple of this
constexpr int kMaxAttendRows = 384;        // query rows that share one pass over the cache
constexpr int64_t kMaxIntegerRun = 65536;  // columns an int8 dot product may span without overflow
constexpr int64_t kShortGroup = 512;    // columns over which the sums of both digits of an input fit 32 bits together
constexpr int64_t kSlabTokens = 512;    // tokens whose sums a panel keeps at once
constexpr int64_t kMostPanels = 8;      // panels that do so side by side
constexpr int64_t kInt16Group = 32;     // columns that integer products take together
constexpr int64_t kGroupsAtOnce = 64;   // of a row, whose scales are held as floats
constexpr int64_t kCacheLine = 64;      // bytes
constexpr int64_t kInt8Group = 32;      // columns that share a scale in inputs of 8 bits
constexpr int kMaxRegisterTokens = 12;  // tokens whose sums a register tile holds, at most
constexpr int64_t kAttendChunk = 256;   // keys whose scores are held at once: a page of the cache
constexpr int64_t kKeyBlock = 16;       // keys that lie element by element in the cache
constexpr int64_t kCacheUnit = 32;      // a page has a multiple of this many tokens

// How a kernel wants its activations.
enum class Form : uint8_t {
  kF32,       // as they are
  kInt16,     // x = scale * int16, one scale a token
  kInt8HiLo,  // the same integer as two digits: x = scale * (256 * high + low), int8 each
  kInt8,      // x = scale * int8, a scale for every kInt8Group columns
  kBf16,      // rounded to bf16
  kBf16Pair,  // x = high + low, bf16 each: 16 bits of mantissa
};

// A value for every scale group: the one of row r and column c of the grid at data + r * row_pitch + c * col_pitch,
// times its super-scale, one for 2^super_shift columns, side by side, and times `factor`.
enum class GridType : uint8_t { kF32, kF16, kBf16, kE8M0, kI8, kU8, kE4M3 };  // as quant/weight.h, ScaleType
struct Grid {
  const uint8_t* data;           // null: no grid
  int64_t row_pitch, col_pitch;  // bytes
  GridType type;
  GridType super_type;
  uint8_t super_shift;
  float factor;
  const uint8_t* super;  // null: 1
  int64_t super_row_pitch;
};

// W (rows, cols) as quant/weight.h describes it; zero points and minimums may be missing, and scales where codes are
// floats of 16 or 32 bits.
struct Matrix {
  const uint8_t* codes;  // the first of row 0
  int64_t rows, cols, row_bytes;
  int64_t group_bytes;  // from the codes of a scale group to those of the next in a row
  bool in_blocks;       // Q8_0: a group's codes lie behind its F16 scale; group_bytes counts both
  Grid scales, zero_points, minimums;
  float code_shift;
  bool has_offsets;                // W is more than code * scale
  int64_t group_rows, group_cols;  // elements of a scale group
  int64_t grid_cols;               // scale groups of a row
  int64_t row_origin;              // the row of the grids' matrix that is row 0
  int64_t row_period;    // of groups down the columns: row n has row (row_origin + n) % row_period of the grids; else 0
  float decode_scale;    // multiplies what the vector decoder makes of a code
  bool exponent_scales;  // a code times its scale is a bf16 number; for kernels of kBf16Pair alone
};

// x (tokens, cols) in one form; rows are `stride` elements apart, zero beyond cols.
struct Input {
  Form form;
  int64_t tokens, cols, stride;
  const float* f32;
  const int16_t* int16s;     // kInt16
  const float* int16_scale;  // (tokens), of kInt16 and kInt8HiLo
  const int8_t* high;        // kInt8HiLo; kInt8 has its integers here too
  const int8_t* low;
  const float* int8_scales;   // kInt8: (tokens, groups of kInt8Group)
  const uint16_t* bf16_high;  // kBf16, kBf16Pair
  const uint16_t* bf16_low;
  // Sums over the scale groups of the matrix, (tokens, grid_cols), of f32 or integers of several tokens, where the
  // matrix has offsets.
  const float* sums;
  const int32_t* high_sums;  // of each digit of one token, (grid_cols)
  const int32_t* low_sums;
  // What integer products start from. With unsigned codes, code + 128: -128 times the sum of x's integers, over the
  // scale groups where they are short (kInt8HiLo of one token), or over groups of kInt8Group (kInt8). With Winograd
  // products (int16.inc): minus the sum of the products of x's pairs with each other, over groups of kInt16Group
  // (kInt16).
  const int32_t* starts;
  // The codes of the rows that this thread multiplies next, which a kernel may ask for; null: those behind its own.
  const uint8_t* next_codes;
};

// y[t * y_stride + n - row_begin] = sum over k of W[n, k] * x[t, k] for rows row_begin to row_end.
// `scratch` holds scratch_bytes(cols, grid_cols) bytes, 64-aligned.
using MultiplyFunction = void (*)(const Matrix& w, const Input& x, int64_t row_begin, int64_t row_end, float* y,
                                  int64_t y_stride, void* scratch);
// From so many tokens on arithmetic is the bound, and x may be rounded to any 16-bit type. Attention of so many is done
// in 16-bit integers, too.
constexpr int64_t kGemmTokens = 128;
struct Kernel {
  Form form = Form::kF32;
  MultiplyFunction multiply = nullptr;
  bool operator==(const Kernel&) const = default;
};
struct CodeKernels {
  Kernel gemv;        // one token: bound by memory
  Kernel gemm_small;  // a few
  Kernel gemm;        // kGemmTokens and more
  // Rows as they lie, where 2 to row_tokens tokens of a prompt cost less so than in panels; may be missing.
  Kernel gemm_rows;
  int64_t row_tokens = 0;
  // As many of a prompt's kGemmTokens or more go through gemm, too: those of an expert, say.
  int64_t part_tokens = kGemmTokens;
  // Any number of generated tokens, each of which comes out the same whatever runs beside it; missing: gemm_small.
  Kernel generate = {};
  bool operator==(const CodeKernels&) const = default;

  const Kernel& generated() const { return generate.multiply != nullptr ? generate : gemm_small; }
  // `all`: tokens of the batch that these are some of; 0: no more than these.
  const Kernel& at(int64_t tokens, int64_t all = 0) const {
    if (all >= kGemmTokens && tokens >= part_tokens) return gemm;
    if (tokens == 1) return gemv;
    if (tokens <= row_tokens) return gemm_rows;
    return tokens < kGemmTokens ? gemm_small : gemm;
  }
};

// A state's cache as one sequence sees it: pages of page_tokens tokens, each with its tokens head after head. Keys lie
// in blocks, [block][key_dim][kKeyBlock]; values in rows of padded_dim. So a head's page is one stream.
struct CacheView {
  const uint8_t* keys;
  const uint8_t* values;    // null: the first elements of the keys
  const float* key_scales;  // of fp8 and int8, one for each row of a head; else null
  const float* value_scales;
  const int32_t* pages;  // of page number p at p % ring
  int64_t ring;
  int64_t page_tokens;  // kAttendChunk; or less, then there is one page
  int64_t kv_heads;
  int64_t key_dim, padded_dim;
  int64_t value_dim;

  // Of the rows of all heads, the first that a head has in the page that begins with token `chunk`.
  int64_t first_row(int64_t chunk, int64_t head) const {
    return (int64_t{pages[chunk / kAttendChunk % ring]} * kv_heads + head) * page_tokens;
  }
};

// Rows of queries against keys first[r] <= t < last[r] of one kv head. q rows are already scaled.
struct AttendArguments {
  int rows;  // 1 to kMaxAttendRows
  CacheView cache;
  int64_t kv_head;
  float softcap;                   // scores become c tanh(score / c); 0: not
  bool whole_tiles;                // a row's result shall not depend on how many rows there are
  const float* q[kMaxAttendRows];  // (key_dim)
  int64_t first[kMaxAttendRows], last[kMaxAttendRows];
  void* scratch;  // attend_scratch_bytes(), 64-aligned
  // Results: the highest score, the sum of exp(score - highest), and that of exp(score - highest) * value as
  // (padded_dim) somewhere in the scratch.
  float highest[kMaxAttendRows];
  float sum[kMaxAttendRows];
  float* out[kMaxAttendRows];
};

// What became of a key or value on its way into the cache.
struct StoredRow {
  float scale;    // fp8 and int8: multiplies the codes as the vector decoder makes them
  bool overflow;  // f16: an element was beyond the range and has been clamped
};

// Tokens of one sequence through a causal convolution of `cols` columns.
constexpr int64_t kMaxTaps = 64;
struct ConvArguments {
  int64_t tokens, taps, cols;
  const float* in;  // (tokens, cols)
  int64_t in_stride;
  const float* weight;  // (taps, cols)
  int64_t weight_stride;
  const float* bias;  // (cols) or null
  float* state;       // (taps - 1, cols): the rows before, the oldest first; those of the next call afterwards
  int64_t state_stride;
  float* out;  // (tokens, cols), may be `in`
  int64_t out_stride;
};

// Tokens of one sequence through `cols` columns of a head's matrix: with v (tokens, cols)
//   S = decay S + k (rate c)^T, c = v - decay S^T k where `delta`, else v;  out = S^T q + skip v
constexpr int64_t kMostRecurColumns = 128;  // that a call is best given
struct RecurArguments {
  int64_t tokens, key_dim, cols;
  bool delta;
  bool in_chunks;      // faster; a token's result then depends on where the call's tokens begin
  const float *k, *q;  // (tokens, key_dim)
  int64_t key_stride;
  const float *decay, *rate;  // (tokens)
  int64_t rate_stride;
  const float* v;
  int64_t v_stride;
  float skip;
  float* state;  // (key_dim, cols)
  int64_t state_stride;
  float* out;  // (tokens, cols)
  int64_t out_stride;
};

// Plain copies of model/step.h's Norm::Kind and Activation, which this header does not include.
enum class NormKind : uint8_t { kNone, kRms, kLayer };
enum class ActivationKind : uint8_t {
  kNone,
  kSilu,
  kGelu,
  kGeluTanh,
  kRelu,
  kReluSquared,
  kSigmoid,
  kQuickGelu,
  kSoftplus,
  kExpm1Ratio
};

struct IsaTarget {
  const char* name;
  bool (*supported)();
  CodeKernels kernels[kCodeTypes];   // by code type: activations of 16 bits or more
  CodeKernels fallback[kCodeTypes];  // activations in f32; for grids that the fast kernels cannot follow, too
  Kernel int8_groups;                // INT8 weights in scale groups of 16, 32, 64 or 128 columns, for one token
  Kernel int8_inputs;                // INT8 weights against activations of 8 bits; may be missing
  int64_t panel_rows;                // gemm works on panels of this many rows

  // Attention in 16-bit integers, faster for many rows than `attend`. Missing where integers are no faster.
  void (*attend_int16[kCacheTypes])(AttendArguments& arguments);
  // Over a cache of int8, whose codes it multiplies as they are: keys of an even number of elements. Missing likewise.
  void (*attend_int8)(AttendArguments& arguments);
  // One row, padded with zeros to `stride`, into kInt16, padded so as well; starts may be null. Missing where no kernel
  // wants it.
  void (*to_int16)(const float* x, int64_t stride, int16_t* int16s, float* scale, int32_t* starts);
  // The same into kInt8, with Input's int8_scales and starts. Missing where no kernel wants it.
  void (*to_int8)(const float* x, int64_t stride, int8_t* out, float* scales, int32_t* starts);
  // The fastest dot products of the target on registers alone, `rounds` times round: returns how many operations,
  // multiplications and additions, that was: of floats, and of those integers that INT8 weights are multiplied in
  // (16-bit ones without AVX-512 VNNI; floats in the portable target).
  int64_t (*float_peak)(int64_t rounds);
  int64_t (*int8_peak)(int64_t rounds);

  // What all targets compile from the same source.
  CodeKernels column_groups;  // INT8 weights in scale groups down the columns, grids of floats side by side
  void (*attend[kCacheTypes])(AttendArguments& arguments);
  StoredRow (*store_kv[kCacheTypes])(const float* x, int64_t n, void* out, int64_t stride);  // elements `stride` apart
  // out = normalize(x) * weight + bias; both may be null.
  void (*normalize)(NormKind kind, const float* x, const float* weight, const float* bias, int64_t n, float eps,
                    float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);  // out = x * factor
  void (*add)(float* y, const float* x, float factor, int64_t n);      // y += factor * x
  // x = activation(x) * up; up may be null.
  void (*activate)(ActivationKind kind, float* x, const float* up, int64_t n);
  void (*softcap)(float* x, float c, int64_t n);  // x = c tanh(x / c)
  // Rotates `half` pairs of a head in place: (i, i + half), or (2 i, 2 i + 1).
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t half, bool adjacent);
  // One row, padded with zeros to `stride`, into the forms, padded so as well; `low` of bf16 may be null.
  void (*to_int8_hi_lo)(const float* x, int64_t stride, int8_t* high, int8_t* low, float* scale);
  void (*to_bf16)(const float* x, int64_t stride, uint16_t* high, uint16_t* low);
  // The largest magnitude of a row, padded so; NaN if it has a NaN or an infinity.
  float (*magnitude)(const float* x, int64_t stride);
  // n weights, a multiple of kInputPad, to the nearest codes at inverse = 1 / scale. In place of x what is left, x -
  // code * scale; sums of squares of x and of what is left.
  void (*round_weights)(float* x, int64_t n, float inverse, float scale, int8_t* codes, float* squares, float* left);
  void (*convolve)(const ConvArguments& arguments);
  void (*recur)(const RecurArguments& arguments);
  float (*read_sum)(const uint8_t* bytes, int64_t n);  // reads memory as fast as it comes, for measuring
};

// Bytes of scratch for a product of any target.
inline int64_t scratch_bytes(int64_t cols, int64_t grid_cols) {
  return 32 * (cols + kInputPad) * 4 + 2 * 32 * (grid_cols + 1) * 4 + kMostPanels * 32 * kSlabTokens * 4 + 4096;
}
inline int64_t attend_scratch_bytes(int64_t key_dim, int64_t padded_dim) {
  constexpr int64_t kRows = kMaxAttendRows + kMaxRegisterTokens;
  const int64_t longest = key_dim > padded_dim ? key_dim : padded_dim;
  const int64_t run_dim = (longest + 31) / 32 * 32;
  const int64_t floats = (2 * kRows * run_dim + kMaxRegisterTokens * kAttendChunk) * 4;
  const int64_t int16s = kRows * (run_dim * 6 + 8) + kAttendChunk * (run_dim * 4 + 12 + kMaxRegisterTokens * 6) +
                         kAttendChunk / kCacheUnit * run_dim * 4 + 2048;
  // A chunk of values that are taken out of the keys, of up to 4 bytes each.
  return (floats > int16s ? floats : int16s) + kAttendChunk * padded_dim * 4 + 64;
}

extern const IsaTarget kPortableTarget;
#if defined(__x86_64__)
extern const IsaTarget kAvx2Target;
extern const IsaTarget kAvx2VnniTarget;
extern const IsaTarget kAvx512Target;
extern const IsaTarget kAvx512VnniTarget;
extern const IsaTarget kAvx512FmaTarget;
extern const IsaTarget kAvx512Bf16Target;
extern const IsaTarget kAvx512Zen5Target;
extern const IsaTarget kAvx512AmxTarget;
#endif

}  // namespace qgen::cpu
