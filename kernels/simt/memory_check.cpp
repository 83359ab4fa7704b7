#include "kernels/simt/memory_check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "kernels/simt/executor.h"

// The program's first and last byte, by the linker.
extern "C" const char __executable_start, end;

namespace qgen::simt {
namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool holds(uintptr_t from, uintptr_t to) const { return begin <= from && to <= end; }
};
Range range_of(const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes};
}

// The buffers of the device, of all its users.
struct Buffers {
  struct Buffer {
    uintptr_t end;
    std::map<uintptr_t, uintptr_t> parts;  // their ends by their beginnings
  };
  std::mutex mutex;
  std::map<uintptr_t, Buffer> by_begin;

  // Of the buffer or part that has the address; empty where none has it.
  Range find(uintptr_t address) {
    const std::scoped_lock lock(mutex);
    auto buffer = by_begin.upper_bound(address);
    if (buffer == by_begin.begin()) return {};
    --buffer;
    if (buffer->second.parts.empty()) return {buffer->first, buffer->second.end};
    auto part = buffer->second.parts.upper_bound(address);
    if (part == buffer->second.parts.begin()) return {};
    --part;
    return {part->first, part->second};
  }
};
constinit std::atomic<uint64_t> buffers_version{1};  // another one after each change
// Never destroyed: buffers in static memory may be removed after it would have been.
Buffers& buffers() {
  static auto* const all = new Buffers;
  return *all;
}

// When a byte of shared memory was touched last, and by whom. Epochs are numbered through all blocks: the barriers of
// blocks, and their beginnings.
struct Touch {
  uint32_t epoch = 0, warp_barriers = 0;
  int thread = 0;  // or, of several, one of these
};
constexpr int kSeveralWarps = -1;
constexpr int kSeveralOfWarp0 = -2;  // and -3 for warp 1, and so on
inline int warp_of(int thread) { return thread >= 0 ? thread / kWarp : kSeveralOfWarp0 - thread; }
int several_of(int warp) { return kSeveralOfWarp0 - warp; }

// What is known of a byte of shared memory, or of the four of a word that have been touched together.
struct Touched {
  Touch write, read;
  bool atomic = false;   // the last writing was
  bool copying = false;  // a copy may write it at any time
};
constexpr size_t kWord = 4;
struct SharedWord {
  Touched byte[kWord];
  bool whole = true;  // byte[0] is what is known of all four
};

// Which launch wrote an address of the device's memory last: of four bytes each.
class Writers {
 public:
  void set(uintptr_t from, uintptr_t to, uint32_t launch) {
    for (uintptr_t at = from / 4; at < (to + 3) / 4; ++at) page(at)[at % kPage] = launch;
  }
  uint32_t latest(uintptr_t from, uintptr_t to) {
    uint32_t launch = 0;
    for (uintptr_t at = from / 4; at < (to + 3) / 4; ++at) launch = std::max(launch, page(at)[at % kPage]);
    return launch;
  }

 private:
  static constexpr size_t kPage = 1024;
  using Page = std::array<uint32_t, kPage>;
  Page& page(uintptr_t at) {
    const uintptr_t number = at / kPage;
    if (number == last_number_) return *last_;
    std::unique_ptr<Page>& found = pages_[number];
    if (!found) found = std::make_unique<Page>();
    last_number_ = number;
    last_ = found.get();
    return *last_;
  }

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_number_ = 0;
  Page* last_ = nullptr;
};

// The launches of a thread of the host, numbered as they are run.
struct Launches {
  LaunchKind kind;
  uint32_t now = 0, ended = 0;  // the one that runs; all up to this one have ended
  bool waited = false;          // a thread of it has
  // It, and the one before it, let the next one start before they had their inputs themselves.
  bool gave_way = false, last_gave_way = false;
};

struct Check {
  RunningThread* running = nullptr;
  Launches launches;
  Range shared, own;
  SharedWord* shared_words = nullptr;
  uint32_t epoch = 0, first_epoch = 0;  // now; of this block
  // Buffers found lately.
  uint64_t version = 0;
  std::array<Range, 64> recent;
};
constinit thread_local Check check;
// Apart: what has a destructor is slower to get at.
thread_local std::vector<SharedWord> shared_storage;
thread_local Writers writers;
const Range program = range_of(&__executable_start, size_t(&end - &__executable_start));

// Nothing of the thread's stack is destroyed after this: no memory may be held there.
template <typename... Values>
[[noreturn]] void stop_with(fmt::format_string<const Values&...> text, const Values&... values) {
  thread_local std::array<char, 200> message;
  *fmt::format_to_n(message.data(), message.size() - 1, text, values...).out = 0;
  stop(message.data());
  __builtin_unreachable();
}
std::string name_of(int thread) {
  if (thread >= 0) return "thread " + std::to_string(thread);
  return thread == kSeveralWarps ? "several warps" : "warp " + std::to_string(warp_of(thread));
}

// Whether a barrier lies between that touch and the running thread, or it was the same thread.
inline bool is_ordered(const Touch& touch) {
  if (touch.epoch != check.epoch || touch.thread == check.running->index) return true;
  return touch.thread != kSeveralWarps && warp_of(touch.thread) == warp_of(check.running->index) &&
         touch.warp_barriers < check.running->warp_barriers;
}
inline Touch touch_now() { return {check.epoch, check.running->warp_barriers, check.running->index}; }

// The latest of several touches that go together, which a later one must be ordered behind: readings, or atomic
// writings.
inline Touch with_this(const Touch& before) {
  Touch now = touch_now();
  if (is_ordered(before)) return now;
  const int warp = warp_of(now.thread);
  now.thread = before.thread != kSeveralWarps && warp_of(before.thread) == warp ? several_of(warp) : kSeveralWarps;
  return now;
}

[[noreturn]] void stop_race(uintptr_t offset, const char* does, const char* had, const Touch& other) {
  stop_with("shared memory, byte {}: {} {} what {} {}, without a barrier between them", offset,
            name_of(check.running->index), does, name_of(other.thread), had);
}

inline void touch_one(Touched& one, uintptr_t offset, Access access) {
  const bool reads = access == Access::kRead, both_atomic = access == Access::kAtomic && one.atomic;
  const bool written = one.write.epoch >= check.first_epoch;
  if (written && one.copying) stop_with("shared memory, byte {}: touched before its copy was waited for", offset);
  if (!both_atomic && !is_ordered(one.write)) stop_race(offset, reads ? "reads" : "writes", "wrote", one.write);
  if (reads) {
    if (!written) stop_with("shared memory, byte {}: read before it is written", offset);
    one.read = with_this(one.read);
  } else {
    if (!is_ordered(one.read)) stop_race(offset, "writes", "read", one.read);
    one.write = both_atomic ? with_this(one.write) : touch_now();
    one.atomic = access == Access::kAtomic;
    one.copying = false;
  }
}

void touch_shared(uintptr_t offset, size_t bytes, Access access) {
  for (const size_t past = offset + bytes; offset < past;) {
    SharedWord& word = check.shared_words[offset / kWord];
    const size_t first = offset % kWord, last = std::min(kWord, first + past - offset);
    if (first == 0 && last == kWord && word.whole) {
      touch_one(word.byte[0], offset, access);
    } else {
      if (word.whole) std::fill(word.byte + 1, word.byte + kWord, word.byte[0]);
      for (size_t i = first; i < last; ++i) touch_one(word.byte[i], offset - first + i, access);
      // What has been written as a whole is one again. Who read its bytes before is ordered before that.
      word.whole = last - first == kWord && access == Access::kWrite;
      if (word.whole) word.byte[0].read = {};
    }
    offset += last - first;
  }
}

// One of the buffers found lately.
inline Range& recent_buffer(uintptr_t address) { return check.recent[address >> 10 & 63]; }

[[gnu::noinline]] void look_for_buffer(uintptr_t from, uintptr_t to) {
  const uint64_t version = buffers_version.load(std::memory_order_acquire);
  if (check.version != version) {
    check.recent.fill({});
    check.version = version;
  }
  if (program.holds(from, to) || check.own.holds(from, to)) return;
  const Range found = buffers().find(from);
  if (found.begin == found.end) stop("an access outside of all buffers");
  if (!found.holds(from, to)) {
    stop_with("an access of {} bytes at byte {} of a buffer of {}", to - from, from - found.begin,
              found.end - found.begin);
  }
  recent_buffer(from) = found;
}

[[gnu::noinline]] void touch_memory(const RunningThread* running, uintptr_t from, size_t bytes, Access access) {
  if (from - check.shared.begin < check.shared.end - check.shared.begin) {
    if (from + bytes > check.shared.end) stop("an access beyond shared memory");
    touch_shared(from - check.shared.begin, bytes, access);
  } else {
    const bool known = check.version == buffers_version.load(std::memory_order_acquire) &&
                       recent_buffer(from).holds(from, from + bytes);
    if (!known) look_for_buffer(from, from + bytes);
    if (access != Access::kRead) {
      if (running->sees + 1 < check.launches.now && !check.launches.kind.timed) [[unlikely]]
        stop("writes before it has waited for launches that may read what was there");
      writers.set(from, from + bytes, check.launches.now);
    } else if (running->sees + 1 < check.launches.now) [[unlikely]] {
      const uint32_t launch = writers.latest(from, from + bytes);
      if (launch > running->sees && launch < check.launches.now)
        stop_with("reads before it has waited what the launch {} before it wrote", check.launches.now - launch);
    }
  }
}

// Accesses of the executor and the host, while no thread runs, are not looked at. Most others are of the thread's
// stack.
inline void touch(const void* data, size_t bytes, Access access) {
  const RunningThread* const running = check.running;
  if (running == nullptr) return;
  const auto from = reinterpret_cast<uintptr_t>(data);
  if (from - reinterpret_cast<uintptr_t>(running->stack) >= running->stack_bytes)
    touch_memory(running, from, bytes, access);
}

}  // namespace

void add_buffer(const void* data, size_t bytes) {
  const Range range = range_of(data, bytes);
  Buffers& all = buffers();
  const std::scoped_lock lock(all.mutex);
  all.by_begin[range.begin] = {range.end, {}};
  ++buffers_version;
}
void remove_buffer(const void* data) {
  Buffers& all = buffers();
  const std::scoped_lock lock(all.mutex);
  all.by_begin.erase(range_of(data, 0).begin);
  ++buffers_version;
}
void add_buffer_part(const void* data, size_t bytes) {
  const Range part = range_of(data, bytes);
  Buffers& all = buffers();
  const std::scoped_lock lock(all.mutex);
  const auto behind = all.by_begin.upper_bound(part.begin);
  if (behind == all.by_begin.begin()) return;
  if (part.end > std::prev(behind)->second.end) return;
  std::prev(behind)->second.parts[part.begin] = part.end;
  ++buffers_version;
}

void check_block(const std::byte* shared, size_t shared_bytes, const void* own, size_t own_bytes) {
  check.shared = range_of(shared, shared_bytes);
  check.own = range_of(own, own_bytes);
  const size_t words = (shared_bytes + kWord - 1) / kWord;
  if (shared_storage.size() < words) shared_storage.resize(words);
  check.shared_words = shared_storage.data();
  check.first_epoch = ++check.epoch;
}
void check_barrier() { ++check.epoch; }
void check_thread(RunningThread* thread) { check.running = thread; }
void check_access(const void* data, size_t bytes, Access access) { touch(data, bytes, access); }
void check_copy(const void* target, size_t bytes, CopyState state) {
  const uintptr_t offset = range_of(target, 0).begin - check.shared.begin;
  if (!check.shared.holds(check.shared.begin + offset, check.shared.begin + offset + bytes)) {
    stop("a copy beyond shared memory");
  }
  if (offset % kWord != 0 || bytes % kWord != 0) stop("a copy of parts of words");
  if (state == CopyState::kIssued) touch_shared(offset, bytes, Access::kWrite);
  for (size_t word = offset / kWord; word < (offset + bytes) / kWord; ++word) {
    Touched& all = check.shared_words[word].byte[0];
    all.copying = state == CopyState::kIssued;
    all.write = touch_now();
  }
}

uint32_t check_launch(const LaunchKind& kind) {
  Launches& all = check.launches;
  all.last_gave_way = all.gave_way;
  all.gave_way = all.waited = false;
  all.kind = kind;
  ++all.now;
  if (!kind.early) all.ended = all.now - 1;
  return all.ended;
}
void check_result(const void* data, size_t bytes) {
  const Range range = range_of(data, bytes);
  writers.set(range.begin, range.end, check.launches.now);
}
const char* check_launch_end() {
  const Launches& all = check.launches;
  if (all.kind.early && !all.waited) return "no thread waited for what came before";
  if (all.kind.beside_next && !all.kind.beside_previous && all.gave_way)
    return "lets the next launch start, which runs beside it, before it has its inputs";
  return nullptr;
}
void check_all_ended() { check.launches.ended = check.launches.now; }
void check_wait() {
  check.running->sees = check.launches.now - 1;
  check.launches.waited = true;
}
void check_read_anew() {
  const Launches& all = check.launches;
  // What runs beside the launch before it is run first, by the executor.
  if (all.kind.beside_previous) {
    check.running->sees = all.now - 1;
  } else if (!all.last_gave_way && check.running->sees + 2 < all.now) {
    check.running->sees = all.now - 2;
  }
}
void check_next_may_start() {
  Launches& all = check.launches;
  if (check.running->sees + 1 < all.now) all.gave_way = true;
}

}  // namespace qgen::simt

#if defined(QGEN_CHECKED_KERNELS)
// What code calls that is compiled for ThreadSanitizer.
namespace simt = qgen::simt;
extern "C" {
#define QGEN_ACCESS(bytes)                                                                          \
  void __tsan_read##bytes(void* p) { simt::check_access(p, bytes, simt::Access::kRead); }           \
  void __tsan_write##bytes(void* p) { simt::check_access(p, bytes, simt::Access::kWrite); }         \
  void __tsan_unaligned_read##bytes(void* p) { simt::check_access(p, bytes, simt::Access::kRead); } \
  void __tsan_unaligned_write##bytes(void* p) { simt::check_access(p, bytes, simt::Access::kWrite); }
QGEN_ACCESS(1)
QGEN_ACCESS(2)
QGEN_ACCESS(4)
QGEN_ACCESS(8)
QGEN_ACCESS(16)
void __tsan_read_range(void* p, size_t bytes) { simt::check_access(p, bytes, simt::Access::kRead); }
void __tsan_write_range(void* p, size_t bytes) { simt::check_access(p, bytes, simt::Access::kWrite); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
#endif
