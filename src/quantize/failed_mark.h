// The file that says of a checkpoint which of its matrices are beyond a limit: in its folder, beside a GGUF file.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "quantize/job.h"

namespace qgen::quantize {

constexpr std::string_view kFailedMark = "FAILED.qgen.json";

// The mark of a GGUF file: FILE.FAILED.qgen.json.
std::filesystem::path failed_mark_beside(const std::filesystem::path& gguf);

// Writes the mark if a comparison failed; else what an earlier run left goes away.
void mark_failed(const std::filesystem::path& mark, std::span<const ShardReport> shards);

// The warning at load about a model with such a mark: the first matrix and how many more; "" without one.
std::string failed_warning(const ModelLocation& location);

}  // namespace qgen::quantize
