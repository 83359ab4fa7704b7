#include "base/numa.h"

#include <algorithm>
#include <climits>
#include <string>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cores.h"

namespace qgen {
namespace {

// A set of nodes as the system calls take it: bits, and one more than their number.
struct NodeMask {
  std::vector<unsigned long> words;
  unsigned long size() const { return words.size() * kBits + 1; }
  static constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
};

// The nodes to interleave; empty where there is nothing to do. They do not change while the program runs.
const NodeMask& interleaved_nodes() {
  static const NodeMask mask = [] {
    NodeMask out;
    const std::vector<int> nodes = memory_nodes(allowed_processors());
    // A policy that the user chose (numactl) has precedence, so only the default policy is replaced.
    int policy = MPOL_DEFAULT;
    if (nodes.size() < 2 || ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0 ||
        policy != MPOL_DEFAULT)
      return out;
    out.words.resize(size_t(nodes.back()) / NodeMask::kBits + 1);
    for (const int node : nodes) out.words[size_t(node) / NodeMask::kBits] |= 1UL << (size_t(node) % NodeMask::kBits);
    return out;
  }();
  return mask;
}

}  // namespace

std::vector<int> memory_nodes(const std::vector<int>& processors, const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "sys/devices/system/node";
  const std::vector<int> with_memory = read_number_list(folder / "has_memory");
  std::vector<int> out;
  for (const int node : read_number_list(folder / "online")) {
    if (std::find(with_memory.begin(), with_memory.end(), node) == with_memory.end()) continue;
    const std::vector<int> near = read_number_list(folder / ("node" + std::to_string(node)) / "cpulist");
    if (std::find_first_of(near.begin(), near.end(), processors.begin(), processors.end()) != near.end())
      out.push_back(node);
  }
  return out;
}

void interleave(void* address, size_t bytes) {
  const NodeMask& nodes = interleaved_nodes();
  if (nodes.words.empty()) return;
  ::syscall(SYS_mbind, address, bytes, MPOL_INTERLEAVE, nodes.words.data(), nodes.size(), 0);
}

InterleavedPages::InterleavedPages() {
  const NodeMask& nodes = interleaved_nodes();
  if (nodes.words.empty()) return;
  changed_ = ::syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, nodes.words.data(), nodes.size()) == 0;
}

InterleavedPages::~InterleavedPages() {
  if (changed_) ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
}

}  // namespace qgen
