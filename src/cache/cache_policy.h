// The policies of a neuron cache: which entry of a full one makes room for the next.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

enum class CachePolicyKind : uint8_t {
  kLru,         // the least recently used goes
  kTwoQueue,    // P2 §4.2: a new entry is inactive until its second access
  kS3Fifo,      // a small queue, a main one, and a memory of what left the small one
  kLfuDecay,    // the least often used goes; counts fade from token to token
  kLayerLfu,    // the same with a clock per layer: counts fade when their layer has its turn
  kHitDensity,  // what is used least of all that is like it goes; counts fade fast and slowly
  kStatic,      // what was there at the start stays, nothing else comes in
  kWindow,      // what the last tokens used stays; the oldest token goes as a whole
};

// Of neurons and of experts alike: what hit most on recorded accesses and is never more than a
// point under LRU (docs/decisions/0008-cache-policy.md).
inline constexpr CachePolicyKind kDefaultCachePolicy = CachePolicyKind::kLayerLfu;

// "lru", "two-queue", ...: names on the command line and in JSON.
std::string_view CachePolicyName(CachePolicyKind kind);
std::optional<CachePolicyKind> CachePolicyFromName(std::string_view name);
std::span<const CachePolicyKind> AllCachePolicies();
// All names in a line.
std::string CachePolicyNames(std::string_view separator);

}  // namespace hearth
