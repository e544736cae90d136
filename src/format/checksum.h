// XXH3-64 of bytes: how Hearth's own files notice that they were altered or cut short. No
// protection against somebody who means harm; readers check every value as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace hearth {

uint64_t Checksum(std::span<const std::byte> bytes) noexcept;

// The same of bytes that come in pieces. Not thread-safe.
class ChecksumStream {
 public:
  ChecksumStream();

  void Update(std::span<const std::byte> bytes) noexcept;
  uint64_t Digest() const noexcept;  // of all bytes so far

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace hearth
