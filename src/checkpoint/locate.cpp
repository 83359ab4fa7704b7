// Where a model is found: a local path, or org/name[@revision] in the Hugging Face hub's cache, by the
// rules of huggingface_hub (file_download.py, try_to_load_from_cache). Never the network.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_files.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRepoIdLength = 96;  // huggingface_hub: _validators.py

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Leading ~ and $NAME or ${NAME} anywhere, as the hub expands its cache variables.
std::string expand(const std::string& text) {
  std::string out;
  size_t i = 0;
  if (text == "~" || text.starts_with("~/")) {
    out = environment("HOME");
    i = 1;
  }
  while (i < text.size()) {
    if (text[i] != '$') {
      out += text[i++];
      continue;
    }
    const bool braced = i + 1 < text.size() && text[i + 1] == '{';
    const size_t start = i + (braced ? 2 : 1);
    size_t end = start;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    const bool closed = !braced || (end < text.size() && text[end] == '}');
    const char* value = end > start && closed ? std::getenv(text.substr(start, end - start).c_str()) : nullptr;
    const size_t next = end + (braced && closed ? 1 : 0);
    out += value != nullptr ? std::string(value) : text.substr(i, std::max(next, i + 1) - i);
    i = std::max(next, i + 1);
  }
  return out;
}

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

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return std::isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

ModelLocation gguf_location(std::string name, const fs::path& file) {
  const std::vector<fs::path> parts = gguf_parts(file);
  const fs::path folder = parts.front().parent_path();
  return {std::move(name), folder.empty() ? fs::path(".") : folder, {}, parts};
}

bool is_q8_0(const fs::path& file) {
  std::string name = file.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("q8_0") != std::string::npos;
}

// The GGUF model of a folder that is not a Hugging Face model: the only one, or the only one in Q8_0. Published
// collections keep large ones in folders of their own.
std::optional<ModelLocation> locate_gguf(const std::string& name, const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "config.json", ignored)) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".safetensors") return {};
    }
  }
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& place) {
    for (const auto& parts : find_gguf_models(place)) found.push_back(parts.front());
  };
  add(folder);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) add(entry.path());
  }
  if (found.empty()) return {};
  std::sort(found.begin(), found.end());
  const auto wanted = found.size() == 1 ? found.begin() : std::find_if(found.begin(), found.end(), is_q8_0);
  if (found.size() == 1 || std::count_if(found.begin(), found.end(), is_q8_0) == 1) return gguf_location(name, *wanted);
  std::string list;
  for (const fs::path& path : found) list += "\n  " + path.lexically_relative(folder).string();
  fail(ErrorKind::kModel, fmt::format("{}: several GGUF models (expected one, or one in Q8_0):{}", name, list),
       fmt::format("name one of them: {}", found.front().string()));
}

ModelLocation locate_in_cache(const std::string& model) {
  const size_t at = model.find('@');
  const std::string id = model.substr(0, at);
  const std::string revision = at == std::string::npos ? "main" : model.substr(at + 1);
  if (!is_repo_id(id) || revision.empty() || revision.find("..") != std::string::npos || revision.front() == '/') {
    fail(ErrorKind::kModel, fmt::format("{}: no such file or folder", model));
  }
  std::string folder_name = "models--" + id;
  if (const size_t slash = folder_name.find('/'); slash != std::string::npos) folder_name.replace(slash, 1, "--");
  const fs::path repo = cache_root() / folder_name;
  const std::string download =
      fmt::format("hf download {}{}", id, at == std::string::npos ? "" : " --revision " + revision);
  if (!fs::is_directory(repo)) {
    fail(
        ErrorKind::kModel,
        fmt::format("{}: no such file or folder, and not in the Hugging Face cache ({})", model, cache_root().string()),
        id.ends_with(".gguf") || id.ends_with(".safetensors") ? "" : download);
  }
  std::string commit = revision;
  if (!is_commit(revision)) {
    const fs::path reference = repo / "refs" / revision;
    if (fs::is_regular_file(reference)) {
      commit = read_file(reference, 4096);
      commit.erase(std::remove_if(commit.begin(), commit.end(), [](unsigned char c) { return std::isspace(c); }),
                   commit.end());
      if (!is_commit(commit)) {
        fail(ErrorKind::kModel, fmt::format("{}: not a commit (expected 40 hexadecimal digits)", reference.string()),
             download);
      }
    } else {
      // Without refs/main a lone snapshot can only be the one that was meant.
      std::vector<std::string> snapshots;
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(repo / "snapshots", ignored)) {
        snapshots.push_back(entry.path().filename().string());
      }
      if (revision != "main" || snapshots.size() != 1) {
        fail(ErrorKind::kModel, fmt::format("{}: revision {} is not in the Hugging Face cache", id, revision),
             download);
      }
      commit = snapshots.front();
    }
  }
  const fs::path snapshot = repo / "snapshots" / commit;
  if (!fs::is_directory(snapshot)) {
    fail(ErrorKind::kModel, fmt::format("{}: revision {} has no snapshot in the Hugging Face cache", id, revision),
         download);
  }
  if (auto gguf = locate_gguf(model, snapshot)) return std::move(*gguf);
  if (!fs::exists(snapshot / "config.json")) {
    fail(ErrorKind::kModel, fmt::format("{}: its snapshot in the Hugging Face cache has no config.json", id), download);
  }
  return {model, snapshot, {}};
}

}  // namespace

fs::path cache_root() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string value = environment(name); !value.empty()) return expand(value);
  }
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(expand(home)) / "hub";
  const std::string xdg = environment("XDG_CACHE_HOME");
  const fs::path cache = xdg.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(expand(xdg));
  return cache / "huggingface" / "hub";
}

std::vector<ModelLocation> cached_models() {
  std::vector<ModelLocation> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cache_root(), ignored)) {
    std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "models--";
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    for (size_t at; (at = name.find("--")) != std::string::npos;) name.replace(at, 2, "/");
    try {
      found.push_back(locate_in_cache(name));
    } catch (const fs::filesystem_error&) {  // nothing that can be looked at
    } catch (const Error&) {                 // no snapshot of its main branch, or an unfinished one
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

ModelLocation locate_model(const std::string& model) {
  if (model.empty()) fail(ErrorKind::kUsage, "--model: empty");
  const fs::path path(model);
  std::error_code ignored, problem;
  if (const auto type = fs::status(path, problem).type(); type == fs::file_type::none && problem)
    fail(ErrorKind::kModel, fmt::format("{}: cannot open: {}", model, problem.message()));
  if (fs::is_symlink(path, ignored) && !fs::exists(path, ignored))
    fail(ErrorKind::kModel, fmt::format("{}: cannot open: a link to a file that is missing", model));
  if (fs::is_directory(path, ignored)) {
    fs::path canonical = fs::weakly_canonical(path, ignored);
    if (canonical.filename().empty()) canonical = canonical.parent_path();
    if (auto gguf = locate_gguf(canonical.filename().string(), path)) return std::move(*gguf);
    return {canonical.filename().string(), path, {}};
  }
  if (fs::exists(path, ignored)) {
    if (path.extension() == ".gguf") return gguf_location(path.filename().string(), path);
    if (path.extension() != ".safetensors") {
      fail(ErrorKind::kModel,
           fmt::format("{}: not a model (expected a folder, a .safetensors or a .gguf file)", model));
    }
    const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
    return {path.filename().string(), folder, path};
  }
  return locate_in_cache(model);
}

}  // namespace qgen
