// Jinja source to a syntax tree, by the grammar of Jinja 3.1 with the loop controls and the `generation` blocks
// of chat templates. Nesting is limited, so neither parsing nor rendering can overflow the stack.
#pragma once

#include <string_view>

#include "jinja/lexer.h"
#include "jinja/node.h"

namespace qgen::jinja {

// `source` as normalize_source gives it. Throws SyntaxProblem.
Syntax parse_source(std::string_view source);

}  // namespace qgen::jinja
