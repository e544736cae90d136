// XXH32 of many byte strings of one length at once (the xxHash specification, seed 0).
//
// The hash keeps four sums, each of every fourth word. A vector holds those of kLanes / 4 rows, and
// four vectors go through the rows side by side, because a step of a sum waits for the product of
// the step before.
#pragma once

#include "kernels/simd/row_list-inl.h"
#include "kernels/xxh32_numbers.h"

namespace hearth::kernels::HEARTH_ISA {

using WordTag = hn::Repartition<uint32_t, FloatTag>;
using Words = hn::Vec<WordTag>;

inline constexpr int kHashVectors = 4;
inline constexpr int kHashRowsOfVector = static_cast<int>(kLanes / 4);
inline constexpr int kHashRows = kHashVectors * kHashRowsOfVector;
// A row's lines are asked for this much before their words are.
inline constexpr size_t kHashLineBytes = 64;
inline constexpr size_t kHashAheadBytes = 512;

// 16 bytes of every one of MaxLanes(d) / 4 rows.
template <class D>
HWY_INLINE hn::Vec<D> LoadStripes(D d, const uint8_t* const* rows, size_t at) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), rows[0] + at));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadStripes(half, rows + hn::MaxLanes(half) / 4, at),
                       LoadStripes(half, rows, at));
  }
}

// The sums of kHashRows rows after all their whole stripes: sums[row][4]. Meanwhile the first bytes
// of `next`, as many rows, are asked for.
HWY_INLINE void HashStripes(const uint8_t* const* rows, const uint8_t* const* next, size_t bytes,
                            uint32_t (*sums)[4]) {
  const WordTag d;
  const Words prime1 = hn::Set(d, kXxh32Prime1), prime2 = hn::Set(d, kXxh32Prime2);
  HWY_ALIGN uint32_t start[hn::MaxLanes(d)];
  for (size_t i = 0; i < hn::MaxLanes(d); ++i) start[i] = kXxh32Start[i % 4];
  Words v[kHashVectors];
  Unrolled<kHashVectors>([&]<int i>() HEARTH_INLINED { v[i] = hn::Load(d, start); });
  for (size_t at = 0; at + kXxh32Stripe <= bytes; at += kXxh32Stripe) {
    if (at % kHashLineBytes == 0) {
      const size_t ahead = at + kHashAheadBytes;
      const bool is_here = ahead < bytes;
      for (int r = 0; r < kHashRows; ++r) {
        FetchAhead(is_here ? rows[r] + ahead : next[r] + (ahead - bytes));
      }
    }
    Unrolled<kHashVectors>([&]<int i>() HEARTH_INLINED {
      const Words words = LoadStripes(d, rows + i * kHashRowsOfVector, at);
      v[i] = hn::Mul(hn::RotateRight<32 - kXxh32RoundTurn>(hn::Add(v[i], hn::Mul(words, prime2))),
                     prime1);
    });
  }
  Unrolled<kHashVectors>([&]<int i>()
                             HEARTH_INLINED { hn::StoreU(v[i], d, sums[i * kHashRowsOfVector]); });
}

HWY_INLINE uint32_t TurnLeft(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

// What is done after the last whole stripe.
HWY_INLINE uint32_t FinishHash(const uint32_t* sums, const uint8_t* row, size_t bytes) {
  uint32_t hash = kXxh32Prime5;
  if (bytes >= kXxh32Stripe) {
    hash = 0;
    for (int i = 0; i < 4; ++i) hash += TurnLeft(sums[i], kXxh32JoinTurns[i]);
  }
  hash += static_cast<uint32_t>(bytes);
  size_t at = bytes / kXxh32Stripe * kXxh32Stripe;
  for (; at + 4 <= bytes; at += 4) {
    uint32_t word;
    __builtin_memcpy(&word, row + at, sizeof(word));
    hash = TurnLeft(hash + word * kXxh32Prime3, 17) * kXxh32Prime4;
  }
  for (; at < bytes; ++at) hash = TurnLeft(hash + row[at] * kXxh32Prime5, 11) * kXxh32Prime1;
  hash = (hash ^ hash >> 15) * kXxh32Prime2;
  hash = (hash ^ hash >> 13) * kXxh32Prime3;
  return hash ^ hash >> 16;
}

inline void Xxh32Rows(const RowHashArgs& args) noexcept {
  for (int64_t first = 0; first < args.list.count; first += kHashRows) {
    const int64_t left = args.list.count - first;
    const int count = static_cast<int>(left < kHashRows ? left : kHashRows);
    const uint8_t* rows[kHashRows];
    const uint8_t* next[kHashRows];
    // Those that are missing are the last one again.
    for (int r = 0; r < kHashRows; ++r) {
      rows[r] = RowAhead(args.list, first, r);
      next[r] = RowAhead(args.list, first, r + kHashRows);
    }
    uint32_t sums[kHashRows][4];
    HashStripes(rows, next, args.bytes, sums);
    for (int r = 0; r < count; ++r) {
      args.out[first + r] = FinishHash(sums[r], rows[r], args.bytes);
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
