// Finds one text in another in linear time, whatever a template makes of either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/text.h"

namespace hearth::jinja {

// Searches for one text, again and again, with the method of Knuth, Morris and Pratt. Keeps a view
// of `wanted`, and overlooks marks as comparisons do.
class TextFinder {
 public:
  enum class Direction : uint8_t { kForward, kBackward };
  // Counts the work on `wanted`, and its memory while the finder lives, against the limits.
  TextFinder(Runtime& runtime, TextView wanted, Direction direction = Direction::kForward);

  // Where `wanted` begins in `text`: at its first place from `from` on, or at its last place where
  // the direction is backward and `from` is 0. Text::npos where it has none. Does not count steps:
  // a caller that reads on after each place reads the text once in all.
  size_t Find(TextView text, size_t from = 0) const;

 private:
  char32_t Wanted(size_t index) const;

  const TextView wanted_;
  const bool backward_;
  // For each beginning of `wanted`, how long its longest proper beginning is that it ends with.
  std::vector<uint32_t> borders_;
};

// The same once, with the steps counted.
size_t FindText(Runtime& runtime, TextView text, TextView wanted);
size_t FindTextBackward(Runtime& runtime, TextView text, TextView wanted);

}  // namespace hearth::jinja
