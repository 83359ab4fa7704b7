// What fuzz targets share: whatever is in a file, the worst that comes of it is an Error of the right kind, in memory
// that is in proportion to the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#if defined(__has_feature) && __has_include(<sanitizer/allocator_interface.h>)
#if __has_feature(address_sanitizer)
#define QGEN_COUNTS_MEMORY
#include <sanitizer/allocator_interface.h>
#endif
#endif

#include "base/error.h"
#include "base/model_files.h"

namespace qgen::fuzz {

// `action` may throw an Error of one of these kinds, with a message. Running out of memory is not among them: where it
// is an Error, it is a finding all the same.
template <typename Action>
void expect_error(std::initializer_list<ErrorKind> kinds, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    bool allowed = !error.message().empty();
    bool known = false;
    for (const ErrorKind kind : kinds) known = known || error.kind() == kind;
    if (!allowed || !known) {
      std::fprintf(stderr, "unexpected error of kind %d: %s\n", int(error.kind()), error.message().c_str());
      std::abort();
    }
  }
}
template <typename Action>
void expect_model_error(Action&& action) {
  expect_error({ErrorKind::kModel}, action);
}

#ifdef QGEN_COUNTS_MEMORY
// Bytes that the program holds through its allocator, counted by hooks of the sanitizers' runtime.
struct Held {
  size_t now = 0, most = 0;
};
inline Held held;

inline void count_allocation(const volatile void*, size_t bytes) {
  held.now += bytes;
  if (held.now > held.most) held.most = held.now;
}
inline void count_release(const volatile void* block) {
  if (block == nullptr) return;
  const size_t bytes = __sanitizer_get_allocated_size(block);
  held.now -= bytes < held.now ? bytes : held.now;
}

// Aborts where the program holds more than `fixed` bytes and `factor` for each byte of the input beyond what it held
// before; to be asked at the end of a run.
class MemoryLimit {
 public:
  MemoryLimit(size_t input_bytes, size_t factor, size_t fixed) : limit_(fixed + factor * input_bytes) {
    static const bool installed = __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release) != 0;
    if (!installed) std::abort();
    before_ = held.now;
    held.most = held.now;
  }
  ~MemoryLimit() {
    const size_t grown = held.most - before_;
    if (grown <= limit_) return;
    std::fprintf(stderr, "%zu bytes of memory (expected at most %zu)\n", grown, limit_);
    std::abort();
  }
  MemoryLimit(const MemoryLimit&) = delete;

 private:
  size_t limit_, before_;
};
#else
struct MemoryLimit {  // without AddressSanitizer nothing is counted
  MemoryLimit(size_t, size_t, size_t) {}
};
#endif

// Inputs of several texts have these bytes, which are no UTF-8, between them.
inline constexpr std::string_view kSeparator = "\xFF\xFE\xFF";
inline std::vector<std::string_view> parts_of(std::string_view input, size_t most) {
  std::vector<std::string_view> out;
  while (out.size() + 1 < most) {
    const size_t at = input.find(kSeparator);
    if (at == input.npos) break;
    out.push_back(input.substr(0, at));
    input.remove_prefix(at + kSeparator.size());
  }
  out.push_back(input);
  return out;
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A model's small files from the parts of an input, in the order of `names`; an empty part is a file that is missing.
inline ModelFiles files_of(const std::vector<std::string_view>& parts, std::initializer_list<std::string_view> names) {
  ModelFiles::Texts texts;
  size_t i = 0;
  for (const std::string_view name : names) {
    if (i < parts.size() && !parts[i].empty()) {
      const std::string text(parts[i]);
      texts[std::string(name)] = [text] { return text; };
    }
    ++i;
  }
  return ModelFiles("model", std::move(texts));
}

}  // namespace qgen::fuzz
