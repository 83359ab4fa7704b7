// The file of --stats-file. What is no report of ours is never written over, nothing appears before there is a report,
// and a pipe without a reader keeps nobody waiting.
#pragma once

#include <string>
#include <string_view>

namespace qgen::cli {

// Before any work: an Error if the file could not be written. A pipe is held open from here on, since its reader would
// take a second opening for a second file.
void prepare_report_file(const std::string& path);

// Replaces what the file holds; a runtime Error if it cannot be written.
void write_report_file(const std::string& path, std::string_view json);

}  // namespace qgen::cli
