// AWQ (AutoAWQ's "gemm" layout): qweight packs 4-bit codes along N, (K, N / 8) words, and is stored transposed; qzeros
// (groups, N / 8) likewise; scales are (groups, N). A word has its eight columns in the order 0, 2, 4, 6, 1, 3, 5, 7.
// W[n, k] = (code - zero_point[g]) * scale[g]. Codes less 8 are held as int8.
#include <algorithm>
#include <cctype>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int kBits = 4;
constexpr int64_t kInWord = 32 / kBits;
constexpr int kMiddle = 8;

// Where column i of a word's eight has its bits.
constexpr int shift_of(int64_t i) { return int(i % 2 == 0 ? i / 2 : kInWord / 2 + i / 2) * kBits; }

// GPTQ's tensors have the same names and pack along K.
bool detect(const Module& module) {
  const TensorView* words = module.peek("qweight");
  return words != nullptr && words->dtype == Dtype::kI32 && module.rows() % kInWord == 0 &&
         words->shape == std::vector<int64_t>{module.cols(), module.rows() / kInWord} && module.has("qzeros") &&
         module.has("scales");
}

uint32_t code_at(const TensorView& words, int64_t row, int64_t n) {
  uint32_t word;
  std::memcpy(&word, words.bytes.data() + (row * words.shape[1] + n / kInWord) * int64_t(sizeof word), sizeof word);
  return word >> shift_of(n % kInWord) & 15;
}

Weight bind(Module& module) {
  const TensorView& words = module.take("qweight");
  const int64_t rows = module.rows();
  Weight weight = module.codes_over(words, Codes::kI8);
  weight.file_codes = bits_name(kBits);
  weight.code_shift = kMiddle;
  const TensorView& scales = module.take("scales");
  weight.scale = module.transposed_groups(scales);
  const TensorView& zeros = module.take("qzeros", {Dtype::kI32}, {weight.scale.cols, rows / kInWord});
  weight.zero_point = byte_zero_points(weight.scale, zeros);
  auto repack = std::make_shared<Weight::Repack>();
  // Parts of stacks are tensors of the module, which is gone when the model is loaded: repacks have copies.
  repack->prepare = [zeros = zeros](Weight& w) {
    std::vector<std::byte> values(size_t(w.scale.cols * w.rows));
    for (int64_t g = 0; g < w.scale.cols; ++g) {
      for (int64_t n = 0; n < w.rows; ++n) values[size_t(g * w.rows + n)] = std::byte(code_at(zeros, g, n));
    }
    set_byte_zero_points(w, zeros, std::move(values), kMiddle);
    own_codes(w);
  };
  // In pieces that the first cache holds.
  repack->rows = [words = words](Weight& w, int64_t begin, int64_t end) {
    constexpr int64_t kPieceColumns = 64;
    for (int64_t first = 0; first < w.cols; first += kPieceColumns) {
      const int64_t last = std::min(first + kPieceColumns, w.cols);
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t k = first; k < last; ++k)
          w.owned[size_t(n * w.row_bytes + k)] = std::byte(uint8_t(code_at(words, k, n) - kMiddle));
      }
    }
  };
  weight.repack = std::move(repack);
  return weight;
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "awq") return false;
  const Json& json = *source.json;
  for (const char* key : {"bits", "w_bit"}) {
    if (const auto bits = json.get(key); bits && bits->as_integer() != kBits)
      bits->fail(fmt::format("{} bits are not supported", bits->as_integer()), "supported: 4");
  }
  if (const auto version = json.get("version"); version && version->is_string()) {
    std::string name(version->as_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    if (name != "gemm") version->fail(fmt::format("the layout '{}' is not supported", name), "supported: gemm");
  }
  Scheme scheme;
  scheme.bits = kBits;
  scheme.scales = Dtype::kF16;
  scheme.group_rows = 1;
  for (const char* key : {"group_size", "q_group_size"}) {
    if (const auto group = json.get(key)) {
      if (const int64_t g = group->as_integer(-1, kMaxGroup); g > 0) scheme.group_cols = g;
    }
  }
  out.schemes.push_back(std::move(scheme));
  read_excluded_paths(json, out);
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const int64_t groups = scheme_grid_cols(scheme, cols);
  return {{"qweight", Dtype::kI32, {cols, rows / kInWord}},
          {"scales", scheme.scales, {groups, rows}},
          {"qzeros", Dtype::kI32, {groups, rows / kInWord}}};
}

}  // namespace

const Format kAwqFormat = {"awq",
                           "AWQ: 4-bit codes in transposed words, with group scales and zero points, held as 8 bits",
                           detect,
                           bind,
                           read,
                           declare,
                           "`qweight` in I32, (K, N / 8); `scales` in F16, BF16 or F32, (groups, N); `qzeros` in I32, "
                           "(groups, N / 8)"};

}  // namespace qgen
