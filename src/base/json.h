// Read-only JSON with errors that name the file and the key. Wraps simdjson and reads what published
// files hold beyond the standard: Infinity, -Infinity and NaN (as Python's json module writes them) and
// numbers outside the range of a double. Every accessor that meets a wrong type or range throws an Error
// of the kind the document was opened with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "base/error.h"

namespace qgen {

class JsonDocument;

// One value of a document, with the path that led to it. Valid as long as its JsonDocument lives.
class Json {
 public:
  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_bool() const;
  bool is_number() const;   // Infinity and NaN included
  bool is_integer() const;  // written without fraction or exponent, and within int64

  bool as_bool() const;
  std::string_view as_string() const;
  double as_number() const;
  // An integer in [low, high]; a number with a zero fraction (4096.0) counts.
  int64_t as_integer(int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;

  // Objects. find() gives nothing for an absent key; a key that is present with null gives a null value.
  std::optional<Json> find(std::string_view key) const;
  // Like find(), but null counts as absent: the way configuration files use it.
  std::optional<Json> get(std::string_view key) const;
  bool flag_or(std::string_view key, bool fallback) const;         // true or false, `fallback` if absent or null
  Json at(std::string_view key) const;                             // an error that names the key if absent
  std::vector<std::pair<std::string_view, Json>> members() const;  // in file order

  // Arrays.
  std::vector<Json> elements() const;

  // For tables of very many members, where a Json for each would cost too much.
  simdjson::dom::element raw() const { return element_; }

  // "config.json: rope_scaling.factor"
  std::string path() const;
  // Throws an Error about this value: "config.json: KEY: problem".
  [[noreturn]] void fail(const std::string& problem, std::string hint = {}) const;

 private:
  friend class JsonDocument;
  Json(const JsonDocument* document, simdjson::dom::element element, std::string key)
      : document_(document), element_(element), key_(std::move(key)) {}
  std::string child_key(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view expected) const;

  const JsonDocument* document_;
  simdjson::dom::element element_;
  std::string key_;  // dotted path from the root, empty for the root
};

class JsonDocument {
 public:
  // `subject` names the document in errors, usually its file name. Duplicate keys in any object are
  // errors: two readers that pick different ones would see different models.
  static std::unique_ptr<JsonDocument> parse(std::string_view text, std::string subject,
                                             ErrorKind kind = ErrorKind::kModel);

  Json root() const { return Json(this, root_, ""); }
  const std::string& subject() const { return subject_; }
  ErrorKind error_kind() const { return kind_; }

 private:
  JsonDocument() = default;
  std::string subject_;
  ErrorKind kind_ = ErrorKind::kModel;
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

// `text` as a JSON string literal, quotes included; invalid UTF-8 becomes U+FFFD.
std::string json_quote(std::string_view text);

// "[a,b]" from JSON texts.
std::string json_list(const std::vector<std::string>& items);

}  // namespace qgen
