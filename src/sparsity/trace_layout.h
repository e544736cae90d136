// The bytes of an access trace as docs/formats/trace.md describes them. Internal to trace*.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::trace {

inline constexpr char kMagic[8] = {'H', 'R', 'T', 'H', 'T', 'R', 'A', 'C'};
inline constexpr uint32_t kVersion = 1;

// Behind it the model's name and the XXH3 of both.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t name_bytes;
  uint64_t model_hash;
  uint64_t num_layers;
  uint64_t num_experts;
  uint64_t num_experts_per_token;
  uint64_t intermediate_size;
  uint32_t activation;  // as FfnActivation numbers it
  uint32_t reserved;    // 0
};
static_assert(sizeof(Header) == 64);

// Then blocks of `tokens` tokens each: this, the payload, and the XXH3 of both. The last block has
// no tokens; its payload is the number of tokens in the file.
struct BlockHeader {
  uint32_t tokens;
  uint32_t reserved;  // 0
  uint64_t payload_bytes;
};
static_assert(sizeof(BlockHeader) == 16);
inline constexpr uint64_t kEndBytes = sizeof(BlockHeader) + 2 * sizeof(uint64_t);

// A block is closed as soon as its payload is this large.
inline constexpr size_t kBlockBytes = size_t{1} << 20;

// How a list is written; the low bits of its first number, the count above them.
enum ListKind : uint64_t { kDeltas = 0, kBitmap = 1, kAll = 2 };
inline constexpr int kKindBits = 2;

inline constexpr uint64_t kMaxNameBytes = 65535;
inline constexpr uint64_t kMaxLayers = 4096;
inline constexpr uint64_t kMaxExperts = 65536;
inline constexpr uint64_t kMaxNeurons = uint64_t{1} << 24;
// Of all lists of a token: what a short record can make a reader hold (256 MiB). The largest dense
// models have 5 million.
inline constexpr uint64_t kMaxNeuronsPerToken = uint64_t{1} << 26;

}  // namespace hearth::trace
