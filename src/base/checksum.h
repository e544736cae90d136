// Hashes of bytes (xxHash): how Hearth's own files notice that they were altered or cut short. No
// protection against somebody who means harm; readers check every value as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hearth {

// XXH3-64.
uint64_t Checksum(std::span<const std::byte> bytes) noexcept;

// XXH32 with seed 0: the checks of bundles (docs/formats/bundle.md).
uint32_t Xxh32(std::span<const std::byte> bytes) noexcept;

// XXH3-64 of bytes that come in pieces. Not thread-safe.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();

  void Update(std::span<const std::byte> bytes) noexcept;
  uint64_t Digest() const noexcept;  // of all bytes so far
  void Restart() noexcept;           // forgets them

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth
