// The escapes of string literals.
#pragma once

#include "text/jinja/values/text.h"

namespace hearth::jinja {

// What stands between the quotes, unescaped as Python does; unknown escapes stay as they are.
// Throws Failure at `line` for escapes that name no character.
Text Unescape(TextView body, int line);

}  // namespace hearth::jinja
