#include "model/families/mamba.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/families/common.h"

namespace qgen {

namespace {

// Bounds of the step sizes other than 0 and infinity, which may be an object with that name.
void refuse_step_limits(const Json& config) {
  const auto limits = config.get("time_step_limit");
  if (!limits) return;
  const std::vector<Json> bounds = limits->elements();
  const bool unbounded = bounds.size() == 2 && bounds[0].is_number() && bounds[0].as_number() <= 0 &&
                         (!bounds[1].is_number() || bounds[1].as_number() == INFINITY);
  if (!unbounded) limits->fail("bounds of step sizes are not supported (expected 0 and Infinity)");
}

}  // namespace

MambaSpec read_mamba(const Json& config, const MambaKeys& keys, int64_t head_dim) {
  const auto size = [&](std::string_view key, int64_t most, int64_t fallback) {
    const auto value = config.get(key);
    return value && !value->is_string() ? value->as_integer(1, most) : fallback;
  };
  MambaSpec out;
  out.heads = size(keys.heads, kMaxWidth, keys.default_heads);
  out.head_dim = size(keys.head_dim, kMaxWidth, head_dim);
  out.groups = size(keys.groups, out.heads, keys.default_groups);
  if (out.heads % out.groups != 0)
    config.fail(fmt::format("{}: {} does not divide the {} heads", keys.groups, out.groups, out.heads));
  out.state_dim = size(keys.state_dim, kMaxWidth, keys.default_state_dim);
  const int64_t inner = out.heads * out.head_dim;
  if (inner > kMaxWidth)
    config.fail(fmt::format("{}: {} heads of {} are absurdly wide", keys.heads, out.heads, out.head_dim));
  if (out.groups * out.state_dim > kMaxWidth || inner * out.state_dim > int64_t{kMaxWidth} * 64)
    config.fail(fmt::format("{}: states of this size are absurdly large", keys.state_dim));
  out.taps = size(keys.taps, 64, 4);
  out.conv_bias = config.flag_or(keys.conv_bias, true);
  out.bias = out.out_bias = config.flag_or(keys.bias, false);
  out.norm_groups = out.groups;
  out.folded_decay = is_from_gguf(config);
  return out;
}

MambaSpec read_inner_mamba(const Json& config, int64_t inner, std::string_view inner_name) {
  constexpr MambaKeys kKeys = {.heads = "mamba_n_heads",
                               .head_dim = "mamba_d_head",
                               .groups = "mamba_n_groups",
                               .state_dim = "mamba_d_state",
                               .taps = "mamba_d_conv",
                               .conv_bias = "mamba_conv_bias",
                               .bias = "mamba_proj_bias"};
  refuse_step_limits(config);
  const int64_t heads = read_size(config, kKeys.heads, 1, kMaxWidth, kKeys.default_heads);
  MambaSpec out = read_mamba(config, kKeys, std::max<int64_t>(1, inner / heads));
  if (out.heads * out.head_dim != inner) {
    config.fail(
        fmt::format("mamba_n_heads: {} heads of {} are not {}, {}", out.heads, out.head_dim, inner_name, inner));
  }
  return out;
}

}  // namespace qgen
