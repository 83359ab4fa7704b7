// MLX: codes in U32 words along a row, for the embedding as well. Mode "affine": unsigned integers, with scales and
// biases in groups along the row, W = scale * code + bias, rounded to F32 after each operation here (mlx rounds to the
// type of the scales). Modes "mxfp8" and "mxfp4": E4M3 or E2M1 codes and powers of two (E8M0) for groups of 32;
// mode "nvfp4": E2M1 codes and E4M3 scales, as U8, for groups of 16.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int64_t kWordBits = 32;
constexpr int64_t kMxGroup = 32, kNvGroup = 16;

// Modes, with what a configuration that says no more means (mlx, quantize()).
struct Mode {
  std::string_view name;
  int64_t group;
  int bits;
};
constexpr Mode kModes[] = {{"affine", 64, 4}, {"mxfp4", kMxGroup, 4}, {"mxfp8", kMxGroup, 8}, {"nvfp4", kNvGroup, 4}};

bool detect(const Module& module) {
  const TensorView* words = module.peek("weight");
  return words != nullptr && words->dtype == Dtype::kU32 && module.has("scales");
}

int code_bits(const Module& module, const TensorView& words) {
  if (words.shape.size() == 2 && words.shape[0] == module.rows()) {
    for (const int bits : {8, 6, 5, 4, 3, 2, 1}) {
      if (words.shape[1] * kWordBits == module.cols() * bits) return bits;
    }
  }
  fail_tensor(words,
              fmt::format("wrong shape (expected [{}, {}] for codes of 8 bits, found {})", module.rows(),
                          module.cols() / 4, words.shape_text()),
              "the configuration and the weights do not belong together?");
}

// Scales or biases, (N, groups).
ScaleGrid take_groups(Module& module, std::string_view suffix) {
  const TensorView& tensor = module.take(suffix);
  if (tensor.shape.size() != 2 || tensor.shape[0] != module.rows() || tensor.shape[1] < 1 ||
      module.cols() % tensor.shape[1] != 0) {
    fail_tensor(tensor, fmt::format("wrong shape (expected [{}, groups of {} columns], found {})", module.rows(),
                                    module.cols(), tensor.shape_text()));
  }
  return grid_over(tensor, make_grid(module.rows(), module.cols(), 1, module.cols() / tensor.shape[1]));
}

UnpackRow unpack_words(const TensorView& words, int bits, int offset) {
  return [words = words, bits, offset](const Weight& weight, int64_t n, std::span<std::byte> out) {
    const auto row_bytes = size_t(weight.cols * bits / 8);
    unpack_bits(words.bytes.subspan(size_t(n) * row_bytes, row_bytes), bits, offset, out);
  };
}

UnpackRow unpack_e2m1(const TensorView& words) {
  return [words = words](const Weight& weight, int64_t n, std::span<std::byte> out) {
    const auto row_bytes = size_t(weight.cols / 2);
    unpack_doubled_e2m1(words.bytes.subspan(size_t(n) * row_bytes, row_bytes), out);
  };
}

Weight bind(Module& module) {
  const TensorView& words = module.take("weight");
  const int bits = code_bits(module, words);
  ScaleGrid scale = take_groups(module, "scales");
  if (module.has("biases")) {
    Weight weight = module.codes_over(words, Codes::kI8);
    weight.file_codes = bits_name(bits);
    weight.scale = std::move(scale);
    weight.minimum = take_groups(module, "biases");
    if (weight.minimum.cols != weight.scale.cols) {
      const TensorView& biases = *module.peek("biases");
      fail_tensor(biases, fmt::format("not the shape of its scales (expected {} groups, found {})", weight.scale.cols,
                                      biases.shape_text()));
    }
    weight.code_shift = 1 << (bits - 1);
    weight.f32_steps = true;
    weight.repack = make_row_repack({}, unpack_words(words, bits, weight.code_shift));
    return weight;
  }
  const TensorView& scales = *module.peek("scales");
  if (scale.type != ScaleType::kE8M0 || (bits != 8 && bits != 4)) {
    fail_tensor(scales, fmt::format("{} without {}.biases (expected U8 powers of two for groups of 32, or biases)",
                                    dtype_name(scales.dtype), module.name()));
  }
  const bool nvfp4 = bits == 4 && scale.group_cols == kNvGroup;
  if (!nvfp4 && scale.group_cols != kMxGroup) {
    fail_tensor(scales, fmt::format("groups of {} columns (expected 32, or 16 of 4 bits)", scale.group_cols),
                "supported: the modes affine, mxfp8, mxfp4 and nvfp4");
  }
  Weight weight = module.codes_over(words, bits == 8 ? Codes::kE4M3 : Codes::kI8);
  if (nvfp4) scale.type = ScaleType::kE4M3;
  weight.scale = std::move(scale);
  if (bits == 8) return weight;  // bytes in the order of the columns
  weight.file_codes = "fp4";
  weight.scale.factor = 0.5;
  weight.repack = make_row_repack({}, unpack_e2m1(words));
  return weight;
}

Scheme read_scheme(const Json& json, const Scheme& base, Dtype plain) {
  Scheme scheme = base;
  if (const auto mode = json.get("mode")) {
    const std::string_view name = mode->as_string();
    const auto* const known =
        std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return m.name == name; });
    if (known == std::end(kModes))
      mode->fail(fmt::format("'{}' is not supported", name), "supported: affine, mxfp8, mxfp4, nvfp4");
    scheme.zero_points = known == &kModes[0];
    scheme.group_cols = known->group;
    scheme.bits = known->bits;
  }
  if (const auto bits = json.get("bits")) scheme.bits = int(bits->as_integer(1, 8));
  if (const auto group = json.get("group_size")) scheme.group_cols = group->as_integer(1, kMaxGroup);
  scheme.scales = scheme.zero_points ? plain : Dtype::kU8;
  return scheme;
}

// "quantization" of config.json: the groups of all modules, and members for modules of their own; false for one that is
// not quantized. Only rows of whole groups are.
bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "mlx") return false;
  Scheme base;
  base.codes = Dtype::kU32;
  base.group_rows = 1;
  base.group_cols = kModes[0].group;
  base.bits = kModes[0].bits;
  base.zero_points = true;
  base.whole_groups = true;
  base = read_scheme(*source.json, base, source.plain);
  for (const auto& [name, value] : source.json->members()) {
    if (value.is_bool() && !value.as_bool()) {
      out.excluded.emplace_back(name);
    } else if (value.is_object()) {
      Scheme own = read_scheme(value, base, source.plain);
      own.targets.emplace_back(name);
      out.schemes.push_back(std::move(own));
    }
  }
  base.targets = {"Linear"};
  out.schemes.push_back(std::move(base));
  out.matching = Matching::kTargets;
  out.embeddings = true;
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const std::vector<int64_t> groups = {rows, scheme_grid_cols(scheme, cols)};
  std::vector<DeclaredTensor> out = {{"weight", Dtype::kU32, {rows, cols * scheme.bits / kWordBits}},
                                     {"scales", scheme.scales, groups}};
  if (scheme.zero_points) out.push_back({"biases", scheme.scales, groups});
  return out;
}

}  // namespace

const Format kMlxFormat = {
    "mlx",
    "affine: integer codes with group scales and biases, 8 bits, or 1 to 6 held as 8; mxfp8; mxfp4 and nvfp4 held as "
    "INT8",
    detect,
    bind,
    read,
    declare,
    "`weight` in U32, (N, K * bits / 32); `scales` in F32, F16 or BF16 with `biases` of the same groups (affine), or "
    "in U8 "
    "without (mxfp8, mxfp4, nvfp4)"};

}  // namespace qgen
