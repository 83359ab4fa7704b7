#include "quantize/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/file_map.h"

namespace qgen::quantize {
namespace {

constexpr size_t kPieceBytes = 8 << 20;
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;

template <typename Word>
uint64_t word_at(const std::byte* p) {
  Word value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint64_t round(uint64_t sum, uint64_t word) { return std::rotl(sum + word * kPrime2, 31) * kPrime1; }
uint64_t merge(uint64_t sum, uint64_t lane) { return (sum ^ round(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  const std::byte *p = bytes.data(), *const end = p + bytes.size();
  uint64_t sum = seed + kPrime5;
  if (bytes.size() >= 32) {
    uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    for (; end - p >= 32; p += 32) {
      for (int lane = 0; lane < 4; ++lane) lanes[lane] = round(lanes[lane], word_at<uint64_t>(p + 8 * lane));
    }
    sum = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) sum = merge(sum, lane);
  }
  sum += bytes.size();
  for (; end - p >= 8; p += 8) sum = std::rotl(sum ^ round(0, word_at<uint64_t>(p)), 27) * kPrime1 + kPrime4;
  for (; end - p >= 4; p += 4) sum = std::rotl(sum ^ word_at<uint32_t>(p) * kPrime1, 23) * kPrime2 + kPrime3;
  for (; p != end; ++p) sum = std::rotl(sum ^ word_at<uint8_t>(p) * kPrime5, 11) * kPrime1;
  sum = (sum ^ sum >> 33) * kPrime2;
  sum = (sum ^ sum >> 29) * kPrime3;
  return sum ^ sum >> 32;
}

std::string file_checksum(const std::filesystem::path& path) {
  const FileMap file(path);
  const std::span<const std::byte> all = file.bytes();
  std::vector<uint64_t> sums((all.size() + kPieceBytes - 1) / kPieceBytes);
  on_all_cores(sums.size(), [&](size_t i) {
    const auto piece = all.subspan(i * kPieceBytes, std::min(kPieceBytes, all.size() - i * kPieceBytes));
    sums[i] = xxh64(piece);
    release_pages(piece);
  });
  return fmt::format("{:016x}", xxh64(std::as_bytes(std::span(sums))));
}

}  // namespace qgen::quantize
