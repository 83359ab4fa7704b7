#include "quantize/failed_mark.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/new_file.h"

namespace qgen::quantize {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestMark = 64 << 20;

std::string entry_json(const Comparison& comparison) {
  const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null"; };
  return fmt::format(R"(    {{"name": {}, "cosine": {}, "mean_error": {}, "largest_error": {}}})",
                     json_quote(comparison.name), number(comparison.likeness.cosine),
                     number(comparison.likeness.mean_error), number(comparison.likeness.largest_error));
}

}  // namespace

fs::path failed_mark_beside(const fs::path& gguf) {
  fs::path out = gguf;
  out += fmt::format(".{}", kFailedMark);
  return out;
}

void mark_failed(const fs::path& mark, std::span<const ShardReport> shards) {
  std::string entries;
  for (const ShardReport& shard : shards) {
    for (const Comparison& comparison : shard.comparisons) {
      if (comparison.likeness.verdict() == Verdict::kFail)
        entries += (entries.empty() ? "\n" : ",\n") + entry_json(comparison);
    }
  }
  std::error_code error;
  if (entries.empty()) {
    if (fs::is_regular_file(fs::symlink_status(mark, error))) fs::remove(mark, error);
    return;
  }
  write_new_file(mark,
                 fmt::format("{{\n  \"note\": \"These matrices are further from the original than `qgen quantize` "
                             "allows: not for use.\",\n  \"failed\": [{}\n  ]\n}}\n",
                             entries),
                 NewFile::Readers::kAll);
}

std::string failed_warning(const ModelLocation& location) {
  const fs::path mark =
      location.gguf_files.empty() ? location.folder / kFailedMark : failed_mark_beside(location.gguf_files.front());
  std::error_code error;
  if (!fs::is_regular_file(mark, error)) return {};
  std::string first;
  size_t count = 0;
  try {
    const auto document = JsonDocument::parse(read_file(mark, kLargestMark), mark.string());
    for (const Json& entry : document->root().at("failed").elements()) {
      if (count++ == 0) first = entry.at("name").as_string();
    }
  } catch (const Error&) {  // a mark that cannot be read still says that there is something
  }
  const std::string matrices = count == 0   ? "its matrices"
                               : count == 1 ? first
                                            : fmt::format("{} and {} more", first, count - 1);
  return fmt::format("{}: {} failed the comparison with the original when it was quantized ({})", location.name,
                     matrices, mark.filename().string());
}

}  // namespace qgen::quantize
