// Read-only JSON with errors that name the file and the key. Wraps simdjson and reads what published
// files hold beyond the standard: Infinity, -Infinity and NaN (as Python's json module writes them) and
// numbers outside the range of a double. Every accessor that meets a wrong type or range throws an Error
// of the kind the document was opened with. A document takes memory in proportion to its text: the path of a
// value is looked for only when an error names it.
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

// One value of a document. Valid as long as its JsonDocument lives.
class Json {
 public:
  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_bool() const;
  bool is_number() const;   // Infinity and NaN included
  bool is_integer() const;  // written without fraction or exponent, and within int64
  // The digits of a number that is written without fraction or exponent, however large; "" for all else.
  std::string integer_text() const;

  bool as_bool() const;
  std::string_view as_string() const;
  double as_number() const;
  // An integer in [low, high]; a number with a zero fraction (4096.0) counts.
  int64_t as_integer(int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;
  uint64_t as_unsigned() const;  // an integer in [0, 2^64), exactly

  // Objects. find() gives nothing for an absent key; a key that is present with null gives a null value.
  std::optional<Json> find(std::string_view key) const;
  // Like find(), but null counts as absent: the way configuration files use it.
  std::optional<Json> get(std::string_view key) const;
  bool flag_or(std::string_view key, bool fallback) const;         // true or false, `fallback` if absent or null
  Json at(std::string_view key) const;                             // an error that names the key if absent
  std::vector<std::pair<std::string_view, Json>> members() const;  // in file order

  // Arrays.
  std::vector<Json> elements() const;
  size_t count() const;  // of elements

  bool is_root() const;  // of its document

  // For tables of very many members, where a Json for each would cost too much.
  simdjson::dom::element raw() const { return element_; }

  // "config.json: rope_scaling.factor". Walks the document; long keys and paths are shortened.
  std::string path() const;
  // The value as it is written in `text`, which the document was parsed from.
  std::string_view written_in(std::string_view text) const;
  // Throws an Error about this value: "config.json: KEY: problem".
  [[noreturn]] void fail(const std::string& problem, std::string hint = {}) const;

 private:
  friend class JsonDocument;
  Json(const JsonDocument* document, simdjson::dom::element element) : document_(document), element_(element) {}
  [[noreturn]] void fail_type(std::string_view expected) const;

  const JsonDocument* document_;
  simdjson::dom::element element_;
};

class JsonDocument {
 public:
  // `subject` names the document in errors, usually its file name. Duplicate keys in any object are
  // errors: two readers that pick different ones would see different models. A memory Error where the document
  // does not fit into memory.
  static std::unique_ptr<JsonDocument> parse(std::string_view text, std::string subject,
                                             ErrorKind kind = ErrorKind::kModel);

  Json root() const { return Json(this, root_); }
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
// The same for a message: one that is long is cut.
std::string quoted_name(std::string_view name);

// "[a,b]" from JSON texts.
std::string json_list(const std::vector<std::string>& items);

}  // namespace qgen
