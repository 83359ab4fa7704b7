// Any bytes as a line of a batch: refused with a usage Error, or a request whose identity is written in the line.
#include "cli/batch_request.h"
#include "tests/fuzz/support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 512, 4 << 20);
  const std::string_view text = qgen::fuzz::text_of(data, size);
  const qgen::cli::AnswerOptions options;
  qgen::cli::BatchRequest request;
  qgen::fuzz::expect_error({qgen::ErrorKind::kUsage}, [&] {
    qgen::cli::read_batch_request(text, 1, options, request);
    if (request.prompt.has_value() == request.messages.has_value()) std::abort();
  });
  if (request.id != "null") {
    if (text.find(request.id) == text.npos) std::abort();
    qgen::JsonDocument::parse(request.id, "id");
  }
  return 0;
}
