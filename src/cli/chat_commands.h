// The commands of a chat, as a table: what a line that begins with a slash does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/input_text.h"
#include "cli/report.h"
#include "generate/chat_session.h"

namespace qgen::cli {

// A question for the model.
struct Ask {
  std::string question;
  bool again = false;  // the last question, once more
};

// The state that chat commands act on.
struct Chat {
  const TextModel& model;
  ChatSession session;
  SamplingFlags sampling;
  ReportOptions report_options;
  InputOptions text;
  bool interactive = false;  // at a terminal: commands confirm what they did
  std::optional<Report> last_report = {};
  std::optional<Ask> next = {};  // the question that a command asks
  bool cut_short = false;        // some answer was
  bool ended = false;
};

struct ChatCommand {
  std::string_view name;      // "save"
  std::string_view argument;  // "FILE"; "[TEXT]" where it may be left out; empty for none
  std::string_view summary;   // empty for another name of a command
  void (*run)(Chat& chat, const std::string& argument);
};
std::span<const ChatCommand> chat_commands();

// Runs "/name argument". A usage Error where there is no such command, or it takes something else.
void run_chat_command(Chat& chat, std::string_view line);

}  // namespace qgen::cli
