// Python's two ways of formatting: "%s of %d" % values, and "{} of {:>5}".format(values). The template's
// part of the result keeps the template's marks, the values keep theirs.
#pragma once

#include "jinja/heap.h"

namespace qgen::jinja {

class Interpreter;

// `values` is what stands right of the %: a tuple, a dict or a single value.
Value percent_format(Heap& heap, const Value& format, const Value& values);
Value brace_format(Interpreter& interpreter, const Value& format, const Arguments& arguments);

}  // namespace qgen::jinja
