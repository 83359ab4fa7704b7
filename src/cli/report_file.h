// The file of --stats-file. Files other than qgen's reports are never overwritten, the file appears once the report is
// complete, and a pipe without a reader is an error instead of a wait.
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
