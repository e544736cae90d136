// For which keys of the neuron cache a slot holds nothing but the gate half of a bundle.
#pragma once

#include <cstdint>
#include <span>

#include "base/budget.h"
#include "base/buffer.h"

namespace hearth {

// A bit per key; none is set at first. One thread at a time.
class GateOnlyKeys {
 public:
  // Charged to `budget` as "cache tables".
  GateOnlyKeys(Budget& budget, int64_t num_keys)
      : memory_(budget, "cache tables", Bytes(num_keys)),
        words_(reinterpret_cast<uint64_t*>(memory_.data()),
               memory_.size_bytes() / sizeof(uint64_t)) {}
  static uint64_t ChargedBytes(int64_t num_keys) { return Buffer::ChargedBytes(Bytes(num_keys)); }

  bool Has(int32_t key) const {
    return (words_[static_cast<size_t>(key) / 64] >> (key % 64) & 1) != 0;
  }
  void Set(int32_t key, bool has) {
    uint64_t& word = words_[static_cast<size_t>(key) / 64];
    const uint64_t bit = uint64_t{1} << (key % 64);
    word = has ? word | bit : word & ~bit;
  }

 private:
  static uint64_t Bytes(int64_t num_keys) {
    return (static_cast<uint64_t>(num_keys) + 63) / 64 * sizeof(uint64_t);
  }

  Buffer memory_;
  std::span<uint64_t> words_;
};

}  // namespace hearth
