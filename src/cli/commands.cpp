// The table of commands; the main job is first.
#include <span>

#include "cli/options.h"

namespace qgen::cli {
namespace {

const Command kCommands[] = {kAnswerCommand, kChatCommand,       kPlanCommand,      kInspectCommand, kBenchCommand,
                             kScoreCommand,  kQuantizeCommand,   kCalibrateCommand, kVerifyCommand,  kTokensCommand,
                             kModelsCommand, kCompletionCommand, kManualCommand};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace qgen::cli
