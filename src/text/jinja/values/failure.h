// The error inside the interpreter; Template turns it into hearth::Error.
#pragma once

#include <stdexcept>
#include <string>

namespace hearth::jinja {

// A template that is not valid, or that failed on its context. `line` is 0 where the one who throws
// does not know it; the interpreter then takes the line that it is at.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& what, int line = 0) : std::runtime_error(what), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

// More nesting, steps, memory or output than is granted to a template.
class LimitExceeded : public Failure {
 public:
  using Failure::Failure;
};

// The owner of the memory for renderings has no more to give now.
class MemoryRefused : public LimitExceeded {
 public:
  using LimitExceeded::LimitExceeded;
};

}  // namespace hearth::jinja
