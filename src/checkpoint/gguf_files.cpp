#include "checkpoint/gguf_files.h"

#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {

namespace fs = std::filesystem;

GgufParts::GgufParts(std::vector<Gguf> parts) : parts_(std::move(parts)) {
  const bool split = parts_.size() > 1;
  size_t tensors = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Gguf& part = parts_[i];
    tensors += part.tensors().size();
    const auto count = part.integer("split.count", 0, 65535);
    const auto number = part.integer("split.no", 0, 65535);
    if (!split && count.value_or(1) <= 1) continue;
    if (!split) {
      part.fail_key("split.count", fmt::format("one part of {}", *count),
                    "the names of the parts must end in -00001-of-0000N.gguf, all in one folder");
    }
    if (!count || *count != int64_t(parts_.size())) {
      part.fail_key("split.count", fmt::format("does not fit the names of the files (expected {}, found {})",
                                               parts_.size(), count ? fmt::format("{}", *count) : "nothing"));
    }
    if (!number || *number != int64_t(i)) {
      part.fail_key("split.no", fmt::format("does not fit the name of the file (expected {}, found {})", i,
                                            number ? fmt::format("{}", *number) : "nothing"));
    }
  }
  if (const auto expected = first().integer("split.tensors.count", 0); expected && *expected != int64_t(tensors)) {
    first().fail_key("split.tensors.count",
                     fmt::format("does not fit the parts (expected {}, found {} tensors)", *expected, tensors));
  }
}

GgufParts GgufParts::open(const std::vector<fs::path>& paths, bool headers_only) {
  std::vector<FileMap> maps;
  std::vector<BlankMemory> blanks;
  std::vector<Gguf> parts;
  std::string incomplete;
  for (const fs::path& path : paths) {
    maps.emplace_back(path);
    BlankData blank;
    if (headers_only) {
      blank = [&](uint64_t bytes) -> std::span<const std::byte> {
        incomplete = path.string();
        return blanks.emplace_back(bytes, path.string(), BlankMemory::Kind::kWeights).bytes();
      };
    }
    // gguf.py writes general.alignment into the first part only, and aligns them all so.
    const uint32_t alignment = parts.empty() ? 32 : parts.front().alignment();
    parts.push_back(Gguf::parse(maps.back().bytes(), path.string(), alignment, blank));
  }
  GgufParts out(std::move(parts));
  out.maps_ = std::move(maps);
  out.blanks_ = std::move(blanks);
  out.incomplete_ = std::move(incomplete);
  return out;
}

namespace {

constexpr std::string_view kSuffix = ".gguf";

// "model-00002-of-00005", before the extension: "model", 2, 5.
struct PartName {
  std::string stem;
  int part = 0, parts = 0;
};
std::optional<PartName> part_name(const fs::path& path) {
  constexpr size_t kTail = std::string_view("-00001-of-00005").size();
  const std::string file = path.stem().string();
  if (file.size() <= kTail) return {};
  const std::string tail = file.substr(file.size() - kTail);
  PartName out;
  const auto digits = [&](size_t at, int& value) {
    const auto end = std::from_chars(tail.data() + at, tail.data() + at + 5, value);
    return end.ec == std::errc() && end.ptr == tail.data() + at + 5;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !digits(1, out.part) || !digits(10, out.parts)) return {};
  if (out.part < 1 || out.part > out.parts) return {};
  out.stem = file.substr(0, file.size() - kTail);
  return out;
}

}  // namespace

bool is_one_of_several(const fs::path& file) {
  const auto name = part_name(file);
  return name && name->parts > 1;
}

std::vector<fs::path> gguf_parts(const fs::path& file) {
  const auto name = file.extension() == kSuffix ? part_name(file) : std::nullopt;
  if (!name) return {file};
  std::vector<fs::path> out;
  for (int i = 1; i <= name->parts; ++i) {
    out.push_back(file.parent_path() / fmt::format("{}-{:05}-of-{:05}{}", name->stem, i, name->parts, kSuffix));
    if (!fs::exists(out.back())) {
      fail(ErrorKind::kModel, fmt::format("{}: part {} of {} is missing", out.back().string(), i, name->parts),
           "an unfinished download? all parts lie in one folder");
    }
  }
  return out;
}

std::vector<std::vector<fs::path>> find_gguf_models(const fs::path& folder) {
  std::map<std::string, std::vector<fs::path>> models;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    // Companions of another kind: the vision half of a model, and importance matrices.
    if (!name.ends_with(kSuffix) || name.find("mmproj") != name.npos || name.find("imatrix") != name.npos) continue;
    // A link to a file that is missing, or a pipe, is one that cannot be opened, not none: others are not taken for it.
    if (fs::is_directory(entry.path(), ignored)) continue;
    const auto part = part_name(entry.path());
    models[part ? part->stem : name].push_back(entry.path());
  }
  std::vector<std::vector<fs::path>> out;
  for (auto& [name, files] : models) {
    std::sort(files.begin(), files.end());
    out.push_back(std::move(files));
  }
  return out;
}

}  // namespace qgen
