#include "base/control_groups.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace qgen {
namespace {

namespace fs = std::filesystem;

bool has_word(const std::string& list, std::string_view word) {
  return (',' + list + ',').find(',' + std::string(word) + ',') != std::string::npos;
}

// The mount point of a control group hierarchy, and the group that is mounted there.
struct Mount {
  std::string group, point;
};

// By /proc/self/mountinfo (proc(5)), else where distributions mount it.
Mount mount_of(std::string_view controller, bool version_2, const fs::path& root) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t separator = line.find(" - ");
    if (separator == line.npos) continue;
    std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
    std::string id, parent, device, type, source, options;
    Mount mount;
    before >> id >> parent >> device >> mount.group >> mount.point;
    after >> type >> source >> options;
    if (version_2 ? type == "cgroup2" : type == "cgroup" && has_word(options, controller)) return mount;
  }
  return {"/", "/sys/fs/cgroup" + (version_2 ? "" : '/' + std::string(controller))};
}

// The path of this process's group in its hierarchy: "HIERARCHY:CONTROLLERS:PATH" a line of /proc/self/cgroup;
// version 2 is the line without controllers.
std::optional<std::string> path_of(std::string_view controller, bool version_2, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version_2 ? controllers.empty() : has_word(controllers, controller)) return line.substr(second + 1);
  }
  return {};
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  std::vector<ControlGroup> out;
  for (const bool version_2 : {true, false}) {
    const auto path = path_of(controller, version_2, root);
    if (!path) continue;
    const Mount mount = mount_of(controller, version_2, root);
    const fs::path top = root / fs::path(mount.point).relative_path();
    // In a container the path may be the host's, of which only the end of the walk, the container's own group, is there
    // to be seen.
    fs::path group = (fs::path("/") / *path).lexically_normal();
    const fs::path below = group.lexically_relative(mount.group);
    group = below.empty() || *below.begin() == ".." ? group.relative_path() : below == "." ? fs::path() : below;
    for (;; group = group.parent_path()) {
      out.push_back({top / group, version_2});
      if (group.empty()) break;
    }
  }
  return out;
}

}  // namespace qgen
