// Mamba-2 in a config.json, which hybrids of several families have.
#pragma once

#include <string_view>

#include "base/json.h"
#include "model/description.h"

namespace qgen {

// What a family calls the keys, and what their absence means.
struct MambaKeys {
  std::string_view heads, head_dim, groups, state_dim, taps, conv_bias, bias;
  int64_t default_heads = 128, default_groups = 1, default_state_dim = 256;
};
// `head_dim` stands for an absent size of heads. A model Error that names the key. The norm is left to the family.
MambaSpec read_mamba(const Json& config, const MambaKeys& keys, int64_t head_dim);

// The same under the keys of Granite's hybrids and Falcon-H1, whose heads make `inner` columns together; `inner_name`
// says which those are.
MambaSpec read_inner_mamba(const Json& config, int64_t inner, std::string_view inner_name);

}  // namespace qgen
