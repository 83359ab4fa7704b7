#include "cli/echo.h"

#include <atomic>

#include <termios.h>
#include <unistd.h>

#include "cli/terminal.h"

namespace qgen::cli {
namespace {

termios before;
std::atomic<bool> changed{false};

}  // namespace

EchoOff::EchoOff() {
  // In the background a change would stop the program.
  if (changed || !stdin_is_terminal() || !stdout_is_terminal() || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return;
  if (::tcgetattr(STDIN_FILENO, &before) != 0 || (before.c_lflag & tcflag_t(ECHO)) == 0) return;
  termios silent = before;
  silent.c_lflag &= ~tcflag_t(ECHO);
  changed = changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &silent) == 0;
}

EchoOff::~EchoOff() {
  if (changed_) restore_echo();
}

void restore_echo() {
  if (changed.exchange(false) && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

}  // namespace qgen::cli
