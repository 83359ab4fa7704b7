// Any config.json, header of a safetensors file and file beside them that says how a model is quantized, with values of
// one byte: the binder of every method refuses their shapes and types, or makes a plan in which the codes of each
// weight that is used as it is stored lie inside a tensor, and small weights can be repacked.
#include <cstdlib>
#include <deque>
#include <vector>

#include <sys/mman.h>

#include "checkpoint/checkpoint.h"
#include "model/planner.h"
#include "quant/weight_scan.h"
#include "tests/fuzz/support.h"

namespace {

constexpr size_t kMostBytes = size_t{1} << 30;   // of one tensor
constexpr size_t kSmallBytes = size_t{1} << 14;  // of one that has memory of its own, behind which nothing may be read
constexpr int64_t kSmallWeight = int64_t{1} << 16;

// The data of all tensors: one anonymous mapping of zeros, in which a page is allocated when it is first read.
std::span<const std::byte> zeros() {
  static void* const map = ::mmap(nullptr, kMostBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) std::abort();
  return {static_cast<const std::byte*>(map), kMostBytes};
}

using Values = std::deque<std::vector<std::byte>>;

// The tensors of a header; empty where one is larger than zeros() are. `values` holds those of small ones.
std::vector<qgen::TensorView> tensors_of(std::string_view header, Values& values) {
  std::vector<qgen::TensorView> out;
  const auto document = qgen::JsonDocument::parse(header, "header");
  for (const auto& [name, entry] : document->root().members()) {
    if (name == "__metadata__") continue;
    qgen::TensorView& tensor = out.emplace_back();
    const auto type = qgen::dtype_from_name(entry.at("dtype").as_string());
    if (!type) return {};
    tensor.name = name;
    tensor.file = "model.safetensors";
    tensor.dtype = *type;
    unsigned __int128 bits = unsigned(qgen::dtype_bits(*type));
    for (const qgen::Json& size : entry.at("shape").elements()) {
      tensor.shape.push_back(size.as_integer(0, int64_t{1} << 31));
      bits *= uint64_t(tensor.shape.back());
      if (bits > kMostBytes * 8 || tensor.shape.size() > 8) return {};
    }
    const auto bytes = size_t((bits + 7) / 8);
    tensor.bytes = bytes > kSmallBytes ? zeros().first(bytes) : values.emplace_back(bytes, std::byte{0x11});
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = qgen::fuzz::parts_of(qgen::fuzz::text_of(data, size), 4);
  if (parts.size() < 2) return 0;
  const qgen::fuzz::MemoryLimit limit(size, 1024, 64 << 20);
  qgen::fuzz::expect_model_error([&] {
    Values values;
    auto tensors = tensors_of(parts[1], values);
    if (tensors.empty()) return;
    auto files = qgen::fuzz::files_of({parts.begin() + 2, parts.end()},
                                      {"quant_model_description.json", "hf_quant_config.json"});
    auto config = qgen::JsonDocument::parse(parts[0], "config.json");
    const auto plan = qgen::make_plan(
        qgen::Checkpoint::assemble({"fuzz", "fuzz", {}, {}}, std::move(files), std::move(config), std::move(tensors)));
    std::vector<qgen::Weight*> small;
    for (qgen::Weight& weight : plan->weights) {
      if (weight.rows < 1 || weight.cols < 1) std::abort();
      if (weight.repack == nullptr && size_t(weight.rows * weight.row_bytes) > weight.data.size()) std::abort();
      if (weight.rows * weight.cols <= kSmallWeight && small.size() < 8) small.push_back(&weight);
    }
    qgen::repack_weights(small);
  });
  return 0;
}
