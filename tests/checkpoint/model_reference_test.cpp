#include "checkpoint/model_reference.h"

#include <doctest/doctest.h>

using qgen::parse_model_reference;

namespace {

// "id|revision|variant|file", or "" for none.
std::string parsed(std::string_view text) {
  const auto r = parse_model_reference(text);
  return r ? r->id + "|" + r->revision + "|" + r->variant + "|" + r->file : "";
}

}  // namespace

TEST_CASE("model reference: names, revisions, variants, files and addresses") {
  CHECK(parsed("org/name") == "org/name|||");
  CHECK(parsed("name") == "name|||");
  CHECK(parsed("org/name@v1") == "org/name|v1||");
  CHECK(parsed("org/name@pr/1") == "org/name|pr/1||");
  CHECK(parsed("org/name:Q8_0") == "org/name||Q8_0|");
  CHECK(parsed("org/name@v1:Q8_0") == "org/name|v1|Q8_0|");
  CHECK(parsed("org/name/model-q8_0.gguf") == "org/name|||model-q8_0.gguf");
  CHECK(parsed("hf.co/org/name:Q8_0") == "org/name||Q8_0|");
  CHECK(parsed("https://huggingface.co/org/name") == "org/name|||");
  CHECK(parsed("https://huggingface.co/org/name/") == "org/name|||");
  CHECK(parsed("https://huggingface.co/org/name/tree/main") == "org/name|||");
  CHECK(parsed("https://huggingface.co/org/name/tree/v2") == "org/name|v2||");
  CHECK(parsed("https://huggingface.co/org/name/blob/main/sub/m.gguf") == "org/name|||sub/m.gguf");
  CHECK(parsed("https://huggingface.co/org/name/resolve/v2/m.gguf?download=true") == "org/name|v2||m.gguf");
  CHECK(parsed("https://huggingface.co/org/name/blob/main/config.json") == "org/name|||");
}

TEST_CASE("model reference: what can be none of these") {
  for (const char* text :
       {"", "./name", "../org/name", "/tmp/x", "org/name@", "org/name:", "org/na me", "org//name", "a/b/c",
        "https://example.com/org/name", "org/name@../x", "org/name/../m.gguf", "org/name:a/b"}) {
    CAPTURE(text);
    CHECK(parsed(text) == "");
  }
}

TEST_CASE("model reference: what fetches it") {
  const auto download = [](std::string_view text) { return parse_model_reference(text)->download(); };
  CHECK(download("org/name") == "hf download org/name");
  CHECK(download("org/name@v1") == "hf download org/name --revision v1");
  CHECK(download("org/name:Q8_0") == "hf download org/name --include \"*Q8_0*\"");
  CHECK(download("org/name-GGUF") == "hf download org/name-GGUF --include \"*Q8_0*\"");
  CHECK(download("org/name/m.gguf") == "hf download org/name m.gguf");
}
