#include "kernels/simt/executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/launches.h"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "kernels/simt/memory_check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Leaves the stack, with what a function has to keep for its caller on top, and goes on where `to` was left.
extern "C" void qgen_change_stack(void** left, void* to);
asm(R"(
  .pushsection .text
  .type qgen_change_stack, @function
qgen_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size qgen_change_stack, . - qgen_change_stack
  .popsection
)");
#endif

namespace qgen::simt {
namespace {

constexpr size_t kStackBytes = 256 << 10;
// Stacks begin at different places of their memory: at the same ones, all would meet in a few lines of the cache.
constexpr size_t kStackShift = 17 * 64, kMostShift = 64 << 10;

// Where a stack was left. Kernels change stacks at every shuffle of a warp: the jumps of the C library, which look for
// handlers of cancelled threads, took a sixth of their time. Its contexts, which other processors use, call the system
// each time.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;
};
void change(Context& left, const Context& to) { qgen_change_stack(&left.stack, to.stack); }
// As if `entry`, which never returns, had been left when it was about to begin.
void begin(Context& context, void* stack, size_t bytes, void (*entry)()) {
  constexpr int kKept = 6;
  void** const top = static_cast<void**>(stack) + bytes / sizeof(void*) - 2;  // a multiple of 16, as calls want it
  top[0] = reinterpret_cast<void*>(entry);
  top[1] = nullptr;
  context.stack = top - kKept;
}
#else
using Context = ucontext_t;
void change(Context& left, const Context& to) { ::swapcontext(&left, &to); }
void begin(Context& context, void* stack, size_t bytes, void (*entry)()) {
  ::getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  ::makecontext(&context, entry, 0);
}
#endif

// A thread of execution with a stack of its own.
class Fibre {
 public:
  // Runs `entry`, which never returns. `number`: of those before it.
  Fibre(void (*entry)(), size_t number)
      : entry_(entry), usable_bytes_(kStackBytes - number * kStackShift % kMostShift) {
    stack_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Fibre() {
    forget();
    ::munmap(stack_, kStackBytes);
  }
  Fibre(const Fibre&) = delete;

  // Until it, or one that it was left for, is left for none.
  void enter() {
    before_switch(&scheduler_fake_, stack_, kStackBytes);
    change(outside_, next());
    after_switch(scheduler_fake_, nullptr, nullptr);
  }
  // On its own stack: as the first thing, and to go on with another one, or where the first one was entered.
  void arrive() { after_switch(nullptr, &scheduler_stack_, &scheduler_size_); }
  void leave_for(Fibre* other) {
    before_switch(&fake_, scheduler_stack_, scheduler_size_);
    change(inside_, other != nullptr ? other->next() : outside_);
    after_switch(fake_, &scheduler_stack_, &scheduler_size_);
  }
  const std::byte* stack() const { return static_cast<const std::byte*>(stack_); }
  // Forgets what it was at: the next time it begins anew.
  void forget() {
    started_ = false;
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);  // of functions that never returned
#endif
  }
  static Fibre* current() { return current_; }

 private:
  Context& next() {
    current_ = this;
    if (!started_) begin(inside_, stack_, usable_bytes_, entry_);
    started_ = true;
    return inside_;
  }
#if defined(__SANITIZE_ADDRESS__)
  static void before_switch(void** fake, const void* stack, size_t size) {
    __sanitizer_start_switch_fiber(fake, stack, size);
  }
  static void after_switch(void* fake, const void** stack, size_t* size) {
    __sanitizer_finish_switch_fiber(fake, stack, size);
  }
#else
  static void before_switch(void**, const void*, size_t) {}
  static void after_switch(void*, const void**, size_t*) {}
#endif

  void (*entry_)();
  void* stack_ = nullptr;
  size_t usable_bytes_;
  bool started_ = false;
  Context inside_;
  void* fake_ = nullptr;
  void* scheduler_fake_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_size_ = 0;
  static thread_local Fibre* current_;
  static thread_local Context outside_;  // where one was entered
};

thread_local Fibre* Fibre::current_ = nullptr;
thread_local Context Fibre::outside_;

enum class State : uint8_t { kReady, kAtBarrier, kInExchange, kDone };

// An asynchronous copy. It may read its source at any time from when it is issued, but writes its target late: what was
// to be read is kept, to be compared.
struct Copy {
  void* target;
  const void* source;  // null: zeros
  size_t bytes;
  std::byte issued[16];
};

struct Thread {
  Place place;
  RunningThread running;
  int exchanges = 0;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> committed;  // oldest first
};

struct Warp {
  int arrived = 0;
  // Of the exchange under way: what its lanes have called exchange() with.
  size_t bytes = 0;
  void (*finish)(std::byte*, int) = nullptr;
  int lanes = kWarp;
  // Two sets in turns: a lane may give again while others still read.
  alignas(64) std::byte slots[2][kWarp * kExchangeBytes];
};

struct Block {
  void (*thread)(const void*) = nullptr;
  const void* launch = nullptr;
  const char* name = "";
  std::vector<std::byte> shared_storage;
  std::byte* shared = nullptr;
  std::vector<Thread> threads;
  std::vector<State> states;  // of the threads
  std::vector<Warp> warps;
  std::vector<int> sequence;  // of threads, in which those go on that can
  size_t next = 0;            // in it
  int done = 0;
  std::string error;  // what a thread did that no GPU allows
};

Order order = Order::kAscending;
bool tf32_is_rounded = true;
thread_local Block* block = nullptr;
thread_local Thread* self = nullptr;
thread_local std::vector<std::unique_ptr<Fibre>> fibres;

State& state_of(const Thread& thread) { return block->states[size_t(thread.place.thread)]; }

[[noreturn]] void fail_kernel(const std::string& what) {
  for (const auto& fibre : fibres) fibre->forget();
  throw std::logic_error(std::string(block->name) + ": " + what);
}

// The next thread in the sequence that can go on, which runs from now on; null: none.
Fibre* next_ready() {
  while (block->next < block->sequence.size()) {
    const auto i = size_t(block->sequence[block->next++]);
    if (block->states[i] != State::kReady) continue;
    self = &block->threads[i];
    check_thread(&self->running);
    return fibres[i].get();
  }
  return nullptr;
}

// The running thread cannot go on, or is done.
void leave() {
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kDirectly = false;  // it wants to know where the stack lies that was left
#else
  constexpr bool kDirectly = true;
#endif
  Fibre::current()->leave_for(kDirectly && block->error.empty() ? next_ready() : nullptr);
}

void entry() {
  Fibre::current()->arrive();
  for (;;) {
    block->thread(block->launch);
    state_of(*self) = State::kDone;
    ++block->done;
    leave();
  }
}

template <typename T>
void in_order(std::vector<T>& sequence, std::mt19937& random) {
  if (order == Order::kDescending) std::reverse(sequence.begin(), sequence.end());
  if (order == Order::kShuffled) std::shuffle(sequence.begin(), sequence.end(), random);
}

void run_block(std::mt19937& random) {
  const int count = int(block->threads.size());
  block->sequence.resize(size_t(count));
  std::iota(block->sequence.begin(), block->sequence.end(), 0);
  in_order(block->sequence, random);
  while (block->done < count) {
    bool moved = false;
    block->next = 0;
    while (Fibre* const fibre = next_ready()) {
      moved = true;
      fibre->enter();
      check_thread(nullptr);
      if (!block->error.empty()) fail_kernel(block->error);
    }
    if (moved) continue;
    // No thread can go on: a barrier that all threads have reached opens, any other state is a deadlock.
    const auto in_state = [](State state) { return std::count(block->states.begin(), block->states.end(), state); };
    const auto at_barrier = in_state(State::kAtBarrier), exchanging = in_state(State::kInExchange);
    if (at_barrier != count) {
      fail_kernel("of " + std::to_string(count) + " threads " + std::to_string(at_barrier) + " wait at a barrier, " +
                  std::to_string(exchanging) + " for their warp, " + std::to_string(block->done) + " are done");
    }
    block->states.assign(size_t(count), State::kReady);
    check_barrier();
  }
  for (const Thread& thread : block->threads) {
    if (!thread.open.empty() || !thread.committed.empty()) fail_kernel("a copy was never waited for");
  }
}

}  // namespace

void set_order(Order wanted) { order = wanted; }
void set_tf32_rounding(bool rounds) { tf32_is_rounded = rounds; }
bool rounds_tf32() { return tf32_is_rounded; }

void run(const char* name, Dim grid, int threads, size_t shared_bytes, void (*thread)(const void*), const void* launch,
         const LaunchKind& kind) {
  Block state;
  state.name = name;
  state.thread = thread;
  state.launch = launch;
  block = &state;
  if (threads <= 0 || threads % kWarp != 0 || threads > 1024)
    fail_kernel("a block has whole warps, 1024 threads at most");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) fail_kernel("a grid without blocks");
  constexpr unsigned kMostBlocks = 65535;  // but for x
  if (grid.y > kMostBlocks || grid.z > kMostBlocks) fail_kernel("a grid has 65535 blocks at most in y and z");
  if (shared_bytes > kMostSharedBytes) fail_kernel("a block has 99 KiB of shared memory at most");
  while (fibres.size() < size_t(threads)) fibres.push_back(std::make_unique<Fibre>(entry, fibres.size()));
  // Exactly as large as asked for, so that a sanitizer sees what lies beyond.
  state.shared_storage.resize(shared_bytes + 127);
  state.shared = state.shared_storage.data();
  state.shared += (128 - reinterpret_cast<uintptr_t>(state.shared) % 128) % 128;
  state.warps.resize(size_t(threads / kWarp));
  const uint32_t sees = check_launch(kind);
  std::mt19937 random(1);
  std::vector<size_t> blocks(size_t(grid.x) * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), size_t{0});
  in_order(blocks, random);
  for (const size_t index : blocks) {
    const Dim at{unsigned(index % grid.x), unsigned(index / grid.x % grid.y), unsigned(index / grid.x / grid.y)};
    state.threads.assign(size_t(threads), {});
    state.states.assign(size_t(threads), State::kReady);
    for (int i = 0; i < threads; ++i) {
      state.threads[i].place = {at, grid, i, threads};
      state.threads[i].running = {fibres[i]->stack(), kStackBytes, i, 0, sees};
    }
    for (Warp& warp : state.warps) warp.arrived = 0;
    state.done = 0;
    std::memset(state.shared, 0xFF, shared_bytes);
    check_block(state.shared, shared_bytes, state.warps.data(), state.warps.size() * sizeof(Warp));
    run_block(random);
  }
  if (const char* const wrong = check_launch_end()) fail_kernel(wrong);
  block = nullptr;
  self = nullptr;
}

void stop(const char* error) {
  block->error = error;
  leave();
}

namespace {
thread_local std::vector<std::function<void()>>* recorded = nullptr;
std::atomic<size_t> waiting_of_all = 0, done_of_all = 0;
}  // namespace
void WorkQueue::perform(std::function<void()> work) {
  if (recorded != nullptr) {
    recorded->push_back(std::move(work));
    return;
  }
  wait_for(deferred());
  ++done_of_all;
  work();
}
void WorkQueue::defer(const std::vector<std::function<void()>>& work) {
  waiting_.insert(waiting_.end(), work.begin(), work.end());
  waiting_of_all += work.size();
}
void WorkQueue::wait_for(size_t count) {
  while (done_ < count) {
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    ++done_;
    --waiting_of_all;
    ++done_of_all;
    work();
  }
}
WorkCount count_work() { return {waiting_of_all, done_of_all}; }
std::vector<std::function<void()>> record(const std::function<void()>& work) {
  std::vector<std::function<void()>> out;
  recorded = &out;
  work();
  recorded = nullptr;
  return out;
}

uint64_t read_clock() {
  static thread_local uint64_t now = 0;
  return now += 10;
}

Place place() { return self->place; }
int thread_of_block() { return self->place.thread; }
std::byte* shared() { return block->shared; }

void meet() {
  state_of(*self) = State::kAtBarrier;
  leave();
}

const std::byte* exchange(const void* given, size_t bytes, void (*finish)(std::byte*, int), int lanes) {
  Thread* const mine = self;
  Warp& warp = block->warps[mine->place.thread / kWarp];
  if (warp.arrived > 0 && (warp.bytes != bytes || warp.finish != finish || warp.lanes != lanes))
    stop("the lanes of a warp are at different exchanges");
  warp.bytes = bytes;
  warp.finish = finish;
  warp.lanes = lanes;
  std::byte* const slots = warp.slots[mine->exchanges++ % 2];
  std::memcpy(slots + size_t(mine->place.thread % kWarp) * kExchangeBytes, given, bytes);
  if (++warp.arrived < kWarp) {
    state_of(*mine) = State::kInExchange;
    leave();
  } else {
    warp.arrived = 0;
    if (finish != nullptr) finish(slots, lanes);
    const int first = mine->place.thread / kWarp * kWarp;
    std::fill_n(block->states.begin() + first, kWarp, State::kReady);
  }
  return slots;
}

void meet_warp() {
  const std::byte nothing{};
  exchange(&nothing, sizeof(nothing));
  ++self->running.warp_barriers;
}

uint32_t add_atomically(uint32_t* counter, uint32_t more) {
  check_access(counter, sizeof(*counter), Access::kAtomic);
  *counter += more;
  return *counter - more;
}

void copy_later(void* target, const void* source, size_t bytes) {
  if (source != nullptr) check_access(source, bytes, Access::kRead);
  check_copy(target, bytes, CopyState::kIssued);
  Copy copy{target, source, bytes, {}};
  if (source != nullptr) std::memcpy(copy.issued, source, bytes);
  self->open.push_back(copy);
}
void commit_copies() {
  self->committed.push_back(std::move(self->open));
  self->open.clear();
}
void wait_copies(int left) {
  while (int(self->committed.size()) > left) {
    for (const Copy& copy : self->committed.front()) {
      if (copy.source != nullptr && std::memcmp(copy.issued, copy.source, copy.bytes) != 0)
        stop("the source of a copy changed while it was under way");
      std::memcpy(copy.target, copy.issued, copy.bytes);
      check_copy(copy.target, copy.bytes, CopyState::kDone);
    }
    self->committed.erase(self->committed.begin());
  }
}

}  // namespace qgen::simt
