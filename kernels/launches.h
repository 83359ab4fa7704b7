// What a GPU can be asked to do: the arguments of each kernel and the functions that launch it. Activations are rows of
// tokens, F32 unless said otherwise; their strides are multiples of kPad, and what lies between a row's end and its
// stride is zero. Plain headers only: nvcc reads this too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rounding.h"
#include "kernels/namespace.h"
#include "model/step.h"
#include "quant/weight.h"

namespace qgen::QGEN_BACKEND {

constexpr int64_t kPad = 64;           // elements
constexpr int64_t kRowAlignment = 16;  // bytes of a row of codes
constexpr int kGemvTokens = 8;         // that one pass over the weights serves
constexpr int kInputSlices = 16;       // of a row of inputs of gemv(): each has a warp, and a power of two as range
constexpr int kMaxHeadDim = 768;
// Of a block, on the smallest processors: compute capability 8.6, 8.9 and 12.0.
constexpr size_t kMostSharedBytes = 99 << 10;

// Where launches go, in order.
class Stream;

// W (rows, cols) in the memory of the device.
struct Matrix {
  const uint8_t* codes = nullptr;     // rows of row_bytes, zeros behind the last column
  int64_t row_bytes = 0;              // a multiple of kRowAlignment
  const void* scale = nullptr;        // (groups of rows, grid_cols) F32 or F16; null: 1
  const float* zero_point = nullptr;  // the same groups, F32; null: 0. It takes in the weight's code_shift
  const float* minimum = nullptr;     // instead of zero points; W = code * scale + minimum
  // Two levels: `scale` has codes, int8, and so has minimum_codes where there are minimums, which are subtracted;
  // 2^shift neighbours share a number that multiplies them, (groups of rows, grid_cols >> shift), F16. Null: one level.
  const uint16_t* super_scale = nullptr;
  const int8_t* minimum_codes = nullptr;
  const uint16_t* super_minimum = nullptr;
  const float* bias = nullptr;            // (rows) or null
  const int32_t* column_order = nullptr;  // (cols) or null: stored column j multiplies input column_order[j]
  int32_t rows = 0, cols = 0;
  int32_t group_rows = 1, group_cols = 0, grid_cols = 1;
  int32_t row_origin = 0;  // the row of the grid's matrix that is row 0 here
  // Of groups down the columns: row n has row (row_origin + n) % row_period of the grid; else 0.
  int32_t row_period = 0;
  Codes kind = Codes::kF32;
  uint8_t group_shift = 0;  // log2(group_cols) where that is a power of two
  uint8_t super_shift = 0;
  bool f16_scales = false;
  bool whole_zero_points = true;  // they are integers of at most 255
  float largest = 0;              // no |W| is larger; of 8-bit codes, once they are loaded
  bool nan_codes = false;         // of E4M3: some codes are NaN; once they are loaded
};

// How the tiles of a weight lie to the kernels.
enum class GridKind : uint8_t {
  kRow,     // one scale for all of a row
  kWide,    // groups of columns, a power of two from 64 on
  kNarrow,  // of 32
  kFine,    // of 16
  kAny,     // anything else, and E4M3 with NaN codes: only gemv_any() takes it
};
GridKind grid_kind(const Matrix& matrix);
// How scales are stored where they change along the row.
enum class ScaleForm : uint8_t { kF32, kF16, kTwoLevels };
ScaleForm scale_form(const Matrix& matrix);
bool has_minimums(const Matrix& matrix);
// Whether one launch takes both: the same kernel, and inputs in the same order of columns.
bool alike(const Matrix& a, const Matrix& b);

// What becomes of a product y:
//   with a gate      y = activation(gate) * y
//   without          y = activation(y)
// and out = softcap(y * scale), or out += that (model/step.h, Projection).
struct Epilogue {
  Activation activation = Activation::kNone;
  float scale = 1;
  float softcap = 0;  // 0: none
  bool add = false;

  bool operator==(const Epilogue&) const = default;
  bool stores_only() const { return activation == Activation::kNone && scale == 1 && softcap == 0 && !add; }
};

// When a kernel may start: while what comes before it ends, where that is a kernel (a copy does not say when); when
// that has ended; the same, and what comes next starts when this kernel has ended, as if it were a copy.
enum class Start : uint8_t { kEarly, kAfter, kAlone };

// Launches that run side by side: none reads or writes what another writes, and what any of them reads is there when
// the first one has its inputs. Each starts when the one before it has its inputs, and ends when that has ended.
struct Beside {
  bool previous = false;  // beside the launch before it
  bool next = false;      // beside the one behind it, which starts when this one has its inputs, no earlier
};

struct GemvArgs {
  static constexpr int kMostParts = 3;
  Matrix part[kMostParts];    // alike()
  float* y[kMostParts] = {};  // (tokens, y_stride) of each part
  int64_t y_stride[kMostParts] = {};
  int parts = 1;
  bool gated = false;  // two parts of the same rows: the first is the gate of the second, and only y[0] is written
  const float* x = nullptr;  // (tokens, x_stride)
  int64_t x_stride = 0;
  const float* norm = nullptr;  // (x_stride): x is RMS-normalized and multiplied by it first; or null
  float norm_eps = 0;
  // Where there is no norm: products are multiplied by the sigmoid of it, (tokens, token_gate_stride); or null.
  const float* token_gate = nullptr;
  int64_t token_gate_stride = 0;
  Epilogue epilogue;
  Beside beside;
  int tokens = 1;
};

// Up to kGemvTokens tokens while the weights stream by once. Each activation goes into the products as the sum of two
// 16-bit floats, and each token comes out the same whatever its neighbours. Not for GridKind::kAny.
void gemv(Stream& stream, const GemvArgs& args);
// In F32, one multiplication at a time, for any weight; x is not normalized, one part without a gate.
void gemv_any(Stream& stream, const GemvArgs& args);

// Rows of inputs for a kernel that prepares them for products.
struct InputArgs {
  const float* x = nullptr;  // (tokens, x_stride)
  int64_t x_stride = 0;
  const float* norm = nullptr;  // as above, or null
  float norm_eps = 0;
  int cols = 0, tokens = 0;
};

// To which 16-bit floats.
enum class Rounded : uint8_t { kNo, kF16, kBf16 };
// The input of gemm(): 16-bit floats with a factor for every token.
struct Fp16Rows {
  uint16_t* values = nullptr;  // (tokens, stride)
  float* factor = nullptr;     // (tokens): values times it are the inputs; powers of two, of most tokens 1
  int64_t stride = 0;          // a multiple of kPad
};
struct Fp16Args : InputArgs {
  int parts = 1;  // of a token, each a row of `out`: x of part p begins p * part_stride behind the token's
  int64_t part_stride = 0;
  bool bf16 = false;  // for weights in BF16; else F16
  float range = 0;    // F16: the power of two that all inputs are multiplied by; 0: each token by one of its own
  // (tokens, gate_stride) or null: inputs are x * activation(gate), of one part without a norm.
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  Activation activation = Activation::kNone;
  Fp16Rows out;
};
void round_to_fp16(Stream& stream, const Fp16Args& args);
struct GemmArgs {
  Matrix w;
  Fp16Rows x;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  bool add = false;  // y += W x
  int tokens = 0;
};
// Many tokens in tiles. Not for GridKind::kAny, F32 codes and column orders.
void gemm(Stream& stream, const GemmArgs& args);

// The inputs of split_gemm(), which are those of gemv(): each in two parts, together 22 bits, as store_split() in
// kernels/device/split.cuh makes them.
struct SplitRows {
  uint16_t* values = nullptr;  // (tokens, 2, stride): the upper parts, then the lower ones
  float* inverse = nullptr;    // (tokens, kInputSlices): times it both parts are the inputs before they are normalized
  float* norm = nullptr;       // (tokens): what normalizes them
  int64_t stride = 0;          // a multiple of kPad
};
// Columns of a window, the codes of four lanes; slice s has windows s, s + kInputSlices, and so on.
enum class SplitForm : uint8_t { kBf16Windows32, kF16Windows32, kF16Windows64 };
SplitForm split_form(const Matrix& matrix);
struct SplitInputArgs : InputArgs {
  SplitForm form = SplitForm::kF16Windows64;
  SplitRows out;
};
void split_to_fp16(Stream& stream, const SplitInputArgs& args);
struct SplitGemmArgs {
  static constexpr int kMostTokens = 64;
  static constexpr int kMostSharedTiles = 64;
  static constexpr int64_t kPartialFloats = int64_t{kMostSharedTiles} * kInputSlices * 128 * kMostTokens;
  GemvArgs products;            // x and norm are not looked at
  SplitRows parts;              // of the tokens, by split_to_fp16()
  float* partial = nullptr;     // (kPartialFloats)
  uint32_t* counter = nullptr;  // (kMostSharedTiles) zeros between calls
};
// Up to kMostTokens tokens while the weights stream by once, each as it comes out of gemv(), bit by bit. No column
// orders.
void split_gemm(Stream& stream, const SplitGemmArgs& args);

// Rows of a weight of 8-bit codes for LibraryGemm: as F16, times a factor, its columns in the order of the inputs. No
// NaN codes.
struct DequantizeArgs {
  Matrix w;
  int first_row = 0, rows = 0;
  float factor = 1;
  uint16_t* out = nullptr;  // (rows, stride)
  int64_t stride = 0;       // a multiple of 8
};
void dequantize_to_fp16(Stream& stream, const DequantizeArgs& args);
// Inputs for LibraryGemm as 8-bit codes, each with the scale that takes its largest to the largest code.
struct QuantizeArgs : InputArgs {
  bool e4m3 = false;         // else integers up to 127
  bool grouped = false;      // a scale for every 128 columns; else for every token
  uint8_t* codes = nullptr;  // (tokens, stride)
  int64_t stride = 0;        // a multiple of 128; zeros behind the last column
  float* scale = nullptr;    // (tokens), or (stride / 128, scale_stride)
  int64_t scale_stride = 0;
};
void quantize(Stream& stream, const QuantizeArgs& args);
// Of a product y = raw * its token's scale * its row's scale + bias: what the epilogue says of it.
struct EpilogueArgs {
  const void* raw = nullptr;  // (tokens, raw_stride) F32 or I32; may be y
  int64_t raw_stride = 0;
  bool integers = false;
  const float* token_scale = nullptr;  // (tokens) or null: 1
  const void* row_scale = nullptr;     // (rows / group_rows), of the matrix; null: 1
  bool f16_scales = false;
  int group_rows = 1, row_origin = 0;
  const float* bias = nullptr;  // (rows) or null
  const float* gate = nullptr;  // (tokens, gate_stride) or null
  int64_t gate_stride = 0;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  Epilogue epilogue;
  int rows = 0, tokens = 0;
};
void apply_epilogue(Stream& stream, const EpilogueArgs& args);
// Multiplies the rows of tokens by their factors, or divides them: powers of two, of which most are 1.
struct TokenFactorArgs {
  const float* factor = nullptr;  // (tokens)
  bool divide = false;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  int rows = 0, tokens = 0;
};
void apply_token_factors(Stream& stream, const TokenFactorArgs& args);

// A norm of groups of columns (model/step.h, Norm).
struct DeviceNorm {
  Norm::Kind kind = Norm::Kind::kNone;
  const float* weight = nullptr;  // null: 1
  const float* bias = nullptr;    // null: 0
  bool wide_weight = false;       // one element for every column; else for every one of a group
  bool wide_bias = false;
  int group = 0;
  float eps = 0;
};
// out = x_scale * x + y_scale * norm(y) * activation(gate), a token to each row of y.
struct CombineArgs {
  const float* x = nullptr;  // (tokens, x_stride) or null: 0
  int64_t x_stride = 0;
  float x_scale = 1;
  const float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  float y_scale = 1;
  DeviceNorm norm;
  const float* gate = nullptr;  // (tokens, gate_stride) or null: 1
  int64_t gate_stride = 0;
  int gate_span = 1;  // columns of out for each of the gate's
  Activation activation = Activation::kNone;
  float* out = nullptr;  // (tokens, out_stride); may be x or y
  int64_t out_stride = 0;
  // Which token's y is taken, (tokens), null: each row's own; only where neither x nor a gate is.
  const int32_t* from = nullptr;
  int cols = 0;
  int zeros = 0;  // columns behind `cols` that become zero
  int tokens = 0;
};
void combine(Stream& stream, const CombineArgs& args);

// The choice of experts (model/step.h, RouteStep).
struct RouteArgs {
  const float* logits = nullptr;  // (tokens, stride)
  int64_t stride = 0;
  int experts = 0, chosen = 0, groups = 1, kept_groups = 1;
  RouteStep::Score score = RouteStep::Score::kSoftmax;
  bool two_best = false, normalized = false;
  float least_sum = 0, scale = 1;
  const float* bias = nullptr;          // (experts) or null
  const float* expert_scale = nullptr;  // likewise
  float* out = nullptr;                 // (tokens, out_stride)
  int64_t out_stride = 0;
  int tokens = 0;
};
void choose_experts(Stream& stream, const RouteArgs& args);

// A product of each head's columns with a matrix of its own (model/step.h, HeadLinearStep), in F32.
struct HeadLinearArgs {
  const Matrix* weight = nullptr;  // of each head, in the memory of the device
  Codes kind = Codes::kF32;        // of all of them
  const float* x = nullptr;        // (tokens, x_stride)
  int64_t x_stride = 0, x_head_stride = 0;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0, y_head_stride = 0;
  int rows = 0, cols = 0, kept = 0, heads = 0, tokens = 0;
};
void multiply_heads(Stream& stream, const HeadLinearArgs& args);

// A product of the chosen experts, or two and what becomes of them (model/step.h, ExpertsStep): for choice i of token t
//   with gates   y = activation(min(gate x, limit)) * (clamp(up x, limit) + up_offset)
//   without      y = activation(up x)
// where each product has its bias.
struct ExpertsProduct {
  const Matrix *gate = nullptr, *up = nullptr;           // of each expert, in the memory of the device; gate null: none
  int experts = 0;                                       // for multiply_chosen()
  Matrix like;                                           // one of them: what alike() compares, and the shape
  const float *gate_bias = nullptr, *up_bias = nullptr;  // (experts, rows) or null
  // (tokens, route_stride): the weights of the chosen experts, then which they are. Null: choice i is expert i.
  const float* route = nullptr;
  int64_t route_stride = 0;
  int chosen = 0;
  bool weighted_input = false;  // x is multiplied by the weight
  Activation activation = Activation::kNone;
  float limit = 0, up_offset = 0;  // limit 0: none
  float* y = nullptr;              // of choice i of token t: y + t * y_stride + i * y_choice_stride
  int64_t y_stride = 0, y_choice_stride = 0;
  int tokens = 0;
};
struct ChosenArgs {
  ExpertsProduct product;
  const float* x = nullptr;  // of choice i of token t: x + t * x_stride + i * x_choice_stride
  int64_t x_stride = 0, x_choice_stride = 0;
  // multiply_chosen(): weights of an RMS norm that x goes through first, of at most kMostNormedCols columns; null:
  // none.
  const float* norm = nullptr;
  float norm_eps = 0;
  // The launch before this one is a product with the same route and without this: the route is there when this starts.
  bool early_route = false;
};
// Inputs of so many columns find room in shared memory on every GPU.
constexpr int kMostNormedCols = 8192;
// Whether multiply_chosen() and multiply_grouped() take it: not GridKind::kAny, column orders, and E5M2, which no
// mixture is published in.
bool has_expert_kernels(const Matrix& matrix);
// One choice after the other, as gemv() multiplies: for a few tokens. Each choice comes out the same whatever is beside
// it. Where the inputs of one have no room in shared memory (beyond 14336 columns with 99 KB), multiply_chosen_any().
void multiply_chosen(Stream& stream, const ChosenArgs& args);
// The same in F32, one multiplication at a time, for any weight.
void multiply_chosen_any(Stream& stream, const ChosenArgs& args);

// Choices, number t * chosen + i for choice i of token t, in the order of their experts: expert e has places from the
// sum of what the experts before it have on. A tile is a part of an expert's places, 2 to the power of tile_shift() at
// most: as many as a block of multiply_grouped() takes of these codes.
constexpr int kLeastTileShift = 6;
constexpr int tile_shift(Codes codes) { return code_bytes(codes) == 1 ? kLeastTileShift : 7; }
struct ExpertTile {
  int32_t expert, first, count;  // count 0: none
};
struct GroupChoicesArgs {
  const float* route = nullptr;  // as above
  int64_t route_stride = 0;
  int chosen = 0, tokens = 0, experts = 0;
  int tile_shift = 0;
  int32_t* choice = nullptr;   // (tokens * chosen): the number of the choice at each place
  ExpertTile* tile = nullptr;  // (tiles)
  int tiles = 0;               // most_expert_tiles()
};
constexpr int64_t most_expert_tiles(int64_t choices, int64_t experts, int tile_shift) {
  return ((choices - 1) >> tile_shift) + 1 + (experts < choices ? experts : choices);
}
void group_choices(Stream& stream, const GroupChoicesArgs& args);
struct GroupedArgs {
  ExpertsProduct product;
  GroupChoicesArgs groups;
  enum class Of : uint8_t { kToken, kChoice, kPlace };
  Fp16Rows x;
  Of x_row = Of::kToken;        // what each row of x is of
  bool y_in_places = false;     // y + place * y_choice_stride
  int first_row = 0, rows = 0;  // of the weights; y has these alone
};
// Many tokens in tiles, as gemm() multiplies.
void multiply_grouped(Stream& stream, const GroupedArgs& args);

// out (+)= the sum over a token's choices of weight * y.
struct AddChoicesArgs {
  const float* y = nullptr;  // (choices, y_stride)
  int64_t y_stride = 0;
  const float* route = nullptr;  // the weights are as above; null: all are 1
  int64_t route_stride = 0;
  int chosen = 0;
  float* out = nullptr;  // (tokens, out_stride)
  int64_t out_stride = 0;
  bool add = false;
  int cols = 0, tokens = 0;
};
void add_choices(Stream& stream, const AddChoicesArgs& args);

// The segments of a call: tokens first[i] to first[i + 1], whose states of fixed size are in slot[i], and behind token
// marked[i] also in mark_slot[i]; some of the last ones may be empty.
struct Segments {
  const int32_t* first = nullptr;      // (count + 1)
  const int32_t* slot = nullptr;       // (count), where states are before the segment's tokens,
  const int32_t* new_slot = nullptr;   // (count), and behind them; may be the same
  const int32_t* marked = nullptr;     // (count), -1: none
  const int32_t* mark_slot = nullptr;  // (count)
  int count = 0;
};

constexpr int kMaxTaps = 16;
// A causal convolution (model/step.h, ConvStep).
struct ConvArgs {
  const float* x = nullptr;  // (tokens, x_stride)
  int64_t x_stride = 0;
  const float* weight = nullptr;  // (cols, taps)
  const float* bias = nullptr;    // (cols) or null
  Activation activation = Activation::kNone;
  float* state = nullptr;  // (slots, taps - 1, cols)
  float* y = nullptr;      // (tokens, y_stride); may be x
  int64_t y_stride = 0;
  Segments segments;
  int taps = 0, cols = 0, tokens = 0;
};
void convolve(Stream& stream, const ConvArgs& args);

// What a kernel takes from pinned memory of the host to the device's, in place of a copy that would come before it: all
// kernels behind it find it there. Addresses and bytes are multiples of 16; 0 bytes: nothing.
struct InPassing {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;
};

struct LookupArgs {
  Matrix table;
  const int32_t* index = nullptr;  // (tokens): rows of the table; of the host, where `inputs` brings what it points to
  InPassing inputs;
  float scale = 1;
  bool add = false;    // y += row
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
  int tokens = 1;
};
void look_up(Stream& stream, const LookupArgs& args);

enum class CacheKind : uint8_t { kF16, kBf16, kF32, kE4M3, kI8 };

// Whether each row has a factor beside it.
constexpr bool has_factors(CacheKind kind) { return kind == CacheKind::kE4M3 || kind == CacheKind::kI8; }

// A state's keys and values: (pages, kv_heads, page_tokens, row), a row being the elements of a head and zeros up to a
// multiple of 16. E4M3 and I8 have a factor for every row, (pages, kv_heads, page_tokens).
struct Cache {
  uint8_t* keys = nullptr;
  uint8_t* values = nullptr;
  float* key_factor = nullptr;
  float* value_factor = nullptr;
  int64_t key_bytes = 0, value_bytes = 0;  // of a row
  CacheKind kind = CacheKind::kF16;
  int page_tokens = 0;
  int page_shift = 0;               // a token at position p is in page number p >> page_shift; see page_shift_of()
  int ring = 0;                     // page number n lies at n % ring of a sequence's table
  const int32_t* tables = nullptr;  // (sequences of the call, ring)
  // Where an F16 cache would hold an infinity `overflow` becomes 1, and that of the token, (tokens of the call),
  // `overflow_mark` unless an earlier step has been there.
  uint32_t* overflow = nullptr;
  uint32_t* overflow_of_tokens = nullptr;
  uint32_t overflow_mark = 0;
};
// Pages are of 256 tokens, or there is only one for a sequence.
int page_shift_of(int64_t page_tokens, int64_t ring);
// Elements of a row of the cache.
constexpr int padded(int head_dim) { return int(round_up(head_dim, 16)); }
int64_t cache_row_bytes(CacheKind kind, int64_t head_dim);

// Heads in rows of tokens: head h of token t begins at x + t * stride + h * head_stride.
struct HeadRows {
  const float* x = nullptr;
  int64_t stride = 0, head_stride = 0;
};
constexpr int kMaxKeyDim = 256;     // of a linear recurrence
constexpr int kMostGatedDim = 128;  // of its values, where they are normalized and multiplied by a gate in passing
// Tokens that go together where it goes in chunks. A matrix of theirs, (kRecurChunk, kRecurChunk), is zero above its
// diagonal: of its eight tiles of (16, 8) six are kept.
constexpr int kRecurChunk = 32, kRecurTiles = 6, kRecurTileFloats = kRecurTiles * 16 * 8;
constexpr int64_t recur_chunks(int64_t tokens) { return (tokens + kRecurChunk - 1) / kRecurChunk; }
// A linear recurrence (model/step.h, RecurStep).
struct RecurArgs {
  bool delta = false;  // kGatedDelta
  // Faster for many tokens of one segment, in products of TF32; a token's result then depends on where the call's
  // tokens begin. Only where can_recur_in_chunks().
  bool in_chunks = false;
  HeadRows q, k, v;
  const float* decay = nullptr;  // (tokens, decay_stride)
  const float* rate = nullptr;   // (tokens, rate_stride), of kGatedDelta
  int64_t decay_stride = 0, rate_stride = 0;
  const float *a_log = nullptr, *decay_bias = nullptr;  // (heads)
  const float* skip = nullptr;                          // (heads) or null
  bool key_heads_repeat = false, unit_keys = false;
  float eps = 0, scale = 1;
  // Work space of chunks: (tokens, key_heads, key_dim); (tokens, heads, 2): the sum of the binary logarithms of a
  // chunk's decays up to the token, and its rate; (chunks, key_heads, kRecurTileFloats); (chunks, heads,
  // kRecurTileFloats), of kGatedDelta.
  float *keys = nullptr, *queries = nullptr, *rates = nullptr, *products = nullptr, *solved = nullptr;
  float* state = nullptr;  // (slots, heads, key_dim, value_dim)
  float* y = nullptr;      // (tokens, y_stride)
  int64_t y_stride = 0;
  // Without chunks, what comes before and behind can be done in passing. The convolution that makes q, k and v: they
  // are views of its inputs then, its y is not written; its activation is silu or none. No weight: none. `counter`:
  // (segments, key_heads), zeros.
  ConvArgs conv;
  uint32_t* counter = nullptr;
  // y = norm(y) * silu or sigmoid(gate), by heads of up to kMostGatedDim; no norm, no gate.x: not.
  DeviceNorm norm;
  HeadRows gate;
  bool gate_silu = false;
  Segments segments;
  int heads = 0, key_heads = 0, key_dim = 0, value_dim = 0, tokens = 0;
};
constexpr bool can_recur_in_chunks(int64_t key_dim) { return key_dim % 4 == 0; }
// Without chunks the state is read as early as attend() reads keys.
void recur(Stream& stream, const RecurArgs& args);

// The rotation of the first 2 * half elements of a head.
struct Rotation {
  const float* cos = nullptr;  // (tokens, half)
  const float* sin = nullptr;
  int half = 0;           // 0: none
  bool adjacent = false;  // pairs (2 i, 2 i + 1), not (i, i + half)
};

struct AttendArgs {
  HeadRows q, k, v, gate;             // gate.x: null where there is none
  DeviceNorm q_norm, k_norm, v_norm;  // of groups within a head
  bool norm_after_rotation = false;
  Rotation rotation;
  int rotated_first = 0;              // the first element of a head that is rotated
  const int32_t* position = nullptr;  // (tokens of the call)
  const int32_t* sequence = nullptr;  // (tokens of the call): which table of the cache's
  Cache cache;
  int heads = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  float scale = 1;
  float softcap = 0;           // 0: none
  int window = 0, chunk = 0;   // 0: all
  float temperature_beta = 0;  // queries times 1 + beta ln(1 + floor((position + offset) / interval))
  int temperature_interval = 1, temperature_offset = 0;
  const float* sinks = nullptr;  // (heads) or null
  int first_token = 0;           // of this launch; all rows above are those of the whole call
  int tokens = 1;
  float* y = nullptr;  // (tokens of the call, y_stride): heads of mixed values
  int64_t y_stride = 0;
  // In place of y, of attend_in_tiles(): rounded, with factors of 1.
  Rounded rounds_to = Rounded::kNo;
  Fp16Rows rounded;
  // attend(): partial sums of the parts that the keys are split into, and a counter, zero between calls, for the
  // first head of each block.
  int splits = 1;
  float* partial = nullptr;     // (tokens, heads, splits, padded(value_dim)), then (tokens, heads, splits, 2)
  uint32_t* counter = nullptr;  // (tokens of the launch, heads)
};
// Of one key-value head; dim: the larger one of key_dim and value_dim.
int query_tiles(CacheKind kind, int queries, int dim);
// Norm and rotation of the keys, and keys and values into the cache.
void store_keys(Stream& stream, const AttendArgs& args);
// For each token its queries' norm, rotation and attention; with `store`, for tokens of sequences of their own, also
// what store_keys() does. Other tokens' keys and values are then read before the kernels before this one have ended: of
// those behind the last copy to the device (KernelScope) none may write them.
void attend(Stream& stream, const AttendArgs& args, bool store);
// The same for many tokens of one sequence, side by side, whose keys are stored, in tiles of products of 16-bit floats;
// heads of up to 256 elements and any cache but one in F32.
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
  uint32_t count;  // of the best ones; beyond kMostBest the rest is lost
  float mass;      // the sum of exp((score - the best) * inverse_temperature) over all
  uint32_t unused[2];
  struct Token {
    float score;
    int32_t token;
  } token[kMostBest];  // in any order; every other score is lower
};
// engine/token_choice.h on the device.
struct DrawSettings {
  int32_t count;                   // of best scores that are found at least
  float inverse_mass_temperature;  // of their mass
  float inverse_temperature;
  int32_t top_k;  // 0: off
  float top_p, min_p, random;
};
// What a run sends back: in memory of the device, and in pinned memory of the host, which kernels write to as well.
struct Report {
  BestScore* best = nullptr;      // of each scored token
  uint32_t* overflow = nullptr;   // whether the cache has overflowed
  int32_t* next_token = nullptr;  // which token is likely to follow the first of them
};

// The score of a row that is not on the shortlist (see below): the lowest number. find_best_scores() leaves it out.
constexpr float kNotListed = -0x1.fffffep127f;
struct ScoreArgs {
  const float* scores = nullptr;  // (rows, stride)
  int64_t stride = 0;
  int count = 0;  // of scores in a row
  int rows = 1;
  int wanted = 1;  // find_best_scores(): so many at least, unless few are within 64 of the best
  float inverse_temperature = 1;
  const DrawSettings* draw = nullptr;  // (rows): in place of `wanted` and `inverse_temperature`; for draw_token()
  Report report;                       // its first row; `overflow` may be null without a host_report, and `next_token`
  FoundScores* found = nullptr;        // of find_best_scores()
  // The same on the host, where wanted: all of the report, which find_best_score() and draw_token() send there, and
  // what draw_token() looked at.
  Report host_report;
  FoundScores* host_found = nullptr;
  struct Scratch {  // `bins` and `counter` are zero between calls
    BestScore partial[64];
    float mass[64];
    uint32_t bins[1024];
    uint32_t counter;
    int32_t last_bin;
  }* scratch = nullptr;  // (rows)
};
// The best of each row.
void find_best_score(Stream& stream, const ScoreArgs& args);
// After that: the best ones of each row and their mass.
void find_best_scores(Stream& stream, const ScoreArgs& args);
// After that: the token that Sampler draws from row 0, or the best where the ones that were found do not settle it.
// Sums are rounded to F32, and tokens that tie at the end of top-k are kept by their number: it may seldom be another
// one.
void draw_token(Stream& stream, const ScoreArgs& args);

// The best scores of up to kGemvTokens tokens, each by a shortlist of its own (engine/shortlist_bounds.h). A copy of
// the head is made once; then gemv() multiplies it, bound_scores() makes bounds of the scores and chooses the limit
// that rows of a shortlist reach, and multiply_listed() multiplies these as they are.
constexpr int64_t kBoundBlockRows = 512;    // of a block of bound_scores()
constexpr int64_t kBoundWarpRows = 64;      // of a warp, which keeps the best of their lower bounds
constexpr int64_t kMostListedCols = 12288;  // for which multiply_listed() has room on every GPU
struct HeadCopyArgs {
  Matrix head;                 // BF16 or F16, without scales
  int8_t* codes = nullptr;     // (rows, row_bytes)
  int64_t row_bytes = 0;       // as Matrix has it
  float* scale = nullptr;      // (rows)
  uint16_t* bounds = nullptr;  // (groups + 1, padded_rows): norms of what rounding left over, then of the row; BF16
  int64_t padded_rows = 0;     // a multiple of kBoundBlockRows
};
void copy_head(Stream& stream, const HeadCopyArgs& args);
// What a row must reach: by its upper bound to be listed, and by its score, behind the epilogue, to keep it.
struct ScoreLimit {
  float bound, score;
};
struct BoundScoresArgs {
  const float* x = nullptr;  // the input of the products,
  int64_t x_stride = 0;
  const float* norm = nullptr;  // as GemvArgs has it
  float norm_eps = 0;
  const uint16_t* bounds = nullptr;
  float* scores = nullptr;             // (tokens, padded_rows) of the copy; they become upper bounds
  uint32_t* best = nullptr;            // work space, (tokens, padded_rows / kBoundWarpRows)
  uint32_t* counter = nullptr;         // (tokens), zero between calls
  const DrawSettings* draw = nullptr;  // (tokens): how many are wanted, at most as many as of `best`; null: one
  float scale = 1, softcap = 0;        // of the epilogue, as Epilogue has them
  ScoreLimit* limit = nullptr;         // (tokens)
  // (tokens, cols up to a multiple of kPad): a copy of x, for all scores of a token once the next one has begun.
  float* kept = nullptr;
  int64_t padded_rows = 0;
  int rows = 0, cols = 0, tokens = 1;
};
void bound_scores(Stream& stream, const BoundScoresArgs& args);
struct ListedArgs {
  GemvArgs product;              // of one part without scales, biases and gates, of at most kMostListedCols columns
  const float* upper = nullptr;  // (tokens, padded_rows): bounds
  int64_t padded_rows = 0;
  const ScoreLimit* limit = nullptr;              // (tokens)
  uint32_t *counter = nullptr, *total = nullptr;  // (tokens), zero between calls
  uint32_t* host_total = nullptr;  // (tokens): how many rows were multiplied, in the host's pinned memory
};
// The scores of rows on the shortlist of each token, bit by bit those of gemv(), which at least as many as are wanted
// keep; all others become kNotListed.
void multiply_listed(Stream& stream, const ListedArgs& args);

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
