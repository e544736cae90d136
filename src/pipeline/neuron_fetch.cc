#include "pipeline/neuron_fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "ops/scratch_places.h"

namespace hearth {

struct NeuronFetch::Places {
  size_t slots, entries, requests, missing, ready, end;

  explicit Places(int64_t listed) {
    ScratchPlaces scratch;
    slots = scratch.Take(listed, sizeof(int32_t));
    entries = scratch.Take(listed, sizeof(CacheEntry));
    requests = scratch.Take(listed, sizeof(ReadRequest));
    missing = scratch.Take(listed, sizeof(int32_t));
    ready = scratch.Take(listed, sizeof(int32_t));
    end = scratch.used();
  }
};

int64_t NeuronFetch::MaxListed(const StreamShape& shape, const StreamPlan& plan) {
  return std::min(shape.neurons, plan.spare_slots());
}

uint64_t NeuronFetch::ChargedBytes(const StreamShape& shape, const StreamPlan& plan) {
  return Buffer::ChargedBytes(Places(MaxListed(shape, plan)).end);
}

NeuronFetch::NeuronFetch(Budget& budget, BundleStore& store,
                         std::optional<uint32_t> merge_gap_bytes)
    : store_(store),
      max_listed_(MaxListed(store.source().shape(), store.plan())),
      queue_(store.file().OpenQueue(
          {.depth = store.plan().queue_depth,
           .capacity = std::max(static_cast<size_t>(max_listed_),
                                static_cast<size_t>(store.plan().queue_depth)),
           .merge_gap_bytes = merge_gap_bytes})),
      memory_(budget, "activations", Places(max_listed_).end) {
  const Places at(max_listed_);
  std::byte* base = memory_.data();
  slots_ = reinterpret_cast<int32_t*>(base + at.slots);
  entries_ = reinterpret_cast<CacheEntry*>(base + at.entries);
  requests_ = reinterpret_cast<ReadRequest*>(base + at.requests);
  missing_ = reinterpret_cast<int32_t*>(base + at.missing);
  ready_ = reinterpret_cast<int32_t*>(base + at.ready);
}

void NeuronFetch::Begin(int64_t ffn, std::span<const int32_t> listed,
                        std::span<const uint8_t> tokens_of) {
  tokens_of_ = tokens_of;
  ffn_ = ffn;
  listed_ = listed;
  error_ = 0;
  num_missing_ = 0;
  const auto pinned = static_cast<int32_t>(store_.plan().pinned_neurons);
  num_pinned_ = std::lower_bound(listed.begin(), listed.end(), pinned) - listed.begin();
  for (int64_t i = 0; i < num_pinned_; ++i) {
    slots_[i] = store_.PinnedSlot(ffn) + listed[static_cast<size_t>(i)];
    ready_[i] = static_cast<int32_t>(i);
  }
  num_resident_.store(num_pinned_, std::memory_order_relaxed);
  num_ready_.store(num_pinned_, std::memory_order_release);
}

void NeuronFetch::Fetch(SlotPart part) noexcept {
  // Nobody polls meanwhile.
  while (polling_.test_and_set(std::memory_order_acquire)) {
  }
  LookUp();
  Submit(part);
  polling_.clear(std::memory_order_release);
}

void NeuronFetch::FetchMore(SlotPart part) noexcept {
  num_ready_ = num_resident();
  Submit(part);
}

// Fills slots_, and splits positions into ready_, those that are in memory, and missing_.
void NeuronFetch::LookUp() noexcept {
  const std::span<const int32_t> looked_up = listed_.subspan(static_cast<size_t>(num_pinned_));
  store_.cache().Lookup({store_.FirstKey(ffn_), looked_up}, {entries_, looked_up.size()});
  int32_t spare = store_.spare_slot();
  int64_t resident = num_pinned_;
  for (size_t k = 0; k < looked_up.size(); ++k) {
    const CacheEntry entry = entries_[k];
    const auto position = static_cast<int32_t>(num_pinned_) + static_cast<int32_t>(k);
    slots_[position] =
        entry.found == CacheFound::kNoSlot ? spare++ : store_.cache_slot() + entry.slot;
    if (entry.found == CacheFound::kHit) {
      ready_[resident++] = position;
    } else {
      missing_[num_missing_++] = position;
    }
  }
  num_resident_.store(resident, std::memory_order_relaxed);
  num_ready_.store(resident, std::memory_order_release);
  counts_.neurons += std::ssize(listed_);
  counts_.pinned += num_pinned_;
  counts_.hits += resident - num_pinned_;
  counts_.misses += num_missing_;
}

void NeuronFetch::Submit(SlotPart part) noexcept {
  const uint64_t split = store_.source().layout.split;
  const uint64_t begin = part == SlotPart::kOtherHalf ? split : 0;
  const uint64_t end = part == SlotPart::kGateHalf ? split : store_.slot_bytes();
  for (int64_t i = 0; i < num_missing_; ++i) {
    const int32_t position = missing_[i];
    const int32_t neuron = listed_[static_cast<size_t>(position)];
    requests_[i] = {.offset = store_.FileOffset(ffn_, neuron) + store_.slot_offset() + begin,
                    .data = store_.Slots(slots_[position], 1).data() + begin,
                    .bytes = static_cast<uint32_t>(end - begin),
                    .tag = static_cast<uint64_t>(position)};
  }
  if (num_missing_ == 0) return;
  const auto taken =
      static_cast<int64_t>(queue_->Submit({requests_, static_cast<size_t>(num_missing_)}));
  // The queue has room for all: its capacity is max_listed_, and nothing else is in flight.
  if (taken != num_missing_) error_ = EAGAIN;
  int64_t ready = num_resident();
  for (int64_t i = taken; i < num_missing_; ++i) ready_[ready++] = missing_[i];
  num_ready_.store(ready, std::memory_order_release);
  counts_.reads += taken;
  counts_.bytes_read += static_cast<uint64_t>(taken) * (end - begin);
}

bool NeuronFetch::Poll(bool wait) noexcept {
  if (polling_.test_and_set(std::memory_order_acquire)) return false;
  std::array<ReadCompletion, 64> done;
  size_t count = 0;
  if (queue_->in_flight() > 0) count = wait ? queue_->Wait(done) : queue_->Poll(done);
  int64_t ready = num_ready_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    ready_[ready++] = static_cast<int32_t>(done[i].tag);
    if (done[i].error != 0) error_ = done[i].error;
  }
  num_ready_.store(ready, std::memory_order_release);
  polling_.clear(std::memory_order_release);
  return count > 0;
}

int64_t NeuronFetch::FindDamaged(const kernels::KernelTable& table, const int32_t* positions,
                                 const int32_t* slots, int64_t count) const noexcept {
  std::array<int32_t, BundleStore::kMostChecked> neurons;
  for (int64_t i = 0; i < count; ++i) {
    neurons[static_cast<size_t>(i)] = listed_[static_cast<size_t>(positions[i])];
  }
  const int64_t found = store_.FindDamaged(table, ffn_, neurons.data(), slots, count);
  return found < 0 ? -1 : positions[found];
}

// Of the list: where its neurons were.
void NeuronFetch::Draw() const noexcept {
  const auto add = [&](NeuronPlace place, const int32_t* positions, int64_t count) {
    map_->Add(
        ffn_, place, count,
        [&](int64_t i) { return int64_t{listed_[static_cast<size_t>(positions[i])]}; },
        [&](int64_t i) {
          return tokens_of_.empty() ? 1 : int{tokens_of_[static_cast<size_t>(positions[i])]};
        });
  };
  add(NeuronPlace::kPinned, ready_, num_pinned_);
  add(NeuronPlace::kCached, ready_ + num_pinned_, num_resident() - num_pinned_);
  add(NeuronPlace::kRead, missing_, num_missing_);
}

void NeuronFetch::End(int64_t damaged) {
  const std::span<const int32_t> looked_up = listed_.subspan(static_cast<size_t>(num_pinned_));
  const int32_t first_key = store_.FirstKey(ffn_);
  NeuronCache& cache = store_.cache();
  cache.Release({first_key, looked_up}, {entries_, looked_up.size()});
  counts_.bytes_read += queue_->gap_bytes() - gap_bytes_;
  gap_bytes_ = queue_->gap_bytes();
  const bool is_good = !failed() && damaged < 0;
  for (size_t k = 0; k < looked_up.size(); ++k) {
    if (entries_[k].found != CacheFound::kMiss) continue;
    if (is_good) {
      cache.Loaded(first_key + looked_up[k]);
    } else {
      cache.Failed(first_key + looked_up[k]);
    }
  }
  if (map_ != nullptr) Draw();
  if (failed()) store_.ThrowReadError(error_);
  if (damaged >= 0) store_.ThrowDamaged(ffn_, listed_[static_cast<size_t>(damaged)]);
}

}  // namespace hearth
