// A parsed template with its source, and the rendering behind ChatTemplate with limits of one's own (what a
// fuzzer needs: small ones).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/prompt.h"
#include "chat/template.h"
#include "jinja/interpreter.h"

namespace qgen::jinja {

struct Program {
  std::string subject;
  std::string source;  // normalized; offsets refer to it
  Syntax syntax;
};

Program parse_program(std::string_view source, std::string subject);
Prompt render_program(const Program& program, const std::vector<Message>& messages, const TemplateOptions& options,
                      const Limits& limits);

}  // namespace qgen::jinja
