#include "planner/miss_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/budget.h"
#include "base/error.h"
#include "cache/neuron_cache.h"

namespace hearth {
namespace {

// The cache of neurons that are not pinned, with the keys that an engine gives them.
class WarmCache {
 public:
  WarmCache(const AccessSequence& sequence, const StreamPlan& plan, CachePolicyKind policy)
      : pinned_(plan.pinned_neurons), neurons_(sequence.num_neurons) {
    const int64_t num_ffns = sequence.num_layers * sequence.num_experts;
    const int64_t streamed = num_ffns * (neurons_ - pinned_);
    if (streamed == 0) return;
    const int64_t slots = std::clamp<int64_t>(plan.cache_slots, 1, streamed);
    cache_.emplace(budget_,
                   NeuronCacheOptions{.num_keys = streamed,
                                      .num_slots = slots,
                                      .num_layers = sequence.num_layers,
                                      .policy = policy},
                   std::span<std::byte>());
    std::vector<int32_t> hottest(static_cast<size_t>(slots)), places(hottest.size());
    for (int64_t i = 0; i < slots; ++i) {
      hottest[static_cast<size_t>(i)] =
          static_cast<int32_t>(i % num_ffns * (neurons_ - pinned_) + i / num_ffns);
    }
    cache_->Seed(hottest, places);
  }

  FfnAccess Access(std::span<const int32_t> neurons) {
    keys_.clear();
    for (const int32_t key : neurons) {
      const int64_t ffn = key / neurons_, neuron = key % neurons_;
      if (neuron < pinned_) continue;
      keys_.push_back(static_cast<int32_t>(ffn * (neurons_ - pinned_) + neuron - pinned_));
    }
    FfnAccess access{.listed = static_cast<int32_t>(neurons.size()),
                     .pinned = static_cast<int32_t>(neurons.size() - keys_.size())};
    if (keys_.empty()) return access;
    entries_.resize(keys_.size());
    const KeyBatch batch = {0, keys_};
    access.misses = static_cast<int32_t>(cache_->Lookup(batch, entries_));
    cache_->Release(batch, entries_);
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (entries_[i].found == CacheFound::kMiss) cache_->Loaded(keys_[i]);
    }
    return access;
  }

  void EndToken() {
    if (cache_) cache_->EndToken();
  }

 private:
  const int64_t pinned_, neurons_;
  Budget budget_;
  std::optional<NeuronCache> cache_;
  std::vector<int32_t> keys_;
  std::vector<CacheEntry> entries_;
};

}  // namespace

double MissReplay::listed_per_token() const {
  double sum = 0;
  for (const FfnAccess& ffn : ffns) sum += ffn.listed;
  return tokens > 0 ? sum / static_cast<double>(tokens) : 0;
}

double MissReplay::misses_per_token() const {
  double sum = 0;
  for (const FfnAccess& ffn : ffns) sum += ffn.misses;
  return tokens > 0 ? sum / static_cast<double>(tokens) : 0;
}

double MissReplay::miss_rate() const {
  const double listed = listed_per_token();
  return listed > 0 ? misses_per_token() / listed : 0;
}

MissReplay ReplayMisses(const AccessSequence& sequence, const StreamShape& shape,
                        const StreamPlan& plan, CachePolicyKind policy, int64_t skipped) {
  CheckStreamPlan(shape, plan);
  if (sequence.unit != AccessUnit::kNeurons || sequence.num_neurons != shape.neurons ||
      sequence.num_layers * sequence.num_experts != shape.num_ffns) {
    throw Error(
        ErrorCode::kInvalidArgument, "trace", "accesses of another model's neurons",
        fmt::format("{} FFNs of {} neurons", shape.num_ffns, shape.neurons),
        fmt::format("{} of {}", sequence.num_layers * sequence.num_experts, sequence.num_neurons));
  }
  skipped = std::clamp<int64_t>(skipped, 0, std::max<int64_t>(sequence.num_passes() - 1, 0));
  WarmCache cache(sequence, plan, policy);
  MissReplay replay;
  int64_t pass = 0;
  for (int64_t i = 0; i < sequence.num_batches(); ++i) {
    const FfnAccess access = cache.Access(sequence.batch(i));
    if (pass >= skipped) replay.ffns.push_back(access);
    if (!sequence.ends_pass(i)) continue;
    cache.EndToken();
    ++pass;
  }
  replay.tokens = pass - skipped;
  return replay;
}

}  // namespace hearth
