#include "cache/policy.h"

#include <array>

#include "base/error.h"
#include "cache/lru_policy.h"
#include "cache/two_queue_policy.h"

namespace hearth {
namespace {

struct Named {
  CachePolicyKind kind;
  std::string_view name;
};
constexpr std::array kNames = {
    Named{CachePolicyKind::kLru, "lru"},
    Named{CachePolicyKind::kTwoQueue, "two-queue"},
};

}  // namespace

std::string_view CachePolicyName(CachePolicyKind kind) {
  for (const Named& named : kNames) {
    if (named.kind == kind) return named.name;
  }
  return "unknown";
}

std::optional<CachePolicyKind> CachePolicyFromName(std::string_view name) {
  for (const Named& named : kNames) {
    if (named.name == name) return named.kind;
  }
  return std::nullopt;
}

std::span<const CachePolicyKind> AllCachePolicies() {
  static constexpr std::array kAll = {CachePolicyKind::kLru, CachePolicyKind::kTwoQueue};
  return kAll;
}

namespace cache {

std::unique_ptr<Policy> MakePolicy(CachePolicyKind kind, std::span<KeyNode> nodes,
                                   int32_t num_slots) {
  switch (kind) {
    case CachePolicyKind::kLru:
      return std::make_unique<LruPolicy>(nodes);
    case CachePolicyKind::kTwoQueue:
      return std::make_unique<TwoQueuePolicy>(nodes, num_slots);
  }
  throw Error(ErrorCode::kInternal, "cache policy", "no such policy");
}

}  // namespace cache
}  // namespace hearth
