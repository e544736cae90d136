#include "base/checksum.h"

// Everything inline: cross builds have the header alone.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace hearth {

uint64_t Checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint32_t Xxh32(std::span<const std::byte> bytes) noexcept {
  return XXH32(bytes.data(), bytes.size(), 0);
}

struct ChecksumStream::State {
  XXH3_state_t sum;
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->sum);
  Restart();
}

ChecksumStream::~ChecksumStream() = default;

void ChecksumStream::Restart() noexcept { XXH3_64bits_reset(&state_->sum); }

void ChecksumStream::Update(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) XXH3_64bits_update(&state_->sum, bytes.data(), bytes.size());
}

uint64_t ChecksumStream::Digest() const noexcept { return XXH3_64bits_digest(&state_->sum); }

}  // namespace hearth
