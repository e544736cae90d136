// Python's two ways of putting values into a text.
#pragma once

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

// format % values: values is a tuple, a dict, or one value. `escapes`: as Markup does (markup.h).
Value FormatPercent(Runtime& runtime, const Text& format, const Value& values,
                    bool escapes = false);

// format.format(arguments).
Value FormatBraces(Runtime& runtime, const Text& format, const Arguments& arguments,
                   bool escapes = false);

// The arguments of format_map as those of format.
Arguments NamedByMapping(const Arguments& arguments);

}  // namespace hearth::jinja
