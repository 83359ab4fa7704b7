// Turns off the terminal's echo during an answer; keys typed then wait in the terminal's input queue.
#pragma once

namespace qgen::cli {

// While it lives, a terminal on standard input does not show what is typed, if the answer goes to a terminal too and
// the program is in its foreground.
class EchoOff {
 public:
  EchoOff();
  ~EchoOff();
  EchoOff(const EchoOff&) = delete;

 private:
  bool changed_ = false;
};

// The terminal as it was before, from a signal handler that ends the program.
void restore_echo();

}  // namespace qgen::cli
