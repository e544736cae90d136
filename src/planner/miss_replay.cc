#include "planner/miss_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/error.h"
#include "cache/neuron_cache.h"
#include "pipeline/streamed_matrices.h"

namespace hearth {
namespace {

// A cache that is warm at first, and holds what was missed the next time.
class WarmCache {
 public:
  WarmCache(const NeuronCacheOptions& options, std::vector<int32_t> start)
      : cache_(budget_, options, std::span<std::byte>()) {
    std::vector<int32_t> places(start.size());
    cache_.Seed(start, places);
  }

  // How many of these were not there.
  int32_t Misses(std::span<const int32_t> keys) {
    if (keys.empty()) return 0;
    entries_.resize(keys.size());
    const KeyBatch batch = {0, keys};
    const auto misses = static_cast<int32_t>(cache_.Lookup(batch, entries_));
    cache_.Release(batch, entries_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (entries_[i].found == CacheFound::kMiss) cache_.Loaded(keys[i]);
    }
    return misses;
  }

  void EndToken() { cache_.EndToken(); }

 private:
  Budget budget_;
  NeuronCache cache_;
  std::vector<CacheEntry> entries_;
};

// Some of the layers, at even distances.
class SomeLayers {
 public:
  SomeLayers(int64_t all, int64_t step)
      : step_(std::clamp<int64_t>(step, 1, std::max<int64_t>(all, 1))),
        first_(step_ / 2),
        count_((all - first_ + step_ - 1) / step_) {}

  int64_t count() const { return count_; }
  bool Has(int64_t layer) const { return layer % step_ == first_; }
  int64_t IndexOf(int64_t layer) const { return layer / step_; }

 private:
  int64_t step_, first_, count_;
};

// The neurons that are not pinned, with the keys that an engine gives them.
class WarmNeurons {
 public:
  WarmNeurons(const AccessSequence& sequence, const StreamPlan& plan, CachePolicyKind policy,
              const SomeLayers& layers)
      : pinned_(plan.pinned_neurons),
        neurons_(sequence.num_neurons),
        experts_(sequence.num_experts),
        layers_(layers) {
    const int64_t num_ffns = layers.count() * experts_;
    const int64_t streamed = num_ffns * (neurons_ - pinned_);
    if (streamed == 0) return;
    const int64_t slots =
        std::clamp<int64_t>(plan.cache_slots * layers.count() / sequence.num_layers, 1, streamed);
    std::vector<int32_t> hottest(static_cast<size_t>(slots));
    for (int64_t i = 0; i < slots; ++i) {
      hottest[static_cast<size_t>(i)] =
          static_cast<int32_t>(i % num_ffns * (neurons_ - pinned_) + i / num_ffns);
    }
    cache_.emplace(NeuronCacheOptions{.num_keys = streamed,
                                      .num_slots = slots,
                                      .num_layers = layers.count(),
                                      .policy = policy},
                   std::move(hottest));
  }

  bool Counts(std::span<const int32_t> neurons) const {
    return layers_.Has(neurons.front() / neurons_ / experts_);
  }

  FfnAccess Access(std::span<const int32_t> neurons) {
    const int64_t layer = neurons.front() / neurons_ / experts_;
    const int64_t left_out = (layer - layers_.IndexOf(layer)) * experts_;  // FFNs before it
    keys_.clear();
    for (const int32_t key : neurons) {
      const int64_t ffn = key / neurons_ - left_out, neuron = key % neurons_;
      if (neuron < pinned_) continue;
      keys_.push_back(static_cast<int32_t>(ffn * (neurons_ - pinned_) + neuron - pinned_));
    }
    return {.listed = static_cast<int32_t>(neurons.size()),
            .pinned = static_cast<int32_t>(neurons.size() - keys_.size()),
            .misses = cache_ ? cache_->Misses(keys_) : 0};
  }

  void EndToken() {
    if (cache_) cache_->EndToken();
  }

 private:
  const int64_t pinned_, neurons_, experts_;
  const SomeLayers layers_;
  std::optional<WarmCache> cache_;
  std::vector<int32_t> keys_;
};

// The extents of experts.
class WarmExperts {
 public:
  WarmExperts(const ExtentMap& map, const ExtentPlan& plan, CachePolicyKind policy)
      : map_(map), cache_(OptionsOf(map, plan, policy), StartExtents(map, plan.cache_slots)) {}

  static bool Counts(std::span<const int32_t>) { return true; }

  FfnAccess Access(std::span<const int32_t> experts) {
    keys_.clear();
    for (const int32_t key : experts) {
      const int64_t layer = key / map_.num_experts(), expert = key % map_.num_experts();
      const int32_t first = map_.FirstKey(layer) + map_.FirstOf(layer, expert, FfnMatrix::kGate);
      for (int64_t i = 0; i < map_.CountOfFfn(layer); ++i) {
        keys_.push_back(first + static_cast<int32_t>(i));
      }
    }
    return {.listed = static_cast<int32_t>(keys_.size()), .misses = cache_.Misses(keys_)};
  }

  void EndToken() { cache_.EndToken(); }

 private:
  static NeuronCacheOptions OptionsOf(const ExtentMap& map, const ExtentPlan& plan,
                                      CachePolicyKind policy) {
    NeuronCacheOptions options = ExtentCacheOptions(map, plan, policy);
    options.slot_bytes = 0;  // nothing lies there
    return options;
  }

  const ExtentMap& map_;
  WarmCache cache_;
  std::vector<int32_t> keys_;
};

template <typename Warm>
MissReplay Replay(const AccessSequence& sequence, Warm warm, int64_t skipped) {
  skipped = std::clamp<int64_t>(skipped, 0, std::max<int64_t>(sequence.num_passes() - 1, 0));
  MissReplay replay;
  int64_t pass = 0;
  for (int64_t i = 0; i < sequence.num_batches(); ++i) {
    if (warm.Counts(sequence.batch(i))) {
      const FfnAccess access = warm.Access(sequence.batch(i));
      if (pass >= skipped) replay.ffns.push_back(access);
    }
    if (!sequence.ends_pass(i)) continue;
    warm.EndToken();
    ++pass;
  }
  replay.tokens = pass - skipped;
  return replay;
}

}  // namespace

double MissReplay::listed_per_token() const {
  double sum = 0;
  for (const FfnAccess& ffn : ffns) sum += ffn.listed;
  return tokens > 0 ? weight * sum / static_cast<double>(tokens) : 0;
}

double MissReplay::misses_per_token() const {
  double sum = 0;
  for (const FfnAccess& ffn : ffns) sum += ffn.misses;
  return tokens > 0 ? weight * sum / static_cast<double>(tokens) : 0;
}

double MissReplay::miss_rate() const {
  const double listed = listed_per_token();
  return listed > 0 ? misses_per_token() / listed : 0;
}

MissReplay ReplayMisses(const AccessSequence& sequence, const StreamShape& shape,
                        const StreamPlan& plan, CachePolicyKind policy, int64_t skipped,
                        int64_t layer_step) {
  CheckStreamPlan(shape, plan);
  if (sequence.unit != AccessUnit::kNeurons || sequence.num_neurons != shape.neurons ||
      sequence.num_layers * sequence.num_experts != shape.num_ffns) {
    throw Error(
        ErrorCode::kInvalidArgument, "trace", "accesses of another model's neurons",
        fmt::format("{} FFNs of {} neurons", shape.num_ffns, shape.neurons),
        fmt::format("{} of {}", sequence.num_layers * sequence.num_experts, sequence.num_neurons));
  }
  const SomeLayers layers(sequence.num_layers, layer_step);
  MissReplay replay = Replay(sequence, WarmNeurons(sequence, plan, policy, layers), skipped);
  replay.weight = static_cast<double>(sequence.num_layers) / static_cast<double>(layers.count());
  return replay;
}

MissReplay ReplayExperts(const AccessSequence& sequence, const ExtentMap& map,
                         const ExtentPlan& plan, CachePolicyKind policy, int64_t skipped) {
  if (sequence.unit != AccessUnit::kExperts || sequence.num_layers != map.num_layers() ||
      sequence.num_experts != map.num_experts()) {
    throw Error(ErrorCode::kInvalidArgument, "trace", "accesses of another model's experts",
                fmt::format("{} layers of {} experts", map.num_layers(), map.num_experts()),
                fmt::format("{} of {}", sequence.num_layers, sequence.num_experts));
  }
  return Replay(sequence, WarmExperts(map, plan, policy), skipped);
}

}  // namespace hearth
