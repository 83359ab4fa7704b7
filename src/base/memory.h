// How much memory this process may still take.
#pragma once

#include <cstddef>

namespace qgen {

// Bytes: what the machine can give (MemAvailable, proc(5)), and no more than a control group (version 2) leaves of
// its limit. Page cache counts as free. 0 if nothing says.
size_t available_memory();

// Bytes of this process that are in memory now (statm, proc(5)); 0 if nothing says.
size_t resident_memory();
// The most it ever was (VmHWM, proc(5)).
size_t peak_resident_memory();

}  // namespace qgen
