// A conversation as people see it: the system message, questions and answers; and the file it is kept in
// (schemas/chat.schema.json).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"

namespace qgen {

struct Conversation {
  std::optional<std::string> system;
  MessageMembers system_members;  // what else the system message says (name, tools)
  std::vector<Message> messages;  // without the system message

  // As a chat template wants them: the system message first.
  std::vector<Message> all() const;
  // Another system message, or none.
  void set_system(std::optional<std::string> text);
  // Questions that were asked.
  int64_t turns() const;
  // Takes back the last question with all that followed it; false where there is none.
  bool undo();
};

// From a file that save_conversation() wrote, or a bare list of messages. A usage Error that names the file.
Conversation read_conversation(const std::filesystem::path& path);
// The same from text; `subject` names it in errors.
Conversation parse_conversation(std::string_view json, const std::string& subject);
// An Error, before any work, where save_conversation() would not write: a usage Error for "-" and for a file that holds
// something else than a conversation, else a runtime one.
void check_conversation_file(const std::filesystem::path& path);
// One JSON object. The file is there as a whole or not at all; an Error as above if it is not written.
void save_conversation(const std::filesystem::path& path, const Conversation& conversation, std::string_view model);

}  // namespace qgen
