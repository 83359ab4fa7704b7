// Runs kernels on the processor as a GPU would: blocks one after another, the threads of a block as fibres that meet at
// barriers and at the exchanges of their warp. What a GPU would hang on or get wrong in silence is an error here: a
// barrier that not all threads reach, an exchange without all lanes, and what memory_check.h looks for (races on shared
// memory, accesses beyond buffers, reads before a kernel has waited for what came before). An asynchronous copy is made
// when it is waited for, and shared memory is filled with NaN at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "kernels/simt/memory_check.h"

namespace qgen::simt {

constexpr int kWarp = 32;

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

// In which order blocks run, and the threads of a block between two meetings: a kernel without races gives the same in
// each.
enum class Order { kAscending, kDescending, kShuffled };
void set_order(Order order);
// Whether products of TF32 have operands of 11 bits, as on a GPU, or all 24: what is wrong then beyond rounding shows.
void set_tf32_rounding(bool rounds);

// Products of LibraryGemm fail when so many more have been done; negative: none does.
void fail_library_after(int products);
// Whether there is no memory for a CUDA graph.
void fail_graphs(bool all);

// Runs `thread(launch)` for every thread of every block. `threads` is a multiple of a warp. `name` is for errors, which
// are thrown as std::logic_error.
void run(const char* name, Dim grid, int threads, size_t shared_bytes, void (*thread)(const void*), const void* launch,
         const LaunchKind& kind = {.early = false});

// The work of a stream, in its order. All is done at once but for CUDA graphs, which are as late as they may be: the
// host may not touch meanwhile what they read and write.
class WorkQueue {
 public:
  // Does `work` behind what waits; while something is recorded, keeps it instead. What a recording holds is a copy, as
  // on a GPU.
  void perform(std::function<void()> work);
  // Does it when something behind it is performed, or when it is waited for.
  void defer(const std::vector<std::function<void()>>& work);
  // Pieces of work that were deferred so far.
  size_t deferred() const { return done_ + waiting_.size(); }
  // Does the first so many of them, those that were not yet.
  void wait_for(size_t count);

 private:
  std::deque<std::function<void()>> waiting_;
  size_t done_ = 0;
};
// Pieces of work of all queues: those that were put off and wait, and those that have been done.
struct WorkCount {
  size_t waiting = 0, done = 0;
};
WorkCount count_work();
// All that `work` would have performed.
std::vector<std::function<void()>> record(const std::function<void()>& work);

// What a thread may ask while it runs.
struct Place {
  Dim block, grid;
  int thread = 0;
  int threads = 0;
};
Place place();
int thread_of_block();  // place().thread
std::byte* shared();
bool rounds_tf32();
// A clock that goes on by 10 with each look at it.
uint64_t read_clock();
// Ends the run with an error.
void stop(const char* error);
void meet();       // __syncthreads()
void meet_warp();  // __syncwarp(): the only exchange of a warp that orders accesses of memory
// Gives 64 bytes at most and returns what each lane of the warp gave, 64 bytes apart, until the lane's next exchange.
// `finish(slots, lanes)`, where there is one, is called once all have given, and makes something else of it.
constexpr size_t kExchangeBytes = 64;
const std::byte* exchange(const void* given, size_t bytes, void (*finish)(std::byte* slots, int lanes) = nullptr,
                          int lanes = kWarp);

uint32_t add_atomically(uint32_t* counter, uint32_t more);  // returns what was there
// Asynchronous copies into shared memory, made when they are waited for. Null `source`: zeros.
void copy_later(void* target, const void* source, size_t bytes);
void commit_copies();
void wait_copies(int left);  // until no more than so many committed groups are open

}  // namespace qgen::simt
