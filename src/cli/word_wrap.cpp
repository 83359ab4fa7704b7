#include "cli/word_wrap.h"

#include <utility>

#include "base/utf8.h"
#include "cli/text_width.h"

namespace qgen::cli {
namespace {

constexpr size_t kLeastWidth = 20;
// Words that begin farther from the margin than this are shown letter by letter; a longer one is broken by the
// terminal.
constexpr size_t kMargin = 24;
constexpr size_t kTab = 8;

bool is_fence(std::string_view line_start) { return line_start.starts_with("```") || line_start.starts_with("~~~"); }

}  // namespace

std::string WordWrap::push(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    take(step.code_point, text.substr(0, size_t(step.length)));
    text.remove_prefix(size_t(step.length));
  }
  return std::exchange(out_, {});
}

std::string WordWrap::flush() {
  show_held();
  return std::exchange(out_, {});
}

void WordWrap::show_held() {
  show(std::exchange(spaces_, {}), std::exchange(spaces_columns_, 0));
  show(std::exchange(word_, {}), std::exchange(word_columns_, 0));
}

bool WordWrap::near_margin() const { return column_ + kMargin >= width_; }

void WordWrap::show(std::string_view text, size_t columns) {
  if (text.empty()) return;
  out_ += text;
  column_ += columns;
  if (width_ > 0 && column_ > width_) column_ = (column_ - 1) % width_ + 1;  // the terminal broke the line
}

void WordWrap::break_line() {
  out_ += '\n';
  spaces_.clear();
  spaces_columns_ = column_ = 0;
}

void WordWrap::end_line() {
  show_held();
  out_ += '\n';
  if (is_fence(line_start_)) fence_ = !fence_;
  line_start_.clear();
  column_ = 0;
  new_line_ = true;
  in_word_ = false;
}

void WordWrap::take(uint32_t code_point, std::string_view bytes) {
  if (code_point == '\n') return end_line();
  if (new_line_) {
    new_line_ = false;
    const int columns = ask_columns_();
    width_ = columns >= int(kLeastWidth) ? size_t(columns) : 0;
  }
  const bool space = code_point == ' ' || code_point == '\t';
  if (!space && line_start_.size() < 3) line_start_ += bytes;
  const bool as_it_is = width_ == 0 || fence_ || is_fence(line_start_) || line_start_.starts_with('|');
  if (as_it_is || (word_.empty() && spaces_.empty() && !near_margin())) {
    show_held();
    show(bytes, code_point == '\t' ? kTab - column_ % kTab : columns_of(code_point));
    in_word_ = !space;
    return;
  }
  space ? take_space(code_point, bytes) : take_letter(code_point, bytes);
}

void WordWrap::take_space(uint32_t code_point, std::string_view bytes) {
  if (!word_.empty()) show_held();
  in_word_ = false;
  spaces_ += bytes;
  spaces_columns_ += code_point == '\t' ? kTab - (column_ + spaces_columns_) % kTab : 1;
}

void WordWrap::take_letter(uint32_t code_point, std::string_view bytes) {
  const size_t columns = columns_of(code_point);
  // A line may end before and after a wide character.
  if (columns > 1 && !word_.empty()) show_held();
  if (columns > 1) in_word_ = false;
  if (in_word_ && spaces_.empty() && word_.empty()) return show(bytes, columns);  // it began before the margin was near
  word_ += bytes;
  word_columns_ += columns;
  if (column_ + spaces_columns_ + word_columns_ > width_ && column_ > 0) break_line();
  if (column_ > 0 && columns < 2) return;
  show_held();
  in_word_ = columns < 2;
}

}  // namespace qgen::cli
