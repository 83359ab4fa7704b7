// The two functions newer than glibc 2.34 that the static C++ library takes from glibc, in terms of older ones, so that
// portable programs start on glibc 2.34: arc4random (2.36) for std::random_device, _dl_find_object (2.35) for
// exceptions. Both are hidden: libraries that are loaded later keep their own. Exported is only the way from the
// bundled libsimdjson to the unwinder of the program (tools/portable/simdjson.sh).
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof(value), 0) != ssize_t(sizeof(value))) {
    if (errno != EINTR) std::abort();
  }
  return value;
}

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* result;
};

int look_at_object(dl_phdr_info* info, size_t, void* data) {
  const auto* search = static_cast<const Search*>(data);
  bool inside = false;
  uintptr_t first = UINTPTR_MAX, end = 0;
  void* frames = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(begin);
    if (segment.p_type != PT_LOAD) continue;
    inside = inside || (search->address >= begin && search->address - begin < segment.p_memsz);
    first = begin < first ? begin : first;
    end = begin + segment.p_memsz > end ? begin + segment.p_memsz : end;
  }
  if (!inside) return 0;
  if (frames == nullptr) return -1;
  *search->result = {};
  search->result->dlfo_map_start = reinterpret_cast<void*>(first);
  search->result->dlfo_map_end = reinterpret_cast<void*>(end);
  search->result->dlfo_eh_frame = frames;
  return 1;
}

}  // namespace

// The object that the address lies in, with its PT_GNU_EH_FRAME segment; -1 where there is none. The unwinder of GCC 12
// reads nothing else of the result. Source: glibc manual, "Dynamic Linker Introspection".
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search = {reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(look_at_object, &search) == 1 ? 0 : -1;
}

asm(".text\n"
    ".globl qgen_unwind_resume\n"
    ".type qgen_unwind_resume, @function\n"
    "qgen_unwind_resume: jmp _Unwind_Resume\n");
