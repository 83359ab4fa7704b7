// PCRE2 with its just-in-time compiler; patterns that exhaust the compiled code's stack run interpreted.
#include "tokenizer/regex.h"

#include <algorithm>
#include <chrono>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace qgen::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackBytes = 1 << 20;
constexpr double kSecondsForByte = 20e-6;  // far more than interpreted expressions of published files take
constexpr uint32_t kMatchesPerLook = 16;   // at the clock

using Clock = std::chrono::steady_clock;
thread_local const Clock::time_point* match_deadline = nullptr;
thread_local uint32_t matches_since_look = 0;

std::string message_of(int error) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(error, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// What matching needs beside the code; one for each thread.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);
  Workspace() {
    if (data == nullptr || context == nullptr) fail(ErrorKind::kMemory, "regular expression: no memory to match");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

[[noreturn]] void fail_slow(const std::string& pattern, const std::string& problem) {
  fail(ErrorKind::kModel, fmt::format("regular expression {}: {}", quoted_name(pattern), problem),
       "the expression takes too long on this text");
}

}  // namespace

struct MatchTime::State {
  Clock::time_point deadline;
  const Clock::time_point* outer;
};

MatchTime::MatchTime(size_t text_bytes, double least_seconds) : state_(std::make_unique<State>()) {
  const std::chrono::duration<double> allowed(least_seconds + kSecondsForByte * double(text_bytes));
  state_->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(allowed);
  state_->outer = match_deadline;
  if (state_->outer != nullptr) state_->deadline = std::min(state_->deadline, *state_->outer);
  match_deadline = &state_->deadline;
}

MatchTime::~MatchTime() { match_deadline = state_->outer; }

struct Regex::Code {
  std::string pattern;
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern) {
  auto made = std::make_shared<Code>();
  made->pattern = pattern;
  const std::string translated = pcre2_pattern(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  made->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (made->code == nullptr) {
    fail(ErrorKind::kModel, fmt::format("regular expression {}: {}", quoted_name(pattern), message_of(error)));
  }
  made->jit = pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(made);
}

void Regex::find_all(std::string_view text, std::vector<Span>& out) const {
  if (text.size() >= UINT32_MAX) fail(ErrorKind::kModel, "text: longer than 4 GiB");
  thread_local const Workspace workspace;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(workspace.data);
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= text.size()) {
    int result = code_->jit
                     ? pcre2_jit_match(code_->code, subject, text.size(), from, 0, workspace.data, workspace.context)
                     : PCRE2_ERROR_JIT_STACKLIMIT;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, workspace.data,
                           workspace.context);
    }
    if (++matches_since_look >= kMatchesPerLook) {
      matches_since_look = 0;
      if (match_deadline != nullptr && Clock::now() > *match_deadline) fail_slow(code_->pattern, "too slow");
    }
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0) fail_slow(code_->pattern, message_of(result));
    const size_t begin = std::min<size_t>(found[0], found[1]), end = found[1];
    if (begin == end && end == last_end) {
      from += from < text.size() ? char_at(text.substr(from)).length : 1;
      continue;
    }
    // \K can move a match's beginning back over what has been taken.
    if (last_end != SIZE_MAX && begin < last_end) {
      from += from < text.size() ? char_at(text.substr(from)).length : 1;
      continue;
    }
    out.push_back({uint32_t(begin), uint32_t(end)});
    from = last_end = end;
  }
}

}  // namespace qgen::tokenizer
