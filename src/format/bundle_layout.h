// The packed file: where the parts of a neuron lie in its bundle, and the names of what a packed
// GGUF holds besides a plain one. Every byte is described in docs/formats/bundle.md; this header is
// the only place in code that knows them.
//
// A bundle holds one neuron: its rows of gate and up and its column of down (as a row), each in row
// groups (tensor/row_groups.h). The gate part can be read alone, and so can the rest: both begin on
// a multiple of 512 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "tensor/dtype.h"

namespace hearth {

// Bundles and their split points are multiples of this: the least that direct I/O can address.
inline constexpr uint64_t kBundleAlignment = 512;
inline constexpr uint32_t kPackedFormatVersion = 1;

// Keys of a packed file's metadata.
inline constexpr std::string_view kFormatVersionKey = "hearth.format_version";
inline constexpr std::string_view kBundlePartsKey = "hearth.bundle.parts";
inline constexpr std::string_view kBundleSplitKey = "hearth.bundle.split";

enum class BundleRole : uint8_t { kGate, kUp, kDown, kCheck };
const char* BundleRoleName(BundleRole role);  // "gate", "up", "down", "check"

// A run of bytes of every bundle. Weights are rows of `hidden` weights; a check is two u32.
struct BundlePart {
  BundleRole role = BundleRole::kGate;
  DType dtype = DType::kF32;  // of weights
  uint64_t offset = 0;        // from the start of the bundle
  uint64_t bytes = 0;

  bool operator==(const BundlePart&) const = default;
};

struct BundleLayout {
  std::vector<BundlePart> parts;  // in ascending offset; one of each role
  uint64_t split = 0;             // where up and down begin; gate and check end before
  uint64_t stride = 0;            // from one bundle to the next

  const BundlePart& Part(BundleRole role) const;
  bool operator==(const BundleLayout&) const = default;
};

// True for types that bundles store: those with row groups, and F16.
bool CanBundle(DType dtype);

// Bytes of a row of `hidden` weights in a bundle. dtype is one that CanBundle; hidden is a multiple
// of 32.
uint64_t BundleRowBytes(DType dtype, int64_t hidden);

// The layout that Hearth writes: gate, check, zeros to the split, up, down, zeros to the stride.
BundleLayout MakeBundleLayout(DType dtype, int64_t hidden);

// True where the file says that it is packed.
bool IsPacked(const GgufMetadata& metadata);

// What the metadata says, checked for a model of this hidden size: every part once, inside its half
// and the stride, apart from the others, and as long as its type asks. `stride` is that of the
// bundle tensors (ne[0]). Throws Error(kCorrupt), or Error(kUnsupported) for a version, type or
// role that this program does not know.
BundleLayout ReadBundleLayout(const GgufMetadata& metadata, int64_t hidden, uint64_t stride);

// Sets the keys above.
void WriteBundleLayout(const BundleLayout& layout, GgufMetadata* metadata);

// "blk.3.ffn_bundle", I8 [experts][neurons][stride]; its neurons' original indices, I32
// [experts][neurons], and activation rates, F32 likewise.
std::string BundleTensorName(int64_t layer);
std::string BundleOrderName(int64_t layer);
std::string BundleRateName(int64_t layer);

// The bytes of a bundle that its two checks are of: the gate's, and all from up's first to down's
// last.
struct CheckedPart {
  uint64_t offset;  // in the bundle
  uint64_t bytes;
};
CheckedPart GateChecked(const BundleLayout& layout);
CheckedPart RestChecked(const BundleLayout& layout);

// The checks: XXH32 of these bytes. `bundle` is a whole one; `rest` begins at the split.
uint32_t GateCheckOf(const BundleLayout& layout, std::span<const std::byte> bundle);
uint32_t RestCheckOf(const BundleLayout& layout, std::span<const std::byte> rest);
// What a bundle says that they should be.
struct BundleChecks {
  uint32_t gate;
  uint32_t rest;
};
BundleChecks StoredChecks(const BundleLayout& layout, std::span<const std::byte> bundle);
// Writes both into the bundle / compares them with what it says.
void SetBundleChecks(const BundleLayout& layout, std::span<std::byte> bundle);
bool BundleIsIntact(const BundleLayout& layout, std::span<const std::byte> bundle);

}  // namespace hearth
