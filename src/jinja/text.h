// Text that remembers, character by character, whether a user wrote it: the bytes plus the offsets at which
// the mark flips, so that text from one source costs no more than its bytes. Always valid UTF-8; all
// offsets are in bytes unless they say code points.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool user);

  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool ascii() const { return ascii_; }
  // Length in code points.
  size_t length() const { return length_; }
  bool user_at(size_t offset) const;
  bool any_user() const { return !bytes_.empty() && (first_user_ || !flips_.empty()); }
  // The end of the run of equal marks that holds `offset`.
  size_t run_end(size_t offset) const;
  // The byte offset of a code point; `index` may equal length().
  size_t offset_of(size_t index) const;
  // The code point index of a byte offset.
  size_t index_of(size_t offset) const;

 private:
  friend class TextBuilder;
  std::string bytes_;
  std::vector<size_t> flips_;
  bool first_user_ = false;
  bool ascii_ = true;
  size_t length_ = 0;
};

using TextPtr = std::shared_ptr<const Text>;

// The only way to make text of several sources.
class TextBuilder {
 public:
  void append(std::string_view bytes, bool user);
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t end);
  size_t size() const { return text_.bytes_.size(); }
  std::string_view view() const { return text_.bytes_; }
  Text take();

 private:
  Text text_;
  bool last_user_ = false;
};

// Rebuilds a text piece by piece and keeps the marks: piece(out, offset) appends what stands for the characters
// at `offset` to the string `out` and returns how many bytes it took.
template <class Piece>
void rewrite(TextBuilder& out, const Text& text, Piece piece) {
  std::string run;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.run_end(at);
    const bool user = text.user_at(at);
    run.clear();
    while (at < end) at += piece(run, at);
    out.append(run, user);
  }
}

// Number of code points in valid UTF-8.
size_t count_code_points(std::string_view text);

}  // namespace qgen::jinja
