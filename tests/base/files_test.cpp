// Files of models: what is in a file's place and is none is an error that names it, and never counts as absent.
#include <sys/stat.h>

#include "base/file_map.h"
#include "base/model_files.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("model files: what is no file does not count as absent") {
  const TemporaryFolder folder;
  const ModelFiles files(folder.path());
  folder.write("whole.json", "{}");
  fs::create_symlink("missing", folder.path() / "dangling.json");
  fs::create_symlink("loop.json", folder.path() / "loop.json");
  fs::create_symlink("whole.json", folder.path() / "link.json");
  fs::create_directory(folder.path() / "folder.json");
  REQUIRE(::mkfifo((folder.path() / "pipe.json").c_str(), 0600) == 0);
  CHECK_FALSE(files.has("absent.json"));
  CHECK(files.read("link.json") == "{}");
  for (const auto& [name, problem] :
       {std::pair<std::string, std::string>{"dangling.json", "a link to a file that is missing"},
        {"loop.json", "symbolic links"},
        {"folder.json", "not a regular file"},
        {"pipe.json", "not a regular file"}}) {
    CAPTURE(name);
    CHECK(files.has(name));
    ErrorKind kind = ErrorKind::kRuntime;
    const std::string message = error_of([&, file = name] { files.read(file); }, &kind);
    CHECK(kind == ErrorKind::kModel);
    CHECK(contains(message, (folder.path() / name).string()));
    CHECK(contains(message, problem));
  }
  CHECK_FALSE(ModelFiles(folder.path() / "whole.json").has("config.json"));
}

TEST_CASE("files: a limit is checked before the file is read") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "large";
  folder.write("large", "");
  fs::resize_file(path, size_t{1} << 40);  // of holes
  CHECK(contains(error_of([&] { read_file(path); }), "too large (expected at most 1073741824 bytes)"));
  CHECK(contains(error_of([&] { read_file(path, 10, ErrorKind::kUsage); }), "too large"));
  CHECK(read_file(folder.write("small", "text")) == "text");
}

}  // namespace
}  // namespace qgen::test
