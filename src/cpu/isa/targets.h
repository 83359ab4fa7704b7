// The table of targets, best first, and the memory bandwidth they are measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cpu/isa/kernels.h"
#include "cpu/thread_pool.h"

namespace qgen::cpu {

std::span<const IsaTarget* const> targets();
// The best target this processor supports, or the named one: a usage Error if unknown, a device Error if the
// processor lacks it.
const IsaTarget& find_target(std::string_view name);

// Bytes per second of a plain read of `data`, in whole MiB, by all workers: the mean of a tenth of a second or more,
// after one reading that is not counted (the first maps the pages of a file). Decoding reads without a pause as well;
// the best reading of a few milliseconds is up to a sixth faster where others use the same memory. 0 below one MiB.
double read_bandwidth(ThreadPool& pool, const IsaTarget& target, std::span<const std::byte> data);

}  // namespace qgen::cpu
