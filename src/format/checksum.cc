#include "format/checksum.h"

#include <xxhash.h>

#include <new>

namespace hearth {

uint64_t Checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

ChecksumStream::ChecksumStream() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void ChecksumStream::Update(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t ChecksumStream::Digest() const noexcept { return XXH3_64bits_digest(state_.get()); }

void ChecksumStream::Free::operator()(XXH3_state_s* state) const noexcept { XXH3_freeState(state); }

}  // namespace hearth
