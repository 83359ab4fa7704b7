// What a GPU can be asked to do: the arguments of each kernel and the functions that launch it. Activations are rows of
// tokens, F32 unless said otherwise; their strides are multiples of kPad, and what lies between a row's end and its
// stride is zero. Plain headers only: nvcc reads this too.
#pragma once

#include <cstdint>

#include "base/rounding.h"
#include "kernels/backend.h"
#include "quant/storage.h"

namespace qgen::QGEN_BACKEND {

constexpr int64_t kPad = 64;           // elements
constexpr int64_t kRowAlignment = 16;  // bytes of a row of codes
constexpr int kFewTokens = 8;          // that one pass over the weights serves
constexpr int kMaxHeadDim = 256;

// Where launches go, in order.
class Stream;

// W (rows, cols) in the memory of the device.
struct Matrix {
  const uint8_t* codes = nullptr;         // rows of row_bytes, zeros behind the last column
  int64_t row_bytes = 0;                  // a multiple of kRowAlignment
  const void* scale = nullptr;            // (ceil(rows / group_rows), tile_cols) F32 or F16; null: 1
  const float* offset = nullptr;          // the same tiles, F32; null: 0
  const float* bias = nullptr;            // (rows) or null
  const int32_t* column_order = nullptr;  // (cols) or null: stored column j multiplies input column_order[j]
  int32_t rows = 0, cols = 0;
  int32_t group_rows = 1, group_cols = 0, tile_cols = 1;
  Codes kind = Codes::kF32;
  uint8_t group_shift = 0;  // log2(group_cols) where that is a power of two
  bool half_scales = false;
  bool whole_offsets = true;  // offsets are integers of at most 255
  float largest = 0;          // no |W| is larger; of 8-bit codes, once they are loaded
  bool nan_codes = false;     // of E4M3: some codes are NaN; once they are loaded
};

// How the tiles of a weight lie to the kernels.
enum class GridKind : uint8_t {
  kRow,     // one scale for all of a row
  kWide,    // groups of columns, a power of two from 64 on
  kNarrow,  // of 32
  kAny,     // anything else, and E4M3 with NaN codes: only multiply_any() takes it
};
GridKind grid_kind(const Matrix& matrix);

// What becomes of W x.
enum class Result : uint8_t {
  kStore,    // y = W x
  kAdd,      // y += W x
  kSiluMul,  // y = silu(W0 x) * (W1 x), for two parts of the same rows
};

struct LinearArgs {
  Matrix part[3];  // of the same codes and kind of grid; their rows lie one after the other in y
  int parts = 1;
  const float* x = nullptr;  // (tokens, x_stride)
  int64_t x_stride = 0;
  const float* norm = nullptr;  // (x_stride): x is RMS-normalized and multiplied by it first; or null
  float norm_eps = 0;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  Result result = Result::kStore;
  int tokens = 1;
};

// Up to kFewTokens tokens while the weights stream by once. Each activation goes into the products as the sum of two
// 16-bit floats, and each token comes out the same whatever its neighbours. Not for GridKind::kAny.
void multiply_few(Stream& stream, const LinearArgs& args);
// As floats, one multiplication at a time, for any weight; x is not normalized, one part, no kSiluMul.
void multiply_any(Stream& stream, const LinearArgs& args);

// The input of multiply_many(): 16-bit floats with a factor for every token.
struct HalfRows {
  uint16_t* values = nullptr;  // (tokens, stride)
  float* factor = nullptr;     // (tokens): values times it are the inputs
  int64_t stride = 0;          // a multiple of kPad
};
struct HalveArgs {
  const float* x = nullptr;   // (tokens, x_stride)
  const float* up = nullptr;  // (tokens, x_stride) or null: silu(x) * up instead of x
  int64_t x_stride = 0;
  const float* norm = nullptr;  // as above, or null
  float norm_eps = 0;
  int cols = 0, tokens = 0;
  bool bf16 = false;  // for weights in BF16; else F16
  float range = 0;    // F16: the power of two that all inputs are multiplied by; 0: each token by one of its own
  HalfRows out;
};
void halve(Stream& stream, const HalveArgs& args);
struct TileArgs {
  Matrix w;
  HalfRows x;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  bool add = false;  // y += W x
  int tokens = 0;
};
// Many tokens in tiles. Not for GridKind::kAny, F32 codes and column orders.
void multiply_many(Stream& stream, const TileArgs& args);

// Rows of a weight of 8-bit codes for Gemm: as F16, times a factor, its columns in the order of the inputs. No NaN
// codes.
struct CopyArgs {
  Matrix w;
  int first_row = 0, rows = 0;
  float factor = 1;
  uint16_t* out = nullptr;  // (rows, stride)
  int64_t stride = 0;       // a multiple of 8
};
void copy_as_halves(Stream& stream, const CopyArgs& args);
// Inputs for Gemm as 8-bit codes, each with the scale that takes its largest to the largest code.
struct QuantizeArgs {
  const float* x = nullptr;  // as for halve()
  const float* up = nullptr;
  int64_t x_stride = 0;
  const float* norm = nullptr;
  float norm_eps = 0;
  int cols = 0, tokens = 0;
  bool e4m3 = false;         // else integers up to 127
  bool grouped = false;      // a scale for every 128 columns; else for every token
  uint8_t* codes = nullptr;  // (tokens, stride)
  int64_t stride = 0;        // a multiple of 128; zeros behind the last column
  float* scale = nullptr;    // (tokens), or (stride / 128, scale_stride)
  int64_t scale_stride = 0;
};
void quantize(Stream& stream, const QuantizeArgs& args);
// What Gemm leaves to be done: y = raw * its token's scale * its row's scale + bias.
struct FinishArgs {
  const void* raw = nullptr;  // (tokens, raw_stride) F32 or I32; may be y
  int64_t raw_stride = 0;
  bool integers = false;
  const float* token_scale = nullptr;  // (tokens) or null: 1
  Matrix w;                            // of GridKind::kRow where its scale is wanted
  bool row_scale = false;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  bool add = false;  // y += ...
  int tokens = 0;
};
void finish(Stream& stream, const FinishArgs& args);

struct NormArgs {
  const float* x = nullptr;     // (tokens, stride)
  const float* norm = nullptr;  // (cols)
  float* y = nullptr;           // (tokens, stride)
  int64_t stride = 0;
  float eps = 0;
  int cols = 0, tokens = 0;
};
void normalize(Stream& stream, const NormArgs& args);
// gate = silu(gate) * up, both (tokens, stride).
void silu_mul(Stream& stream, float* gate, const float* up, int64_t stride, int cols, int tokens);

// What changes from call to call, in the memory of the device, so that a recorded walk can be run again.
struct CallInputs {
  const int32_t* position = nullptr;  // of the first token, one number
  const int32_t* tokens = nullptr;    // (tokens)
  const float* cos = nullptr;         // (tokens, head_dim / 2)
  const float* sin = nullptr;
};

struct EmbedArgs {
  Matrix table;
  CallInputs call;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  int tokens = 1;
};
void embed(Stream& stream, const EmbedArgs& args);

enum class CacheKind : uint8_t { kF16, kBf16, kF32, kE4M3, kI8 };

// Whether each row has a factor beside it.
constexpr bool has_factors(CacheKind kind) { return kind == CacheKind::kE4M3 || kind == CacheKind::kI8; }

// One layer's keys and values: (kv_heads, context, row), a row being head_dim elements and zeros up to a multiple of
// 16. E4M3 and I8 have a factor for every row.
struct Cache {
  uint8_t* keys = nullptr;
  uint8_t* values = nullptr;
  float* key_factor = nullptr;  // (kv_heads, context) or null
  float* value_factor = nullptr;
  int64_t context = 0;
  int64_t row_bytes = 0;
  CacheKind kind = CacheKind::kF16;
};
// Elements of a row of the cache.
constexpr int padded(int head_dim) { return int(round_up(head_dim, 16)); }
int64_t cache_row_bytes(CacheKind kind, int64_t head_dim);

struct AttendArgs {
  const float* qkv = nullptr;  // (tokens, qkv_stride): heads of q, then of k, then of v, not yet rotated
  int64_t qkv_stride = 0;
  const float* q_norm = nullptr;  // (head_dim) or null
  const float* k_norm = nullptr;
  float norm_eps = 0;
  CallInputs call;
  Cache cache;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;   // a query sees itself and window - 1 tokens before it; 0: all
  int first_token = 0;  // attend(): of this launch; qkv, y, cos and sin are those of the whole call
  int tokens = 1;
  float* y = nullptr;  // (tokens, y_stride): heads of mixed values
  int64_t y_stride = 0;
  // attend(): partial sums of the parts that the keys are split into, and a counter, zero between calls, for each
  // token, key-value head and tile of queries.
  int splits = 1;
  float* partial = nullptr;     // (tokens, heads, splits, padded(head_dim) + 2)
  uint32_t* counter = nullptr;  // (tokens, kv_heads, attend_tiles(heads / kv_heads))
  // Weights that the next kernel will read, for processors that have nothing else to do.
  const uint8_t* next = nullptr;
  int64_t next_bytes = 0;
};
int attend_tiles(int queries);  // of one key-value head
// Norm and rotation of the keys, and keys and values into the cache.
void store_keys(Stream& stream, const AttendArgs& args);
// For each token its queries' norm, rotation and attention; with `store`, for one token, also what store_keys() does.
void attend(Stream& stream, const AttendArgs& args, bool store);
// The same for many tokens whose keys are stored, in tiles of products of 16-bit floats; head_dim up to 128 and a
// cache in F16 or BF16.
bool can_attend_in_tiles(const AttendArgs& args);
void attend_in_tiles(Stream& stream, const AttendArgs& args);

// The best of a row of scores.
struct BestScore {
  float score;
  int32_t token;
  int32_t all_finite;  // whether all scores are numbers
  int32_t unused;
};
constexpr int kMostBest = 1024;
struct FoundScores {
  BestScore best;
  uint32_t count;  // of the best ones; beyond kMostBest the rest is lost
  float mass;      // the sum of exp((score - the best) * inverse_temperature) over all
  uint32_t unused[2];
  struct Token {
    float score;
    int32_t token;
  } token[kMostBest];  // in any order; every other score is lower
};
struct ScoreArgs {
  const float* scores = nullptr;
  int count = 0;   // of scores
  int wanted = 1;  // find_best_scores(): so many at least, unless few are within 64 of the best
  float inverse_temperature = 1;
  FoundScores* found = nullptr;
  struct Scratch {  // `bins` and `counter` are zero between calls
    BestScore partial[64];
    float mass[64];
    uint32_t bins[1024];
    uint32_t counter;
    int32_t last_bin;
  }* scratch = nullptr;
};
// found->best.
void find_best_score(Stream& stream, const ScoreArgs& args);
// After that: found->token and found->mass.
void find_best_scores(Stream& stream, const ScoreArgs& args);

// Counts up `found` (zero at first) where E4M3 codes of `w` are NaN. GPUs before compute capability 8.9 have no
// instruction that converts E4M3, and testing each code for NaN takes them longer than converting it: so weights are
// searched once, when they are loaded.
void find_nan_codes(Stream& stream, const Matrix& w, uint32_t* found);

// Splits blocks of Q8_0 (an F16 scale, 32 codes) into rows of codes and F16 scales.
struct UnpackArgs {
  const uint8_t* blocks = nullptr;  // (rows, cols / 32)
  uint8_t* codes = nullptr;         // rows of row_bytes
  uint16_t* scales = nullptr;       // (rows, cols / 32)
  int64_t row_bytes = 0;
  int64_t rows = 0, cols = 0;
};
void unpack_q8_0(Stream& stream, const UnpackArgs& args);

}  // namespace qgen::QGEN_BACKEND
