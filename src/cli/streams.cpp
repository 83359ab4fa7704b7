#include "cli/streams.h"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qgen::cli {
namespace {

// A pipe that is readable once a signal was noted: poll() wakes whatever thread the system picked for the signal, and
// whenever it came.
int wake_ends[2] = {-1, -1};

// A pipe that poll() calls writable takes this much without blocking (pipe(7)); other files take more at once.
size_t most_at_once(int stream) {
  struct stat status {};
  const bool is_pipe = ::fstat(stream, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  return is_pipe ? PIPE_BUF : size_t{1} << 20;
}

// Whether the stream takes bytes now, or write() will say why not; false where a wake ended the wait.
bool wait_for_room(int stream, bool (*holds_on)()) {
  for (;;) {
    pollfd waiting[2] = {{stream, POLLOUT, 0}, {wake_ends[0], POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return true;
    }
    if (waiting[0].revents != 0) return true;
    if (holds_on == nullptr || !holds_on()) return false;
    forget_wakes();
  }
}

}  // namespace

void claim_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() takes the lowest number that is free: this one.
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void prepare_streams() {
  if (::pipe2(wake_ends, O_CLOEXEC | O_NONBLOCK) != 0) wake_ends[0] = wake_ends[1] = -1;
}

void wake_writer() {
  const int before = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_ends[1], "", 1);
  errno = before;
}

void forget_wakes() {
  char bytes[64];
  while (::read(wake_ends[0], bytes, sizeof bytes) > 0) {
  }
}

Written write_all(int stream, std::string_view text, bool (*holds_on)()) {
  const size_t most = most_at_once(stream);
  while (!text.empty()) {
    if (!wait_for_room(stream, holds_on)) return Written::kStopped;
    const ssize_t written = ::write(stream, text.data(), std::min(text.size(), most));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return Written::kFailed;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return Written::kAll;
}

}  // namespace qgen::cli
