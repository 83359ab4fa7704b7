// The commands of a chat, as a table: what a line that begins with a slash does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.h"
#include "generate/chat_session.h"

namespace qgen::cli {

// What the commands act on.
struct Chat {
  const TextModel& model;
  ChatSession session;
  SamplingFlags sampling;
  ReportOptions report_options;
  std::optional<Report> last_report;
  bool interactive = false;  // somebody reads what was done
  bool ended = false;
};

struct ChatCommand {
  std::string_view name;      // "save"
  std::string_view argument;  // "FILE"; "[TEXT]" where it may be left out; empty for none
  std::string_view summary;
  void (*run)(Chat& chat, const std::string& argument);
};
std::span<const ChatCommand> chat_commands();

// Runs "/name argument". A usage Error where there is no such command, or it takes something else.
void run_chat_command(Chat& chat, std::string_view line);

}  // namespace qgen::cli
