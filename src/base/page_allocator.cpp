#include "base/page_allocator.h"

#include <sys/mman.h>

#include "base/numa.h"

namespace qgen {

std::byte* map_pages(size_t bytes, bool lazy) noexcept {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (lazy ? MAP_NORESERVE : 0), -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  interleave(memory, bytes);
  return static_cast<std::byte*>(memory);
}

void unmap_pages(std::byte* data, size_t bytes) noexcept { ::munmap(data, bytes); }

}  // namespace qgen
