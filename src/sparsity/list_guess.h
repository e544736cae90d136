// What an FFN will probably list, found out in small steps by threads that have nothing better to
// do: while they wait for the reads of the FFN before it (docs/decisions/0014-lookahead.md).
#pragma once

#include <cstdint>
#include <span>

namespace hearth {

class ListGuess {
 public:
  virtual ~ListGuess() = default;

  enum class Step : uint8_t {
    kNone,  // nothing to do: the rest is in other hands, or all is done
    kSome,
    kLast,  // all is done now; once
  };
  // Some ten microseconds of it for a token, more for several. Any thread, several at a time.
  virtual Step TakeStep() noexcept = 0;
  // After kLast: neurons, ascending. Valid until the next guess begins.
  virtual std::span<const int32_t> listed() const noexcept = 0;
};

}  // namespace hearth
