// Python's str methods on texts, for methods and filters alike.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

enum class Side : uint8_t { kBoth, kLeft, kRight };

// Without white space, or without characters of `characters`, at its ends.
Text Strip(TextView text, Side side, const Text* characters);
// At most `max_count` replacements, all where negative.
Text Replace(Runtime& runtime, const Text& text, const Text& old, const Text& fresh, Int max_count);
// Runs of white space where `separator` is null. At most `max_splits`, all where negative.
std::vector<Text> Split(Runtime& runtime, const Text& text, const Text* separator, Int max_splits);
std::vector<Text> SplitFromRight(Runtime& runtime, const Text& text, const Text* separator,
                                 Int max_splits);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
// Both throw for the same reasons as Python: an empty separator.
Text Center(const Text& text, Int width, char32_t fill);

Value TextList(Runtime& runtime, std::vector<Text> texts);

}  // namespace hearth::jinja
