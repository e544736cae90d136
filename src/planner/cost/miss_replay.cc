#include "planner/cost/miss_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/error.h"
#include "cache/neuron_cache.h"
#include "pipeline/extents/streamed_matrices.h"
#include "pipeline/neuron_fetch.h"

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

  // Those of these that were not there. Valid until the next call.
  std::span<const int32_t> Misses(std::span<const int32_t> keys) {
    missed_.clear();
    if (keys.empty()) return missed_;
    entries_.resize(keys.size());
    const KeyBatch batch = {0, keys};
    cache_.Lookup(batch, entries_);
    cache_.Release(batch, entries_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (entries_[i].found == CacheFound::kHit) continue;
      if (entries_[i].found == CacheFound::kMiss) cache_.Loaded(keys[i]);
      missed_.push_back(keys[i]);
    }
    return missed_;
  }

  // Touches nothing.
  bool Has(int32_t key) const { return cache_.ResidentSlot(key) >= 0; }

  void EndToken() { cache_.EndToken(); }

 private:
  Budget budget_;
  NeuronCache cache_;
  std::vector<CacheEntry> entries_;
  std::vector<int32_t> missed_;
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
        most_ahead_(FetchSizes::MostAhead(plan, true)),
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

  FfnAccess Access(std::span<const int32_t> neurons, std::span<const int32_t> guess) {
    ListKeys(neurons);
    FfnAccess access = {.listed = static_cast<int32_t>(neurons.size()),
                        .pinned = static_cast<int32_t>(neurons.size() - keys_.size())};
    if (!cache_) return access;
    ReadAhead(guess);
    ListKeys(neurons);
    const std::span<const int32_t> missed = cache_->Misses(keys_);
    access.misses = static_cast<int32_t>(missed.size());
    for (size_t i = 1; i < missed.size(); ++i) {
      const int32_t apart = missed[i] - missed[i - 1];
      access.next_to += apart == 1 ? 1 : 0;
      access.one_between += apart == 2 ? 1 : 0;
    }
    access.ahead = static_cast<int32_t>(ahead_.size());
    access.used_ahead =
        static_cast<int32_t>(std::count_if(ahead_.begin(), ahead_.end(), [&](int32_t key) {
          return std::binary_search(missed.begin(), missed.end(), key);
        }));
    return access;
  }

  void EndToken() {
    if (cache_) cache_->EndToken();
  }

 private:
  // Into keys_, those of an FFN that are not pinned.
  void ListKeys(std::span<const int32_t> neurons) {
    keys_.clear();
    if (neurons.empty()) return;
    const int64_t layer = neurons.front() / neurons_ / experts_;
    const int64_t left_out = (layer - layers_.IndexOf(layer)) * experts_;  // FFNs before it
    for (const int32_t key : neurons) {
      const int64_t ffn = key / neurons_ - left_out, neuron = key % neurons_;
      if (neuron < pinned_) continue;
      keys_.push_back(static_cast<int32_t>(ffn * (neurons_ - pinned_) + neuron - pinned_));
    }
  }

  // Into ahead_: what is not there, in ascending order, as much of it as has a place.
  void ReadAhead(std::span<const int32_t> guess) {
    ahead_.clear();
    ListKeys(guess);
    for (const int32_t key : keys_) {
      if (std::ssize(ahead_) == most_ahead_) return;
      if (!cache_->Has(key)) ahead_.push_back(key);
    }
  }

  const int64_t pinned_, neurons_, experts_, most_ahead_;
  const SomeLayers layers_;
  std::optional<WarmCache> cache_;
  std::vector<int32_t> keys_, ahead_;
};

// The extents of experts.
class WarmExperts {
 public:
  WarmExperts(const ExtentMap& map, const ExtentPlan& plan, CachePolicyKind policy)
      : map_(map), cache_(OptionsOf(map, plan, policy), StartExtents(map, plan.cache_slots)) {}

  static bool Counts(std::span<const int32_t>) { return true; }

  FfnAccess Access(std::span<const int32_t> experts, std::span<const int32_t> /*guess*/) {
    keys_.clear();
    for (const int32_t key : experts) {
      const int64_t layer = key / map_.num_experts(), expert = key % map_.num_experts();
      const int32_t first = map_.FirstKey(layer) + map_.FirstOf(layer, expert, FfnMatrix::kGate);
      for (int64_t i = 0; i < map_.CountOfFfn(layer); ++i) {
        keys_.push_back(first + static_cast<int32_t>(i));
      }
    }
    return {.listed = static_cast<int32_t>(keys_.size()),
            .misses = static_cast<int32_t>(cache_.Misses(keys_).size())};
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

// Goes through the guesses of a sequence beside it.
class GuessCursor {
 public:
  explicit GuessCursor(const AccessSequence* guesses) : guesses_(guesses) {}

  // What was expected of this FFN, of the pass that is under way; passes go from layer to layer.
  std::span<const int32_t> Of(std::span<const int32_t> listed) {
    if (guesses_ == nullptr) return {};
    const int64_t layer = listed.front() / guesses_->num_neurons;
    while (!at_end_of_pass_ && LayerOf(next_) < layer) Advance();
    if (at_end_of_pass_ || LayerOf(next_) != layer || layer == 0) return {};
    return guesses_->batch(next_);
  }
  void EndPass() {
    if (guesses_ == nullptr) return;
    while (!at_end_of_pass_) Advance();
    at_end_of_pass_ = next_ == guesses_->num_batches();
  }

 private:
  int64_t LayerOf(int64_t batch) const {
    return guesses_->batch(batch).front() / guesses_->num_neurons;
  }
  void Advance() { at_end_of_pass_ = guesses_->ends_pass(next_++); }

  const AccessSequence* guesses_;
  int64_t next_ = 0;
  bool at_end_of_pass_ = false;
};

template <typename Warm>
MissReplay Replay(const AccessSequence& sequence, Warm warm, int64_t skipped,
                  const AccessSequence* guesses = nullptr) {
  skipped = std::clamp<int64_t>(skipped, 0, std::max<int64_t>(sequence.num_passes() - 1, 0));
  MissReplay replay;
  int64_t pass = 0;
  GuessCursor guess(guesses);
  for (int64_t i = 0; i < sequence.num_batches(); ++i) {
    if (warm.Counts(sequence.batch(i))) {
      const FfnAccess access = warm.Access(sequence.batch(i), guess.Of(sequence.batch(i)));
      if (pass >= skipped) replay.ffns.push_back(access);
    }
    if (!sequence.ends_pass(i)) continue;
    warm.EndToken();
    guess.EndPass();
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
                        const StreamPlan& plan, CachePolicyKind policy, const ReplaySample& sample,
                        const AccessSequence* guesses) {
  CheckStreamPlan(shape, plan);
  if (sequence.unit != AccessUnit::kNeurons || sequence.num_neurons != shape.neurons ||
      sequence.num_layers * sequence.num_experts != shape.num_ffns) {
    throw Error(
        ErrorCode::kInvalidArgument, "trace", "accesses of another model's neurons",
        fmt::format("{} FFNs of {} neurons", shape.num_ffns, shape.neurons),
        fmt::format("{} of {}", sequence.num_layers * sequence.num_experts, sequence.num_neurons));
  }
  const SomeLayers layers(sequence.num_layers, sample.layer_step);
  if (guesses != nullptr &&
      (guesses->num_passes() != sequence.num_passes() || sequence.num_experts != 1 ||
       guesses->num_experts != 1 || guesses->num_neurons != sequence.num_neurons)) {
    throw Error(ErrorCode::kInvalidArgument, "trace", "the guesses are of other accesses",
                fmt::format("{} tokens, {} neurons", sequence.num_passes(), sequence.num_neurons),
                fmt::format("{} tokens, {}", guesses->num_passes(), guesses->num_neurons));
  }
  MissReplay replay =
      Replay(sequence, WarmNeurons(sequence, plan, policy, layers), sample.skipped_tokens, guesses);
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
