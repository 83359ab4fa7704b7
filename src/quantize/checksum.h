// A fast checksum of bytes that were written, against later changes by accident: XXH64 of the XXH64 of each 8 MiB.
// Source: xxHash's specification (Collet, doc/xxhash_spec.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace qgen::quantize {

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0);

// Of a file, on all cores: 16 digits of base 16.
std::string file_checksum(const std::filesystem::path& path);

}  // namespace qgen::quantize
