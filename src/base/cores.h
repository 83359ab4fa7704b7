// The processors this process may use.
#pragma once

namespace qgen {

// Cores by affinity mask and control-group quota, at least 1.
int available_cores();

}  // namespace qgen
