#include "base/cores.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <sched.h>

#include "base/control_groups.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Whole processors of a limit on time per period; 0 for none, which version 2 writes as "max" and version 1 as -1.
int whole_cores(const std::string& quota, const std::string& period) {
  const long limit = std::strtol(quota.c_str(), nullptr, 10), every = std::strtol(period.c_str(), nullptr, 10);
  return limit > 0 && every > 0 ? int(std::clamp(limit / every, 1L, 1L << 20)) : 0;
}

int quota_of_group(const ControlGroup& group) {
  const fs::path& folder = group.folder;
  if (!group.version_2)
    return whole_cores(first_line(folder / "cpu.cfs_quota_us"), first_line(folder / "cpu.cfs_period_us"));
  std::istringstream line(first_line(folder / "cpu.max"));
  std::string quota, period;
  line >> quota >> period;
  return whole_cores(quota, period);
}

}  // namespace

std::vector<int> read_number_list(const fs::path& path) {
  constexpr int kMost = 1 << 16;  // far more processors than Linux can have
  std::vector<int> out;
  std::istringstream ranges(first_line(path));
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream text(range);
    if (!(text >> first)) return {};
    last = first;
    if (text >> dash && (dash != '-' || !(text >> last))) return {};
    if (first < 0 || last < first || last >= kMost) return {};
    for (int i = first; i <= last; ++i) out.push_back(i);
  }
  return out;
}

std::vector<int> allowed_processors() {
  // The call fails where the kernel's masks are longer, so the length grows until it does not.
  for (size_t processors = CPU_SETSIZE; processors <= size_t{1} << 18; processors *= 2) {
    std::vector<cpu_set_t> mask(processors / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    std::vector<int> out;
    for (size_t i = 0; i < processors; ++i) {
      if (CPU_ISSET_S(i, bytes, mask.data())) out.push_back(int(i));
    }
    return out;
  }
  return {};
}

int count_physical_cores(const std::vector<int>& processors, const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/cpu";
  const std::vector<int> online = read_number_list(folder / "online");
  std::set<std::string> cores;
  for (const int processor : processors) {
    if (!online.empty() && !std::binary_search(online.begin(), online.end(), processor)) continue;
    // All processors of a core show the same list. Where some of them are not ours, it is still that one core.
    const fs::path topology = folder / ("cpu" + std::to_string(processor)) / "topology";
    std::string siblings = first_line(topology / "core_cpus_list");
    if (siblings.empty()) siblings = first_line(topology / "thread_siblings_list");  // the name before Linux 5.3
    cores.insert(siblings.empty() ? std::to_string(processor) : siblings);
  }
  return int(cores.empty() ? processors.size() : cores.size());
}

int quota_cores(const fs::path& root) {
  int cores = 0;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const int quota = quota_of_group(group);
    if (quota > 0) cores = cores > 0 ? std::min(cores, quota) : quota;
  }
  return cores;
}

namespace {

int within_quota(size_t cores) {
  const int quota = quota_cores();
  return std::max(1, quota > 0 ? std::min(int(cores), quota) : int(cores));
}

}  // namespace

int available_cores() { return within_quota(allowed_processors().size()); }

int physical_cores() { return within_quota(size_t(count_physical_cores(allowed_processors()))); }

}  // namespace qgen
