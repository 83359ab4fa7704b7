// What the machine is: processors, control groups and memory nodes, on made-up trees of /sys and /proc.
#include <cstring>
#include <fstream>
#include <numeric>

#include "base/blank_memory.h"
#include "base/cores.h"
#include "base/file_map.h"
#include "base/numa.h"
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
