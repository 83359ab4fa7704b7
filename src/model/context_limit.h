// How many tokens a model can see at all, beside how many it was made for.
#pragma once

#include <cstdint>
#include <string_view>

namespace qgen {

struct ContextLimit {
  int64_t tokens = 0;       // 0: none
  std::string_view reason;  // "the context is longer than ..."
};

}  // namespace qgen
