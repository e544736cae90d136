// Kernels that measure the machine: the most that any kernel of this instruction set could reach.
//
// The ISA file's registers-inl.h supplies
//   constexpr int kVectorRegisters   how many vectors the processor holds
//   void KeepInRegister(V& v)        hides from the compiler what v holds, without an instruction
#pragma once

#include "kernels/simd/quads-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Sums that are independent of each other. A byte product takes up to 5 cycles and two may start
// in each, so 10 keep the processor busy; of 16 registers no more are free, since the operands and
// what lies between a product of pairs and its sum need the rest. With 32 there is room to spare.
inline constexpr int kProbeSums = kVectorRegisters == 32 ? 24 : 10;

// Sums: what adds up the products of a block, kMultiplyAdds per quad of all lanes.
template <class Sums, int64_t kMultiplyAdds>
int64_t ProbeInt8(int64_t rounds) noexcept {
  Bytes u = hn::Set(ByteTag(), uint8_t{3});
  const Bytes s = hn::Set(ByteTag(), uint8_t{1});
  for (int64_t round = 0; round < rounds; ++round) {
    Sums sums[kProbeSums];
    Unrolled<kProbeSums>([&]<int i>() HEARTH_INLINED { sums[i].Start(hn::Zero(IntTag())); });
    Unrolled<kQuadsOfBlock * kProbeSums>([&]<int i>() HEARTH_INLINED {
      KeepInRegister(u);  // or the products of pairs would be computed once for all sums
      sums[i % kProbeSums].Add(u, s);
    });
    Unrolled<kProbeSums>([&]<int i>() HEARTH_INLINED {
      IntVec total = sums[i].Total();
      KeepInRegister(total);
    });
  }
  return rounds * kQuadsOfBlock * kProbeSums * kMultiplyAdds;
}

inline int64_t ProbeFloat(int64_t rounds) noexcept {
  FloatVec sums[kProbeSums];
  Unrolled<kProbeSums>([&]<int i>() HEARTH_INLINED { sums[i] = hn::Zero(kFloats); });
  FloatVec a = hn::Set(kFloats, 0.5f);
  FloatVec b = hn::Set(kFloats, 0x1p-30f);  // sums stay ordinary numbers, however long it takes
  KeepInRegister(a);
  KeepInRegister(b);
  for (int64_t round = 0; round < rounds; ++round) {
    Unrolled<kProbeSums>([&]<int i>() HEARTH_INLINED {
      sums[i] = hn::MulAdd(a, b, sums[i]);
      KeepInRegister(sums[i]);
    });
  }
  return rounds * kProbeSums * 2 * kLanes;
}

// Places of memory that are read in turn. One stream leaves the memory idle between the lines that
// the processor fetches ahead of it by itself.
inline constexpr int64_t kReadStreams = 4;
// How far ahead of its use a line is asked for: the latency of memory times its speed per core.
inline constexpr int64_t kReadAheadBytes = 2048;

HWY_INLINE void ReadLine(const uint8_t* line, Bytes& sum) {
  for (int v = 0; v < kVectorsPerLine; ++v) {
    sum = hn::Xor(sum, LoadBytes(line + v * kVectorBytes));
  }
}

inline uint64_t ProbeRead(const std::byte* data, int64_t bytes) noexcept {
  const uint8_t* p = reinterpret_cast<const uint8_t*>(data);
  const int64_t lines = bytes / kLineBytes;
  const int64_t stream_lines = lines / kReadStreams;
  const int64_t stream_bytes = stream_lines * kLineBytes;
  Bytes sums[kReadStreams];
  for (Bytes& sum : sums) sum = hn::Zero(ByteTag());
  for (int64_t i = 0; i < stream_lines; ++i) {
    for (int64_t s = 0; s < kReadStreams; ++s) {
      const uint8_t* line = p + s * stream_bytes + i * kLineBytes;
      // May point past the end; a prefetch never faults.
      __builtin_prefetch(
          reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + kReadAheadBytes));
      ReadLine(line, sums[s]);
    }
  }
  for (int64_t i = stream_lines * kReadStreams; i < lines; ++i) {
    ReadLine(p + i * kLineBytes, sums[0]);
  }
  for (int64_t s = 1; s < kReadStreams; ++s) sums[0] = hn::Xor(sums[0], sums[s]);
  uint8_t left[kVectorBytes];
  hn::StoreU(sums[0], ByteTag(), left);
  uint64_t result = 0;
  for (int64_t i = 0; i < kVectorBytes; i += 8) {
    uint64_t word;
    __builtin_memcpy(&word, left + i, sizeof(word));
    result ^= word;
  }
  return result;
}

}  // namespace hearth::kernels::HEARTH_ISA
