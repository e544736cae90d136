#include "cache/neuron_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cache/key_lists.h"
#include "cache/policy.h"

namespace hearth {
namespace {

constexpr std::string_view kLedgerName = "cache tables";
// Pins are counted in a byte; a look-up that would pass it is told kNoSlot.
constexpr uint8_t kMaxPins = std::numeric_limits<uint8_t>::max();

// Keys from the one that is looked up to the one whose node is fetched.
constexpr size_t kAhead = 16;

NeuronCacheOptions Checked(const NeuronCacheOptions& options, size_t memory_bytes) {
  const auto refuse = [](const char* what, const std::string& expected, int64_t found) {
    throw Error(ErrorCode::kInvalidArgument, "neuron cache", what, expected, std::to_string(found));
  };
  if (options.num_keys < 1 || options.num_keys > NeuronCache::kMaxKeys) {
    refuse("keys", fmt::format("1 to {}", NeuronCache::kMaxKeys), options.num_keys);
  }
  if (options.num_slots < 1 || options.num_slots > options.num_keys) {
    refuse("slots", fmt::format("1 to {}, one per key", options.num_keys), options.num_slots);
  }
  if (options.num_layers < 1 || options.num_layers > NeuronCache::kMaxLayers ||
      options.num_keys % options.num_layers != 0) {
    refuse("layers", fmt::format("1 to {}, equal shares of the keys", NeuronCache::kMaxLayers),
           options.num_layers);
  }
  const auto slots = static_cast<size_t>(options.num_slots);
  if (options.slot_bytes != 0 && memory_bytes / options.slot_bytes < slots) {
    refuse("memory", fmt::format("{} slots of {} bytes", slots, options.slot_bytes),
           static_cast<int64_t>(memory_bytes));
  }
  return options;
}

size_t NodeBytes(const NeuronCacheOptions& options) {
  return static_cast<size_t>(options.num_keys) * sizeof(cache::KeyNode);
}

size_t FreeBytes(const NeuronCacheOptions& options) {
  return static_cast<size_t>(options.num_slots) * sizeof(int32_t);
}

}  // namespace

NeuronCache::NeuronCache(Budget& budget, const NeuronCacheOptions& options,
                         std::span<std::byte> memory)
    : options_(Checked(options, memory.size())),
      memory_(memory),
      node_memory_(budget, kLedgerName, NodeBytes(options)),
      free_memory_(budget, kLedgerName, FreeBytes(options)),
      nodes_(node_memory_.As<cache::KeyNode>(static_cast<size_t>(options.num_keys))),
      free_slots_(free_memory_.As<int32_t>(static_cast<size_t>(options.num_slots))),
      num_free_(options.num_slots) {
  std::fill(nodes_.begin(), nodes_.end(), cache::KeyNode());
  // Slot 0 is the first to go.
  for (int64_t i = 0; i < num_free_; ++i) {
    free_slots_[static_cast<size_t>(i)] = static_cast<int32_t>(num_free_ - 1 - i);
  }
  policy_ = cache::MakePolicy(nodes_, {.kind = options.policy,
                                       .num_slots = static_cast<int32_t>(options.num_slots),
                                       .num_layers = static_cast<int32_t>(options.num_layers),
                                       .window_tokens = options.window_tokens});
}

NeuronCache::~NeuronCache() = default;

uint64_t NeuronCache::TableBytes(const NeuronCacheOptions& options) {
  return Buffer::ChargedBytes(NodeBytes(options)) + Buffer::ChargedBytes(FreeBytes(options));
}

int64_t NeuronCache::Lookup(const KeyBatch& batch, std::span<CacheEntry> entries) noexcept {
  cache::KeyLists& lists = policy_->lists();
  int64_t missing = 0;
  int64_t pending = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kAhead < entries.size()) lists.Prefetch(batch.first_key + batch.offsets[i + kAhead]);
    cache::KeyNode& node = lists.node(batch.first_key + batch.offsets[i]);
    if (node.slot < 0 || node.pins == kMaxPins) {
      entries[i] = {.slot = -1, .found = CacheFound::kNoSlot};
      ++missing;
      continue;
    }
    lists.Pin(node);
    entries[i] = {.slot = node.slot,
                  .found = node.loading ? CacheFound::kPending : CacheFound::kHit};
    pending += node.loading;
  }
  policy_->Touch(batch, entries);
  counts_.pending += pending;
  counts_.hits += static_cast<int64_t>(entries.size()) - missing - pending;
  if (missing == 0) return 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].slot < 0) entries[i] = AdmitMissing(batch.first_key + batch.offsets[i]);
  }
  return missing;
}

CacheEntry NeuronCache::AdmitMissing(int32_t key) noexcept {
  cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
  // Twice in one batch: the first of them took the slot.
  const bool twice = node.slot >= 0 && node.pins < kMaxPins;
  if (!twice) {
    const int32_t slot = node.slot < 0 && policy_->Admits(key) ? TakeSlot() : -1;
    if (slot < 0) {
      ++counts_.no_slot;
      return {};
    }
    node.slot = slot;
    node.loading = 1;
    ++num_held_;
    ++num_loading_;
    policy_->Insert(key);
    policy_->lists().Pin(node);  // the read's own, until Loaded or Failed
  }
  policy_->lists().Pin(node);
  ++(twice ? counts_.pending : counts_.misses);
  return {.slot = node.slot, .found = twice ? CacheFound::kPending : CacheFound::kMiss};
}

int32_t NeuronCache::TakeSlot() noexcept {
  if (num_free_ == 0) {
    const int32_t victim = policy_->TakeVictim();
    if (victim == cache::kNoKey) return -1;
    FreeSlot(nodes_[static_cast<size_t>(victim)]);
    ++counts_.evictions;
  }
  return free_slots_[static_cast<size_t>(--num_free_)];
}

// Frees the slot of a key that the policy has let go.
void NeuronCache::FreeSlot(cache::KeyNode& node) noexcept {
  free_slots_[static_cast<size_t>(num_free_++)] = node.slot;
  node.slot = -1;
  --num_held_;
}

void NeuronCache::Forget() noexcept {
  for (int32_t key; (key = policy_->TakeVictim()) != cache::kNoKey;) {
    FreeSlot(nodes_[static_cast<size_t>(key)]);
    ++counts_.evictions;
  }
}

void NeuronCache::Loaded(int32_t key) noexcept {
  cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
  if (!node.loading) return;
  node.loading = 0;
  --num_loading_;
  policy_->lists().Unpin(node);
}

void NeuronCache::Failed(int32_t key) noexcept {
  cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
  if (!node.loading) return;
  policy_->Remove(key);
  policy_->lists().Unpin(node);
  node.loading = 0;
  --num_loading_;
  FreeSlot(node);
}

void NeuronCache::Release(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  cache::KeyLists& lists = policy_->lists();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].slot >= 0) lists.Unpin(lists.node(batch.first_key + batch.offsets[i]));
  }
}

void NeuronCache::EndToken() noexcept {
  policy_->EndToken();
  for (int32_t key; (key = policy_->TakeExpired()) != cache::kNoKey;) {
    FreeSlot(nodes_[static_cast<size_t>(key)]);
    ++counts_.evictions;
  }
}

// Removes slots [first, end) from the free ones.
void NeuronCache::DropFreeSlots(int32_t first, int32_t end) noexcept {
  const auto last = std::remove_if(free_slots_.begin(), free_slots_.begin() + num_free_,
                                   [&](int32_t slot) { return slot >= first && slot < end; });
  num_free_ = last - free_slots_.begin();
}

bool NeuronCache::Withdraw(int32_t first, int64_t count, const MoveSlot& move) {
  const auto end = static_cast<int32_t>(first + count);
  const auto is_withdrawn = [&](int32_t slot) { return slot >= first && slot < end; };
  std::vector<int32_t> held;
  for (int32_t key = 0; key < static_cast<int32_t>(nodes_.size()); ++key) {
    const cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
    if (!is_withdrawn(node.slot)) continue;
    if (node.pins > 0) return false;  // what is loading has a pin too
    held.push_back(key);
  }
  DropFreeSlots(first, end);
  num_withdrawn_ += count;
  policy_->Resize(num_slots());
  policy_->Touch({}, {});  // so that no policy goes on where the last batch took victims
  for (int64_t to_move = std::ssize(held); num_free_ < to_move;) {
    const int32_t victim = policy_->TakeVictim();
    if (victim == cache::kNoKey) break;
    FreeSlot(nodes_[static_cast<size_t>(victim)]);
    ++counts_.evictions;
    if (!is_withdrawn(free_slots_[static_cast<size_t>(num_free_ - 1)])) continue;
    --num_free_;
    --to_move;
  }
  for (const int32_t key : held) {
    cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
    if (node.slot < 0) continue;  // a victim
    if (num_free_ > 0) {
      const int32_t from = std::exchange(node.slot, free_slots_[static_cast<size_t>(--num_free_)]);
      move(from, node.slot);
      continue;
    }
    // The policy gives up nothing more.
    policy_->Remove(key);
    node.slot = -1;
    --num_held_;
    ++counts_.evictions;
  }
  return true;
}

void NeuronCache::Restore(int32_t first, int64_t count) noexcept {
  for (int64_t i = count; i-- > 0;) {
    free_slots_[static_cast<size_t>(num_free_++)] = first + static_cast<int32_t>(i);
  }
  num_withdrawn_ -= count;
  policy_->Resize(num_slots());
}

int64_t NeuronCache::Seed(std::span<const int32_t> keys, std::span<int32_t> slots) {
  const int64_t count = std::min(num_free_, static_cast<int64_t>(keys.size()));
  // In the order of keys.
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [keys](int32_t a, int32_t b) {
    return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
  });
  for (const int32_t i : order) {
    slots[static_cast<size_t>(i)] = free_slots_[static_cast<size_t>(--num_free_)];
  }
  // The hottest last, where policies take the last for the one to keep longest.
  for (int64_t i = count; i-- > 0;) {
    cache::KeyNode& node = nodes_[static_cast<size_t>(keys[static_cast<size_t>(i)])];
    node.slot = slots[static_cast<size_t>(i)];
    policy_->Seed(keys[static_cast<size_t>(i)], i, count);
  }
  num_held_ += count;
  return count;
}

CacheState NeuronCache::state(int32_t key) const noexcept {
  const cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
  if (node.slot < 0) return CacheState::kAbsent;
  if (node.loading) return CacheState::kLoading;
  return node.pins > 0 ? CacheState::kInUse : CacheState::kResident;
}

int32_t NeuronCache::ResidentSlot(int32_t key) const noexcept {
  const cache::KeyNode& node = nodes_[static_cast<size_t>(key)];
  return node.loading ? -1 : node.slot;
}

}  // namespace hearth
