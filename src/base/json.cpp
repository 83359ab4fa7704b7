#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/utf8.h"

namespace qgen {
namespace {

// simdjson knows no non-finite numbers. They are replaced, outside of strings, by strings that no
// real file holds (a NUL character leads them) and recognized again when a number is asked for.
constexpr std::string_view kInfinity{"\0inf", 4};
constexpr std::string_view kMinusInfinity{"\0-inf", 5};
constexpr std::string_view kNan{"\0nan", 4};

// A number literal whose magnitude a double cannot hold, as Python reads it: infinity.
bool overflows(std::string_view literal) {
  errno = 0;
  std::string copy(literal);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  return end == copy.c_str() + copy.size() && std::isinf(value);
}

std::string replace_non_finite(std::string_view text) {
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

void reject_duplicates(simdjson::dom::element element, const std::string& path, const JsonDocument& document) {
  const auto child = [&](std::string_view key) {
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  };
  if (element.is_object()) {
    std::vector<std::string_view> keys;
    for (const auto [key, value] : simdjson::dom::object(element)) {
      keys.push_back(key);
      if (value.is_object() || value.is_array()) reject_duplicates(value, child(key), document);
    }
    // By length first: vocabularies have very many keys.
    std::sort(keys.begin(), keys.end(), [](std::string_view a, std::string_view b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      fail(document.error_kind(),
           fmt::format("{}: the key {} occurs twice", document.subject(), json_quote(child(*twice))));
    }
  } else if (element.is_array()) {
    std::string elements;
    for (const auto value : simdjson::dom::array(element)) {
      if (!value.is_object() && !value.is_array()) continue;
      if (elements.empty()) elements = path + "[]";
      reject_duplicates(value, elements, document);
    }
  }
}

std::string_view type_name(simdjson::dom::element element) {
  using simdjson::dom::element_type;
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

std::optional<double> non_finite(simdjson::dom::element element) {
  std::string_view text;
  if (element.get_string().get(text) != simdjson::SUCCESS) return {};
  if (text == kInfinity) return std::numeric_limits<double>::infinity();
  if (text == kMinusInfinity) return -std::numeric_limits<double>::infinity();
  if (text == kNan) return std::numeric_limits<double>::quiet_NaN();
  return {};
}

}  // namespace

std::unique_ptr<JsonDocument> JsonDocument::parse(std::string_view text, std::string subject, ErrorKind kind) {
  std::unique_ptr<JsonDocument> document(new JsonDocument);
  document->subject_ = std::move(subject);
  document->kind_ = kind;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (!simdjson::validate_utf8(text.data(), text.size()))
    qgen::fail(kind, document->subject_ + ": not valid UTF-8", kind == ErrorKind::kModel ? "not a text file?" : "");
  auto error = document->parser_.parse(text.data(), text.size()).get(document->root_);
  if (error != simdjson::SUCCESS && error != simdjson::EMPTY) {
    const std::string finite = replace_non_finite(text);
    error = document->parser_.parse(finite).get(document->root_);
  }
  if (error != simdjson::SUCCESS) {
    // simdjson ends its messages with a code for developers after a colon or a full stop.
    std::string reason = simdjson::error_message(error);
    qgen::fail(kind, fmt::format("{}: not valid JSON ({})", document->subject_, reason),
               text.empty()                ? "the file is empty"
               : kind == ErrorKind::kModel ? "an unfinished download, or not the file it should be?"
                                           : "");
  }
  reject_duplicates(document->root_, "", *document);
  return document;
}

bool Json::is_null() const { return element_.is_null(); }
bool Json::is_object() const { return element_.is_object(); }
bool Json::is_array() const { return element_.is_array(); }
bool Json::is_string() const { return element_.is_string() && !non_finite(element_); }
bool Json::is_bool() const { return element_.is_bool(); }
bool Json::is_number() const { return element_.is_number() || non_finite(element_); }
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
  if (const auto special = non_finite(element_)) return *special;
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

std::optional<Json> Json::find(std::string_view key) const {
  if (!is_object()) fail_type("an object");
  simdjson::dom::element value;
  if (simdjson::dom::object(element_).at_key(key).get(value) != simdjson::SUCCESS) return {};
  return Json(document_, value, child_key(key));
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

Json Json::at(std::string_view key) const {
  auto value = find(key);
  if (!value) {
    qgen::fail(document_->error_kind(), fmt::format("{}: {}: missing", document_->subject(), child_key(key)));
  }
  return *value;
}

std::vector<std::pair<std::string_view, Json>> Json::members() const {
  if (!is_object()) fail_type("an object");
  std::vector<std::pair<std::string_view, Json>> out;
  for (const auto [key, value] : simdjson::dom::object(element_)) {
    out.emplace_back(key, Json(document_, value, child_key(key)));
  }
  return out;
}

std::vector<Json> Json::elements() const {
  if (!is_array()) fail_type("an array");
  std::vector<Json> out;
  for (const auto value : simdjson::dom::array(element_)) {
    out.push_back(Json(document_, value, fmt::format("{}[{}]", key_, out.size())));
  }
  return out;
}

std::string Json::child_key(std::string_view key) const {
  return key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key);
}

std::string Json::path() const {
  return key_.empty() ? document_->subject() : fmt::format("{}: {}", document_->subject(), key_);
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

std::string json_list(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
  return "[" + out + "]";
}

}  // namespace qgen
