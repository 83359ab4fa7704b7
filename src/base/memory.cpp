#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <unistd.h>

namespace qgen {
namespace {

double read_number(const char* path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : 0;  // absent, or "max"
}

}  // namespace

size_t available_memory() {
  double group = 0;
  if (const double limit = read_number("/sys/fs/cgroup/memory.max"); limit > 0) {
    std::ifstream file("/sys/fs/cgroup/memory.stat");
    std::string name;
    double bytes = 0, cache = 0;
    while (file >> name >> bytes) {
      if (name == "file") cache = bytes;
    }
    group = std::max(1.0, limit - read_number("/sys/fs/cgroup/memory.current") + cache);
  }
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  double kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return size_t(group > 0 ? std::min(group, kib * 1024) : kib * 1024);
  }
  return size_t(group);
}

size_t peak_resident_memory() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    size_t kib = 0;
    if (word == "VmHWM:") return file >> kib ? kib * 1024 : 0;
  }
  return 0;
}

size_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0, resident = 0;
  return file >> pages >> resident ? resident * size_t(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace qgen
