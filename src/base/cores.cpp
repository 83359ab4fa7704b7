#include "base/cores.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include <sched.h>

namespace qgen {

int available_cores() {
  int cores = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  // A container's quota, "MICROSECONDS PERIOD" or "max PERIOD" (control groups, version 2).
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  long period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    const long limit = std::strtol(quota.c_str(), nullptr, 10) / period;
    cores = std::min(cores, static_cast<int>(std::max(1L, limit)));
  }
  return std::max(1, cores);
}

}  // namespace qgen
