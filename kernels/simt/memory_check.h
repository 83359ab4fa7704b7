// Which memory the threads of a kernel may touch, and when. Every access lies in a buffer of the device, in the block's
// shared memory, among the thread's own variables or the program's constants. Where two threads touch the same byte of
// shared memory and one of them writes, but for two atomic additions, a barrier lies between (happens-before); no byte
// of it is read before it was written; and an asynchronous copy writes from when it is issued until it is waited for.
// What breaks these rules ends the kernel with an error.
//
// A kernel that may start early (programmatic dependent launch) writes nothing before it waits, and reads nothing that
// a kernel before it has written since the last copy; behind read_anew() it may read all but what the last launch
// wrote, if that lets the next one start when it has its inputs itself. Each such kernel waits.
//
// Compilers report the accesses: kernels are compiled for ThreadSanitizer (-fsanitize=thread) without its library, and
// the functions that they call instead are here (QGEN_CHECKED_KERNELS). Builds with a sanitizer, and Clang's, see only
// what the executor itself touches: copies, atomic additions and matrices from shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

// For functions whose accesses are not the kernel's.
#define QGEN_UNCHECKED __attribute__((no_sanitize("thread")))

namespace qgen::simt {

// Memory of the device, until it is removed.
void add_buffer(const void* data, size_t bytes);
void remove_buffer(const void* data);
// A part of a buffer. Of a buffer with parts nothing else may be touched.
void add_buffer_part(const void* data, size_t bytes);

// A thread of a kernel that is running now.
struct RunningThread {
  const std::byte* stack = nullptr;
  size_t stack_bytes = 0;
  int index = 0;               // in its block
  uint32_t warp_barriers = 0;  // that it has passed
  uint32_t sees = 0;           // what launches up to this one have written
};

enum class Access { kRead, kWrite, kAtomic };
enum class CopyState { kIssued, kDone };

// What the executor says while kernels run. `own`: memory of the executor that threads may read.
void check_block(const std::byte* shared, size_t shared_bytes, const void* own, size_t own_bytes);
void check_barrier();                      // all threads of the block have met
void check_thread(RunningThread* thread);  // runs from now on; null: none does
void check_access(const void* data, size_t bytes, Access access);
void check_copy(const void* target, size_t bytes, CopyState state);

// Of launches, in the order in which they are run. Those that run side by side are run in reverse.
struct LaunchKind {
  bool early = true;  // may start before the one before it has ended
  bool beside_previous = false, beside_next = false;
  bool timed = false;  // writes down its times, from its beginning on
};
uint32_t check_launch(const LaunchKind& kind);      // begins; what its threads see
void check_result(const void* data, size_t bytes);  // written by the launch, without threads
const char* check_launch_end();                     // what was wrong with it as a whole, or null
void check_all_ended();                             // all launches so far have: a copy waits for them
void check_wait();                                  // the running thread has waited for what came before
void check_read_anew();
void check_next_may_start();

}  // namespace qgen::simt
