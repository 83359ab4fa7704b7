#include "cli/word_wrap.h"

#include <doctest/doctest.h>

#include "cli/text_width.h"

using qgen::cli::columns_of;
using qgen::cli::shortened;
using qgen::cli::WordWrap;

namespace {

// A text that comes in pieces of `step` bytes at most, cut between characters.
std::string wrap(std::string_view text, int columns, size_t step = 1) {
  WordWrap wrapper([=] { return columns; });
  std::string out;
  while (!text.empty()) {
    size_t size = std::min(step, text.size());
    while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) ++size;
    out += wrapper.push(text.substr(0, size));
    text.remove_prefix(size);
  }
  return out + wrapper.flush();
}

}  // namespace

TEST_CASE("word wrap: lines end at words, in whatever pieces the text comes") {
  const std::string text =
      "The quick brown fox jumps over the lazy dog, then sleeps.\n  Indented too, and long enough to wrap.";
  for (const size_t step : {1, 2, 5, 17, 1000}) {
    CHECK(wrap(text, 30, step) ==
          "The quick brown fox jumps over\nthe lazy dog, then sleeps.\n  Indented too, and long\nenough to wrap.");
  }
}

TEST_CASE("word wrap: a line that just fits is left alone, one more column breaks it") {
  CHECK(wrap("aaaa bbbb cccc dddd eeee", 24) == "aaaa bbbb cccc dddd eeee");
  CHECK(wrap("aaaa bbbb cccc dddd eeee", 23) == "aaaa bbbb cccc dddd\neeee");
  CHECK(wrap("aaaa bbbb cccc dddd eeee ", 24) == "aaaa bbbb cccc dddd eeee ");
}

TEST_CASE("word wrap: words far from the margin are not held back") {
  WordWrap wrapper([] { return 80; });
  CHECK(wrapper.push("Once") == "Once");
  CHECK(wrapper.push(" ") == " ");
  CHECK(wrapper.push("up") == "up");
  CHECK(wrapper.push("on a time there was a little girl named") == "on a time there was a little girl named");
  CHECK(wrapper.push(" Lily and she ha") == " Lily and she");
  CHECK(wrapper.push("d a dog") == " had a");
  CHECK(wrapper.flush() == " dog");
}

TEST_CASE("word wrap: wide characters take two columns and may be parted") {
  CHECK(columns_of("日本語") == 6);
  CHECK(columns_of("e\u0301") == 1);
  CHECK(wrap("日本語日本語日本語日本語", 20) == "日本語日本語日本語日\n本語");
  CHECK(wrap("a日本語日本語日本語日本語", 20) == "a日本語日本語日本語\n日本語");
}

TEST_CASE("word wrap: code and tables keep their lines, words longer than one are the terminal's") {
  const std::string code = "```\nint main(int argc, char** argv) { return run(argc, argv); }\n```\n";
  CHECK(wrap(code, 30) == code);
  CHECK(wrap(code + "and this is wrapped again here", 25) == code + "and this is wrapped again\nhere");
  const std::string table = "| a column | another column | and one more |\n";
  CHECK(wrap(table, 30) == table);
  const std::string url(100, 'x');
  CHECK(wrap(url, 30) == url);
  CHECK(wrap("see " + url + " for it", 30) == "see " + url + " for it");
}

TEST_CASE("word wrap: no width, or next to none, is no wrapping") {
  const std::string text = "The quick brown fox jumps over the lazy dog";
  CHECK(wrap(text, 0) == text);
  CHECK(wrap(text, 10) == text);
}

TEST_CASE("shortened: an ellipsis takes the place of what does not fit") {
  CHECK(shortened("org/name", 8) == "org/name");
  CHECK(shortened("org/name", 7) == "org/na…");
  CHECK(shortened("日本語", 5) == "日本…");
  CHECK(shortened("日本語", 4) == "日…");
}
