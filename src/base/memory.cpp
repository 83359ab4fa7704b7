#include "base/memory.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/units.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr double kUnlimited = 0x1p62;  // version 1 writes "no limit" as a number near 2^63

std::optional<double> read_number(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;  // absent, or "max"
  return {};
}

// The number behind a key in a file of lines; 0 if it is not there.
double read_key(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key) && line.size() > key.size() && std::isspace(static_cast<unsigned char>(line[key.size()])))
      return std::strtod(line.c_str() + key.size(), nullptr);
  }
  return 0;
}

// The files of a memory controller.
struct MemoryFiles {
  std::vector<std::string_view> limits;
  std::string_view usage;
  std::vector<std::string_view> cache;  // keys of memory.stat whose pages can be dropped
};
const MemoryFiles kVersion1 = {
    {"memory.limit_in_bytes"}, "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
const MemoryFiles kVersion2 = {{"memory.max", "memory.high"}, "memory.current", {"active_file", "inactive_file"}};

// Bytes left of a control group's limit; empty where it has no limit.
std::optional<double> left_in_group(const ControlGroup& group) {
  const MemoryFiles& files = group.version_2 ? kVersion2 : kVersion1;
  double limit = kUnlimited;
  for (const std::string_view name : files.limits)
    limit = std::min(limit, read_number(group.folder / name).value_or(limit));
  if (limit >= kUnlimited) return {};
  double left = limit - read_number(group.folder / files.usage).value_or(0);
  for (const std::string_view key : files.cache) left += read_key(group.folder / "memory.stat", key);
  return std::max(1.0, left);
}

size_t statm(int field) {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  for (int i = 0; i <= field; ++i) {
    if (!(file >> pages)) return 0;
  }
  return pages * size_t(::sysconf(_SC_PAGESIZE));
}

// Bytes left of RLIMIT_AS.
std::optional<double> left_in_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return std::max(1.0, double(limit.rlim_cur) - double(statm(0)) + double(mapped_file_bytes()));
}

}  // namespace

void fail_for_memory(const std::string& subject, size_t bytes) {
  const std::string takes = bytes > 0 ? fmt::format("it has {}, ", format_bytes(double(bytes))) : "";
  fail(ErrorKind::kMemory, fmt::format("{}: does not fit in memory ({}{} are free)", subject, takes,
                                       format_bytes(double(available_memory()))));
}

size_t available_memory_of_system(const fs::path& root) {
  double least = kUnlimited;
  for (const ControlGroup& group : control_groups("memory", root))
    least = std::min(least, left_in_group(group).value_or(kUnlimited));
  const double kib = read_key(root / "proc/meminfo", "MemAvailable:");
  if (kib > 0) least = std::min(least, kib * 1024);
  return least < kUnlimited ? size_t(least) : 0;
}

size_t available_memory() {
  const size_t system = available_memory_of_system();
  const auto addresses = left_in_address_space();
  if (!addresses) return system;
  return system == 0 ? size_t(*addresses) : std::min(system, size_t(*addresses));
}

void share_heap_if_limited() {
#if defined(M_ARENA_MAX)
  if (left_in_address_space()) ::mallopt(M_ARENA_MAX, 1);
#endif
}

size_t peak_resident_memory() { return size_t(read_key("/proc/self/status", "VmHWM:")) * 1024; }

size_t resident_memory() { return statm(1); }

}  // namespace qgen
