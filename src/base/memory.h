// How much memory this process may still take, and what to say where it ends.
#pragma once

#include <cstddef>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

namespace qgen {

// The memory Error of a file, a line or a text of so many bytes (0: unknown) that is too large for this machine.
[[noreturn]] void fail_for_memory(const std::string& subject, size_t bytes = 0);

// Runs `action`, which works on `subject`; where memory ends, the Error names that.
template <typename Action>
auto with_memory_for(const std::string& subject, size_t bytes, Action&& action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  fail_for_memory(subject, bytes);
}

// Bytes: what the machine can give (MemAvailable, proc(5)), and no more than the limits of the control groups that this
// process is in (versions 1 and 2, cgroups(7), with all the groups around them) and of its address space (RLIMIT_AS)
// leave. Page cache and the files mapped already count as free. 0 if nothing says.
size_t available_memory();
// The part of it that files tell: those of /proc and /sys below `root`.
size_t available_memory_of_system(const std::filesystem::path& root = "/");
// Where the address space is limited, threads allocate from one heap: glibc would reserve 64 MiB of it for each of
// them, which available_memory() does not know of. To be called before the first thread.
void share_heap_if_limited();

// Bytes of this process that are in memory now (statm, proc(5)); 0 if nothing says.
size_t resident_memory();
// The most it ever was (VmHWM, proc(5)).
size_t peak_resident_memory();

}  // namespace qgen
