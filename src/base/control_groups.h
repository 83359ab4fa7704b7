// The control groups that this process is in (cgroups(7)), version 1 and 2.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace qgen {

struct ControlGroup {
  std::filesystem::path folder;  // of its files, which may be missing
  bool version_2 = false;
};

// The groups with `controller` ("cpu", "memory"), each followed by those around it, whose limits hold for it as well.
// `root` holds the machine's /sys and /proc, and is another folder in tests.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace qgen
