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

// Bytes per second that a plain read of `data`, in whole MiB, by all workers keeps up: the mean of a tenth of a second
// or more, as a model that decodes reads without a pause. Single readings of a few milliseconds reach up to a sixth
// more beside neighbours on the same memory. 0 below one MiB.
double read_bandwidth(ThreadPool& pool, const IsaTarget& target, std::span<const std::byte> data);

}  // namespace qgen::cpu
