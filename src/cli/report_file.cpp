#include "cli/report_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/streams.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

namespace fs = std::filesystem;

std::map<std::string, int> held_pipes;  // their descriptors, by path

[[noreturn]] void fail_file(const std::string& path, std::string_view problem, std::string hint = {}) {
  fail(ErrorKind::kRuntime, fmt::format("--stats-file {}: cannot write: {}", path, problem), std::move(hint));
}

// A descriptor that closes itself.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

// Whether a text begins as a report of one run ("family" after the model, "engine" further on) or of one batch
// ("engine" at once) does. Other JSON of ours has other members there: results of `bench` have "random_weights", a plan
// has no "engine". Quotes within a text are escaped, so that no name can look like a member.
bool begins_as_report(std::string_view text) {
  constexpr std::string_view kBegin = R"({"schema":1,"model":")", kEngine = R"(,"engine":")";
  if (!text.starts_with(kBegin)) return false;
  size_t at = kBegin.size();
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  const std::string_view rest = text.substr(std::min(at + 1, text.size()));
  return rest.starts_with(kEngine) || (rest.starts_with(R"(,"family":")") && rest.find(kEngine) != rest.npos);
}

// Whether a file is empty or holds a report.
bool is_report(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  char buffer[4096];
  const ssize_t got = file.number < 0 ? -1 : ::read(file.number, buffer, sizeof buffer);
  if (got < 0) fail_file(path, std::strerror(errno));
  const std::string_view begin(buffer, size_t(got));
  return begin.empty() || begins_as_report(begin);
}

// Fails if `path` must not be overwritten by a report: `status` is of the file that exists there.
void check_place(const std::string& path, const struct stat& status) {
  if (S_ISDIR(status.st_mode)) fail_file(path, std::strerror(EISDIR));
  if (S_ISREG(status.st_mode) && !is_report(path)) {
    fail_file(path, "it holds something else than a report", "a new file, or one that --stats-file wrote");
  }
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))
    fail_file(path, "neither a file nor a pipe");
}

void hold_pipe(const std::string& path) {
  if (held_pipes.contains(path)) return;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_file(path, errno == ENXIO ? "the pipe has no reader" : std::strerror(errno));
  held_pipes[path] = descriptor;
}

}  // namespace

void prepare_report_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) fail_file(path, std::strerror(errno));
    const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
    if (::access(folder.c_str(), W_OK | X_OK) != 0) fail_file(path, std::strerror(errno));
    return;
  }
  check_place(path, status);
  if (S_ISFIFO(status.st_mode)) return hold_pipe(path);
  if (::access(path.c_str(), W_OK) != 0) fail_file(path, std::strerror(errno));
}

void write_report_file(const std::string& path, std::string_view json) {
  const auto held = held_pipes.find(path);
  const Descriptor opened{
      held != held_pipes.end() ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)};
  const int descriptor = held != held_pipes.end() ? held->second : opened.number;
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) fail_file(path, std::strerror(errno));
  if (held == held_pipes.end()) {
    check_place(path, status);  // it may have become something else since
    if (S_ISREG(status.st_mode) && ::ftruncate(descriptor, 0) != 0) fail_file(path, std::strerror(errno));
  }
  switch (write_all(descriptor, json)) {
    case Written::kAll: return;
    case Written::kStopped: throw Exit{128 + noted_signal()};
    case Written::kFailed: fail_file(path, std::strerror(errno));
  }
}

}  // namespace qgen::cli
