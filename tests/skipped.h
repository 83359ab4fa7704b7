// What is not tested because something is not there. The program lists it by name when it ends, and in the file that
// QGEN_SKIPPED names, which `make test` shows after its last test (tests/main.cpp, tests/build/skipped.sh).
#pragma once

#include <string_view>

namespace qgen::test {

// The test case that runs leaves `what` out, for `reason`.
void skipped(std::string_view what, std::string_view reason);

inline void skipped_without_shared(std::string_view what) { skipped(what, "not in QGEN_SHARED"); }

}  // namespace qgen::test
