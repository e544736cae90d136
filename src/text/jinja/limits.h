// What a template may use, so that a hostile one does no harm.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::jinja {

struct Limits {
  uint64_t max_steps = 50'000'000;       // nodes evaluated, items visited: about a second
  size_t max_bytes = size_t{256} << 20;  // of all it holds, 4 per character of text
  size_t max_output_characters = size_t{8} << 20;
  int max_depth = 1000;  // of evaluation: macros that call macros, values inside values
};

}  // namespace hearth::jinja
