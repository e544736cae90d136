#include "cache/policy.h"

#include <array>

#include "base/error.h"
#include "cache/hit_density_policy.h"
#include "cache/lfu_policy.h"
#include "cache/lru_policy.h"
#include "cache/s3_fifo_policy.h"
#include "cache/static_policy.h"
#include "cache/two_queue_policy.h"
#include "cache/window_policy.h"

namespace hearth {
namespace {

struct Named {
  CachePolicyKind kind;
  std::string_view name;
};
constexpr std::array kNames = {
    Named{CachePolicyKind::kLru, "lru"},
    Named{CachePolicyKind::kTwoQueue, "two-queue"},
    Named{CachePolicyKind::kS3Fifo, "s3-fifo"},
    Named{CachePolicyKind::kLfuDecay, "lfu-decay"},
    Named{CachePolicyKind::kLayerLfu, "layer-lfu"},
    Named{CachePolicyKind::kHitDensity, "hit-density"},
    Named{CachePolicyKind::kStatic, "static"},
    Named{CachePolicyKind::kWindow, "window"},
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
  static constexpr std::array kAll = {CachePolicyKind::kLru,      CachePolicyKind::kTwoQueue,
                                      CachePolicyKind::kS3Fifo,   CachePolicyKind::kLfuDecay,
                                      CachePolicyKind::kLayerLfu, CachePolicyKind::kHitDensity,
                                      CachePolicyKind::kStatic,   CachePolicyKind::kWindow};
  return kAll;
}

std::string CachePolicyNames(std::string_view separator) {
  std::string names;
  for (const CachePolicyKind kind : AllCachePolicies()) {
    if (!names.empty()) names += separator;
    names += CachePolicyName(kind);
  }
  return names;
}

namespace cache {

std::unique_ptr<Policy> MakePolicy(std::span<KeyNode> nodes, const PolicyShape& shape) {
  switch (shape.kind) {
    case CachePolicyKind::kLru:
      return std::make_unique<LruPolicy>(nodes);
    case CachePolicyKind::kTwoQueue:
      return std::make_unique<TwoQueuePolicy>(nodes, shape.num_slots);
    case CachePolicyKind::kS3Fifo:
      return std::make_unique<S3FifoPolicy>(nodes, shape.num_slots);
    case CachePolicyKind::kLfuDecay:
      return std::make_unique<LfuPolicy>(nodes, 1);
    case CachePolicyKind::kLayerLfu:
      return std::make_unique<LfuPolicy>(nodes, shape.num_layers);
    case CachePolicyKind::kHitDensity:
      return std::make_unique<HitDensityPolicy>(nodes, shape.num_layers);
    case CachePolicyKind::kStatic:
      return std::make_unique<StaticPolicy>(nodes);
    case CachePolicyKind::kWindow:
      return std::make_unique<WindowPolicy>(nodes, shape.window_tokens);
  }
  throw Error(ErrorCode::kInternal, "cache policy", "no such policy");
}

}  // namespace cache
}  // namespace hearth
