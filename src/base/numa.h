// Memory of machines with several nodes. Weights and the cache are read by all threads, wherever those run, so their
// pages come from all nodes in turn: the memory of every node then works at once, and no thread's part is all remote.
// Where there is one node, or the system forbids it (containers do), nothing happens.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

namespace qgen {

// Nodes with memory and one of these processors, in order. `root` holds the machine's /sys, and is another folder in
// tests. Nodes without processors (slower memory, a device's memory) and nodes that no thread runs near stay out.
std::vector<int> memory_nodes(const std::vector<int>& processors, const std::filesystem::path& root = "/");

// Pages of a fresh anonymous mapping will come from the nodes in turn. Leaves what the user chose (numactl) as it is.
void interleave(void* address, size_t bytes);

// While it lives, so do the pages that this thread, and threads that it starts, bring into memory: of files as well.
class InterleavedPages {
 public:
  InterleavedPages();
  ~InterleavedPages();
  InterleavedPages(const InterleavedPages&) = delete;
  InterleavedPages& operator=(const InterleavedPages&) = delete;

 private:
  bool changed_ = false;
};

}  // namespace qgen
