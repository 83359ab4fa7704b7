// Where a model is found: a local path, or org/name[@revision][:VARIANT] in the Hugging Face hub's cache, by the
// rules of huggingface_hub (file_download.py, try_to_load_from_cache). Never the network. For a name that is not found,
// similar names that exist are suggested.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/edit_distance.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_files.h"
#include "checkpoint/model_reference.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRepoPrefix = "models--";  // of a folder in the cache

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

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return std::isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

bool has_word(const fs::path& file, std::string_view word) {
  return lower(file.filename().string()).find(lower(word)) != std::string::npos;
}

// Whatever a file is called.
bool is_gguf_file(const fs::path& file) {
  char magic[4] = {};
  std::ifstream stream(file, std::ios::binary);
  return stream.read(magic, sizeof magic) && std::string_view(magic, sizeof magic) == "GGUF";
}

ModelLocation gguf_location(std::string name, const fs::path& file) {
  const std::vector<fs::path> parts = gguf_parts(file);
  const fs::path folder = parts.front().parent_path();
  return {std::move(name), folder.empty() ? fs::path(".") : folder, {}, parts};
}

// config.json, or what Mistral's own files have in its place.
bool has_configuration(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored) || fs::exists(folder / "params.json", ignored);
}

// A folder with the weights of a Hugging Face model. One without may still have a GGUF model beside its config.json.
bool holds_safetensors_model(const fs::path& folder) {
  std::error_code ignored;
  if (!has_configuration(folder)) return false;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".safetensors") return true;
  }
  return false;
}

// The models in a folder that is none itself, or in its folders (published collections keep large ones in such): files
// of GGUF models, folders of others; sorted.
std::vector<fs::path> models_within(const fs::path& folder) {
  std::vector<fs::path> found;
  const auto add_gguf = [&](const fs::path& place) {
    for (const auto& parts : find_gguf_models(place)) found.push_back(parts.front());
  };
  add_gguf(folder);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    if (holds_safetensors_model(entry.path())) {
      found.push_back(entry.path());
    } else {
      add_gguf(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

[[noreturn]] void fail_several(const std::string& name, const fs::path& folder, const std::vector<fs::path>& found,
                               std::string_view expected) {
  constexpr size_t kMostShown = 20;
  std::string list;
  for (size_t i = 0; i < std::min(found.size(), kMostShown); ++i)
    list += "\n  " + found[i].lexically_relative(folder).string();
  if (found.size() > kMostShown) list += fmt::format("\n  and {} more", found.size() - kMostShown);
  const bool all_gguf =
      std::all_of(found.begin(), found.end(), [](const fs::path& path) { return path.extension() == ".gguf"; });
  fail(ErrorKind::kModel,
       fmt::format("{}: several {}models (expected {}):{}", name, all_gguf ? "GGUF " : "", expected, list),
       fmt::format("name one of them: {}", found.front().string()));
}

// The model within a folder that is none itself: the only one, or the only GGUF model with `variant` in its name, in
// Q8_0 where none is named; nothing where there are none.
std::optional<ModelLocation> locate_within(const std::string& name, const fs::path& folder,
                                           const std::string& variant) {
  const std::vector<fs::path> all = models_within(folder);
  std::vector<fs::path> found = all;
  if (!variant.empty()) std::erase_if(found, [&](const fs::path& path) { return !has_word(path, variant); });
  if (found.empty() && !all.empty()) fail_several(name, folder, all, fmt::format("one with {} in its name", variant));
  if (found.empty()) return {};
  if (found.size() > 1 && variant.empty()) {
    const auto q8_0 = [](const fs::path& path) { return path.extension() == ".gguf" && has_word(path, "q8_0"); };
    const bool only_gguf =
        std::all_of(all.begin(), all.end(), [](const fs::path& path) { return path.extension() == ".gguf"; });
    if (only_gguf && std::count_if(found.begin(), found.end(), q8_0) == 1)
      std::erase_if(found, [&](const fs::path& path) { return !q8_0(path); });
  }
  if (found.size() > 1) fail_several(name, folder, found, "one, or one in Q8_0");
  if (found.front().extension() == ".gguf") return gguf_location(name, found.front());
  return ModelLocation{found.front().filename().string(), found.front(), {}};
}

// The known names that resemble a name, best first. Names that begin alike count as similar.
std::vector<std::string> close_names(const std::string& name, const std::vector<std::string>& known) {
  constexpr size_t kMost = 3;
  const auto last = [](const std::string& text) { return lower(text.substr(text.rfind('/') + 1)); };
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& candidate : known) {
    const std::string a = last(name), b = last(candidate);
    const bool begins = std::min(a.size(), b.size()) >= 4 && (a.starts_with(b) || b.starts_with(a));
    const size_t distance = begins ? 0 : std::min(edit_distance(a, b), edit_distance(lower(name), lower(candidate)));
    if (distance <= std::max<size_t>(2, a.size() / 5)) found.emplace_back(distance, candidate);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(found.size(), kMost); ++i) out.push_back(found[i].second);
  return out;
}

// Repositories in the cache, by name.
std::vector<std::string> cached_names() {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cache_root(), ignored)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(kRepoPrefix)) continue;
    name.erase(0, kRepoPrefix.size());
    for (size_t at; (at = name.find("--")) != std::string::npos;) name.replace(at, 2, "/");
    out.push_back(std::move(name));
  }
  std::sort(out.begin(), out.end());
  return out;
}

fs::path cached_folder(std::string id) {
  if (const size_t slash = id.find('/'); slash != std::string::npos) id.replace(slash, 1, "--");
  return cache_root() / (std::string(kRepoPrefix) + id);
}

// Names in the path's folder that are close to its last part.
std::vector<std::string> close_paths(const std::string& model) {
  const fs::path path(model);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> beside;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored) || entry.path().extension() == ".gguf")
      beside.push_back(path.has_parent_path() ? entry.path().string() : entry.path().filename().string());
  }
  return close_names(model, beside);
}

std::string did_you_mean(const std::vector<std::string>& close) {
  return close.empty() ? "" : fmt::format("did you mean {}?", fmt::join(close, " or "));
}

[[noreturn]] void fail_missing(const std::string& model, const ModelReference& reference) {
  std::string hint = did_you_mean(close_paths(model));
  if (hint.empty()) {
    const bool is_file = reference.id.ends_with(".gguf") || reference.id.ends_with(".safetensors");
    const bool bare = reference.id.find('/') == std::string::npos;  // cannot be fetched
    hint = did_you_mean(close_names(reference.id, cached_names()));
    if (hint.empty() && bare && !is_file) {
      hint = "`qgen models` lists what is there, `hf download ORG/NAME` fetches one";
    } else if (!bare && !is_file) {
      hint += (hint.empty() ? "" : " Otherwise: ") + reference.download();
    }
  }
  fail(ErrorKind::kModel,
       fmt::format("{}: no such file or folder, and not in the Hugging Face cache ({})", model, cache_root().string()),
       hint);
}

// The snapshot of a repository's revision.
fs::path find_snapshot(const fs::path& repo, const ModelReference& reference) {
  const std::string revision = reference.revision.empty() ? "main" : reference.revision;
  std::string commit = revision;
  if (!is_commit(revision)) {
    const fs::path file = repo / "refs" / revision;
    if (fs::is_regular_file(file)) {
      commit = read_file(file, 4096);
      commit.erase(std::remove_if(commit.begin(), commit.end(), [](unsigned char c) { return std::isspace(c); }),
                   commit.end());
      if (!is_commit(commit)) {
        fail(ErrorKind::kModel, fmt::format("{}: not a commit (expected 40 hexadecimal digits)", file.string()),
             reference.download());
      }
    } else {
      // Without refs/main a lone snapshot can only be the one that was meant.
      std::vector<std::string> snapshots;
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(repo / "snapshots", ignored)) {
        snapshots.push_back(entry.path().filename().string());
      }
      if (revision != "main" || snapshots.size() != 1) {
        fail(ErrorKind::kModel, fmt::format("{}: revision {} is not in the Hugging Face cache", reference.id, revision),
             reference.download());
      }
      commit = snapshots.front();
    }
  }
  const fs::path snapshot = repo / "snapshots" / commit;
  if (!fs::is_directory(snapshot)) {
    fail(ErrorKind::kModel,
         fmt::format("{}: revision {} has no snapshot in the Hugging Face cache", reference.id, revision),
         reference.download());
  }
  return snapshot;
}

// The model in a repository of the cache; `name` is what reports call it.
ModelLocation locate_in_repo(const std::string& name, const fs::path& repo, const ModelReference& reference) {
  const fs::path snapshot = find_snapshot(repo, reference);
  if (!reference.file.empty()) {
    if (!fs::exists(snapshot / reference.file)) {
      fail(ErrorKind::kModel, fmt::format("{}: {} is not in the Hugging Face cache", reference.id, reference.file),
           reference.download());
    }
    const fs::path path = snapshot / reference.file;
    const std::string file_name = fmt::format("{}/{}", reference.id, reference.file);
    return fs::is_directory(path) ? ModelLocation{file_name, path, {}} : gguf_location(file_name, path);
  }
  if (!holds_safetensors_model(snapshot)) {
    try {
      if (auto found = locate_within(name, snapshot, reference.variant)) return std::move(*found);
    } catch (const Error& error) {
      if (reference.variant.empty()) throw;
      fail(error.kind(), error.message(), reference.download());
    }
  } else if (!reference.variant.empty()) {
    fail(ErrorKind::kModel, fmt::format("{}: no GGUF files (found safetensors)", reference.id),
         fmt::format("-m {}", reference.id));
  }
  if (!has_configuration(snapshot)) {
    fail(ErrorKind::kModel, fmt::format("{}: its snapshot in the Hugging Face cache has no config.json", reference.id),
         reference.download());
  }
  return {name, snapshot, {}};
}

// Completes a name without an organization, where exactly one model in the cache has it.
void complete_bare_name(ModelReference& reference) {
  if (reference.id.find('/') != std::string::npos || fs::is_directory(cached_folder(reference.id))) return;
  std::vector<std::string> found;
  for (const std::string& name : cached_names()) {
    if (lower(name.substr(name.find('/') + 1)) == lower(reference.id)) found.push_back(name);
  }
  if (found.size() == 1) reference.id = found.front();
  if (found.size() > 1) {
    fail(ErrorKind::kModel,
         fmt::format("{}: several models in the Hugging Face cache have this name (expected one of {})", reference.id,
                     fmt::join(found, ", ")),
         fmt::format("-m {}", found.front()));
  }
}

ModelLocation locate_in_cache(const std::string& model) {
  auto reference = parse_model_reference(model);
  if (!reference) {
    const bool address = model.find("://") != std::string::npos;
    fail(ErrorKind::kModel,
         address ? fmt::format("{}: not the address of a model on huggingface.co", model)
                 : fmt::format("{}: no such file or folder", model),
         address ? "`hf download ORG/NAME` fetches models from there; -m ORG/NAME names them"
                 : did_you_mean(close_paths(model)));
  }
  complete_bare_name(*reference);
  const fs::path repo = cached_folder(reference->id);
  if (!fs::is_directory(repo)) fail_missing(model, *reference);
  // The name in reports: the model's name alone, however it was found.
  std::string name = reference->id;
  if (!reference->variant.empty()) name += ":" + reference->variant;
  if (!reference->revision.empty()) name += "@" + reference->revision;
  return locate_in_repo(name, repo, *reference);
}

ModelLocation locate_folder(const fs::path& path, const std::string& variant) {
  std::error_code ignored;
  fs::path canonical = fs::weakly_canonical(path, ignored);
  if (canonical.filename().empty()) canonical = canonical.parent_path();
  const std::string name = canonical.filename().string();
  if (name.starts_with(kRepoPrefix) && fs::is_directory(canonical / "snapshots", ignored)) {
    std::string id = name.substr(kRepoPrefix.size());
    if (const size_t at = id.find("--"); at != std::string::npos) id.replace(at, 2, "/");
    return locate_in_repo(id, canonical, {id, "", variant, ""});
  }
  if (!holds_safetensors_model(path)) {
    if (auto found = locate_within(name, path, variant)) return std::move(*found);
  } else if (!variant.empty()) {
    fail(ErrorKind::kModel, fmt::format("{}: no GGUF files (found safetensors)", path.string()));
  }
  return {name, path, {}};
}

ModelLocation locate_file(const fs::path& path) {
  // To open a pipe would be to wait for its other end.
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    fail(ErrorKind::kModel, fmt::format("{}: not a regular file", path.string()));
  if (path.extension() == ".gguf" || is_gguf_file(path)) return gguf_location(path.filename().string(), path);
  if (path.extension() != ".safetensors") {
    const std::string extension = path.extension().string();
    const bool pickle = extension == ".bin" || extension == ".pt" || extension == ".pth";
    fail(ErrorKind::kModel,
         fmt::format("{}: {} (expected a folder, a .safetensors or a GGUF file)", path.string(),
                     pickle ? "a pickle, which may run any code, is not read" : "not a model"),
         pickle ? "most repositories have the same weights as safetensors" : "");
  }
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  if (is_one_of_several(path)) return locate_folder(folder, "");
  return {path.filename().string(), folder, path};
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

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> found;
  for (const std::string& name : cached_names()) {
    const ModelReference reference{name, "", "", ""};
    const fs::path repo = cached_folder(name);
    try {
      const fs::path snapshot = find_snapshot(repo, reference);
      const std::vector<fs::path> within =
          holds_safetensors_model(snapshot) ? std::vector<fs::path>() : models_within(snapshot);
      if (within.size() < 2) {
        found.push_back({locate_in_repo(name, repo, reference)});
        continue;
      }
      for (const fs::path& path : within) {
        const std::string file = path.lexically_relative(snapshot).string();
        CachedModel& model = found.emplace_back();
        model.location.name = fmt::format("{}/{}", name, file);
        model.location.folder = snapshot;
        try {
          model.location = locate_in_repo(name, repo, {name, "", "", file});
        } catch (const Error& error) {
          model.problem = error.message();
        }
      }
    } catch (const fs::filesystem_error& error) {
      found.push_back({{name, repo, {}}, error.code().message()});
    } catch (const Error& error) {
      found.push_back({{name, repo, {}}, error.message()});
    }
  }
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
  if (fs::is_directory(path, ignored)) return locate_folder(path, "");
  if (fs::exists(path, ignored)) return locate_file(path);
  // FOLDER:VARIANT
  if (const size_t colon = model.rfind(':'); colon != std::string::npos && colon + 1 < model.size()) {
    if (fs::is_directory(model.substr(0, colon), ignored))
      return locate_folder(model.substr(0, colon), model.substr(colon + 1));
  }
  return locate_in_cache(model);
}

}  // namespace qgen
