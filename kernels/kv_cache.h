// The memory of all states' keys and values on the device, in pages.
#pragma once

#include <vector>

#include "engine/cache_pages.h"
#include "kernels/device_layout.h"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

class KvCache {
 public:
  KvCache(const Plan& plan, const CacheLayout& layout, KvType type);
  void lay_out(DeviceLayout& memory);

  // Without the page tables, which are a call's, and the place for overflows.
  const Cache& of(StateId state) const { return caches_[size_t(state)]; }
  void copy_page(Stream& stream, int32_t group, int32_t from, int32_t to) const;

 private:
  int64_t page_rows(StateId state) const;

  const Plan& plan_;
  const CacheLayout& layout_;
  CacheKind kind_;
  std::vector<Cache> caches_;  // of each state
};

}  // namespace qgen::QGEN_BACKEND
