#include "jinja/text.h"

#include <algorithm>
#include <utility>

namespace qgen::jinja {

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Text::Text(std::string bytes, bool user)
    : bytes_(std::move(bytes)), first_user_(user), length_(count_code_points(bytes_)) {
  ascii_ = length_ == bytes_.size();
}

bool Text::user_at(size_t offset) const {
  const auto flips = std::upper_bound(flips_.begin(), flips_.end(), offset) - flips_.begin();
  return first_user_ != (flips % 2 == 1);
}

size_t Text::run_end(size_t offset) const {
  const auto next = std::upper_bound(flips_.begin(), flips_.end(), offset);
  return next == flips_.end() ? bytes_.size() : *next;
}

size_t Text::offset_of(size_t index) const {
  if (ascii_ || index == 0) return index;
  if (index >= length_) return bytes_.size();
  size_t seen = 0;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if ((static_cast<unsigned char>(bytes_[i]) & 0xC0) != 0x80 && seen++ == index) return i;
  }
  return bytes_.size();
}

size_t Text::index_of(size_t offset) const {
  return ascii_ ? offset : count_code_points(std::string_view(bytes_).substr(0, offset));
}

void TextBuilder::append(std::string_view bytes, bool user) {
  if (bytes.empty()) return;
  if (text_.bytes_.empty()) {
    text_.first_user_ = user;
  } else if (user != last_user_) {
    text_.flips_.push_back(text_.bytes_.size());
  }
  last_user_ = user;
  text_.bytes_ += bytes;
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  while (begin < end) {
    const size_t stop = std::min(end, text.run_end(begin));
    append(text.view().substr(begin, stop - begin), text.user_at(begin));
    begin = stop;
  }
}

Text TextBuilder::take() {
  text_.length_ = count_code_points(text_.bytes_);
  text_.ascii_ = text_.length_ == text_.bytes_.size();
  return std::exchange(text_, Text());
}

}  // namespace qgen::jinja
