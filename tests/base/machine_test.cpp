// What the machine is: processors, control groups and memory nodes, on made-up trees of /sys and /proc.
#include <cstring>
#include <fstream>
#include <numeric>

#include <sys/resource.h>

#include "base/blank_memory.h"
#include "base/cores.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "base/numa.h"
#include "tests/memory_use.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

std::vector<int> first(int count) {
  std::vector<int> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void write_core(const TemporaryFolder& root, const std::vector<int>& processors, const std::string& list,
                const char* name = "core_cpus_list") {
  for (const int i : processors)
    root.write("sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/" + name, list + "\n");
}

TEST_CASE("lists of numbers as Linux writes them") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) { return read_number_list(folder.write("list", text)); };
  CHECK(read("0\n") == std::vector<int>{0});
  CHECK(read("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  for (const char* text : {"", "\n", "x", "3-", "3-x", "5-2", "-1", "0-99999999999", "0-99999999", "1:2"}) {
    CAPTURE(text);
    CHECK(read(text).empty());
  }
  CHECK(read_number_list(folder.path() / "missing").empty());
}

TEST_CASE("physical cores: logical processors of one core count once") {
  const TemporaryFolder root;
  // Four cores of two, numbered as servers do; the last one under the older name.
  for (int i = 0; i < 4; ++i)
    write_core(root, {i, i + 4}, std::to_string(i) + "," + std::to_string(i + 4),
               i < 3 ? "core_cpus_list" : "thread_siblings_list");
  CHECK(count_physical_cores(first(8), root.path()) == 4);
  CHECK(count_physical_cores({0, 4}, root.path()) == 1);
  // A sibling that is not ours does not take the core away.
  CHECK(count_physical_cores({0, 1, 5}, root.path()) == 2);
  CHECK(count_physical_cores({7}, root.path()) == 1);
  // A processor that says nothing is a core of its own.
  CHECK(count_physical_cores({0, 4, 99}, root.path()) == 2);
}

TEST_CASE("physical cores: hybrid machines, processors that are offline, no topology at all") {
  const TemporaryFolder hybrid, bare;
  write_core(hybrid, {0, 1}, "0-1");
  write_core(hybrid, {2, 3}, "2-3");
  for (int i = 4; i < 8; ++i) write_core(hybrid, {i}, std::to_string(i));
  CHECK(count_physical_cores(first(8), hybrid.path()) == 6);
  hybrid.write("sys/devices/system/cpu/online", "0,2-5\n");
  write_core(hybrid, {0}, "0");
  CHECK(count_physical_cores(first(8), hybrid.path()) == 4);
  // A list that has nothing of ours cannot be right.
  hybrid.write("sys/devices/system/cpu/online", "100\n");
  CHECK(count_physical_cores(first(8), hybrid.path()) == 8);
  CHECK(count_physical_cores(first(3), bare.path()) == 3);
}

TEST_CASE("quotas of control groups hold for all below them") {
  const TemporaryFolder v2, v1, container, none;
  v2.write("proc/self/cgroup", "0::/user.slice/a.scope/job\n");
  CHECK(quota_cores(v2.path()) == 0);
  v2.write("sys/fs/cgroup/user.slice/a.scope/job/cpu.max", "max 100000\n");
  CHECK(quota_cores(v2.path()) == 0);
  v2.write("sys/fs/cgroup/user.slice/a.scope/cpu.max", "650000 100000\n");
  CHECK(quota_cores(v2.path()) == 6);
  v2.write("sys/fs/cgroup/user.slice/cpu.max", "900000 100000\n");
  CHECK(quota_cores(v2.path()) == 6);
  v2.write("sys/fs/cgroup/user.slice/a.scope/job/cpu.max", "50000 100000\n");
  CHECK(quota_cores(v2.path()) == 1);
  for (const char* text : {"", "x y", "100000", "100000 0", "-5 100000"}) {
    CAPTURE(text);
    v2.write("sys/fs/cgroup/user.slice/a.scope/job/cpu.max", text);
    CHECK(quota_cores(v2.path()) == 6);
  }

  v1.write("proc/self/cgroup", "9:cpuset:/x\n4:cpuacct,cpu:/docker/1\n1:name=systemd:/\n0::/\n");
  v1.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  v1.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(quota_cores(v1.path()) == 0);
  v1.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "300000\n");
  v1.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  CHECK(quota_cores(v1.path()) == 3);

  // A container sees its own group at the top, and perhaps a path of the host's.
  container.write("proc/self/cgroup", "0::/../../docker/1\n");
  container.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(quota_cores(container.path()) == 2);
  CHECK(quota_cores(none.path()) == 0);
}

TEST_CASE("limits on memory of control groups hold for all below them, and their page cache is free") {
  constexpr size_t kMiB = 1 << 20;
  const auto bytes = [&](size_t mib) { return std::to_string(mib * kMiB) + "\n"; };
  const TemporaryFolder v2, v1, container, none;
  CHECK(available_memory_of_system(none.path()) == 0);
  v2.write("proc/meminfo", "MemTotal:       9000000 kB\nMemFree:  1 kB\nMemAvailable:    8192000 kB\n");
  CHECK(available_memory_of_system(v2.path()) == 8000 * kMiB);
  v2.write("proc/self/cgroup", "0::/user.slice/job\n");
  v2.write("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  CHECK(available_memory_of_system(v2.path()) == 8000 * kMiB);
  v2.write("sys/fs/cgroup/user.slice/memory.max", bytes(3000));
  v2.write("sys/fs/cgroup/user.slice/memory.current", bytes(1000));
  CHECK(available_memory_of_system(v2.path()) == 2000 * kMiB);
  v2.write("sys/fs/cgroup/user.slice/memory.stat", "anon 5\nactive_file " + bytes(100) + "inactive_file " + bytes(200));
  CHECK(available_memory_of_system(v2.path()) == 2300 * kMiB);
  v2.write("sys/fs/cgroup/user.slice/job/memory.max", bytes(500));
  v2.write("sys/fs/cgroup/user.slice/job/memory.current", bytes(100));
  CHECK(available_memory_of_system(v2.path()) == 400 * kMiB);
  v2.write("sys/fs/cgroup/user.slice/job/memory.high", bytes(300));
  CHECK(available_memory_of_system(v2.path()) == 200 * kMiB);
  v2.write("sys/fs/cgroup/user.slice/job/memory.current", bytes(700));
  CHECK(available_memory_of_system(v2.path()) == 1);  // 0 would mean unknown

  v1.write("proc/self/cgroup", "9:cpuset:/x\n4:memory:/docker/1\n0::/\n");
  v1.write("proc/self/mountinfo",
           "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/mem rw,relatime - cgroup "
           "cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  v1.write("sys/fs/cgroup/mem/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(available_memory_of_system(v1.path()) == 0);
  v1.write("sys/fs/cgroup/mem/docker/memory.limit_in_bytes", bytes(700));
  v1.write("sys/fs/cgroup/mem/docker/memory.usage_in_bytes", bytes(200));
  CHECK(available_memory_of_system(v1.path()) == 500 * kMiB);
  v1.write("sys/fs/cgroup/mem/docker/1/memory.limit_in_bytes", bytes(400));
  v1.write("sys/fs/cgroup/mem/docker/1/memory.usage_in_bytes", bytes(100));
  v1.write("sys/fs/cgroup/mem/docker/1/memory.stat", "cache 1\ntotal_cache 2\ntotal_inactive_file " + bytes(50));
  CHECK(available_memory_of_system(v1.path()) == 350 * kMiB);

  // Only the container's own group is mounted, and the path is the host's.
  container.write("proc/self/cgroup", "4:memory:/docker/1/inner\n");
  container.write("proc/self/mountinfo", "35 31 0:32 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  container.write("sys/fs/cgroup/memory/memory.limit_in_bytes", bytes(100));
  CHECK(available_memory_of_system(container.path()) == 100 * kMiB);
  container.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", bytes(50));
  CHECK(available_memory_of_system(container.path()) == 50 * kMiB);
  container.write("proc/self/cgroup", "4:memory:/elsewhere\n");
  CHECK(available_memory_of_system(container.path()) == 100 * kMiB);
}

TEST_CASE("a limit on addresses leaves what is not used, and mapped files count as free") {
  if (!kMemoryIsMeasured) return;  // sanitizers use more addresses than there are
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const TemporaryFolder folder;
  const fs::path path = folder.write("weights", std::string(64 << 20, 'x'));
  const size_t unlimited = available_memory();
  rlimit limit = before;
  limit.rlim_cur = size_t{1} << 40;
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  CHECK(available_memory() <= unlimited + (64 << 20));
  limit.rlim_cur = size_t{8} << 30;
  REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
  const size_t limited = available_memory();
  CHECK(limited < size_t{8} << 30);
  if (limited < unlimited) {
    const FileMap map(path);
    CHECK(available_memory() + (8 << 20) > limited);
  }
  ::setrlimit(RLIMIT_AS, &before);
}

TEST_CASE("this machine has cores") {
  CHECK(physical_cores() >= 1);
  CHECK(physical_cores() <= available_cores());
  CHECK(available_cores() <= int(allowed_processors().size()));
}

TEST_CASE("memory nodes: those with memory that our threads run near") {
  const TemporaryFolder root, none;
  CHECK(memory_nodes(first(8), none.path()).empty());
  root.write("sys/devices/system/node/online", "0-1\n");
  root.write("sys/devices/system/node/has_memory", "0-1\n");
  root.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  root.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  CHECK(memory_nodes(first(8), root.path()) == std::vector<int>{0, 1});
  CHECK(memory_nodes(first(4), root.path()) == std::vector<int>{0});
  CHECK(memory_nodes({5}, root.path()) == std::vector<int>{1});
  // Memory without processors, processors without memory, and a node that is not online.
  root.write("sys/devices/system/node/online", "0-3\n");
  root.write("sys/devices/system/node/has_memory", "0-2,9\n");
  root.write("sys/devices/system/node/node2/cpulist", "\n");
  root.write("sys/devices/system/node/node3/cpulist", "8-9\n");
  CHECK(memory_nodes(first(10), root.path()) == std::vector<int>{0, 1});
}

TEST_CASE("interleaving harms nothing, whatever the machine") {
  constexpr size_t kBytes = 1 << 20;
  const InterleavedPages interleaved;
  const BlankMemory memory(kBytes, "test");
  interleave(memory.bytes().data(), kBytes);
  std::memset(memory.bytes().data(), 7, kBytes);
  CHECK(memory.bytes().back() == std::byte{7});
}

TEST_CASE("a mapped file asks for large pages") {
  if (!fs::exists("/sys/kernel/mm/transparent_hugepage")) return;
  const TemporaryFolder folder;
  const FileMap map(folder.write("weights", std::string(1 << 16, 'x')));
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && line.find(map.path().string()) == line.npos) {
  }
  while (std::getline(maps, line) && line.rfind("VmFlags:", 0) != 0) {
  }
  CHECK((line + ' ').find(" hg ") != line.npos);
}

}  // namespace
}  // namespace qgen::test
