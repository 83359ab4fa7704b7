// The program's edges: standard output that carries text only, standard error, signals.
#pragma once

#include <string>
#include <string_view>

namespace qgen::cli {

// Ends the program from anywhere in the command line room with this exit code, silently.
struct Exit {
  int code;
};

// Writes all of it at once to standard output. A closed pipe ends the program with 141; any other failure is a
// runtime Error.
void write_stdout(std::string_view text);
// Standard error, one line or several, control characters dropped; failures are ignored.
void write_stderr(std::string_view text);

bool stdout_is_terminal();
bool stderr_is_terminal();
bool stdin_is_terminal();
bool stdin_is_pipe_or_file();  // something a shell put there for us to read
std::string read_stdin();

// Model output made safe for a terminal: control characters go, newline and tab aside.
std::string without_controls(std::string_view text);

// Ctrl-C and SIGTERM. Before start_answer() they end the program at once; while an answer is written the first
// one is only noted, so that the answer can be closed and reported.
void install_signal_handlers();
void start_answer();
void end_answer();
int noted_signal();  // 0 if none

}  // namespace qgen::cli
