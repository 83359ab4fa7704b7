// Attention over the cache against plain double arithmetic, for every instruction set and type of cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/numbers.h"
#include "tests/cpu/test_targets.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// One head's keys and values in pages that do not lie in their order.
struct TestCache {
  TestCache(const IsaTarget& isa, KvType type, int64_t keys, int64_t dim)
      : target(isa),
        kv(type),
        head_dim(dim),
        padded((dim + 15) / 16 * 16),
        page_tokens(keys > 256 ? 256 : (keys + 31) / 32 * 32),
        held((keys + page_tokens - 1) / page_tokens * page_tokens) {
    const int64_t count = held / page_tokens;
    for (int64_t i = 0; i < count; ++i) pages.push_back(int32_t((i * 2 + 1) % (count | 1)));
    const int64_t rows = (count | 1) * page_tokens;
    key_bytes.resize(size_t(rows * dim * kv_element_bytes(type)));
    value_bytes.resize(size_t(rows * padded * kv_element_bytes(type)));
    key_scales.resize(size_t(rows));
    value_scales.resize(size_t(rows));
  }
  void store(int64_t t, const float* k, const float* v) {
    const int64_t element = kv_element_bytes(kv), at = t % page_tokens;
    const int64_t row = pages[size_t(t / page_tokens)] * page_tokens;
    const auto store_row = target.store_kv[size_t(kv)];
    if (k != nullptr) {
      const int64_t block = at / cpu::kKeyBlock * cpu::kKeyBlock;
      key_scales[size_t(row + at)] =
          store_row(k, head_dim, key_bytes.data() + ((row + block) * head_dim + at % cpu::kKeyBlock) * element,
                    cpu::kKeyBlock)
              .scale;
    }
    value_scales[size_t(row + at)] =
        store_row(v, head_dim, value_bytes.data() + (row + at) * padded * element, 1).scale;
  }
  cpu::CacheView view() const {
    const bool scaled = kv == KvType::kFp8 || kv == KvType::kInt8;
    return {.keys = key_bytes.data(),
            .values = value_bytes.data(),
            .key_scales = scaled ? key_scales.data() : nullptr,
            .value_scales = scaled ? value_scales.data() : nullptr,
            .pages = pages.data(),
            .ring = int64_t(pages.size()),
            .page_tokens = page_tokens,
            .kv_heads = 1,
            .key_dim = head_dim,
            .padded_dim = padded,
            .value_dim = head_dim};
  }
  const IsaTarget& target;
  KvType kv;
  int64_t head_dim, padded, page_tokens, held;
  std::vector<int32_t> pages;
  std::vector<uint8_t> key_bytes, value_bytes;
  std::vector<float> key_scales, value_scales;
};

TEST_CASE("what the cache makes of a row") {
  for (const IsaTarget* target : kernel_targets()) {
    INFO(std::string(target->name));
    std::mt19937 random(8);
    for (const int64_t n : {3, 16, 40, 128}) {
      auto x = normal(random, size_t(n), 2);
      std::vector<uint8_t> codes(static_cast<size_t>(n));
      // int8 and E4M3 codes are the nearest ones, on the scale that takes the largest element to the largest code.
      for (const KvType kv : {KvType::kInt8, KvType::kFp8}) {
        float largest = 0;
        for (const float value : x) largest = std::max(largest, std::abs(value));
        const cpu::StoredRow row = target->store_kv[size_t(kv)](x.data(), n, codes.data(), 1);
        const float unit = kv == KvType::kInt8 ? largest / 127 : largest / 448;
        CHECK(row.scale == doctest::Approx(kv == KvType::kInt8 ? unit : unit * 256).epsilon(1e-6));
        for (size_t i = 0; i < x.size(); ++i) {
          const float back = kv == KvType::kInt8 ? float(int8_t(codes[i])) : e4m3_to_float(codes[i]);
          const float step = kv == KvType::kInt8 ? 1 : std::max(std::abs(back) / 8, 0x1p-9f);
          CHECK(std::abs(back * unit - x[i]) <= 0.51f * step * unit);
        }
      }
      std::vector<uint16_t> bits(static_cast<size_t>(n));
      CHECK(!target->store_kv[size_t(KvType::kF16)](x.data(), n, bits.data(), 1).overflow);
      x.back() = -65519;
      CHECK(!target->store_kv[size_t(KvType::kF16)](x.data(), n, bits.data(), 1).overflow);
      x.back() = -65520;
      CHECK(target->store_kv[size_t(KvType::kF16)](x.data(), n, bits.data(), 1).overflow);
      CHECK(!target->store_kv[size_t(KvType::kBf16)](x.data(), n, bits.data(), 1).overflow);
      x.back() = NAN;
      CHECK(std::isnan(target->store_kv[size_t(KvType::kInt8)](x.data(), n, codes.data(), 1).scale));
      CHECK(std::isnan(target->store_kv[size_t(KvType::kFp8)](x.data(), n, codes.data(), 1).scale));
    }
  }
}

TEST_CASE("every E4M3 code is its own nearest one") {
  for (const IsaTarget* target : kernel_targets()) {
    std::vector<float> x;
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7F) != 0x7F) x.push_back(e4m3_to_float(uint8_t(code)));
    }
    std::vector<uint8_t> codes(x.size());
    target->store_kv[size_t(KvType::kFp8)](x.data(), int64_t(x.size()), codes.data(), 1);
    for (size_t i = 0; i < x.size(); ++i) CHECK(e4m3_to_float(codes[i]) == x[i]);
  }
}

// What a kernel adds up: floats, 16-bit integers that the cache is turned into, or products with the codes of an int8
// cache.
enum class Sums { kFloat, kInt16, kCodes };

TEST_CASE("attention over the cache") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const KvType kv : {KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kFp8, KvType::kInt8}) {
      for (const int64_t head_dim : {8, 20, 64, 128}) {
        for (const auto& [keys, form] : {std::pair<int64_t, Sums>{1, Sums::kFloat},
                                         {16, Sums::kFloat},
                                         {17, Sums::kFloat},
                                         {100, Sums::kFloat},
                                         {700, Sums::kFloat},
                                         {1500, Sums::kFloat},
                                         {1, Sums::kInt16},
                                         {17, Sums::kInt16},
                                         {100, Sums::kInt16},
                                         {300, Sums::kInt16},
                                         {1500, Sums::kInt16},
                                         {1, Sums::kCodes},
                                         {16, Sums::kCodes},
                                         {17, Sums::kCodes},
                                         {300, Sums::kCodes},
                                         {1500, Sums::kCodes}}) {
          if (form == Sums::kCodes && kv != KvType::kInt8) continue;
          const bool in_int16 = form != Sums::kFloat;
          INFO(std::string(target->name), " ", kv_name(kv), " head ", head_dim, " keys ", keys, " sums ", int(form));
          std::mt19937 random(uint32_t(head_dim * 10000 + keys));
          TestCache cache(*target, kv, keys, head_dim);
          const auto k = normal(random, size_t(keys * head_dim)), v = normal(random, size_t(keys * head_dim));
          for (int64_t t = 0; t < keys; ++t) cache.store(t, k.data() + t * head_dim, v.data() + t * head_dim);
          // What an earlier run has left behind the last key, and no row may see.
          std::vector<float> left(size_t(head_dim), 1e-23f);
          left[1] = NAN;
          for (int64_t t = keys; t < cache.held; ++t) cache.store(t, left.data(), left.data());
          const int rows = int(1 + keys % cpu::kMaxAttendRows);
          auto q = normal(random, size_t(rows * head_dim), 0.3f);
          if (keys == 300) std::fill(q.begin(), q.end(), 0.0f);         // equal weights
          if (keys == 17) std::copy_n(k.begin(), head_dim, q.begin());  // as long a product as there can be
          Scratch scratch(cpu::attend_scratch_bytes(head_dim, cache.padded));
          cpu::AttendArguments a{};
          a.rows = rows;
          a.cache = cache.view();
          a.scratch = scratch.get();
          for (int r = 0; r < rows; ++r) {
            a.q[r] = q.data() + r * head_dim;
            a.first[r] = keys * r / (2 * rows);
            a.last[r] = std::max(a.first[r] + 1, keys - r * 3);
          }
          const auto attend = form == Sums::kFloat   ? target->attend[size_t(kv)]
                              : form == Sums::kInt16 ? target->attend_int16[size_t(kv)]
                                                     : target->attend_int8;
          if (attend == nullptr) continue;
          if (form == Sums::kCodes) {  // the same codes in floats; and one row alone, to the last bit
            const auto results = [&] {
              std::vector<float> out;
              for (int r = 0; r < a.rows; ++r)
                for (int64_t d = 0; d < head_dim; ++d) out.push_back(a.out[r][d] / a.sum[r]);
              return out;
            };
            target->attend[size_t(kv)](a);
            const std::vector<float> in_floats = results();
            attend(a);
            const std::vector<float> all = results();
            CHECK(normwise_error(all, in_floats) < 1.5e-4);  // of the codes themselves it is 1e-2
            a.rows = 1;
            attend(a);
            CHECK(results() == std::vector<float>(all.begin(), all.begin() + head_dim));
            a.rows = rows;
          }
          attend(a);
          std::vector<float> got, expected;
          // What the rows should be now, in double precision, and what the kernel has made of them.
          const auto compare = [&] {
            got.clear();
            expected.clear();
            for (int r = 0; r < rows; ++r) {
              std::vector<double> p;
              double sum = 0;
              for (int64_t t = a.first[r]; t < a.last[r]; ++t) {
                double dot = 0;
                for (int64_t d = 0; d < head_dim; ++d) dot += double(a.q[r][d]) * k[size_t(t * head_dim + d)];
                if (a.softcap > 0) dot = a.softcap * std::tanh(dot / a.softcap);
                sum += p.emplace_back(std::exp(dot));
              }
              for (int64_t d = 0; d < head_dim; ++d) {
                double mixed = 0;
                for (int64_t t = a.first[r]; t < a.last[r]; ++t)
                  mixed += p[size_t(t - a.first[r])] / sum * v[size_t(t * head_dim + d)];
                expected.push_back(float(mixed));
                got.push_back(a.out[r][d] / a.sum[r]);
              }
            }
            return normwise_error(got, expected);
          };
          const double limit = kv == KvType::kF32   ? 2e-6
                               : kv == KvType::kF16 ? 1e-3
                               : kv == KvType::kFp8 ? 8e-2
                                                    : 1.2e-2;
          CHECK(compare() < (in_int16 ? std::max(limit, 5e-4) : limit));
          // NaN values of the first and the last key: only queries that attend to them give NaN.
          left[0] = left[1] = NAN;
          for (const int64_t t : {int64_t{0}, keys - 1}) cache.store(t, nullptr, left.data());
          attend(a);
          for (int r = 0; r < rows; ++r) {
            const bool sees = a.first[r] == 0 || a.last[r] == keys;
            for (int64_t d = 0; d < 2; ++d) {
              const float mixed = a.out[r][d] / a.sum[r];
              CHECK((sees ? std::isnan(mixed) : mixed == got[size_t(r * head_dim + d)]));
            }
          }
          q[0] = NAN;
          attend(a);
          CHECK(std::isnan(a.out[0][0] / a.sum[0]));
          // Capped scores.
          q[0] = 0;
          for (int64_t t : {int64_t{0}, keys - 1}) cache.store(t, nullptr, v.data() + t * head_dim);
          a.softcap = 2;
          attend(a);
          CHECK(compare() < (in_int16 ? std::max(limit, 5e-4) : limit));
        }
      }
    }
  }
}

}  // namespace
}  // namespace qgen::test
