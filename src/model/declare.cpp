#include "model/declare.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/numbers.h"
#include "model/families/table.h"
#include "quant/declaration.h"
#include "quant/formats.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

std::optional<WeightFiles> read_index(const fs::path& folder) {
  const auto path = find_index(folder);
  if (!path) return {};
  return parse_index(read_file(*path), path->string(), folder);
}

class Declarer {
 public:
  Declarer(const ModelLocation& location, bool draft_head, bool only_plan)
      : location_(location),
        draft_head_(draft_head),
        only_plan_(only_plan),
        config_(read_config(location)),
        side_file_(read_side_file(ModelFiles(location.folder))),
        description_(read_description(ModelFiles(location.folder))),
        index_(read_index(location.folder)) {
    if (!index_ && description_ != nullptr) index_ = names_of(*description_);
  }

  Checkpoint run() {
    Description model = describe(config_->root());
    if (index_) {
      find_place(model, [&](const std::string& tensor) { return in_index(tensor); });
      find_other_names(model, names_in_index());
    }
    declaration_ = Declaration::read(config_->root(), side_file_.get(), description_.get());
    const auto requests = plan_requests(
        model, location_.name, [&](const std::string& tensor) { return has(model, tensor); }, draft_head_);
    for (const TensorRequest& request : requests) {
      if (request.cols == 0) {
        add({request.name, declaration_.plain, {request.rows}});
      } else {
        add_module(request, request.name == model.names.of(Role::kEmbed) ||
                                request.name == model.names.of(Role::kPerLayerEmbed));
      }
    }
    if (index_) add_rest();
    return Checkpoint::blank(location_, std::move(config_), std::move(tensors_), fills_, only_plan_);
  }

 private:
  bool in_index(const std::string& tensor) const { return index_->file_of_tensor.contains(tensor); }
  std::set<std::string> names_in_index() const {
    std::set<std::string> out;
    for (const auto& [name, file] : index_->file_of_tensor) out.insert(name);
    return out;
  }

  // Optional tensors: without an index the configuration decides.
  bool has(const Description& model, const std::string& tensor) const {
    if (index_) return in_index(tensor);
    return tensor == model.names.of(Role::kHead) + ".weight" && model.tied_head != true;
  }

  void add(DeclaredTensor tensor) {
    if (index_ && !in_index(tensor.suffix)) return;
    TensorView view;
    view.name = std::move(tensor.suffix);
    view.dtype = tensor.dtype;
    view.shape = std::move(tensor.shape);
    view.file = index_ ? index_->index_name : config_->subject();
    fills_.push_back(tensor.fill);
    if (index_) index_->file_of_tensor.erase(view.name);
    tensors_.push_back(std::move(view));
  }

  void add_module(const TensorRequest& request, bool embedding) {
    const auto [format, scheme] = scheme_of(request, embedding);
    for (DeclaredTensor& tensor : format->declare(scheme, request.rows, request.cols)) {
      tensor.suffix = name_of(request, tensor.suffix);
      if (request.stacked > 0) tensor.shape.insert(tensor.shape.begin(), request.stacked);
      add(std::move(tensor));
    }
  }

  // X.<suffix>; a stack's tensors lack ".weight" where the index says so.
  std::string name_of(const TensorRequest& request, std::string_view suffix) const {
    constexpr std::string_view kWeight = "weight";
    const std::string name = fmt::format("{}.{}", request.name, suffix);
    if (request.stacked == 0 || !index_ || in_index(name) || !suffix.starts_with(kWeight)) return name;
    return fmt::format("{}{}", request.name, suffix.substr(kWeight.size()));
  }

  // msModelSlim's description file names every tensor, as an index does.
  static WeightFiles names_of(const JsonDocument& description) {
    WeightFiles out;
    out.index_name = description.subject();
    for (const auto& [name, value] : description.root().members()) {
      if (value.is_string() && name.find('.') != name.npos) out.file_of_tensor.emplace(name, "");
    }
    return out;
  }

  std::pair<const Format*, Scheme> scheme_of(const TensorRequest& request, bool embedding) const {
    const std::string& module = request.name;
    Scheme plain;
    plain.codes = declaration_.plain;
    if (description_ != nullptr) {
      const Scheme* described = declaration_.scheme_of(module);
      return described == nullptr ? std::pair{&kPlainFormat, plain} : std::pair{declaration_.format, *described};
    }
    const Scheme* declared = embedding && !declaration_.embeddings ? nullptr : declaration_.scheme_of(module);
    if (declared != nullptr && declared->whole_groups && request.cols % declared->group_cols != 0) declared = nullptr;
    if (!index_) {
      if (declared == nullptr) return {&kPlainFormat, plain};
      return {declaration_.format, *declared};
    }
    // Lists of modules are often wrong; the names of scales are not.
    const auto named = [&](const std::string& suffix) { return in_index(name_of(request, suffix)); };
    const auto declares = [&](const Format& format) { return declaration_.format->declare == format.declare; };
    if (declared != nullptr && !declares(kFp8Format) && !declares(kScaledFormat)) {
      Scheme scheme = *declared;
      scheme.group_index = named("g_idx");
      // Codes and their scales.
      const std::vector<DeclaredTensor> tensors = declaration_.format->declare(scheme, request.rows, request.cols);
      if (named(tensors[0].suffix) && named(tensors[1].suffix)) return {declaration_.format, scheme};
      return {&kPlainFormat, plain};
    }
    const bool inverse = named("weight_scale_inv"), scaled = named("weight_scale");
    if (!inverse && !scaled) return {&kPlainFormat, plain};
    if (declared == nullptr && !declaration_.schemes.empty()) declared = &declaration_.schemes.front();
    if (declared == nullptr) {
      fail(ErrorKind::kModel,
           fmt::format("{}: names {}.{}, but config.json declares no quantization", index_->index_name, module,
                       inverse ? "weight_scale_inv" : "weight_scale"),
           "what the weights are shows once they are there");
    }
    Scheme scheme = *declared;
    scheme.zero_points = named("weight_zero_point");
    scheme.activation_order = named("weight_g_idx");
    return {inverse ? &kFp8Format : &kScaledFormat, scheme};
  }

  // Names that nothing asked for are judged by the Binder, as those of files are.
  void add_rest() {
    for (const std::string& name : names_in_index()) add({name, Dtype::kF32, {}});
  }

  const ModelLocation& location_;
  bool draft_head_, only_plan_;
  std::unique_ptr<JsonDocument> config_, side_file_, description_;
  std::optional<WeightFiles> index_;  // without the names that were added already
  Declaration declaration_;
  std::vector<TensorView> tensors_;
  std::vector<std::byte> fills_;  // one for each of them
};

// SplitMix64 (Steele, Lea, Flood 2014): every start gives an independent sequence.
class Random {
 public:
  explicit Random(uint64_t start) : state_(start) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

// Eight random bytes made into codes, as 8, 4 or 2 of them. Those without a scale get magnitudes from 2^exponent to
// 2^(exponent + 1).
uint64_t shape_codes(uint64_t bits, Codes codes, int exponent) {
  const auto fields = [&](uint64_t sign_and_mantissa, uint64_t ones, int mantissa_bits, int bias) {
    return (bits & sign_and_mantissa) | ones * (uint64_t(exponent + bias) << mantissa_bits);
  };
  switch (codes) {
    case Codes::kF32: return fields(0x807FFFFF807FFFFFu, 0x0000000100000001u, 23, 127);
    case Codes::kBf16: return fields(0x807F807F807F807Fu, 0x0001000100010001u, 7, 127);
    case Codes::kF16: return fields(0x83FF83FF83FF83FFu, 0x0001000100010001u, 10, 15);
    case Codes::kI8: return bits;
    // No NaN (0x7F and 0xFF), and at least 2: of weights scaled to a largest of 448 few are smaller, and kernels decode
    // numbers below 2^-6 on a slower branch.
    case Codes::kE4M3: return (bits & 0xFEFEFEFEFEFEFEFEu) | 0x4040404040404040u;
    case Codes::kE5M2: return bits & 0xFBFBFBFBFBFBFBFBu;  // no infinity and NaN: 0x7C to 0x7F
  }
  return bits;
}

// The root mean square of what shape_codes() makes.
double rms_of_codes(Codes codes) {
  double sum = 0;
  for (int code = 0; code < 256; ++code) {
    const auto byte = uint8_t(shape_codes(uint64_t(code), codes, 0));
    const double value = codes == Codes::kI8     ? double(int8_t(byte))
                         : codes == Codes::kE4M3 ? double(e4m3_to_float(byte))
                                                 : double(e5m2_to_float(byte));
    sum += value * value;
  }
  return std::sqrt(sum / 256);
}

void fill(std::span<std::byte> out, Codes codes, int exponent, Random random) {
  size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const uint64_t bits = shape_codes(random.next(), codes, exponent);
    std::memcpy(out.data() + i, &bits, 8);
  }
  const uint64_t bits = shape_codes(random.next(), codes, exponent);
  std::memcpy(out.data() + i, &bits, out.size() - i);
}

}  // namespace

Checkpoint declare_checkpoint(const ModelLocation& location, bool draft_head, bool only_plan) {
  return Declarer(location, draft_head, only_plan).run();
}

bool lacks_weights(const ModelLocation& location) {
  if (location.single_file || !location.gguf_files.empty()) return false;
  if (!fs::exists(location.folder / "config.json")) return false;
  if (fs::exists(location.folder / "model.safetensors")) return false;
  if (const auto index = read_index(location.folder)) {
    return std::any_of(index->paths.begin(), index->paths.end(),
                       [](const fs::path& path) { return !fs::exists(path); });
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(location.folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    for (const char* known : {".safetensors", ".bin", ".pt", ".pth", ".gguf"}) {
      if (extension == known && fs::exists(entry.path())) return false;
    }
  }
  return true;
}

std::string declared_size_note(const Checkpoint& declared) {
  const auto index = read_index(declared.location().folder);
  if (!index || !index->total_bytes) return "";
  double total = 0;
  for (const TensorView& tensor : declared.tensors()) total += double(tensor.bytes.size());
  if (std::abs(total - *index->total_bytes) <= 0.01 * *index->total_bytes) return "";
  return fmt::format("{}: total_size is {:.0f} bytes, config.json declares {:.0f}", index->index_name,
                     *index->total_bytes, total);
}

namespace {

// `value` as an element of this type, everywhere in `bytes`.
void fill_with(std::span<std::byte> bytes, Dtype type, float value) {
  uint32_t bits = 0;
  size_t size = 4;
  switch (type) {
    case Dtype::kF32: bits = std::bit_cast<uint32_t>(value); break;
    case Dtype::kF16:
      bits = float_to_f16(value);
      size = 2;
      break;
    case Dtype::kBf16:
      bits = float_to_bf16(value);
      size = 2;
      break;
    case Dtype::kF8E4M3:  // the power of two below
      bits = uint32_t(std::clamp(std::floor(std::log2(value)) + 7, 1.0f, 14.0f)) << 3;
      size = 1;
      break;
    default:  // E8M0: the power of two below
      bits = uint32_t(std::clamp(std::floor(std::log2(value)) + 127, 0.0f, 254.0f));
      size = 1;
  }
  for (size_t at = 0; at + size <= bytes.size(); at += size) std::memcpy(bytes.data() + at, &bits, size);
}

// From the first value of a grid to the last.
size_t bytes_between(const ScaleGrid& grid) {
  return size_t((grid.rows - 1) * grid.row_pitch + (grid.cols - 1) * grid.col_pitch + scale_bytes(grid.type));
}

Dtype dtype_of(ScaleType type) {
  switch (type) {
    case ScaleType::kF32: return Dtype::kF32;
    case ScaleType::kF16: return Dtype::kF16;
    case ScaleType::kBf16: return Dtype::kBf16;
    case ScaleType::kE4M3: return Dtype::kF8E4M3;
    default: return Dtype::kF8E8M0;
  }
}

}  // namespace

void fill_randomly(Plan& plan, uint64_t seed, const std::function<void(size_t)>& progress) {
  const std::span<std::byte> data = plan.checkpoint.blank_bytes();
  constexpr size_t kPieceBytes = 4 << 20;
  // Bytes that no file has because a repack makes them at load (null): an empty span.
  const auto writable = [&](const std::byte* begin, size_t size) {
    return begin == nullptr ? std::span<std::byte>() : data.subspan(size_t(begin - data.data()), size);
  };
  struct Piece {
    std::span<std::byte> bytes;
    Codes codes;
    int exponent;
  };
  std::vector<Piece> pieces;
  const std::byte* filled = nullptr;  // weights whose rows alternate share their bytes
  for (const Weight& weight : plan.weights) {
    const double spread = 1 / std::sqrt(double(weight.cols));
    if (!weight.scale.empty())
      fill_with(writable(weight.scale.data, bytes_between(weight.scale)), dtype_of(weight.scale.type),
                float(spread / rms_of_codes(weight.codes)));
    std::span<std::byte> codes = writable(weight.data.data(), weight.data.size());
    if (!codes.empty() && codes.data() < filled && filled <= codes.data() + codes.size())
      codes = codes.subspan(size_t(filled - codes.data()));
    if (!codes.empty()) filled = codes.data() + codes.size();
    for (size_t at = 0; at < codes.size(); at += kPieceBytes) {
      pieces.push_back({codes.subspan(at, std::min(kPieceBytes, codes.size() - at)), weight.codes,
                        int(std::floor(std::log2(spread)))});
    }
  }
  // Vectors are zero, but for the weights of norms.
  const auto fill_norm = [&](const Norm& norm) {
    if (norm.weight == nullptr) return;
    const std::span<const std::byte> bytes = norm.weight->bytes;
    fill_with(writable(bytes.data(), bytes.size()), norm.weight->type, float(1 - norm.weight->add));
  };
  for (const Step& step : plan.steps) for_each_norm(step, fill_norm);
  std::atomic<size_t> done{0};
  on_all_cores(
      pieces.size(),
      [&](size_t i) {
        fill(pieces[i].bytes, pieces[i].codes, pieces[i].exponent, Random(Random(seed + i).next()));
        done += pieces[i].bytes.size();
      },
      [&] {
        if (progress) progress(done);
      });
}

}  // namespace qgen
