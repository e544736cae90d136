// What the bandwidth of memory is measured on.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/buffer.h"
#include "engine/engine.h"

namespace hearth {

// Memory that is read to learn how fast memory is: the model's weights where they are much larger
// than the caches, else a buffer of that size, charged as "bandwidth probe".
class ProbeMemory {
 public:
  // The engine must outlive the object.
  explicit ProbeMemory(Engine& engine);

  // Empty where the budget has no room for the buffer; then `missing` says so in a sentence.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& missing() const { return missing_; }

 private:
  Buffer buffer_;
  std::span<const std::byte> bytes_;
  std::string missing_;
};

}  // namespace hearth
