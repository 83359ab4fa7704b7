// What the executor says of kernels that are wrong. This file is compiled like the kernels, so that its accesses are
// checked too.
#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <random>
#include <span>

#include "kernels/device/primitives.cuh"
#include "kernels/simt/launch.h"
#include "kernels/simt/warp.h"
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

constexpr int kThreads = 64, kSharedBytes = 4 * kThreads;

struct Given {
  uint32_t* data = nullptr;  // kThreads + 5 numbers
};

// What a block of 64 threads ends with; empty: all is well.
std::string error_of(void (*kernel)(Given, LaunchTimes), Order order = Order::kAscending) {
  gpu::Device device(0);
  const Buffer<uint32_t> buffer(device, std::vector<uint32_t>(kThreads + 5));
  set_order(order);
  std::string error;
  try {
    launch(device.stream(), "test", kernel, {2}, kThreads, kSharedBytes, Given{buffer.data()}, Start::kAfter);
  } catch (const std::logic_error& thrown) {
    error = thrown.what();
  }
  set_order(Order::kAscending);
  return error;
}
// Their own number in shared memory, and another thread's to the buffer.
template <void (*Meet)()>
void exchange_by_memory(Given given, int other) {
  auto* const shared = shared_memory<uint32_t>();
  shared[thread_index()] = uint32_t(thread_index());
  Meet();
  given.data[thread_index()] = shared[other];
}
void do_not_meet() {}
void exchange_registers() { shuffle_xor(0, 1); }

// Threads add one to a number, which threads from `first` on read.
template <void (*Meet)()>
void count_threads(Given given, int first) {
  auto* const count = shared_memory<uint32_t>();
  if (thread_index() == 0) *count = 0;
  barrier();
  add_to(count, 1);
  Meet();
  if (thread_index() >= first) given.data[thread_index()] = *count;
}

TEST_CASE("kernels: a barrier that not all threads reach is found, and other mistakes") {
  CHECK(error_of([](Given, LaunchTimes) {
          if (thread_index() < 40) barrier();
        }) == "test: of 64 threads 40 wait at a barrier, 0 for their warp, 24 are done");
  CHECK(error_of([](Given, LaunchTimes) {
          if (thread_index() != 3) shuffle_xor(1, 1);
        }) == "test: of 64 threads 0 wait at a barrier, 31 for their warp, 33 are done");
  CHECK(error_of([](Given, LaunchTimes) { sum_lanes(1, thread_index() < 8 ? 8 : kWarp); }) ==
        "test: the lanes of a warp are at different exchanges");
  CHECK(error_of([](Given, LaunchTimes) { thread_index() < 8 ? largest_lane(1) : sum_lanes(1); }) ==
        "test: the lanes of a warp are at different exchanges");
  CHECK(error_of([](Given, LaunchTimes) {
          if (thread_index() >= kSharedBytes / 16) return;
          copy_async16(shared_memory<std::byte>() + 16 * thread_index(), nullptr, false);
          copy_async_commit();
        }) == "test: a copy was never waited for");
  CHECK(error_of([](Given, LaunchTimes) { load_once16(shared_memory<std::byte>() + 8); }) ==
        "test: a load from an unaligned address");
  CHECK(error_of([](Given, LaunchTimes) { barrier(); }).empty());
}

// One sum of a product as kernels/simt/warp.cpp has it, number by number, in integers.
float add_in_integers(float sum, std::span<const double> products) {
  double largest = std::abs(sum), plain = sum;
  for (const double p : products) {
    largest = std::max(largest, std::abs(p));
    plain += p;
  }
  if (!(largest > 0x1p-120) || !(largest < 0x1p127) || std::isnan(plain)) return float(plain);
  const int exponent = std::ilogb(largest) - 24;
  auto total = int64_t(std::ldexp(double(sum), -exponent));
  for (const double p : products) total += int64_t(std::ldexp(p, -exponent));
  const double exact = std::ldexp(double(total), exponent);
  const auto near = float(exact);
  return std::abs(near) > std::abs(exact) ? std::nextafter(near, 0.0f) : near;
}

TEST_CASE("kernels: products of matrices are added as tensor cores do") {
  using simt::kExchangeBytes, simt::MatrixParts;
  std::mt19937 random(1);
  const auto draw = [&](int binades) {
    const float of_one = float(random() % 4096) / 2048 - 1;
    return std::ldexp(of_one, binades > 0 ? int(random() % unsigned(binades)) - binades / 2 : 0);
  };
  // Operands of one binade, of many, with a NaN or Inf among them, and such that products come close to F32's underflow
  // and overflow.
  struct Kind {
    int binades;
    float factor, odd;
  };
  int cut = 0;
  for (const Kind& kind : {Kind{0, 1, 0}, Kind{40, 1, 0}, Kind{20, 1, NAN}, Kind{20, 1, -INFINITY},
                           Kind{8, 0x1p-62f, 0}, Kind{8, 0x1p-72f, 0}, Kind{4, 0x1p63f, 0}}) {
    alignas(64) std::byte slots[kWarp * kExchangeBytes];
    float a[16][16], b[16][8], c[16][8];
    for (auto& row : a) std::generate(std::begin(row), std::end(row), [&] { return draw(kind.binades) * kind.factor; });
    for (auto& row : b) std::generate(std::begin(row), std::end(row), [&] { return draw(kind.binades) * kind.factor; });
    for (auto& row : c)
      std::generate(std::begin(row), std::end(row), [&] { return draw(kind.binades) * kind.factor * kind.factor / 3; });
    if (kind.odd != 0) a[5][11] = kind.odd;
    for (int lane = 0; lane < kWarp; ++lane) {
      auto& parts = *new (slots + size_t(lane) * kExchangeBytes) MatrixParts<2>;
      const int g = lane / 4, q = lane % 4;
      for (int i = 0; i < 8; ++i) parts.a[i] = a[g + i / 2 % 2 * 8][2 * q + i % 2 + i / 4 * 8];
      for (int i = 0; i < 4; ++i) parts.b[i] = b[2 * q + i % 2 + i / 2 * 8][g];
      for (int i = 0; i < 4; ++i) parts.c[i] = c[g + i / 2 * 8][2 * q + i % 2];
    }
    simt::multiply_matrices<2>(slots, kWarp);
    for (int lane = 0; lane < kWarp; ++lane) {
      const auto& parts = *std::launder(reinterpret_cast<const MatrixParts<2>*>(slots + size_t(lane) * kExchangeBytes));
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = c[row][column];
        double plain = sum;
        for (int half = 0; half < 2; ++half) {
          double products[8];
          for (int k = 0; k < 8; ++k) products[k] = double(a[row][8 * half + k]) * b[8 * half + k][column];
          sum = add_in_integers(sum, products);
          plain = std::accumulate(std::begin(products), std::end(products), plain);
        }
        cut += sum != float(plain);
        INFO("binades ", kind.binades, ", factor ", kind.factor, ", row ", row, ", column ", column);
        CHECK((parts.c[i] == sum || (std::isnan(sum) && std::isnan(parts.c[i]))));
      }
    }
  }
  CHECK(cut > 100);  // what would be rounded otherwise
}

#if defined(QGEN_CHECKED_KERNELS)
TEST_CASE("kernels: races on shared memory are found, in whichever order threads run") {
  for (const Order order : kOrders) {
    INFO("order ", int(order));
    // A warp's neighbour.
    CHECK(error_of([](Given given, LaunchTimes) { exchange_by_memory<do_not_meet>(given, thread_index() ^ 1); },
                   order) != "");
    CHECK(error_of([](Given given, LaunchTimes) { exchange_by_memory<exchange_registers>(given, thread_index() ^ 1); },
                   order)
              .find("without a barrier between them") != std::string::npos);
    CHECK(error_of([](Given given, LaunchTimes) { exchange_by_memory<warp_barrier>(given, thread_index() ^ 1); },
                   order) == "");
    // A thread of the other warp.
    CHECK(error_of([](Given given, LaunchTimes) { exchange_by_memory<warp_barrier>(given, thread_index() ^ 32); },
                   order) != "");
    CHECK(error_of([](Given given, LaunchTimes) { exchange_by_memory<barrier>(given, thread_index() ^ 32); }, order) ==
          "");
    // Written again while others may still read: one thread, several of the warp, several warps.
    const auto write_after = [&](auto kernel) { return error_of(kernel, order); };
    CHECK(write_after([](Given given, LaunchTimes) {
            exchange_by_memory<barrier>(given, 0);
            if (thread_index() == 0) *shared_memory<uint32_t>() = 5;
          }).find("without a barrier between them") != std::string::npos);
    CHECK(write_after([](Given given, LaunchTimes) {
            exchange_by_memory<barrier>(given, 0);
            warp_barrier();
            if (thread_index() == 0) *shared_memory<uint32_t>() = 5;
          }).find("without a barrier between them") != std::string::npos);
    CHECK(write_after([](Given given, LaunchTimes) {
            exchange_by_memory<barrier>(given, thread_index() / kWarp);
            warp_barrier();
            if (thread_index() % kWarp == 0) shared_memory<uint32_t>()[thread_index() / kWarp] = 5;
          }) == "");
    // Neighbouring bytes are no race, atomic additions are none.
    CHECK(error_of([](Given, LaunchTimes) { shared_memory<uint8_t>()[thread_index()] = 1; }, order) == "");
    CHECK(error_of([](Given given, LaunchTimes) { count_threads<barrier>(given, 0); }, order) == "");
    CHECK(error_of([](Given given, LaunchTimes) { count_threads<do_not_meet>(given, 0); }, order) != "");
    // By the thread that added last, too: the others may not have.
    CHECK(error_of([](Given given, LaunchTimes) { count_threads<do_not_meet>(given, kThreads - 1); },
                   Order::kAscending) != "");
  }
}

TEST_CASE(
    "kernels: bytes of shared memory are told apart in words that were touched as a whole, and the other way round") {
  static auto* const bytes = +[] { return shared_memory<uint8_t>(); };
  static auto* const words = +[] { return shared_memory<uint32_t>(); };
  for (const Order order : kOrders) {
    INFO("order ", int(order));
    // Each thread of a warp writes a byte, all read words.
    CHECK(error_of(
              [](Given given, LaunchTimes) {
                bytes()[thread_index()] = 1;
                warp_barrier();
                if (thread_index() < kWarp) given.data[thread_index()] = words()[thread_index() / 4];
              },
              order) == "");
    CHECK(error_of(
              [](Given given, LaunchTimes) {
                bytes()[thread_index()] = 1;
                if (thread_index() % 4 == 0) given.data[thread_index()] = words()[thread_index() / 4];
              },
              order) != "");
    // A word as a whole, then a byte of it by another thread, then as a whole.
    CHECK(error_of(
              [](Given, LaunchTimes) {
                words()[thread_index()] = 1;
                warp_barrier();
                bytes()[4 * (thread_index() ^ 1) + 2] = 2;
                warp_barrier();
                words()[thread_index() ^ 2] = 3;
              },
              order) == "");
    CHECK(error_of(
              [](Given, LaunchTimes) {
                words()[thread_index()] = 1;
                bytes()[4 * (thread_index() ^ 1) + 2] = 2;
              },
              order)
              .find("without a barrier between them") != std::string::npos);
    CHECK(error_of(
              [](Given given, LaunchTimes) {
                words()[thread_index()] = 1;
                warp_barrier();
                given.data[thread_index()] = bytes()[4 * (thread_index() ^ 1) + 3];
                words()[thread_index()] = 3;
              },
              order)
              .find("without a barrier between them") != std::string::npos);
    // What was written as a whole again is known as a whole.
    CHECK(error_of(
              [](Given, LaunchTimes) {
                bytes()[4 * thread_index() + 1] = 1;
                words()[thread_index()] = 2;
                bytes()[4 * (thread_index() ^ 1)] = 3;
              },
              order)
              .find("without a barrier between them") != std::string::npos);
  }
  CHECK(error_of([](Given given, LaunchTimes) {
          bytes()[4 * thread_index()] = 1;
          given.data[thread_index()] = words()[thread_index()];
        }) == "test: shared memory, byte 1: read before it is written");
}

void read_copies(Given given, bool wait, bool meet) {
  auto* const shared = shared_memory<uint32_t>();
  if (thread_index() < 16) copy_async16(shared + 4 * thread_index(), given.data + 4 * thread_index(), true);
  copy_async_commit();
  if (wait) copy_async_wait<0>();
  if (meet) barrier();
  if (thread_index() < 16) given.data[4 * thread_index()] = shared[4 * (thread_index() ^ 1)];
  copy_async_wait<0>();
}

TEST_CASE("kernels: what is read before it is written, or before its copy was waited for, is found") {
  CHECK(error_of([](Given given, LaunchTimes) { given.data[0] = shared_memory<uint32_t>()[3]; }) ==
        "test: shared memory, byte 12: read before it is written");
  CHECK(error_of([](Given given, LaunchTimes) { read_copies(given, true, true); }) == "");
  CHECK(error_of([](Given given, LaunchTimes) { read_copies(given, false, true); }) ==
        "test: shared memory, byte 16: touched before its copy was waited for");
  CHECK(error_of([](Given given, LaunchTimes) { read_copies(given, true, false); }) != "");
  // A GPU may read what is copied at once, or later.
  CHECK(error_of([](Given given, LaunchTimes) {
          if (thread_index() == 0) {
            copy_async16(shared_memory<uint32_t>(), given.data, true);
            copy_async_commit();
            given.data[1] = given.data[1] + 1;
          }
          copy_async_wait<0>();
        }) == "test: the source of a copy changed while it was under way");
}

TEST_CASE("kernels: accesses beyond buffers are found") {
  CHECK(error_of([](Given given, LaunchTimes) { given.data[kThreads + 4] = 1; }) == "");
  CHECK(error_of([](Given given, LaunchTimes) { given.data[kThreads + 5] = 1; }) ==
        "test: an access of 4 bytes at byte 276 of a buffer of 276");
  CHECK(error_of([](Given given, LaunchTimes) { given.data[0] = load_once16(given.data + kThreads + 4).word[1]; }) ==
        "test: an access of 4 bytes at byte 276 of a buffer of 276");
  CHECK(error_of([](Given given, LaunchTimes) { given.data[0] = *(given.data - 1); }) ==
        "test: an access outside of all buffers");
  CHECK(error_of([](Given, LaunchTimes) { shared_memory<uint32_t>()[kThreads] = 1; }) != "");
  // Parts of one buffer.
  gpu::Device device(0);
  DeviceLayout size;
  for (const int64_t bytes : {100, 256}) size.take<std::byte>(bytes);
  const DeviceMemory memory(device, size.bytes(), "test");
  DeviceLayout placed(memory.data());
  static std::byte *first, *second;
  first = placed.take<std::byte>(100), second = placed.take<std::byte>(256);
  const auto error_at = [](int64_t which, int64_t at) {
    static int64_t offset;
    offset = at;
    (which == 0 ? first : second)[at] = std::byte(1);  // the host may
    return which == 0 ? error_of([](Given, LaunchTimes) { first[offset] = std::byte(2); })
                      : error_of([](Given, LaunchTimes) { second[offset] = std::byte(2); });
  };
  CHECK(error_at(0, 99) == "");
  CHECK(error_at(0, 100) == "test: an access of 1 bytes at byte 100 of a buffer of 100");
  CHECK(error_at(1, 0) == "");
  CHECK(error_at(1, 255) == "");
  CHECK(error_at(1, -1) == "test: an access of 1 bytes at byte 511 of a buffer of 100");
  CHECK(error_at(1, 256) == "test: an access of 1 bytes at byte 256 of a buffer of 256");
}

// One launch after the other, each of 32 numbers of its own: what the last of them ends with.
struct Step {
  void (*kernel)(Given, LaunchTimes);
  Beside beside = {};
  Start start = Start::kEarly;
};
std::string error_of_steps(std::initializer_list<Step> steps, bool copy = false) {
  gpu::Device device(0);
  const Buffer<uint32_t> buffer(device, std::vector<uint32_t>(kThreads + 5));
  try {
    for (const Step& step : steps) {
      if (copy && step.kernel == std::prev(steps.end())->kernel) buffer.read();
      launch(device.stream(), "test", step.kernel, {1}, kWarp, 0, Given{buffer.data()}, step.start, step.beside);
    }
  } catch (const std::logic_error& thrown) {
    return thrown.what();
  }
  return "";
}
void write_own(Given given) { given.data[thread_index()] = 1; }
void read_own(Given given) {
  volatile uint32_t* const own = given.data + thread_index();
  if (*own > 7) stop("not what was written");
}

TEST_CASE("kernels: what a kernel that starts early reads before it waits is found") {
  const auto writes = [](Given given, LaunchTimes) {
    let_next_start();
    wait_for_inputs();
    write_own(given);
  };
  const auto writes_late = [](Given given, LaunchTimes) {
    wait_for_inputs();
    let_next_start();
    write_own(given);
  };
  const auto idles = [](Given, LaunchTimes) { wait_for_inputs(); };
  const auto idles_early = [](Given, LaunchTimes) {
    let_next_start();
    wait_for_inputs();
  };
  const auto reads = [](Given given, LaunchTimes) {
    wait_for_inputs();
    read_own(given);
  };
  const auto reads_early = [](Given given, LaunchTimes) {
    read_own(given);
    wait_for_inputs();
  };
  const auto reads_anew = [](Given given, LaunchTimes) {
    read_anew();
    read_own(given);
    wait_for_inputs();
  };
  const auto writes_early = [](Given given, LaunchTimes) {
    write_own(given);
    wait_for_inputs();
  };
  const auto never_waits = [](Given, LaunchTimes) {};
  const std::string early = "test: reads before it has waited what the launch 1 before it wrote",
                    earlier = "test: reads before it has waited what the launch 2 before it wrote";
  CHECK(error_of_steps({{writes}, {reads}}) == "");
  CHECK(error_of_steps({{writes}, {reads_early}}) == early);
  CHECK(error_of_steps({{writes}, {reads_early, {}, Start::kAfter}}) == "");
  CHECK(error_of_steps({{writes}, {reads_early}}, true) == "");  // a copy between them waits
  CHECK(error_of_steps({{writes}, {idles}, {reads_early}}) == earlier);
  // What was there when the launch before began, if that one says when.
  CHECK(error_of_steps({{writes}, {idles}, {reads_anew}}) == "");
  CHECK(error_of_steps({{writes}, {idles_early}, {reads_anew}}) == earlier);
  CHECK(error_of_steps({{writes_late}, {reads_anew}}) == early);
  // Side by side.
  CHECK(error_of_steps({{writes}, {idles, {false, true}}, {reads_anew, {true, false}}}) == "");
  CHECK(error_of_steps({{writes}, {idles, {false, true}}, {reads_early, {true, false}}}) == early);
  CHECK(error_of_steps({{writes}, {idles_early, {false, true}}, {reads_anew, {true, false}}}) ==
        "test: lets the next launch start, which runs beside it, before it has its inputs");
  // What the launch before may still read.
  CHECK(error_of_steps({{reads}, {writes_early}}) ==
        "test: writes before it has waited for launches that may read what was there");
  CHECK(error_of_steps({{reads}, {writes_early, {}, Start::kAfter}}) == "");
  // Of what a library writes.
  const auto behind_library = [&](void (*kernel)(Given, LaunchTimes)) {
    gpu::Device device(0);
    const Buffer<uint32_t> buffer(device, std::vector<uint32_t>(kThreads));
    device.stream().work.perform([&] {
      simt::check_launch({.early = false});
      simt::check_result(buffer.data(), kThreads * sizeof(uint32_t));
    });
    launch(device.stream(), "test", kernel, {1}, kWarp, 0, Given{buffer.data()});
  };
  CHECK_THROWS_WITH(behind_library(reads_early), early.c_str());
  CHECK_NOTHROW(behind_library(reads));
  CHECK(error_of_steps({{writes}, {never_waits}}) == "test: no thread waited for what came before");
}
#endif

}  // namespace
}  // namespace qgen::test
