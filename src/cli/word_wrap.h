// Breaks streamed text at words for a terminal, without taking back what was shown. Text far from the margin is passed
// on as it comes; near it a word is held until it is known to fit. Lines of code fences and tables stay as they are.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace qgen::cli {

class WordWrap {
 public:
  // `columns`: the terminal's width, asked for at the beginning of each line; too narrow a terminal, or 0, is not
  // wrapped at all.
  explicit WordWrap(std::function<int()> columns) : ask_columns_(std::move(columns)) {}

  // Takes valid UTF-8, whole characters; returns what can be shown now.
  std::string push(std::string_view text);
  // The text that is held back at the end.
  std::string flush();

 private:
  bool near_margin() const;
  void take(uint32_t code_point, std::string_view bytes);
  void take_space(uint32_t code_point, std::string_view bytes);
  void take_letter(uint32_t code_point, std::string_view bytes);
  void show(std::string_view text, size_t columns);
  void show_held();
  void break_line();
  void end_line();

  std::function<int()> ask_columns_;
  std::string out_;            // shown by the push() at hand
  size_t width_ = 0;           // of this line's terminal; 0: no wrapping
  size_t column_ = 0;          // where the cursor is
  bool new_line_ = true;       // nothing of this line was seen
  bool in_word_ = false;       // the last character shown is a word's
  std::string spaces_, word_;  // held, in this order
  size_t spaces_columns_ = 0, word_columns_ = 0;
  std::string line_start_;  // the first characters of the line that are no spaces
  bool fence_ = false;      // inside a block of code
};

}  // namespace qgen::cli
