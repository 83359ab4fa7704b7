// GPTQ (AutoGPTQ, GPTQModel, AutoRound's integer exports): qweight packs codes along K and is stored transposed, (K *
// bits / 32, N) words; scales are (groups, N); qzeros packs zero points along N, less one in version 1 of the layout.
// W[n, k] = (code - zero_point[g]) * scale[g], where g_idx[k], or k / group_size without it, is the group.
// Codes less their middle value are held as int8; scales stay in the file.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/byte_vectors.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int64_t kWordBits = 32;

// Bits of a code, by the shape of qweight; 0 where it is none of GPTQ's. AWQ packs along N.
int code_bits(const Module& module) {
  const TensorView* words = module.peek("qweight");
  if (words == nullptr || words->dtype != Dtype::kI32 || words->shape.size() != 2) return 0;
  if (words->shape[1] != module.rows()) return 0;
  for (const int bits : {8, 4, 3, 2}) {
    if (words->shape[0] * kWordBits == module.cols() * bits) return bits;
  }
  return 0;
}

bool detect(const Module& module) { return module.has("qweight") && module.has("scales") && module.has("qzeros"); }

// The second version of the layout stores zero points as they are. AutoRound has it in its own layouts, whatever kernel
// stands behind their name ("auto_round:exllamav2", of its first releases), and the first in GPTQ's.
bool is_version_2(const QuantConfig& config) {
  if (const auto format = config.layout()) return *format == "gptq_v2";
  const auto packing = config.value("packing_format");
  const auto backend = packing ? packing : config.value("backend");
  if (!backend || !backend->is_string()) return false;
  const std::string_view name = backend->as_string();
  if (name == "auto_round:gptqmodel") return true;
  return (name.starts_with("auto_round") || name.starts_with("autoround")) && name.find("gptq") == name.npos &&
         name.find("awq") == name.npos;
}

// The zero points of qzeros (groups, N * bits / 32), as bytes (groups, N). Version 1 subtracts one from each in words
// whole, so that a zero point of 0 borrows from its neighbour; adding in words undoes that. Those of 3 bits, which
// words cut, are undone one by one.
std::vector<std::byte> read_zero_points(const TensorView& words, int bits, bool version_2, int64_t rows) {
  std::vector<std::byte> bytes(words.bytes.begin(), words.bytes.end());
  if (!version_2 && bits != 3) {
    uint32_t ones = 0;
    for (int bit = 0; bit < kWordBits; bit += bits) ones |= 1u << bit;
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint32_t)) {
      uint32_t word;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      word += ones;
      std::memcpy(bytes.data() + at, &word, sizeof word);
    }
  }
  if (bits == 8) return bytes;
  const int64_t groups = words.shape[0];
  std::vector<std::byte> out(size_t(groups * rows));
  const size_t packed = bytes.size() / size_t(groups);
  for (int64_t g = 0; g < groups; ++g)
    unpack_bits(std::span(bytes).subspan(size_t(g) * packed, packed), bits, 0,
                std::span(out).subspan(size_t(g * rows), size_t(rows)));
  if (!version_2 && bits == 3) {
    for (std::byte& zero : out) zero = std::byte((std::to_integer<unsigned>(zero) + 1) & 7);
  }
  return out;
}

// Rows [begin, end) of the weight out of columns of words that hold codes of 3 bits: 32 of them in three words, dense.
void transpose_three_bits(const TensorView& words, Weight& weight, int64_t begin, int64_t end) {
  constexpr int64_t kCodes = 32, kWords = 3;
  const int64_t pitch = weight.rows;
  const auto load = [&](int64_t word, int64_t n) {
    uint32_t value;
    std::memcpy(&value, words.bytes.data() + (word * pitch + n) * int64_t(sizeof value), sizeof value);
    return value;
  };
  const auto code_of = [](uint64_t low, uint32_t high, int64_t i) {
    const uint64_t code = i < 21 ? low >> (3 * i) : i == 21 ? low >> 63 | uint64_t{high} << 1 : high >> (3 * i - 64);
    return std::byte(uint8_t((code & 7) - 4));
  };
  if (weight.ordered) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t j = 0; j < weight.cols; ++j) {
        const int64_t k = weight.column_order[size_t(j)], word = k / kCodes * kWords;
        weight.owned[size_t(n * weight.row_bytes + j)] =
            code_of(load(word, n) | uint64_t{load(word + 1, n)} << 32, load(word + 2, n), k % kCodes);
      }
    }
    return;
  }
  for (int64_t first = 0; first < weight.cols; first += kCodes) {
    const int64_t word = first / kCodes * kWords;
    for (int64_t n = begin; n < end; ++n) {
      const uint64_t low = load(word, n) | uint64_t{load(word + 1, n)} << 32;
      const uint32_t high = load(word + 2, n);
      std::byte* const row = weight.owned.data() + n * weight.row_bytes + first;
      for (int64_t i = 0; i < kCodes; ++i) row[i] = code_of(low, high, i);
    }
  }
}

// Four words of each of four rows, whose codes of 8 or 4 bits become those of four rows of the weight.
constexpr int64_t kSquareSide = 4;
void turn_square(const std::byte* words, int64_t words_pitch, int bits, std::byte* out, int64_t pitch) {
  Bytes16 square[kSquareSide];
  for (int64_t i = 0; i < kSquareSide; ++i) square[i] = load16(words + i * words_pitch);
  transpose_square<sizeof(uint32_t)>(square);
  for (int64_t i = 0; i < kSquareSide; ++i, out += pitch) {
    if (bits == 8) {
      store16(square[i] ^ all_bytes(128), out);  // less 128, each byte
    } else {
      const SpreadNibbles codes = spread_nibbles(square[i]);
      store16(codes.low - all_bytes(8), out);
      store16(codes.high - all_bytes(8), out + sizeof(Bytes16));
    }
  }
}

// Rows [begin, end) of the weight out of columns of words, in natural order and in pieces that the first cache holds,
// to `out`, `pitch` bytes apart.
void transpose_in_order(const TensorView& words, int bits, const Weight& weight, int64_t begin, int64_t end,
                        std::byte* out, int64_t pitch) {
  const int64_t in_word = kWordBits / bits, words_pitch = weight.rows * int64_t(sizeof(uint32_t));
  const auto mask = uint32_t((1u << bits) - 1);
  const auto middle = uint8_t(1u << (bits - 1));
  constexpr int64_t kPieceWords = 16;
  const std::byte* const from = words.bytes.data();
  const int64_t all = weight.cols / in_word;
  for (int64_t first = 0; first < all; first += kPieceWords) {
    const int64_t last = std::min(first + kPieceWords, all);
    int64_t n = begin;
    if (last - first == kPieceWords && (bits == 8 || bits == 4)) {
      for (; n + kSquareSide <= end; n += kSquareSide) {
        for (int64_t w = first; w < last; w += kSquareSide)
          turn_square(from + w * words_pitch + n * int64_t(sizeof(uint32_t)), words_pitch, bits,
                      out + (n - begin) * pitch + w * in_word, pitch);
      }
    }
    for (; n < end; ++n) {
      std::byte* row = out + (n - begin) * pitch + first * in_word;
      for (int64_t w = first; w < last; ++w) {
        uint32_t word;
        std::memcpy(&word, from + w * words_pitch + n * int64_t(sizeof word), sizeof word);
        if (bits == 8) {
          word ^= 0x80808080u;  // less 128, each byte
          std::memcpy(row, &word, sizeof word);
          row += sizeof word;
        } else if (bits == 4) {
          const uint64_t codes = spread_nibbles(word);
          std::memcpy(row, &codes, sizeof codes);
          row += sizeof codes;
        } else {
          for (int64_t i = 0; i < in_word; ++i) *row++ = std::byte(uint8_t((word >> (i * bits) & mask) - middle));
        }
      }
    }
  }
}

// The same into the weight, in its activation order.
void transpose_words(const TensorView& words, int bits, Weight& weight, int64_t begin, int64_t end) {
  if (bits == 3) return transpose_three_bits(words, weight, begin, end);
  std::byte* to = weight.owned.data() + begin * weight.row_bytes;
  if (!weight.ordered) return transpose_in_order(words, bits, weight, begin, end, to, weight.row_bytes);
  // As many rows at a time as the second cache holds.
  constexpr int64_t kStrip = 64;
  std::vector<std::byte> natural(size_t(std::min(kStrip, end - begin) * weight.cols));
  const int32_t* const order = weight.column_order.data();
  for (int64_t first = begin; first < end; first += kStrip) {
    const int64_t rows = std::min(kStrip, end - first);
    transpose_in_order(words, bits, weight, first, first + rows, natural.data(), weight.cols);
    for (int64_t n = 0; n < rows; ++n, to += weight.row_bytes) {
      const std::byte* const row = natural.data() + n * weight.cols;
      for (int64_t j = 0; j < weight.cols; ++j) to[j] = row[order[j]];
    }
  }
}

Weight bind(Module& module) {
  const int bits = code_bits(module);
  const TensorView& words = module.take("qweight");
  const int64_t rows = module.rows(), cols = module.cols();
  if (bits == 0) {
    fail_tensor(words,
                fmt::format("wrong type or shape (expected I32 [{}, {}] for GPTQ codes of 8 bits, found {} {})",
                            cols / 4, rows, dtype_name(words.dtype), words.shape_text()),
                "supported: GPTQ with 8, 4, 3 or 2 bits and AWQ; marlin and bitblas layouts are not");
  }
  Weight weight = module.codes_over(words, Codes::kI8);
  weight.file_codes = bits_name(bits);
  weight.code_shift = 1 << (bits - 1);

  const TensorView& scales = module.take("scales");
  weight.scale = module.transposed_groups(scales);
  const int64_t groups = weight.scale.cols;

  if (rows * bits % kWordBits != 0) fail_tensor(words, fmt::format("{} outputs do not fill the words of qzeros", rows));
  const TensorView& zeros = module.take("qzeros", {Dtype::kI32}, {groups, rows * bits / kWordBits});
  weight.zero_point = byte_zero_points(weight.scale, zeros);

  const QuantConfig& config = module.config();
  // The index says it, when it is read; many files have one in the natural order.
  const auto flag_or = [&](std::string_view key, bool otherwise) {
    const auto flag = config.value(key);
    return flag ? flag->as_bool() : otherwise;
  };
  if (groups > 1 && config.activation_order) module.require("g_idx");
  const TensorView* const order = module.has("g_idx") ? &take_group_index(module, "g_idx") : nullptr;
  weight.ordered = order != nullptr && groups > 1 && flag_or("desc_act", true);
  const bool version_2 = is_version_2(config);
  const bool symmetric = flag_or("sym", false);
  // Says what `plan` may know without reading values: published symmetric files have nothing but middle values.
  if (symmetric) {
    weight.zero_point = {};
    weight.code_shift = 0;
  }
  auto repack = std::make_shared<Weight::Repack>();
  // Parts of stacks are tensors of the module, which is gone when the model is loaded: repacks have copies.
  std::optional<TensorView> index;
  if (order != nullptr) index = *order;
  repack->prepare = [zeros = zeros, index = std::move(index), bits, version_2](Weight& w) {
    set_byte_zero_points(w, zeros, read_zero_points(zeros, bits, version_2, w.rows), 1 << (bits - 1));
    if (index) w.column_order = read_group_order(*index, w.scale, w.cols);
    w.ordered = !w.column_order.empty();
    own_codes(w);
  };
  repack->rows = [words = words, bits](Weight& w, int64_t begin, int64_t end) {
    transpose_words(words, bits, w, begin, end);
  };
  weight.repack = std::move(repack);
  return weight;
}

int read_bits(const Json& json) {
  const Json bits = json.at("bits");
  if (const int64_t value = bits.as_integer(); value == 8 || value == 4 || value == 3 || value == 2) return int(value);
  bits.fail(fmt::format("{} bits are not supported", bits.as_integer()), "supported: 8, 4, 3, 2");
}

void read_group_size(const Json& json, Scheme& scheme) {
  const auto group = json.get("group_size");
  scheme.group_rows = 1;
  if (const int64_t g = group ? group->as_integer(-1, kMaxGroup) : -1; g > 0) scheme.group_cols = g;
}

// "gptq", and "auto-round" where it means GPTQ's tensors.
bool read(const QuantSource& source, Declaration& out) {
  const bool auto_round = is_auto_round(source.method);
  if (source.method != "gptq" && !auto_round) return false;
  const Json& json = *source.json;
  if (const auto type = json.get("data_type"); auto_round && type && type->as_string() != "int")
    type->fail(fmt::format("'{}' is not supported", type->as_string()), "supported: int, fp");
  if (const auto format = json.get("checkpoint_format");
      format && format->as_string() != "gptq" && format->as_string() != "gptq_v2")
    format->fail(fmt::format("the layout '{}' is not supported", format->as_string()), "supported: gptq, gptq_v2");
  Scheme scheme;
  scheme.codes = Dtype::kI32;
  scheme.bits = read_bits(json);
  scheme.scales = auto_round ? Dtype::kF16 : source.plain == Dtype::kF32 ? Dtype::kF16 : source.plain;
  scheme.zero_points = !json.flag_or("sym", true);
  scheme.activation_order = json.flag_or("desc_act", false);
  scheme.group_index = !auto_round || scheme.activation_order;
  read_group_size(json, scheme);
  out.matching = Matching::kTargets;
  if (!json.flag_or("lm_head", false)) out.excluded.emplace_back("lm_head");
  // Modules of their own: {"+:regex": {...}, "-:regex": {}}.
  if (const auto dynamic = json.get("dynamic"); dynamic && dynamic->is_object()) {
    for (const auto& [key, value] : dynamic->members()) {
      const bool excludes = key.starts_with("-:");
      const std::string_view pattern = key.starts_with("-:") || key.starts_with("+:") ? key.substr(2) : key;
      std::string target = fmt::format("re:{}", pattern);
      if (excludes) {
        out.excluded.push_back(std::move(target));
        continue;
      }
      Scheme own = scheme;
      own.targets.push_back(std::move(target));
      if (value.get("bits")) own.bits = read_bits(value);
      if (value.get("group_size")) {
        own.group_cols = 0;
        read_group_size(value, own);
      }
      if (const auto symmetric = value.get("sym")) own.zero_points = !symmetric->as_bool();
      out.schemes.push_back(std::move(own));
    }
  }
  // AutoRound's: {"NAME": {...}}, 16 bits for a module that is not quantized.
  if (const auto extra = json.get("extra_config"); extra && extra->is_object()) {
    for (const auto& [name, value] : extra->members()) {
      if (const auto own_bits = value.get("bits"); own_bits && own_bits->as_integer() >= 16) {
        out.excluded.emplace_back(name);
        continue;
      }
      Scheme own = scheme;
      own.targets.emplace_back(name);
      if (value.get("bits")) own.bits = read_bits(value);
      if (value.get("group_size")) {
        own.group_cols = 0;
        read_group_size(value, own);
      }
      out.schemes.push_back(std::move(own));
    }
  }
  scheme.targets = {"Linear"};
  out.schemes.push_back(std::move(scheme));
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const int64_t groups = scheme_grid_cols(scheme, cols);
  // Middle values read as symmetric, others as not.
  const std::byte zero = scheme.zero_points ? std::byte{0} : std::byte(scheme.bits == 8 ? 0x7F : 0x77);
  std::vector<DeclaredTensor> out = {{"qweight", Dtype::kI32, {cols * scheme.bits / kWordBits, rows}},
                                     {"scales", scheme.scales, {groups, rows}},
                                     {"qzeros", Dtype::kI32, {groups, rows * scheme.bits / kWordBits}, zero}};
  // -1: an order that is not known.
  if (scheme.group_index) out.push_back({"g_idx", Dtype::kI32, {cols}, std::byte{0xFF}});
  return out;
}

}  // namespace

const Format kGptqFormat = {
    "gptq",
    "GPTQ and AutoRound: integer codes in transposed words, with group scales and zero points, in activation order or "
    "not; 8 bits, or 4, 3 or 2 held as 8",
    detect,
    bind,
    read,
    declare,
    "`qweight` in I32, (K * bits / 32, N); `scales` in F16, BF16 or F32, (groups, N); `qzeros` in I32, (groups, N * "
    "bits "
    "/ 32), of version 1 or 2 (`checkpoint_format`, `packing_format`); `g_idx` where in activation order"};

}  // namespace qgen
