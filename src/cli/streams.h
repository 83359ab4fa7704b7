// Bytes to the streams a shell gave us, whatever those are: full pipes, ones that do not block, terminals that are
// held. A signal that was only noted ends the wait for a reader that is stuck.
#pragma once

#include <string_view>

namespace qgen::cli {

// Where standard input, output or error is closed, no file that is opened later may take its place: reading and writing
// fail.
void claim_standard_streams();

// Makes what wakes a waiting writer. Before that, signals wake none.
void prepare_streams();
// That a signal was noted. May be called by a signal handler.
void wake_writer();
// The signal that was noted last counts no longer.
void forget_wakes();

enum class Written {
  kAll,
  kFailed,   // errno says why
  kStopped,  // woken while the stream took nothing
};
// `holds_on`: waits on although it is woken.
Written write_all(int stream, std::string_view text, bool (*holds_on)() = nullptr);

}  // namespace qgen::cli
