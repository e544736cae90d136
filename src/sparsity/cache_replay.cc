#include "sparsity/cache_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/budget.h"
#include "base/error.h"
#include "cache/neuron_cache.h"

namespace hearth {
namespace {

// How often each key is used.
std::vector<int64_t> CountUses(const AccessSequence& sequence) {
  std::vector<int64_t> uses(static_cast<size_t>(sequence.num_keys()));
  for (const int32_t key : sequence.keys()) ++uses[static_cast<size_t>(key)];
  return uses;
}

std::vector<int32_t> KeysByUse(const std::vector<int64_t>& uses) {
  std::vector<int32_t> keys(uses.size());
  std::iota(keys.begin(), keys.end(), 0);
  std::stable_sort(keys.begin(), keys.end(), [&](int32_t a, int32_t b) {
    return uses[static_cast<size_t>(a)] > uses[static_cast<size_t>(b)];
  });
  return keys;
}

// Of the median pass: the mean would count prompts in.
WorkingSet MedianWorkingSet(const AccessSequence& sequence) {
  const int64_t keys_per_layer = sequence.num_experts * sequence.num_neurons;
  std::vector<int64_t> layers(static_cast<size_t>(sequence.num_layers));
  std::vector<WorkingSet> passes;
  for (int64_t i = 0; i < sequence.num_batches(); ++i) {
    const auto batch = sequence.batch(i);
    layers[static_cast<size_t>(batch[0] / keys_per_layer)] += static_cast<int64_t>(batch.size());
    if (!sequence.ends_pass(i)) continue;
    passes.push_back(WorkingSetOf(layers));
    std::fill(layers.begin(), layers.end(), 0);
  }
  if (passes.empty()) return {};
  const auto middle = passes.begin() + static_cast<std::ptrdiff_t>(passes.size() / 2);
  std::nth_element(passes.begin(), middle, passes.end(),
                   [](const WorkingSet& a, const WorkingSet& b) { return a.keys < b.keys; });
  return *middle;
}

class Replayer {
 public:
  explicit Replayer(const AccessSequence& sequence)
      : sequence_(sequence), uses_(CountUses(sequence)) {}

  int64_t Hits(CachePolicyKind policy, int64_t num_slots) {
    NeuronCache cache(budget_,
                      {.num_keys = sequence_.num_keys(),
                       .num_slots = num_slots,
                       .num_layers = sequence_.num_layers,
                       .policy = policy},
                      {});
    if (policy == CachePolicyKind::kStatic) SeedHottest(cache);
    for (int64_t i = 0; i < sequence_.num_batches(); ++i) {
      const KeyBatch batch = {0, sequence_.batch(i)};
      entries_.resize(batch.offsets.size());
      if (cache.Lookup(batch, entries_) > 0) {
        for (const int32_t key : batch.offsets) cache.Loaded(key);
      }
      cache.Release(batch, entries_);
      if (sequence_.ends_pass(i)) cache.EndToken();
    }
    return cache.counts().hits - FirstUses(cache);
  }

  int64_t unused_keys() const { return std::count(uses_.begin(), uses_.end(), 0); }

 private:
  void SeedHottest(NeuronCache& cache) {
    if (hottest_.empty()) hottest_ = KeysByUse(uses_);
    std::vector<int32_t> slots(static_cast<size_t>(cache.options().num_slots));
    cache.Seed(std::span(hottest_).first(slots.size()), slots);
  }

  // Hits on keys that static held before they were used: others have to read them then.
  int64_t FirstUses(const NeuronCache& cache) const {
    if (cache.options().policy != CachePolicyKind::kStatic) return 0;
    const auto held = std::span(hottest_).first(static_cast<size_t>(cache.options().num_slots));
    return std::count_if(held.begin(), held.end(),
                         [&](int32_t key) { return uses_[static_cast<size_t>(key)] > 0; });
  }

  const AccessSequence& sequence_;
  std::vector<int64_t> uses_;
  std::vector<int32_t> hottest_;
  std::vector<CacheEntry> entries_;
  Budget budget_;
};

void Check(const ReplayOptions& options) {
  for (const double capacity : options.capacities) {
    if (capacity > 0 && capacity <= 1) continue;
    throw Error(ErrorCode::kInvalidArgument, "replay", "capacity", "over 0 to 100% of all keys",
                fmt::format("{}%", 100 * capacity));
  }
  if (options.policies.empty() || options.capacities.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "replay", "no policy or no capacity was named");
  }
}

}  // namespace

ReplayResult ReplayCaches(const AccessSequence& sequence, const ReplayOptions& options) {
  Check(options);
  Replayer replayer(sequence);
  const BeladyBound bound(sequence.keys(), sequence.batch_ends(), sequence.num_keys());
  ReplayResult result;
  result.accesses = sequence.num_accesses();
  result.unused_keys = replayer.unused_keys();
  result.working_set = MedianWorkingSet(sequence);

  const auto total =
      static_cast<int64_t>(options.capacities.size() * (options.policies.size() + 1));
  int64_t done = 0;
  const auto step = [&] {
    if (options.progress) options.progress(done, total);
    ++done;
    if (options.cancel != nullptr && options.cancel->load()) {
      throw Error(ErrorCode::kCancelled, "replay", "interrupted");
    }
  };
  for (const double capacity : options.capacities) {
    step();
    ReplayPoint point;
    point.capacity = capacity;
    // 0.7 * 10 is a little less than 7.
    constexpr double kRounding = 1e-9;
    point.num_slots = std::max<int64_t>(
        1, static_cast<int64_t>(capacity * static_cast<double>(sequence.num_keys()) + kRounding));
    point.belady_hits = bound.Hits(point.num_slots);
    point.lru_hits = replayer.Hits(CachePolicyKind::kLru, point.num_slots);
    const auto gap = static_cast<double>(point.belady_hits - point.lru_hits);
    for (const CachePolicyKind policy : options.policies) {
      step();
      const int64_t hits =
          policy == CachePolicyKind::kLru ? point.lru_hits : replayer.Hits(policy, point.num_slots);
      const auto gained = static_cast<double>(hits - point.lru_hits);
      point.policies.push_back(
          {.policy = policy, .hits = hits, .gap_closed = gap > 0 ? gained / gap : 0});
    }
    result.points.push_back(std::move(point));
  }
  return result;
}

}  // namespace hearth
