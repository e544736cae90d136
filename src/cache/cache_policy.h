// The policies of a neuron cache: which entry of a full one makes room for the next.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace hearth {

enum class CachePolicyKind : uint8_t {
  kLru,       // the least recently used goes
  kTwoQueue,  // P2 section 4.2: a new entry is inactive until its second access
};

// "lru", "two-queue", ...: names on the command line and in JSON.
std::string_view CachePolicyName(CachePolicyKind kind);
std::optional<CachePolicyKind> CachePolicyFromName(std::string_view name);
std::span<const CachePolicyKind> AllCachePolicies();

}  // namespace hearth
