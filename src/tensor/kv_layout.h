// Where the keys and values of a KV page lie (docs/formats/kv.md).
//
// A page holds 64 tokens of every layer and KV head. For a (layer, head) pair the values are a
// matrix [64][head_dim]; in front of it are the keys, in blocks of 16 tokens, each of which is a
// matrix [head_dim][16]. So the attention kernels stream both, and add to the scores of 16 tokens
// and to 16 components of an output at once, without sums over the lanes of a vector.
//
// The codec says how both are stored:
//   f32, f16  keys and values as named
//   k8, k4    keys as int8 or int4 codes, values as f16
//   k8v8      keys as int8 codes, values as fp8 (tensor/fp8.h)
//   k4v8      keys as int4 codes, values as fp8
// Component i of a coded key is zero + scale * code, with codes 0..255 or 0..15 and a binary16 zero
// and scale per token and range of components: all of a head with int8 codes, 32 of them with int4
// codes. They follow the codes of their block, for each range scales[16], zeros[16]. A byte of int4
// codes has components 2i (low) and 2i + 1 (high) of one token. A component of an fp8 value
// is scale * number, with a binary16 scale per token and head; scales[64] follow the numbers. A
// token's codes depend on its own key and value alone, so what is appended changes nothing before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hearth {

// How a KV cache is stored. The numbers stand in files.
enum class KvCodec : uint8_t { kF32 = 0, kF16 = 1, kK8V8 = 2, kK4V8 = 3, kK8 = 4, kK4 = 5 };
enum class KvKeys : uint8_t { kF32, kF16, kInt8, kInt4 };
enum class KvValues : uint8_t { kF32, kF16, kFp8 };
inline constexpr int kNumKvKeys = 4;
inline constexpr int kNumKvValues = 3;

struct KvCodecInfo {
  std::string_view name;  // of --kv
  KvKeys keys;
  KvValues values;
};
// By KvCodec.
inline constexpr std::array<KvCodecInfo, 6> kKvCodecs = {{
    {"f32", KvKeys::kF32, KvValues::kF32},
    {"f16", KvKeys::kF16, KvValues::kF16},
    {"k8v8", KvKeys::kInt8, KvValues::kFp8},
    {"k4v8", KvKeys::kInt4, KvValues::kFp8},
    {"k8", KvKeys::kInt8, KvValues::kF16},
    {"k4", KvKeys::kInt4, KvValues::kF16},
}};
// As users are told them, the default first.
inline constexpr const char* kKvCodecNames = "f16|f32|k8v8|k4v8|k8|k4";

constexpr const KvCodecInfo& InfoOf(KvCodec codec) { return kKvCodecs[static_cast<size_t>(codec)]; }

// The codec with this name, or with this number in a file; nothing for others.
inline std::optional<KvCodec> KvCodecFromName(std::string_view name) {
  for (size_t i = 0; i < kKvCodecs.size(); ++i) {
    if (kKvCodecs[i].name == name) return static_cast<KvCodec>(i);
  }
  return std::nullopt;
}
inline std::optional<KvCodec> KvCodecFromNumber(uint32_t number) {
  if (number >= kKvCodecs.size()) return std::nullopt;
  return static_cast<KvCodec>(number);
}

// Bits of a key's component, and bytes of a value's.
constexpr int64_t BitsOf(KvKeys keys) {
  constexpr int64_t kBits[kNumKvKeys] = {32, 16, 8, 4};
  return kBits[static_cast<int>(keys)];
}
constexpr int64_t BytesOf(KvValues values) {
  constexpr int64_t kBytes[kNumKvValues] = {4, 2, 1};
  return kBytes[static_cast<int>(values)];
}
// The largest code of a key; 0 where keys have none.
constexpr int32_t MostCodeOf(KvKeys keys) {
  return keys == KvKeys::kInt8 ? 255 : keys == KvKeys::kInt4 ? 15 : 0;
}

// A block of 16 tokens' keys of one head.
struct KeyBlockLayout {
  static constexpr int64_t kTokens = 16;
  static constexpr int64_t kHalfBytes = 2;  // of a scale or zero
  // Components of int4 codes that share a scale and a zero. The error of a code grows with what
  // the components span, and 32 of them span three quarters of what 256 do.
  static constexpr int64_t kInt4Range = 32;
  static constexpr int64_t kRangeBytes = 2 * kTokens * kHalfBytes;  // scales and zeros

  KvKeys keys = KvKeys::kF16;
  int64_t head_dim = 0;

  constexpr bool has_codes() const { return MostCodeOf(keys) > 0; }
  // Without scales and zeros. An odd last component of int4 codes takes a whole byte.
  constexpr int64_t code_bytes() const { return (head_dim * BitsOf(keys) + 7) / 8 * kTokens; }
  constexpr int64_t bytes() const {
    return code_bytes() + (has_codes() ? num_ranges() * kRangeBytes : 0);
  }
  // Components that share a scale and a zero, and how many such ranges a coded key has.
  constexpr int64_t range() const { return keys == KvKeys::kInt4 ? kInt4Range : head_dim; }
  constexpr int64_t num_ranges() const { return (head_dim + range() - 1) / range(); }
  // Bytes from the block's first to component i of its token; int4: to the byte that holds it.
  constexpr int64_t ComponentAt(int64_t token, int64_t i) const {
    if (keys == KvKeys::kInt4) return i / 2 * kTokens + token;
    return (i * kTokens + token) * (BitsOf(keys) / 8);
  }
  // The same to the binary16 scale and zero of component i of a coded token.
  constexpr int64_t ScaleAt(int64_t token, int64_t i) const {
    return code_bytes() + i / range() * kRangeBytes + token * kHalfBytes;
  }
  constexpr int64_t ZeroAt(int64_t token, int64_t i) const {
    return ScaleAt(token, i) + kTokens * kHalfBytes;
  }
};

struct KvLayout {
  static constexpr int64_t kPageTokens = 64;
  static constexpr int64_t kKeyBlock = KeyBlockLayout::kTokens;  // tokens whose keys lie together

  KvCodec codec = KvCodec::kF16;
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  KvKeys keys() const { return InfoOf(codec).keys; }
  KvValues values() const { return InfoOf(codec).values; }
  KeyBlockLayout key_block() const { return {keys(), head_dim}; }
  // Whether keys, and the queries that meet them, are turned first (pass/math/spread_heads.h).
  bool has_spread_keys() const { return keys() == KvKeys::kInt4; }
  bool has_value_scales() const { return values() == KvValues::kFp8; }

  // Of one (layer, head) pair.
  size_t keys_bytes() const {
    return static_cast<size_t>(key_block().bytes()) * (kPageTokens / kKeyBlock);
  }
  size_t values_bytes() const {
    return static_cast<size_t>(ValueScaleAt(has_value_scales() ? kPageTokens : 0));
  }
  size_t head_bytes() const { return keys_bytes() + values_bytes(); }
  size_t page_bytes() const {
    return head_bytes() * static_cast<size_t>(num_layers * num_kv_heads);
  }
  // Of all layers and heads. A page's size is a multiple of its tokens but for int4 codes of an odd
  // head_dim; then this is rounded up.
  size_t token_bytes() const { return (page_bytes() + kPageTokens - 1) / kPageTokens; }

  // Offsets of the two matrices of a (layer, head) pair inside a page.
  size_t KeysOffset(int64_t layer, int64_t head) const {
    return head_bytes() * static_cast<size_t>(layer * num_kv_heads + head);
  }
  size_t ValuesOffset(int64_t layer, int64_t head) const {
    return KeysOffset(layer, head) + keys_bytes();
  }

  // Bytes from the keys' first to the block that has a page's token `row`.
  int64_t KeyBlockAt(int64_t row) const { return row / kKeyBlock * key_block().bytes(); }
  // Bytes from the values' first to those of token `row`, and to their binary16 scale.
  int64_t ValueAt(int64_t row) const { return row * head_dim * BytesOf(values()); }
  int64_t ValueScaleAt(int64_t row) const {
    return ValueAt(kPageTokens) + row * KeyBlockLayout::kHalfBytes;
  }

  static int64_t PagesFor(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  bool operator==(const KvLayout&) const = default;
};
static_assert(KvLayout::kPageTokens % KvLayout::kKeyBlock == 0);

}  // namespace hearth
