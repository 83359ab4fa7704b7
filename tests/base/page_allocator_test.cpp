#include "base/page_allocator.h"

#include <algorithm>
#include <limits>

#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("vectors of pages keep what was written through growth, copies and moves") {
  for (const size_t size : {size_t{1}, PageAllocator<std::byte>::kLargeBytes - 1, PageAllocator<std::byte>::kLargeBytes,
                            3 * PageAllocator<std::byte>::kLargeBytes + 5}) {
    INFO(size, " bytes");
    PageBytes bytes(size);
    const auto value = [](size_t i) { return std::byte(uint8_t(i * 7 + i / 251)); };
    for (size_t i = 0; i < size; ++i) bytes[i] = value(i);
    const PageBytes copy = bytes;
    bytes.resize(2 * size + 1);  // moves to new memory, from a small allocation to pages for some of the sizes
    PageBytes moved = std::move(bytes);
    bool same = copy.size() == size;
    for (size_t i = 0; i < size; ++i) same = same && copy[i] == value(i) && moved[i] == value(i);
    CHECK(same);
    moved.assign(copy.begin() + 1, copy.end());
    CHECK(std::equal(moved.begin(), moved.end(), copy.begin() + 1, copy.end()));
    moved = {};
    CHECK(moved.empty());
  }
  // Elements with a value get it.
  const PageBytes given(PageAllocator<std::byte>::kLargeBytes, std::byte{9});
  CHECK(std::count(given.begin(), given.end(), std::byte{9}) == int64_t(given.size()));
}

TEST_CASE("pages that the system does not have are an error like any allocation's") {
  PageAllocator<double> allocator;
  CHECK_THROWS_AS(allocator.allocate(std::numeric_limits<size_t>::max() / 2), std::bad_array_new_length);
  CHECK_THROWS_AS(allocator.allocate(std::numeric_limits<size_t>::max() / 64), std::bad_alloc);
}

}  // namespace
}  // namespace qgen::test
