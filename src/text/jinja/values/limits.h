// What a template may use, so that a hostile one does no harm, and what it takes for the time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hearth::jinja {

struct Limits {
  uint64_t max_steps = 50'000'000;       // nodes evaluated, items visited: about a second
  size_t max_bytes = size_t{256} << 20;  // of all it holds, 4 per character of text
  size_t max_output_characters = size_t{8} << 20;
  int max_depth = 1000;  // of evaluation: macros that call macros, values inside values
  // What strftime_now tells; nothing: the clock's.
  std::optional<std::chrono::system_clock::time_point> now;
};

}  // namespace hearth::jinja
