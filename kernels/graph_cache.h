// CUDA graphs of what comes again and again, each at the cost of one launch.
#pragma once

#include <map>

#include "base/error.h"
#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {

// Key: those with equal keys launch the same.
template <typename Key>
class GraphCache {
 public:
  static constexpr size_t kMost = 512;  // kept at a time

  // Runs what `work` launches on the device's stream. It is captured the second time, since kernels that are loaded
  // while a stream is captured end the capture.
  template <typename Work>
  void run(Device& device, const Key& key, const Work& work) {
    if (known_.size() >= kMost && !known_.contains(key)) {
      device.wait();
      known_.clear();
    }
    Known& known = known_[key];
    if (!known.seen || !run_graph(device, known, work)) work();
    known.seen = true;
  }

 private:
  struct Known {
    bool seen = false;
    CudaGraph graph;
    bool fails = false;
  };

  // False where there is no graph, for want of memory: it takes some that no account has, and all goes without it as
  // well. Any other error is one of the program's.
  template <typename Work>
  static bool run_graph(Device& device, Known& known, const Work& work) {
    if (known.fails) return false;
    try {
      if (known.graph.empty()) known.graph = CudaGraph(device, work);
      known.graph.run(device);
      return true;
    } catch (const Error& error) {
      known.graph = CudaGraph();
      if (error.kind() != ErrorKind::kMemory) throw;
      known.fails = true;
      return false;
    }
  }

  std::map<Key, Known> known_;
};

}  // namespace qgen::QGEN_BACKEND
