// What a cache of neurons or experts would have hit, policy by policy, on recorded accesses
// (docs/decisions/0008-cache-policy.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "cache/belady.h"
#include "cache/cache_policy.h"
#include "sparsity/access_sequence.h"

namespace hearth {

struct ReplayHits {
  CachePolicyKind policy = CachePolicyKind::kLru;
  int64_t hits = 0;
  // Of the way from LRU's hits to Belady's, the share that this policy goes. 0 where there is no
  // way to go.
  double gap_closed = 0;
};

struct ReplayPoint {
  double capacity = 0;    // share of all keys, as asked for
  int64_t num_slots = 0;  // the same in keys, rounded down, at least 1
  int64_t lru_hits = 0;
  int64_t belady_hits = 0;
  std::vector<ReplayHits> policies;  // in the order of the options
};

struct ReplayOptions {
  std::vector<CachePolicyKind> policies;
  std::vector<double> capacities;  // over 0 to 1
  // Calls get how many replays are done.
  std::function<void(int64_t done, int64_t total)> progress;
  const std::atomic<bool>* cancel = nullptr;  // looked at between replays; true stops
};

struct ReplayResult {
  int64_t accesses = 0;
  int64_t unused_keys = 0;  // that no access names
  WorkingSet working_set;   // of the pass that is in the middle by size
  std::vector<ReplayPoint> points;
};

// Replays the sequence once per policy and capacity. Every cache is empty at first, but for static,
// which holds the keys that this very sequence uses most: the best that can be pinned. A miss is
// there for the next batch; entries are released when their batch ends. Throws Error(kCancelled),
// Error(kInvalidArgument) for capacities out of range or nothing to do.
ReplayResult ReplayCaches(const AccessSequence& sequence, const ReplayOptions& options);

}  // namespace hearth
