// What fuzz targets of a model's files share: whatever is in a file, the worst that comes of it is a model Error.
#pragma once

#include <cstdlib>

#include "base/error.h"

namespace qgen::fuzz {

template <typename Action>
void expect_model_error(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kModel || error.message().empty()) std::abort();
  }
}

}  // namespace qgen::fuzz
