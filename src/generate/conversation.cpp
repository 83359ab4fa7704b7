#include "generate/conversation.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/new_file.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{256} << 20;

std::string json_text(const Conversation& conversation, std::string_view model) {
  // A system message of a text alone has a key of its own.
  const bool apart = conversation.system && conversation.system_members.empty();
  std::string out = fmt::format("{{\"schema\":1,\"model\":{},\"system\":{},\"messages\":[", json_quote(model),
                                apart ? json_quote(*conversation.system) : "null");
  bool first = true;
  for (const Message& message : apart ? conversation.messages : conversation.all()) {
    out += fmt::format("{}\n  {{\"role\":{},\"content\":{}", first ? "" : ",", json_quote(message.role),
                       message.has_content ? json_quote(message.content) : "null");
    for (const auto& [name, value] : message.extra) out += fmt::format(",{}:{}", json_quote(name), value);
    out += "}";
    first = false;
  }
  return out + (first ? "]}\n" : "\n]}\n");
}

}  // namespace

std::vector<Message> Conversation::all() const {
  std::vector<Message> out;
  if (system) out.push_back({"system", *system, system_members});
  out.insert(out.end(), messages.begin(), messages.end());
  return out;
}

void Conversation::set_system(std::optional<std::string> text) {
  system = std::move(text);
  system_members.clear();
}

int64_t Conversation::turns() const {
  return std::count_if(messages.begin(), messages.end(), [](const Message& m) { return m.role == "user"; });
}

bool Conversation::undo() {
  const auto last =
      std::find_if(messages.rbegin(), messages.rend(), [](const Message& message) { return message.role == "user"; });
  if (last == messages.rend()) return false;
  messages.erase(last.base() - 1, messages.end());
  return true;
}

Conversation parse_conversation(std::string_view json, const std::string& subject) {
  if (json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);  // a byte order mark
  const auto document = JsonDocument::parse(json, subject, ErrorKind::kUsage);
  const Json root = document->root();
  Conversation out;
  if (root.is_array()) {
    out.messages = read_messages(root);
  } else {
    if (!root.is_object()) root.fail("expected a conversation: an object with \"messages\", or a list of messages");
    if (const auto schema = root.get("schema"); schema && (!schema->is_integer() || schema->as_integer() != 1))
      schema->fail("expected 1", "another version of qgen wrote this file");
    out.messages = read_messages(root.at("messages"));
    if (const auto system = root.get("system")) out.system = std::string(system->as_string());
  }
  if (!out.system && !out.messages.empty() && out.messages.front().role == "system") {
    out.system = out.messages.front().content;
    out.system_members = std::move(out.messages.front().extra);
    out.messages.erase(out.messages.begin());
  }
  return out;
}

Conversation read_conversation(const fs::path& path) {
  return parse_conversation(read_file(path, kMaxFileBytes, ErrorKind::kUsage), path.string());
}

namespace {

// Files that are there are replaced where they hold a conversation, or nothing.
void refuse_other_file(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    fail(ErrorKind::kRuntime, fmt::format("{}: not a regular file", path.string()));
  if (holds_other(path, read_conversation)) {
    fail(ErrorKind::kUsage, fmt::format("{}: it holds something else than a conversation", path.string()),
         "a new file, or one with a conversation");
  }
}

}  // namespace

void check_conversation_file(const fs::path& path) {
  if (path == "-") fail(ErrorKind::kUsage, "--save -: standard output is for text", "a file; ./- if it is called so");
  refuse_other_file(path);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", path.string(), std::strerror(errno)));
}

void save_conversation(const fs::path& path, const Conversation& conversation, std::string_view model) {
  refuse_other_file(path);
  // What a link points to is replaced, not the link.
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (error) target = path;
  write_new_file(target, json_text(conversation, model), NewFile::Readers::kOwner);
}

}  // namespace qgen
