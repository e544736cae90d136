// The header and tensor directory of one GGUF file, read and checked. Internal to format/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/header_cursor.h"
#include "storage/block_reader.h"

namespace hearth {

// Limits of the specification, and limits of ours where it has none.
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr uint64_t kGgufMaxAlignment = uint64_t{1} << 30;
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;
// The specification says 64; some converters write longer names, which harm nobody.
inline constexpr uint64_t kGgufMaxTensorNameBytes = 1023;
// Arrays of arrays of arrays; no known file goes beyond 2.
inline constexpr int kGgufMaxArrayDepth = 4;
// Tensors, and metadata pairs. The largest models have some 10^4 tensors.
inline constexpr uint64_t kGgufMaxEntries = uint64_t{1} << 20;
// The largest vocabularies take 30 MB of header. As an entry takes at most some ten times its
// bytes of the file in memory, this bounds what a hostile file can make us allocate.
inline constexpr uint64_t kGgufMaxHeaderBytes = uint64_t{256} << 20;

// Sizes stay far enough below 2^64 for sums of an offset and a size.
inline constexpr uint64_t kMaxGgufBytes = uint64_t{1} << 62;

// One file of a set. Tensor offsets are from the start of the file; file_index is 0.
struct GgufPart {
  uint32_t version = 3;
  uint64_t alignment = kGgufDefaultAlignment;
  uint64_t data_begin = 0;  // where the tensor data begins; may be the end of the file
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  std::vector<GgufForeignTensor> foreign;
};

// Throws Error(kCorrupt) or Error(kUnsupported), one sentence that names file, field, expected and
// found. Every tensor returned lies inside the file, aligned, and overlaps no other. That names
// are unique is for the caller to check, over all parts.
GgufPart ParseGgufPart(const BlockReader& reader, ForeignTensors foreign = ForeignTensors::kRefuse);

// Where the value of a key ends in a file that ParseGgufPart accepts. Reads the keys before it once
// more. Throws Error(kNotFound) where it is missing.
uint64_t FindGgufValueEnd(const BlockReader& reader, std::string_view key);

// Steps of the above, in files of their own.
//
// Magic number and version; refuses what is no GGUF, naming what it looks like.
uint32_t ReadGgufVersion(const BlockReader& reader, HeaderCursor& cursor);
// One value: its type number, then the value.
GgufValue ReadGgufValue(HeaderCursor& cursor);
// A power of two that a file may name as its alignment.
bool IsGgufAlignment(uint64_t alignment);
// Turns offsets from the data section into offsets from the start of the file and checks them.
void PlaceGgufTensors(const BlockReader& reader, uint64_t data_begin, uint64_t alignment,
                      std::vector<GgufTensor>& tensors);

}  // namespace hearth
