// The one exception type of the program. Every failure that a user can meet is an Error whose kind is
// the exit code, whose message reads "subject: problem (expected X, found Y)", and which carries a hint
// when we know one. Nothing below src/cli prints; nothing but main exits.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace qgen {

enum class ErrorKind : int {
  kRuntime = 1,  // failed while running
  kUsage = 2,    // the command line is wrong
  kModel = 3,    // the model cannot be read or is not supported
  kMemory = 4,   // does not fit in memory
  kDevice = 5,   // no usable device
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string hint)
      : kind_(kind), message_(std::move(message)), hint_(std::move(hint)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }  // empty when there is none
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  std::string message_;
  std::string hint_;
};

[[noreturn]] inline void fail(ErrorKind kind, std::string message, std::string hint = {}) {
  throw Error(kind, std::move(message), std::move(hint));
}

}  // namespace qgen
