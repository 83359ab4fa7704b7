#include "cli/batch_done.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/line_reader.h"

namespace qgen::cli {
namespace {

constexpr std::string_view kRequestId = "batch_req_";  // batch_answer.cpp

// What a line of output answers: an id as JSON text ("null" for none), and the number of the line.
struct Done {
  std::string id = "null";
  int64_t line = 0;
};

// A member's text as every spelling of the same id has it.
std::string id_of(const std::optional<Json>& id) { return id ? simdjson::minify(id->raw()) : "null"; }

std::optional<Done> read_done(const Json& answer) {
  if (!answer.is_object()) answer.fail("expected an answer of --batch");
  Done out;
  if (const auto response = answer.get("response")) {
    if (response->at("status_code").as_integer() != 200) return {};
    out.id = id_of(answer.find("custom_id"));
    const std::string_view number = answer.at("id").as_string();
    if (number.starts_with(kRequestId))
      std::from_chars(number.data() + kRequestId.size(), number.data() + number.size(), out.line);
    return out;
  }
  const auto stop = answer.get("stop");
  if (!stop || stop->as_string() == "interrupted") return {};  // an error, or half an answer
  out.id = id_of(answer.find("id"));
  out.line = answer.at("line").as_integer(1);
  return out;
}

// How many bytes of a file belong to lines with an end.
int64_t bytes_of_whole_lines(const std::string& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  std::string chunk;
  for (int64_t end = stream ? int64_t(stream.tellg()) : 0; end > 0;) {
    constexpr int64_t kChunkBytes = 1 << 16;
    const int64_t begin = std::max<int64_t>(0, end - kChunkBytes);
    chunk.resize(size_t(end - begin));
    stream.seekg(begin);
    if (!stream.read(chunk.data(), end - begin)) return 0;
    if (const size_t newline = chunk.rfind('\n'); newline != chunk.npos) return begin + int64_t(newline) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

DoneLines DoneLines::read(const std::string& file) {
  DoneLines out;
  std::error_code ignored;
  out.missing_ = !std::filesystem::exists(file, ignored);
  if (out.missing_) return out;
  const bool regular = std::filesystem::is_regular_file(file, ignored);
  if (regular) {
    out.whole_bytes_ = bytes_of_whole_lines(file);
    out.torn_ = uintmax_t(out.whole_bytes_) < std::filesystem::file_size(file, ignored);
  }
  const std::string subject = fmt::format("--done {}", file);
  LineReader reader(file, subject);
  std::string line, next;
  for (int64_t number = 1; reader.next(line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    std::unique_ptr<JsonDocument> document;
    try {
      document = JsonDocument::parse(line, fmt::format("{}: line {}", subject, number), ErrorKind::kUsage);
    } catch (const Error&) {
      // The last line may be half a one.
      if ((regular && !out.torn_) || !line.starts_with("{\"") || reader.next(next)) throw;
      out.half_ = true;
      break;
    }
    if (auto done = read_done(document->root())) {
      if (done->id != "null") {
        ++out.ids_[done->id];
      } else {
        out.lines_.insert(done->line);
      }
    }
  }
  return out;
}

bool DoneLines::take(const std::string& id, int64_t line) {
  if (id == "null") return lines_.contains(line);
  if (ids_.empty()) return false;
  const auto document = JsonDocument::parse(fmt::format(R"({{"id":{}}})", id), "id", ErrorKind::kUsage);
  const auto found = ids_.find(id_of(document->root().find("id")));
  if (found == ids_.end() || found->second == 0) return false;
  --found->second;
  return true;
}

}  // namespace qgen::cli
