// The numbers of XXH32 (the xxHash specification, section "XXH32 algorithm"), for seed 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::kernels {

inline constexpr uint32_t kXxh32Prime1 = 0x9E3779B1;
inline constexpr uint32_t kXxh32Prime2 = 0x85EBCA77;
inline constexpr uint32_t kXxh32Prime3 = 0xC2B2AE3D;
inline constexpr uint32_t kXxh32Prime4 = 0x27D4EB2F;
inline constexpr uint32_t kXxh32Prime5 = 0x165667B1;

// A stripe is four words, one for each of the four sums, which start from these.
inline constexpr size_t kXxh32Stripe = 16;
inline constexpr uint32_t kXxh32Start[4] = {kXxh32Prime1 + kXxh32Prime2, kXxh32Prime2, 0,
                                            0 - kXxh32Prime1};
// Bits by which a sum is turned left after a word, and sums when they are joined.
inline constexpr int kXxh32RoundTurn = 13;
inline constexpr int kXxh32JoinTurns[4] = {1, 7, 12, 18};

}  // namespace hearth::kernels
