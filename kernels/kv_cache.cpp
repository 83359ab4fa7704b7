#include "kernels/kv_cache.h"

#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {
namespace {

CacheKind cache_kind(KvType type) {
  switch (type) {
    case KvType::kF16: return CacheKind::kF16;
    case KvType::kBf16: return CacheKind::kBf16;
    case KvType::kF32: return CacheKind::kF32;
    case KvType::kFp8: return CacheKind::kE4M3;
    case KvType::kInt8: return CacheKind::kI8;
  }
  return CacheKind::kF16;
}

}  // namespace

KvCache::KvCache(const Plan& plan, const CacheLayout& layout, KvType type)
    : plan_(plan), layout_(layout), kind_(cache_kind(type)) {}

int64_t KvCache::page_rows(StateId state) const { return layout_.page_tokens() * plan_.states[size_t(state)].kv_heads; }

void KvCache::lay_out(DeviceLayout& memory) {
  caches_.clear();
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    const State& state = plan_.states[i];
    if (layout_.group_of(StateId(i)) < 0) {
      caches_.emplace_back();
      continue;
    }
    const CacheGroup& group = layout_.groups()[size_t(layout_.group_of(StateId(i)))];
    const int64_t rows = group.pages * page_rows(StateId(i));
    Cache cache;
    cache.kind = kind_;
    cache.page_tokens = int(layout_.page_tokens());
    cache.ring = int(group.ring);
    cache.page_shift = page_shift_of(layout_.page_tokens(), group.ring);
    cache.key_bytes = cache_row_bytes(kind_, state.key_dim);
    cache.value_bytes = cache_row_bytes(kind_, state.value_dim);
    cache.keys = memory.take<uint8_t>(rows * cache.key_bytes);
    if (!state.values_in_keys) cache.values = memory.take<uint8_t>(rows * cache.value_bytes);
    cache.key_factor = memory.take<float>(has_factors(kind_) ? rows : 0);
    cache.value_factor = memory.take<float>(has_factors(kind_) && !state.values_in_keys ? rows : 0);
    if (state.values_in_keys) {
      cache.values = cache.keys;
      cache.value_bytes = cache.key_bytes;
      cache.value_factor = cache.key_factor;
    }
    caches_.push_back(cache);
  }
}

void KvCache::copy_page(Stream& stream, int32_t group, int32_t from, int32_t to) const {
  for (const StateId state : layout_.groups()[size_t(group)].states) {
    const Cache& cache = of(state);
    const int64_t rows = page_rows(state);
    const auto copy = [&](auto* data, int64_t elements) {
      copy_on_device(stream, data + to * elements, data + from * elements, size_t(elements) * sizeof(*data));
    };
    copy(cache.keys, rows * cache.key_bytes);
    const bool values = cache.values != cache.keys;
    if (values) copy(cache.values, rows * cache.value_bytes);
    if (!has_factors(kind_)) continue;
    copy(cache.key_factor, rows);
    if (values) copy(cache.value_factor, rows);
  }
}

}  // namespace qgen::QGEN_BACKEND
