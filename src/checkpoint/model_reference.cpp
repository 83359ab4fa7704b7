#include "checkpoint/model_reference.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/format.h>

namespace qgen {
namespace {

constexpr size_t kMaxRepoIdLength = 96;  // huggingface_hub: _validators.py

// huggingface_hub: _validators.py, validate_repo_id.
bool is_repo_id(std::string_view id) {
  if (id.empty() || id.size() > kMaxRepoIdLength) return false;
  if (std::count(id.begin(), id.end(), '/') > 1 || id.ends_with(".git")) return false;
  if (id.find("--") != id.npos || id.find("..") != id.npos) return false;
  const auto edge = [](char c) { return c == '-' || c == '.' || c == '/'; };
  if (edge(id.front()) || edge(id.back())) return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

// Below the snapshot's folder and nowhere else.
bool is_safe_path(std::string_view path) {
  return path.find("..") == path.npos && !path.starts_with('/') && path.find('\\') == path.npos;
}

// Takes the text up to `end` (or all of it) off its beginning, with that character.
std::string_view take_until(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view out = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return out;
}

// The path of an address on the hub; empty for other hosts.
std::optional<std::string_view> path_of_address(std::string_view text) {
  bool address = false;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!text.starts_with(scheme)) continue;
    text.remove_prefix(scheme.size());
    address = true;
  }
  for (const std::string_view host : {"huggingface.co/", "www.huggingface.co/", "hf.co/"}) {
    if (text.starts_with(host)) return text.substr(host.size());
  }
  return address ? std::optional<std::string_view>() : text;
}

bool is_gguf(std::string_view name) { return name.ends_with(".gguf"); }

}  // namespace

std::string ModelReference::download() const {
  std::string out = "hf download " + id;
  if (!file.empty()) out += fmt::format(" {}", file);
  if (!revision.empty()) out += fmt::format(" --revision {}", revision);
  // Repositories of GGUF files have many sizes of one model.
  std::string lower = id;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!variant.empty()) {
    out += fmt::format(" --include \"*{}*\"", variant);
  } else if (file.empty() && lower.find("gguf") != lower.npos) {
    out += " --include \"*Q8_0*\"";
  }
  return out;
}

std::optional<ModelReference> parse_model_reference(std::string_view text) {
  const auto path = path_of_address(text);
  if (!path) return {};
  std::string_view rest = path->substr(0, path->find_first_of("?#"));
  while (rest.ends_with('/') && rest != text) rest.remove_suffix(1);
  ModelReference out;
  // A revision may have slashes of its own.
  if (const std::string_view id = rest.substr(0, rest.find('@')); std::count(id.begin(), id.end(), '/') < 2) {
    // ID[@REVISION][:VARIANT]
    const size_t colon = rest.find(':');
    if (colon != rest.npos) out.variant = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    out.id = take_until(rest, '@');
    out.revision = rest;
    if (colon != rest.npos && out.variant.empty()) return {};
    if (text.find('@') != text.npos && out.revision.empty()) return {};
  } else {
    const std::string_view org = take_until(rest, '/'), name = take_until(rest, '/');
    out.id = fmt::format("{}/{}", org, name);
    const std::string_view kind = rest.substr(0, rest.find('/'));
    if (kind == "tree" || kind == "blob" || kind == "resolve" || kind == "raw") {
      take_until(rest, '/');
      out.revision = take_until(rest, '/');
      if (out.revision == "main") out.revision.clear();
    } else if (!is_gguf(rest)) {
      return {};
    }
    if (is_gguf(rest)) out.file = rest;
  }
  if (!is_repo_id(out.id) || !is_safe_path(out.revision) || !is_safe_path(out.file) || !is_safe_path(out.variant) ||
      out.variant.find('/') != out.variant.npos)
    return {};
  return out;
}

}  // namespace qgen
