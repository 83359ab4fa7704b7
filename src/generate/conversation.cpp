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
  std::string out = fmt::format("{{\"schema\":1,\"model\":{},\"system\":{},\"messages\":[", json_quote(model),
                                conversation.system ? json_quote(*conversation.system) : "null");
  bool first = true;
  for (const Message& message : conversation.messages) {
    out += fmt::format("{}\n  {{\"role\":{}", first ? "" : ",", json_quote(message.role));
    // A message without content has it as null among its further members.
    const bool without = std::any_of(message.extra.begin(), message.extra.end(),
                                     [](const auto& member) { return member.first == "content"; });
    if (!without) out += fmt::format(",\"content\":{}", json_quote(message.content));
    for (const auto& [name, value] : message.extra) out += fmt::format(",{}:{}", json_quote(name), value);
    out += "}";
    first = false;
  }
  return out + (first ? "]}\n" : "\n]}\n");
}

}  // namespace

std::vector<Message> Conversation::all() const {
  std::vector<Message> out;
  if (system) out.push_back({"system", *system, {}});
  out.insert(out.end(), messages.begin(), messages.end());
  return out;
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
    out.messages.erase(out.messages.begin());
  }
  return out;
}

Conversation read_conversation(const fs::path& path) {
  return parse_conversation(read_file(path, kMaxFileBytes, ErrorKind::kUsage), path.string());
}

void check_conversation_file(const fs::path& path) {
  if (path == "-") fail(ErrorKind::kUsage, "--save -: standard output is for text", "a file; ./- if it is called so");
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))
    fail(ErrorKind::kRuntime, fmt::format("{}: not a regular file", path.string()));
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", path.string(), std::strerror(errno)));
}

void save_conversation(const fs::path& path, const Conversation& conversation, std::string_view model) {
  std::error_code error;
  // What a link points to is replaced, not the link; and nothing but a file is.
  fs::path target = fs::canonical(path, error);
  if (error) {
    target = path;
  } else if (!fs::is_regular_file(target, error)) {
    fail(ErrorKind::kRuntime, fmt::format("{}: not a regular file", path.string()));
  }
  write_new_file(target, json_text(conversation, model), NewFile::Readers::kOwner);
}

}  // namespace qgen
