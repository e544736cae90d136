#include "sparsity/access_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/budget.h"
#include "base/error.h"
#include "cache/neuron_cache.h"
#include "sparsity/profile_stats.h"

namespace hearth {
namespace {

constexpr int64_t kLeastPasses = 4;  // one of them fills the cache

double HotShareOf(const AccessSequence& sequence) {
  std::vector<double> uses(static_cast<size_t>(sequence.num_keys()));
  for (const int32_t key : sequence.keys()) ++uses[static_cast<size_t>(key)];
  return CarryingShare(uses, kHotShare);
}

// Share of each pass's accesses that LRU finds.
std::vector<double> FoundShares(const AccessSequence& sequence) {
  Budget budget;
  const double slots = FiguresCacheShare(sequence.unit) * static_cast<double>(sequence.num_keys());
  NeuronCache cache(budget,
                    {.num_keys = sequence.num_keys(),
                     .num_slots = std::max<int64_t>(1, static_cast<int64_t>(slots)),
                     .num_layers = sequence.num_layers,
                     .policy = CachePolicyKind::kLru},
                    {});
  std::vector<double> shares;
  std::vector<CacheEntry> entries;
  CacheCounts before;
  for (int64_t i = 0; i < sequence.num_batches(); ++i) {
    const KeyBatch batch = {0, sequence.batch(i)};
    entries.resize(batch.offsets.size());
    if (cache.Lookup(batch, entries) > 0) {
      for (const int32_t key : batch.offsets) cache.Loaded(key);
    }
    cache.Release(batch, entries);
    if (!sequence.ends_pass(i)) continue;
    cache.EndToken();
    const CacheCounts now = cache.counts();
    shares.push_back(static_cast<double>(now.hits - before.hits) /
                     static_cast<double>(now.accesses() - before.accesses()));
    before = now;
  }
  return shares;
}

}  // namespace

double FiguresCacheShare(AccessUnit unit) { return unit == AccessUnit::kNeurons ? 0.5 : 0.2; }

AccessFigures FiguresOf(const AccessSequence& sequence) {
  if (sequence.num_passes() < kLeastPasses) {
    throw Error(ErrorCode::kInvalidArgument, sequence.model_name, "tokens of the trace",
                fmt::format("at least {}", kLeastPasses), std::to_string(sequence.num_passes()));
  }
  AccessFigures figures;
  const int64_t choices =
      sequence.unit == AccessUnit::kNeurons ? sequence.num_neurons : sequence.num_experts;
  figures.active = static_cast<double>(sequence.num_accesses()) /
                   static_cast<double>(sequence.num_batches() * choices);
  figures.hot_share = HotShareOf(sequence);
  const std::vector<double> shares = FoundShares(sequence);
  const size_t first = shares.size() / 4;
  for (size_t i = first; i < shares.size(); ++i) figures.found += shares[i];
  figures.found /= static_cast<double>(shares.size() - first);
  return figures;
}

}  // namespace hearth
