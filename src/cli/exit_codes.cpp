#include "cli/exit_codes.h"

namespace qgen::cli {
namespace {

constexpr ExitCode kExitCodes[] = {
    {"0", "good"},
    {"1", "failed while running; of a batch: some lines failed"},
    {"2", "wrong usage"},
    {"3", "the model cannot be read or is not supported"},
    {"4", "does not fit in memory"},
    {"5", "no usable device"},
    {"6", "cut short: the context ended the answer, or all of it was thinking"},
    {"129, 130, 141, 143", "ended by SIGHUP, by Ctrl-C, by a closed pipe, by SIGTERM"},
};

}  // namespace

std::span<const ExitCode> exit_codes() { return kExitCodes; }

}  // namespace qgen::cli
