// What people type who come from other programs (llama.cpp, ollama, vLLM): what means the same here is translated, the
// rest gets a hint.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::cli {

// What the command line's options are, whichever command they belong to.
struct KnownOptions {
  std::function<bool(std::string_view name)> exists;       // "--top-k", "-n"
  std::function<bool(std::string_view name)> takes_value;  // from the next word
};

// The words with options under our names; `help COMMAND`, `version` and `run MODEL [PROMPT]` become what they mean.
// Values of options are left alone, and so is all that follows "--". A usage Error for what other programs have and
// qgen has not.
std::vector<std::string> translate_habits(std::vector<std::string> words, const KnownOptions& known);

// What to do instead of a word that is a command elsewhere ("pull", "serve"); empty for others.
std::string_view foreign_command_hint(std::string_view word);

}  // namespace qgen::cli
