#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "base/memory.h"
#include "base/utf8.h"

namespace qgen {
namespace {

// simdjson knows neither non-finite numbers nor integers beyond 64 bits. They are replaced, outside of strings, by
// strings that no real file holds (a NUL character leads them) and recognized again when a number is asked for.
constexpr std::string_view kInfinity{"\0inf", 4};
constexpr std::string_view kMinusInfinity{"\0-inf", 5};
constexpr std::string_view kNan{"\0nan", 4};
constexpr std::string_view kBigInteger{"\0int", 4};  // its digits follow

// A number literal whose magnitude a double cannot hold, as Python reads it: infinity.
bool overflows(std::string_view literal) {
  errno = 0;
  std::string copy(literal);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  return end == copy.c_str() + copy.size() && std::isinf(value);
}

// A JSON integer that neither int64 nor uint64 holds.
bool is_big_integer(std::string_view literal) {
  const std::string_view digits = literal.substr(literal.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos ||
      (digits[0] == '0' && digits.size() > 1))
    return false;
  uint64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return result.ec != std::errc() || (literal.starts_with('-') && value > uint64_t{1} << 63);
}

std::string replace_odd_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  size_t i = 0;
  const auto take = [&](std::string_view word, std::string_view replacement) {
    if (text.substr(i, word.size()) != word) return false;
    out += replacement;
    i += word.size();
    return true;
  };
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"') {
      const size_t start = i++;
      while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      i = std::min(i + 1, text.size());
      out += text.substr(start, i - start);
    } else if ((c == 'I' && take("Infinity", "\"\\u0000inf\"")) || (c == '-' && take("-Infinity", "\"\\u0000-inf\"")) ||
               (c == 'N' && take("NaN", "\"\\u0000nan\""))) {
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      const size_t start = i;
      while (i < text.size() && std::string_view("+-.eE0123456789").find(text[i]) != std::string_view::npos) ++i;
      const std::string_view literal = text.substr(start, i - start);
      if (literal.find_first_of("eE.") != std::string_view::npos && overflows(literal)) {
        out += c == '-' ? "\"\\u0000-inf\"" : "\"\\u0000inf\"";
      } else if (is_big_integer(literal)) {
        out += "\"\\u0000int";
        out += literal;
        out += '"';
      } else {
        out += literal;
      }
    } else {
      out += c;
      ++i;
    }
  }
  return out;
}

// Keys in messages are cut to this length, and paths to twice theirs.
constexpr size_t kShownKeyBytes = 100;
constexpr size_t kShownPathBytes = 400;

// A path step: from a value to a member or an element of it.
struct PathStep {
  std::string_view key;  // of an object's member
  size_t index = 0;      // among the members or elements
  bool is_element = false;
};

// A key as paths show it: quoted where it would not be one line of text.
std::string shown_key(std::string_view key) {
  const std::string cut = shortened(key, kShownKeyBytes);
  const bool plain =
      std::none_of(cut.begin(), cut.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  return plain ? cut : json_quote(cut);
}

// "rope_scaling.factor", "merges[7]"
std::string path_text(const std::vector<PathStep>& steps) {
  const auto text_of = [](const PathStep& step) {
    return step.is_element ? fmt::format("[{}]", step.index) : "." + shown_key(step.key);
  };
  std::string begin, end;
  size_t first = 0, last = steps.size();
  while (first < last && begin.size() < kShownPathBytes) begin += text_of(steps[first++]);
  while (first < last && end.size() < kShownPathBytes) end.insert(0, text_of(steps[--last]));
  if (first < last) begin += "…";
  begin += end;
  return begin.starts_with('.') ? begin.substr(1) : begin;
}

// Whether two elements are one place of a document, which equal values are not: an element is its document and an
// index into that.
bool same_place(const simdjson::dom::element& a, const simdjson::dom::element& b) {
  static_assert(std::has_unique_object_representations_v<simdjson::dom::element>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Looks for `wanted` below `element` and leaves the steps that lead there in `steps`.
bool find_place(simdjson::dom::element element, const simdjson::dom::element& wanted, std::vector<PathStep>& steps) {
  if (same_place(element, wanted)) return true;
  const auto leads_there = [&](simdjson::dom::element child, PathStep step) {
    if (!same_place(child, wanted) && !child.is_object() && !child.is_array()) return false;
    steps.push_back(step);
    if (find_place(child, wanted, steps)) return true;
    steps.pop_back();
    return false;
  };
  size_t index = 0;
  if (element.is_object()) {
    for (const auto [key, value] : simdjson::dom::object(element)) {
      if (leads_there(value, {key, index++, false})) return true;
    }
  } else if (element.is_array()) {
    for (const auto value : simdjson::dom::array(element)) {
      if (leads_there(value, {{}, index++, true})) return true;
    }
  }
  return false;
}

void reject_duplicates(simdjson::dom::element element, std::vector<PathStep>& path, const JsonDocument& document) {
  const auto descend = [&](simdjson::dom::element child, PathStep step) {
    if (!child.is_object() && !child.is_array()) return;
    path.push_back(step);
    reject_duplicates(child, path, document);
    path.pop_back();
  };
  size_t index = 0;
  if (element.is_object()) {
    std::vector<std::string_view> keys;
    for (const auto [key, value] : simdjson::dom::object(element)) {
      keys.push_back(key);
      descend(value, {key, index++, false});
    }
    // By length first: vocabularies have very many keys.
    std::sort(keys.begin(), keys.end(), [](std::string_view a, std::string_view b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      path.push_back({*twice, 0, false});
      fail(document.error_kind(),
           fmt::format("{}: the key {} occurs twice", document.subject(), json_quote(path_text(path))));
    }
  } else if (element.is_array()) {
    for (const auto value : simdjson::dom::array(element)) descend(value, {{}, index++, true});
  }
}

// Steps over the text of one value, which has been parsed, from its first byte.
class TextWalk {
 public:
  explicit TextWalk(std::string_view text) : text_(text) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    skip_space();
  }
  // Goes into the object or array here, to its member or element `index`.
  void enter(size_t index, bool is_element) {
    step();
    for (size_t i = 0;; ++i) {
      skip_space();
      if (!is_element) {
        skip_value();
        skip_space();
        step();  // the colon
        skip_space();
      }
      if (i == index || at_ == text_.size()) return;
      skip_value();
      skip_space();
      step();  // the comma
    }
  }
  std::string_view value() {
    const size_t begin = at_;
    skip_value();
    return text_.substr(begin, at_ - begin);
  }

 private:
  bool is_any(std::string_view characters) const {
    return at_ < text_.size() && characters.find(text_[at_]) != std::string_view::npos;
  }
  void step() { at_ += at_ < text_.size(); }
  void skip_space() {
    while (is_any(" \t\r\n")) ++at_;
  }
  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\';
    at_ = std::min(at_ + 1, text_.size());
  }
  void skip_value() {
    size_t depth = 0;
    do {
      if (is_any("\"")) {
        skip_string();
      } else if (is_any("{[")) {
        ++depth;
        step();
      } else if (is_any("}]")) {
        --depth;
        step();
      } else if (depth > 0) {
        step();
      } else {
        while (at_ < text_.size() && !is_any(" \t\r\n,:]}")) ++at_;
      }
    } while (depth > 0 && at_ < text_.size());
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Goes through a value until simdjson meets what is wrong with it; `at` is then where that begins, or null where the
// document is there.
simdjson::error_code find_error(simdjson::ondemand::document& document, simdjson::ondemand::value value,
                                const char*& at, int depth = 0) {
  constexpr int kMostDepth = 1000;
  if (depth == kMostDepth) return simdjson::DEPTH_ERROR;
  using simdjson::ondemand::json_type;
  json_type type;
  if (const auto error = value.type().get(type)) return error;
  if (type == json_type::object) {
    simdjson::ondemand::object object;
    if (const auto error = value.get_object().get(object)) return error;
    for (auto found : object) {
      simdjson::ondemand::field field;
      if (const auto error = std::move(found).get(field)) return error;
      std::string_view key;
      if (const auto error = field.unescaped_key().get(key)) return error;
      if (const auto error = find_error(document, field.value(), at, depth + 1)) return error;
    }
    return simdjson::SUCCESS;
  }
  if (type == json_type::array) {
    simdjson::ondemand::array array;
    if (const auto error = value.get_array().get(array)) return error;
    for (auto found : array) {
      simdjson::ondemand::value element;
      if (const auto error = std::move(found).get(element)) return error;
      if (const auto error = find_error(document, element, at, depth + 1)) return error;
    }
    return simdjson::SUCCESS;
  }
  std::string_view text;
  double number;
  bool truth;
  if (document.current_location().get(at) != simdjson::SUCCESS) at = nullptr;  // scalars are passed, wrong or not
  const auto error = type == json_type::string    ? value.get_string().get(text)
                     : type == json_type::number  ? value.get_double().get(number)
                     : type == json_type::boolean ? value.get_bool().get(truth)
                                                  : value.is_null().get(truth);
  if (error == simdjson::SUCCESS) at = nullptr;
  return error;
}

// Where that is in a text, or in a `readable` form of it with the same lines: " at line 3, byte 7"; "" where simdjson
// does not tell. Documents that end too early it leaves in the zeros behind them.
std::string place_of_error(std::string_view text, std::string_view readable) {
  const simdjson::padded_string padded(readable);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS) return {};
  simdjson::ondemand::value root;
  const char* found = nullptr;
  if (document.get_value().get(root) != simdjson::SUCCESS) return {};  // no array and no object
  if (find_error(document, root, found) == simdjson::DEPTH_ERROR) return {};
  if (found == nullptr && document.current_location().get(found) != simdjson::SUCCESS) return {};
  std::string_view before = readable.substr(0, size_t(found - padded.data()));
  int64_t line = 1;
  for (size_t end; (end = before.find('\n')) != before.npos; ++line) {
    before.remove_prefix(end + 1);
    text.remove_prefix(text.find('\n') + 1);
  }
  return fmt::format(" at line {}{}", line,
                     text.starts_with(before) ? fmt::format(", byte {}", before.size() + 1) : "");
}

// A number that the document holds as a string.
std::optional<double> odd_number(simdjson::dom::element element) {
  std::string_view text;
  if (element.get_string().get(text) != simdjson::SUCCESS || !text.starts_with('\0')) return {};
  if (text == kInfinity) return std::numeric_limits<double>::infinity();
  if (text == kMinusInfinity) return -std::numeric_limits<double>::infinity();
  if (text == kNan) return std::numeric_limits<double>::quiet_NaN();
  if (text.starts_with(kBigInteger)) return std::strtod(text.data() + kBigInteger.size(), nullptr);
  return {};
}

std::string_view type_name(simdjson::dom::element element) {
  using simdjson::dom::element_type;
  if (odd_number(element)) return "a number";
  switch (element.type()) {
    case element_type::ARRAY: return "an array";
    case element_type::OBJECT: return "an object";
    case element_type::INT64:
    case element_type::UINT64:
    case element_type::DOUBLE: return "a number";
    case element_type::STRING: return "a string";
    case element_type::BOOL: return "true or false";
    case element_type::NULL_VALUE: return "null";
  }
  return "something else";
}

}  // namespace

std::unique_ptr<JsonDocument> JsonDocument::parse(std::string_view text, std::string subject, ErrorKind kind) {
  std::unique_ptr<JsonDocument> document(new JsonDocument);
  document->subject_ = std::move(subject);
  document->kind_ = kind;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (!simdjson::validate_utf8(text.data(), text.size()))
    qgen::fail(kind, document->subject_ + ": not valid UTF-8", kind == ErrorKind::kModel ? "not a text file?" : "");
  std::string readable;
  const auto error = with_memory_for(document->subject_, text.size(), [&] {
    auto found = document->parser_.parse(text.data(), text.size()).get(document->root_);
    if (found != simdjson::SUCCESS && found != simdjson::EMPTY && found != simdjson::MEMALLOC) {
      readable = replace_odd_numbers(text);
      found = document->parser_.parse(readable).get(document->root_);
    }
    if (found == simdjson::SUCCESS) {
      std::vector<PathStep> path;
      reject_duplicates(document->root_, path, *document);
    }
    return found;
  });
  if (error == simdjson::MEMALLOC) fail_for_memory(document->subject_, text.size());
  if (error != simdjson::SUCCESS) {
    // simdjson ends its messages with a code for developers after a colon or a full stop.
    std::string reason = simdjson::error_message(error);
    qgen::fail(kind,
               fmt::format("{}: not valid JSON{} ({})", document->subject_, place_of_error(text, readable), reason),
               text.empty()                ? "the file is empty"
               : kind == ErrorKind::kModel ? "an unfinished download, or not the file it should be?"
                                           : "");
  }
  return document;
}

bool Json::is_null() const { return element_.is_null(); }
bool Json::is_object() const { return element_.is_object(); }
bool Json::is_array() const { return element_.is_array(); }
bool Json::is_string() const { return element_.is_string() && !odd_number(element_); }
bool Json::is_bool() const { return element_.is_bool(); }
bool Json::is_number() const { return element_.is_number() || odd_number(element_); }
bool Json::is_integer() const { return element_.is_int64(); }

bool Json::as_bool() const {
  if (!is_bool()) fail_type("true or false");
  return bool(element_);
}

std::string_view Json::as_string() const {
  if (!is_string()) fail_type("a string");
  return std::string_view(element_);
}

double Json::as_number() const {
  if (const auto special = odd_number(element_)) return *special;
  if (!element_.is_number()) fail_type("a number");
  return double(element_);
}

int64_t Json::as_integer(int64_t low, int64_t high) const {
  if (!is_number()) fail_type("an integer");
  if (element_.is_int64()) {
    const int64_t value = int64_t(element_);
    if (value >= low && value <= high) return value;
    fail(fmt::format("{} is out of range (expected {} to {})", value, low, high));
  }
  const double value = as_number();
  // 2^63 is the first double that int64 cannot hold.
  if (std::nearbyint(value) == value && std::abs(value) < 9.2e18) {
    const int64_t integer = int64_t(value);
    if (integer >= low && integer <= high) return integer;
  } else if (std::isfinite(value) && std::abs(value) < 9.2e18) {
    fail(fmt::format("expected an integer, found {}", value));
  }
  fail(fmt::format("{} is out of range (expected {} to {})", value, low, high));
}

uint64_t Json::as_unsigned() const {
  uint64_t value = 0;
  if (element_.get(value) == simdjson::SUCCESS) return value;
  if (!is_number()) fail_type("an integer");
  const double number = as_number();
  if (!element_.is_double() || std::nearbyint(number) != number || number < 0 || number >= 0x1p64)
    fail(fmt::format("{} is out of range (expected an integer from 0 to {})", number, UINT64_MAX));
  return uint64_t(number);
}

std::string Json::integer_text() const {
  int64_t integer = 0;
  uint64_t beyond = 0;
  if (element_.get(integer) == simdjson::SUCCESS) return fmt::format("{}", integer);
  if (element_.get(beyond) == simdjson::SUCCESS) return fmt::format("{}", beyond);
  std::string_view text;
  if (element_.get(text) == simdjson::SUCCESS && text.starts_with(kBigInteger)) return std::string(text.substr(4));
  return {};
}

std::optional<Json> Json::find(std::string_view key) const {
  if (!is_object()) fail_type("an object");
  simdjson::dom::element value;
  if (simdjson::dom::object(element_).at_key(key).get(value) != simdjson::SUCCESS) return {};
  return Json(document_, value);
}

std::optional<Json> Json::get(std::string_view key) const {
  auto value = find(key);
  if (value && value->is_null()) value.reset();
  return value;
}

bool Json::flag_or(std::string_view key, bool fallback) const {
  const auto value = get(key);
  return value ? value->as_bool() : fallback;
}

bool Json::is_root() const { return same_place(element_, document_->root().element_); }

Json Json::at(std::string_view key) const {
  auto value = find(key);
  if (!value)
    qgen::fail(document_->error_kind(), fmt::format("{}{}{}: missing", path(), is_root() ? ": " : ".", shown_key(key)));
  return *value;
}

std::vector<std::pair<std::string_view, Json>> Json::members() const {
  if (!is_object()) fail_type("an object");
  std::vector<std::pair<std::string_view, Json>> out;
  out.reserve(simdjson::dom::object(element_).size());
  for (const auto [key, value] : simdjson::dom::object(element_)) {
    out.emplace_back(key, Json(document_, value));
  }
  return out;
}

size_t Json::count() const {
  if (!is_array()) fail_type("an array");
  // Counted, since simdjson's own count ends at 2^24.
  size_t count = 0;
  for ([[maybe_unused]] const auto value : simdjson::dom::array(element_)) ++count;
  return count;
}

std::vector<Json> Json::elements() const {
  if (!is_array()) fail_type("an array");
  std::vector<Json> out;
  out.reserve(simdjson::dom::array(element_).size());
  for (const auto value : simdjson::dom::array(element_)) {
    out.push_back(Json(document_, value));
  }
  return out;
}

std::string Json::path() const {
  std::vector<PathStep> steps;
  find_place(document_->root().element_, element_, steps);
  return steps.empty() ? document_->subject() : fmt::format("{}: {}", document_->subject(), path_text(steps));
}

std::string_view Json::written_in(std::string_view text) const {
  std::vector<PathStep> steps;
  find_place(document_->root().element_, element_, steps);
  TextWalk walk(text);
  for (const PathStep& step : steps) walk.enter(step.index, step.is_element);
  return walk.value();
}

void Json::fail(const std::string& problem, std::string hint) const {
  qgen::fail(document_->error_kind(), fmt::format("{}: {}", path(), problem), std::move(hint));
}

void Json::fail_type(std::string_view expected) const {
  fail(fmt::format("expected {}, found {}", expected, type_name(element_)));
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : replace_invalid_utf8(text)) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string quoted_name(std::string_view name) { return json_quote(shortened(name, 2 * kShownKeyBytes)); }

std::string json_list(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
  return "[" + out + "]";
}

}  // namespace qgen
