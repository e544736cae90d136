#include "pipeline/neuron_fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "ops/scratch_places.h"

namespace hearth {
namespace {

// Tags of reads: positions, with one of these bits but where all of a neuron is read; what is read
// ahead has a place instead of a position.
constexpr uint64_t kAheadTag = uint64_t{1} << 32;
constexpr uint64_t kGateTag = uint64_t{1} << 33;
constexpr uint64_t kRestTag = uint64_t{1} << 34;

ReadyState StateOf(uint64_t tag) {
  if ((tag & kGateTag) != 0) return ReadyState::kGateRead;
  return (tag & kRestTag) != 0 ? ReadyState::kRestRead : ReadyState::kRead;
}

// How many of an ascending list are pinned.
int64_t NumPinned(const StreamPlan& plan, std::span<const int32_t> listed) {
  const auto pinned = static_cast<int32_t>(plan.pinned_neurons);
  return std::lower_bound(listed.begin(), listed.end(), pinned) - listed.begin();
}

uint64_t PieceBytes(const StreamShape& shape, const StreamPlan& plan, const FetchOptions& options) {
  const uint64_t slot = plan.slot_bytes(shape);
  return options.piece_bytes == 0 ? slot : std::min<uint64_t>(slot, options.piece_bytes);
}

// Of a neuron, at the most: cut at the split they may be one more.
int64_t MostPieces(const StreamShape& shape, const StreamPlan& plan, const FetchOptions& options) {
  const uint64_t piece = PieceBytes(shape, plan, options), slot = plan.slot_bytes(shape);
  return piece == slot ? 1 : static_cast<int64_t>((slot + piece - 1) / piece);
}

}  // namespace

struct NeuronFetch::Places {
  size_t slots, ready, states, ahead, rests, pieces, wanted, entries, requests, missing, end;

  Places(const FetchSizes& sizes, int64_t most_pieces) {
    const int64_t listed = sizes.listed, looked_up = sizes.looked_up;
    ScratchPlaces scratch;
    slots = scratch.Take(listed, sizeof(int32_t));
    ready = scratch.Take(2 * listed, sizeof(int32_t));
    states = scratch.Take(2 * listed, sizeof(ReadyState));
    rests = scratch.Take(listed, sizeof(RestState));
    pieces = scratch.Take(listed, sizeof(uint16_t));
    wanted = scratch.Take(listed, sizeof(int32_t));
    ahead = scratch.Take(listed, sizeof(int32_t));
    entries = scratch.Take(looked_up, sizeof(CacheEntry));
    requests = scratch.Take(looked_up * most_pieces, sizeof(ReadRequest));
    missing = scratch.Take(looked_up, sizeof(int32_t));
    end = scratch.used();
  }
};

int64_t FetchSizes::MostAhead(const StreamPlan& plan, bool reads_ahead) {
  return reads_ahead && !plan.holds_gates ? std::min<int64_t>(512, plan.spare_slots() / 8) : 0;
}

FetchSizes::FetchSizes(const StreamShape& shape, const StreamPlan& plan, bool reads_ahead)
    : ahead(MostAhead(plan, reads_ahead)),
      looked_up(std::min(shape.neurons - plan.pinned_neurons, plan.spare_slots() - 2 * ahead)),
      listed(plan.pinned_neurons + looked_up) {}

uint64_t NeuronFetch::ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                                   const FetchOptions& options) {
  return Buffer::ChargedBytes(
      Places(FetchSizes(shape, plan, options.reads_ahead), MostPieces(shape, plan, options)).end);
}

NeuronFetch::NeuronFetch(Budget& budget, BundleStore& store, const FetchOptions& options)
    : store_(store),
      sizes_(store.source().shape(), store.plan(), options.reads_ahead),
      piece_bytes_(PieceBytes(store.source().shape(), store.plan(), options)),
      queue_(store.file().OpenQueue(
          {.depth = store.plan().queue_depth,
           .capacity =
               std::max(static_cast<size_t>(sizes_.looked_up * MostPieces(store.source().shape(),
                                                                          store.plan(), options) +
                                            2 * sizes_.ahead),
                        static_cast<size_t>(store.plan().queue_depth)),
           .merge_gap_bytes = options.merge_gap_bytes})),
      memory_(budget, "activations",
              Places(sizes_, MostPieces(store.source().shape(), store.plan(), options)).end),
      ahead_(
          store.spare_slot() + static_cast<int32_t>(store.plan().spare_slots() - 2 * sizes_.ahead),
          sizes_.ahead) {
  const Places at(sizes_, MostPieces(store.source().shape(), store.plan(), options));
  std::byte* base = memory_.data();
  ready_.SetMemory(reinterpret_cast<int32_t*>(base + at.ready),
                   reinterpret_cast<ReadyState*>(base + at.states));
  wanted_rests_.SetMemory(reinterpret_cast<int32_t*>(base + at.wanted));
  views_ = {.slots = reinterpret_cast<int32_t*>(base + at.slots),
            .ahead_places = reinterpret_cast<int32_t*>(base + at.ahead),
            .rests = reinterpret_cast<RestState*>(base + at.rests),
            .pieces = reinterpret_cast<uint16_t*>(base + at.pieces),
            .entries = reinterpret_cast<CacheEntry*>(base + at.entries),
            .requests = reinterpret_cast<ReadRequest*>(base + at.requests),
            .missing = reinterpret_cast<int32_t*>(base + at.missing)};
  if (options.reads_ahead) {
    expected_.neurons.reserve(static_cast<size_t>(store.source().neurons));
    ahead_requests_.reserve(static_cast<size_t>(ahead_.most()));
  }
}

int64_t NeuronFetch::CountThatFits(std::span<const int32_t> listed) const {
  return std::min(std::ssize(listed), NumPinned(store_.plan(), listed) + sizes_.looked_up);
}

void NeuronFetch::RegisterSlots() {
  const std::array slots = {store_.ReadSlots()};
  queue_->RegisterBuffers(slots);
}

void NeuronFetch::Expect(int64_t ffn, std::span<const int32_t> neurons) noexcept {
  // There is room for all.
  expected_.neurons.assign(neurons.begin() + NumPinned(store_.plan(), neurons), neurons.end());
  expected_.ffn = ffn;
  expected_.is_set.store(!expected_.neurons.empty() && ahead_.most() > 0,
                         std::memory_order_release);
}

void NeuronFetch::ReadAhead() noexcept {
  const bool is_time = expected_.is_set.load(std::memory_order_relaxed) &&
                       is_looked_up_.load(std::memory_order_acquire);
  if (!is_time) return;
  if (polling_.test_and_set(std::memory_order_acquire)) return;
  if (expected_.is_set.exchange(false, std::memory_order_acquire)) {
    ahead_.Begin(expected_.ffn);
    ahead_requests_.clear();
    const int32_t first_key = store_.FirstKey(expected_.ffn);
    for (const int32_t neuron : expected_.neurons) {
      if (store_.cache().state(first_key + neuron) != CacheState::kAbsent) continue;
      const int32_t place = ahead_.Add(neuron);
      if (place < 0) break;
      ahead_requests_.push_back(
          {.offset = store_.FileOffset(expected_.ffn, neuron) + store_.slot_offset(),
           .data = store_.Slots(ahead_.slot(place), 1).data(),
           .bytes = static_cast<uint32_t>(store_.slot_bytes()),
           .tag = kAheadTag | static_cast<uint64_t>(place),
           .is_guess = true});
    }
    const size_t taken = queue_->Submit(ahead_requests_);
    // All of them; the queue has room for a list and for all places.
    for (size_t i = taken; i < ahead_requests_.size(); ++i) {
      ahead_.Arrived(static_cast<int32_t>(ahead_requests_[i].tag & ~kAheadTag), false);
    }
    num_reading_ahead_.fetch_add(static_cast<int64_t>(taken), std::memory_order_relaxed);
    counts_.reads_ahead += static_cast<int64_t>(taken);
    counts_.reads += static_cast<int64_t>(taken);
    counts_.bytes_read += taken * store_.slot_bytes();
  }
  polling_.clear(std::memory_order_release);
}

void NeuronFetch::StopAhead() noexcept {
  expected_.is_set = false;
  ahead_.Begin(-1);
  queue_->WithdrawGuesses();
  while (queue_->in_flight() > 0) Reap(true);
}

void NeuronFetch::Begin(int64_t ffn, std::span<const int32_t> listed,
                        std::span<const uint8_t> tokens_of) {
  list_ = {.ffn = ffn,
           .neurons = listed,
           .tokens_of = tokens_of,
           .num_pinned = NumPinned(store_.plan(), listed)};
  error_ = 0;
  is_looked_up_ = false;
  // Nobody came to read it in time.
  if (ffn == expected_.ffn) expected_.is_set = false;
  wanted_rests_.Begin();
  ready_.Begin(std::ssize(listed));
  for (int64_t i = 0; i < list_.num_pinned; ++i) {
    views_.slots[i] = store_.PinnedSlot(ffn) + listed[static_cast<size_t>(i)];
    views_.rests[i] = RestState::kNotMissing;
    ready_.Add(static_cast<int32_t>(i), ReadyState::kHere);
  }
  num_resident_.store(list_.num_pinned, std::memory_order_relaxed);
  ready_.Publish();
}

void NeuronFetch::Fetch(SlotPart part) noexcept {
  // Whoever has it takes what was read ahead, and does not wait for more.
  while (polling_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  list_.first_part = part;
  LookUp();
  Submit({views_.missing, static_cast<size_t>(list_.num_missing)}, part,
         part == SlotPart::kGateHalf ? kGateTag : 0);
  polling_.clear(std::memory_order_release);
}

void NeuronFetch::FetchRests(const int32_t* positions, int64_t count) noexcept {
  ready_.ExpectMore(count);
  wanted_rests_.Add(positions, count);
}

void NeuronFetch::FetchAllRests(const int32_t* positions, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) views_.rests[positions[i]] = RestState::kWanted;
  ready_.Begin(list_.size());
  for (int64_t i = 0; i < list_.size(); ++i) {
    if (views_.rests[i] == RestState::kWanted) continue;
    const bool was_read =
        i >= list_.num_pinned && views_.entries[i - list_.num_pinned].found != CacheFound::kHit;
    ready_.Add(static_cast<int32_t>(i), was_read ? ReadyState::kGateRead : ReadyState::kHere);
  }
  ready_.Publish();
  Submit({positions, static_cast<size_t>(count)}, SlotPart::kOtherHalf, 0);
}

// Fills slots, and splits positions into those that are in memory, which are ready, and missing.
// After the latter come those that were read ahead, which are ready where they have come.
void NeuronFetch::LookUp() noexcept {
  if (ahead_.most() > 0) {
    // What has not begun is read as wanted, if the list has it.
    queue_->WithdrawGuesses();
    while (Reap(false)) {
    }
    ahead_.BeginList(list_.ffn);
  }
  const std::span<const int32_t> looked_up = list_.looked_up();
  store_.cache().Lookup({store_.FirstKey(list_.ffn), looked_up},
                        {views_.entries, looked_up.size()});
  int32_t spare = store_.spare_slot();
  int64_t hits = 0, halves = 0;
  int32_t* const last = views_.missing + looked_up.size();  // hits that lack a half, from the end
  for (size_t k = 0; k < looked_up.size(); ++k) {
    const CacheEntry entry = views_.entries[k];
    const auto position = static_cast<int32_t>(list_.num_pinned) + static_cast<int32_t>(k);
    views_.slots[position] =
        entry.found == CacheFound::kNoSlot ? spare++ : store_.cache_slot() + entry.slot;
    const bool is_hit = entry.found == CacheFound::kHit;
    const bool is_half =
        is_hit && store_.gate_only().Has(store_.FirstKey(list_.ffn) + looked_up[k]);
    views_.ahead_places[position] = is_hit ? -1 : ahead_.Take(looked_up[k], position);
    const bool is_missing = !is_hit && views_.ahead_places[position] < 0;
    views_.rests[position] = is_half || (is_missing && list_.first_part == SlotPart::kGateHalf)
                                 ? RestState::kMissing
                                 : RestState::kNotMissing;
    hits += is_hit ? 1 : 0;
    if (is_half) {
      *(last - ++halves) = position;
    } else if (is_hit) {
      ready_.Add(position, ReadyState::kHere);
    } else if (is_missing) {
      views_.missing[list_.num_missing++] = position;
    }
  }
  for (int64_t i = 1; i <= halves; ++i) ready_.Add(*(last - i), ReadyState::kGateHere);
  for (int64_t position = list_.num_pinned; position < list_.size(); ++position) {
    const int32_t place = views_.ahead_places[position];
    if (place < 0) continue;
    views_.missing[list_.num_missing + list_.num_ahead++] = static_cast<int32_t>(position);
    if (ahead_.is_here(place)) ready_.Add(static_cast<int32_t>(position), ReadyState::kRead);
  }
  num_resident_.store(list_.num_pinned + hits, std::memory_order_relaxed);
  ready_.Publish();
  is_looked_up_.store(true, std::memory_order_release);
  counts_.neurons += list_.size();
  counts_.pinned += list_.num_pinned;
  counts_.hits += hits;
  counts_.misses += list_.num_missing + list_.num_ahead;
  counts_.used_ahead += list_.num_ahead;
}

// Returns how many there are: a neuron's pieces follow each other.
size_t NeuronFetch::MakeRequests(std::span<const int32_t> positions, SlotPart part,
                                 uint64_t tag) noexcept {
  const uint64_t split = store_.source().layout.split;
  const uint64_t begin = part == SlotPart::kOtherHalf ? split : 0;
  const uint64_t end = part == SlotPart::kGateHalf ? split : store_.slot_bytes();
  size_t count = 0;
  for (const int32_t position : positions) {
    const int32_t neuron = list_.neurons[static_cast<size_t>(position)];
    const uint64_t offset = store_.FileOffset(list_.ffn, neuron) + store_.slot_offset();
    std::byte* const data = store_.Slots(views_.slots[position], 1).data();
    views_.pieces[position] = 0;
    for (uint64_t at = begin; at < end; at += piece_bytes_) {
      views_.requests[count++] = {.offset = offset + at,
                                  .data = data + at,
                                  .bytes = static_cast<uint32_t>(std::min(piece_bytes_, end - at)),
                                  .tag = static_cast<uint64_t>(position) | tag};
      ++views_.pieces[position];
    }
  }
  return count;
}

// Of whoever holds polling_, or while nobody polls.
void NeuronFetch::Submit(std::span<const int32_t> positions, SlotPart part, uint64_t tag) noexcept {
  if (positions.empty()) return;
  const std::span requests(views_.requests, MakeRequests(positions, part, tag));
  const size_t taken = queue_->Submit(requests);
  // The queue has room for a list and for all that is read ahead.
  if (taken != requests.size()) error_ = EAGAIN;
  for (const ReadRequest& request : requests.subspan(taken)) {
    const auto position = static_cast<int32_t>(request.tag);
    if (--views_.pieces[position] == 0) ready_.Add(position, StateOf(tag));
  }
  ready_.Publish();
  counts_.reads += static_cast<int64_t>(taken);
  for (const ReadRequest& request : requests.first(taken)) counts_.bytes_read += request.bytes;
}

bool NeuronFetch::Poll(bool wait) noexcept {
  if (polling_.test_and_set(std::memory_order_acquire)) return false;
  const std::span<const int32_t> wanted = wanted_rests_.Take();
  for (const int32_t position : wanted) views_.rests[position] = RestState::kWanted;
  Submit(wanted, SlotPart::kOtherHalf, kRestTag);
  const bool any = Reap(wait && is_looked_up_.load(std::memory_order_relaxed));
  polling_.clear(std::memory_order_release);
  return any;
}

// Poll of whoever holds polling_.
bool NeuronFetch::Reap(bool wait) noexcept {
  std::array<ReadCompletion, 64> done;
  size_t count = 0;
  if (queue_->in_flight() > 0) count = wait ? queue_->Wait(done) : queue_->Poll(done);
  for (size_t i = 0; i < count; ++i) {
    auto position = static_cast<int32_t>(done[i].tag);
    if ((done[i].tag & kAheadTag) != 0) {
      num_reading_ahead_.fetch_sub(1, std::memory_order_relaxed);
      if (done[i].error == ECANCELED) {
        --counts_.reads_ahead;
        --counts_.reads;
        counts_.bytes_read -= store_.slot_bytes();
      }
      position = ahead_.Arrived(position, done[i].error == 0);
    }
    if (position < 0) continue;  // nobody has asked for it yet
    if (done[i].error != 0) error_ = done[i].error;
    const bool is_last = (done[i].tag & kAheadTag) != 0 || --views_.pieces[position] == 0;
    if (is_last) ready_.Add(position, StateOf(done[i].tag));
  }
  if (count > 0) ready_.Publish();
  return count > 0;
}

void NeuronFetch::Settle(const int32_t* positions, int64_t count) const noexcept {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t place = views_.ahead_places[positions[i]];
    if (place < 0) continue;
    std::memcpy(store_.Slots(views_.slots[positions[i]], 1).data(),
                store_.Slots(ahead_.slot(place), 1).data(), store_.slot_bytes());
  }
}

int64_t NeuronFetch::FindDamaged(const kernels::KernelTable& table, const int32_t* positions,
                                 const int32_t* slots, int64_t count,
                                 ReadyState state) const noexcept {
  if (!WasRead(state)) return -1;
  SlotPart part = SlotPart::kAll;
  if (state == ReadyState::kGateRead) part = SlotPart::kGateHalf;
  if (state == ReadyState::kRestRead) part = SlotPart::kOtherHalf;
  std::array<int32_t, BundleStore::kMostChecked> neurons;
  for (int64_t i = 0; i < count; ++i) {
    neurons[static_cast<size_t>(i)] = list_.neurons[static_cast<size_t>(positions[i])];
  }
  const int64_t found = store_.FindDamaged(table, list_.ffn, {neurons.data(), slots, count}, part);
  return found < 0 ? -1 : positions[found];
}

// Of the list: where its neurons were.
void NeuronFetch::Draw() noexcept {
  const auto add = [&](NeuronPlace place, const int32_t* positions, int64_t count) {
    map_->Add(
        list_.ffn, place, count,
        [&](int64_t i) { return int64_t{list_.neurons[static_cast<size_t>(positions[i])]}; },
        [&](int64_t i) {
          return list_.tokens_of.empty() ? 1
                                         : int{list_.tokens_of[static_cast<size_t>(positions[i])]};
        });
  };
  // Each ascending. The list is over, so that there is room for what was found.
  int32_t* const found = views_.ahead_places;
  for (int64_t i = 0; i < list_.num_pinned; ++i) found[i] = static_cast<int32_t>(i);
  add(NeuronPlace::kPinned, found, list_.num_pinned);
  int64_t hits = 0;
  for (int64_t position = list_.num_pinned; position < list_.size(); ++position) {
    found[hits] = static_cast<int32_t>(position);
    hits += views_.entries[position - list_.num_pinned].found == CacheFound::kHit ? 1 : 0;
  }
  add(NeuronPlace::kCached, found, hits);
  add(NeuronPlace::kRead, views_.missing, list_.num_missing);
  add(NeuronPlace::kRead, views_.missing + list_.num_missing, list_.num_ahead);
}

void NeuronFetch::End(int64_t damaged) {
  const std::span<const int32_t> looked_up = list_.looked_up();
  const int32_t first_key = store_.FirstKey(list_.ffn);
  NeuronCache& cache = store_.cache();
  ahead_.EndList();
  cache.Release({first_key, looked_up}, {views_.entries, looked_up.size()});
  counts_.bytes_read += queue_->gap_bytes() - gap_bytes_;
  gap_bytes_ = queue_->gap_bytes();
  const bool is_good = !failed() && damaged < 0;
  for (size_t k = 0; k < looked_up.size(); ++k) {
    const int32_t key = first_key + looked_up[k];
    const RestState rest = views_.rests[list_.num_pinned + static_cast<int64_t>(k)];
    if (views_.entries[k].found == CacheFound::kMiss) {
      if (is_good) {
        cache.Loaded(key);
        store_.gate_only().Set(key, rest == RestState::kMissing);
      } else {
        cache.Failed(key);
      }
    } else if (rest == RestState::kWanted && views_.entries[k].found == CacheFound::kHit &&
               is_good) {
      store_.gate_only().Set(key, false);
    }
    const bool is_left = rest == RestState::kMissing && views_.entries[k].found != CacheFound::kHit;
    counts_.rests_left += is_left ? 1 : 0;
  }
  if (map_ != nullptr) Draw();
  if (failed()) store_.ThrowReadError(error_);
  if (damaged >= 0) store_.ThrowDamaged(list_.ffn, list_.neurons[static_cast<size_t>(damaged)]);
}

}  // namespace hearth
