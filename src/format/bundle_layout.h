// The packed file: where the parts of a neuron lie in its bundle, and the names of what a packed
// GGUF holds besides a plain one. Every byte is described in docs/formats/bundle.md; this header is
// the only place in code that knows them.
//
// A bundle holds one neuron: its rows of gate and up and its column of down (as a row), each in row
// groups (tensor/row_groups.h); or, of an FFN of two matrices, its row of the first, its bias and
// its column of the second. What decides whether the neuron fires can be read alone, and so can the
// rest: both begin on a multiple of 512 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace hearth {

// Bundles and their split points are multiples of this: the least that direct I/O can address.
inline constexpr uint64_t kBundleAlignment = 512;
inline constexpr uint32_t kPackedFormatVersion = 1;

// Keys of a packed file's metadata.
inline constexpr std::string_view kFormatVersionKey = "hearth.format_version";
inline constexpr std::string_view kBundlePartsKey = "hearth.bundle.parts";
inline constexpr std::string_view kBundleSplitKey = "hearth.bundle.split";

// kGate and kDown of an FFN of two matrices are its first and its second one.
enum class BundleRole : uint8_t { kGate, kBias, kUp, kDown, kCheck };

// A run of bytes of every bundle. Weights are rows of `hidden` weights; a bias is a float, a check
// two u32.
struct BundlePart {
  BundleRole role = BundleRole::kGate;
  DType dtype = DType::kF32;  // of weights, and of a bias
  uint64_t offset = 0;        // from the start of the bundle
  uint64_t bytes = 0;

  bool operator==(const BundlePart&) const = default;
};

// What the FFNs of a model have.
struct BundleKind {
  bool is_gated = true;   // gate, up and down; else two matrices
  bool has_bias = false;  // of the first of two matrices

  bool operator==(const BundleKind&) const = default;
};

struct BundleLayout {
  std::vector<BundlePart> parts;  // in ascending offset; at most one of each role
  uint64_t split = 0;             // where up and down begin; gate, bias and check end before
  uint64_t stride = 0;            // from one bundle to the next

  BundleKind kind() const;
  const BundlePart* FindPart(BundleRole role) const;  // null where there is none
  const BundlePart& Part(BundleRole role) const;      // throws Error(kInternal) there
  const char* RoleName(BundleRole role) const;        // as a file says it: "gate", or "fc1"
  bool operator==(const BundleLayout&) const = default;
};

// True for types that bundles store: those with row groups, and F16.
bool CanBundle(DType dtype);

// Bytes of a row of `hidden` weights in a bundle. dtype is one that CanBundle; hidden is a multiple
// of 32.
uint64_t BundleRowBytes(DType dtype, int64_t hidden);

// The layout that Hearth writes: gate, bias, check, zeros to the split, up, down, zeros to the
// stride.
BundleLayout MakeBundleLayout(DType dtype, int64_t hidden, const BundleKind& kind = {});

// True where the file says that it is packed.
bool IsPacked(const GgufMetadata& metadata);

// What the metadata says, checked for a model of this hidden size: every part of its kind once,
// inside its half and the stride, apart from the others, and as long as its type asks. `stride` is
// that of the bundle tensors (ne[0]). Throws Error(kCorrupt), or Error(kUnsupported) for a version,
// type or role that this program does not know.
BundleLayout ReadBundleLayout(const GgufMetadata& metadata, int64_t hidden, uint64_t stride);

// Sets the keys above.
void WriteBundleLayout(const BundleLayout& layout, GgufMetadata* metadata);

// "blk.3.ffn_bundle", I8 [experts][neurons][stride]; its neurons' original indices, I32
// [experts][neurons], and activation rates, F32 likewise.
std::string BundleTensorName(int64_t layer);
std::string BundleOrderName(int64_t layer);
std::string BundleRateName(int64_t layer);

// The rows of a part of `count` neurons that lie `stride` bytes apart, with their biases where they
// are gates: in bundles, or copies of a run of their bytes. `bundle` is where the first byte of the
// first bundle is or would be. Without data where bundles have no such part.
RowsView RowsOfPart(const BundleLayout& layout, BundleRole role, int64_t hidden, int64_t count,
                    const std::byte* bundle, size_t stride);

// The bytes of a bundle that its two checks cover. One covers gate and bias, from the first byte of
// both to the last; the other covers up and down in the same way.
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
