// The launches of kernels/launch.cuh for the executor.
#pragma once

#include <cstddef>

#include "kernels/simt/executor.h"

namespace qgen::simt {

class Stream {};
enum class Start { kEarly, kAfter };

template <typename Args>
void launch(Stream&, const char* name, void (*kernel)(const Args), Dim grid, int threads, size_t shared_bytes,
            const Args& args, Start = Start::kEarly) {
  perform([=] { run(name, grid, threads, shared_bytes, [&] { kernel(args); }); });
}

}  // namespace qgen::simt
