// Brings the listed neurons of one FFN into slots: looks them up, reads what is missing, and tells
// the cache what became of it. Knows bytes and slots, computes nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "cache/cache_entry.h"
#include "pipeline/ahead_reads.h"
#include "pipeline/bundle_checks.h"
#include "pipeline/bundle_store.h"
#include "pipeline/neuron_map.h"
#include "pipeline/ready_list.h"
#include "pipeline/stream_counts.h"
#include "pipeline/wanted_rests.h"
#include "storage/async/async_reader.h"

namespace hearth {

// How reads are given to the system.
struct FetchOptions {
  std::optional<uint32_t> merge_gap_bytes;  // see QueueOptions; of pieces nothing
  bool reads_ahead = false;                 // ReadAhead does, into some of the spare slots
  // Wanted neurons are read in pieces of at most this many bytes, each a read of its own (P2 §4.3);
  // 0: in one read. Neurons that are read ahead always take one read.
  uint32_t piece_bytes = 0;
};

// How much one list may have.
struct FetchSizes {
  FetchSizes(const StreamShape& shape, const StreamPlan& plan, bool reads_ahead);

  // Neurons of an FFN that are read ahead at the most, in at most a quarter of the spare slots for
  // two FFNs; 0 where gates are held in memory, for what is read then is no whole neuron.
  static int64_t MostAhead(const StreamPlan& plan, bool reads_ahead);

  int64_t ahead;      // MostAhead
  int64_t looked_up;  // neurons of a list that are not pinned
  // The longest list. Of its neurons that are not pinned any may need a spare slot, so that not
  // every list of that length fits.
  int64_t listed;
};

// Neurons are named by their positions in the list. One thread makes all calls but Expect, Poll,
// FetchRests, ReadAhead, Settle, FindDamaged and the accessors, which any thread may make
// between Begin and End.
//
// Where gates are read first (P2 §4.3), a neuron is ready twice: with its gate, and with the rest
// if FetchRests asks for it. What nobody asks for is not read, and the cache keeps the gate alone.
class NeuronFetch {
 public:
  // Charged to `budget` as "activations". `store` must outlive the fetch.
  NeuronFetch(Budget& budget, BundleStore& store, const FetchOptions& options);
  static uint64_t ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                               const FetchOptions& options);

  const FetchSizes& sizes() const { return sizes_; }
  // How many neurons, from the first of an ascending list on, one call of Begin takes: at least
  // one.
  int64_t CountThatFits(std::span<const int32_t> listed) const;
  // Tells the system where most reads will go (ReadQueue::RegisterBuffers), which makes each of
  // them cheaper for the processor. Touches all of that memory: once it is in use. Between lists.
  void RegisterSlots();

  // Says what the list of the next FFN, which is another one than that at hand, will probably be,
  // ascending: once between two calls of Begin, by any thread.
  void Expect(int64_t ffn, std::span<const int32_t> neurons) noexcept;
  // Reads some of what is expected and not in memory, for when the list is all here. Any thread,
  // between Begin and End.
  void ReadAhead() noexcept;
  // Forgets what is expected, and waits until nothing is in flight any more. Between lists.
  void StopAhead() noexcept;

  // Takes an ascending list that fits, which must live until End. Its pinned neurons are ready.
  // tokens_of: for how many tokens each of them is listed, for who watches; empty: one.
  void Begin(int64_t ffn, std::span<const int32_t> listed, std::span<const uint8_t> tokens_of = {});
  // Looks up where the others lie, and reads this part of all that is missing, kAll or kGateHalf:
  // once for a list. What is in memory is ready then, and what arrives joins it.
  void Fetch(SlotPart part) noexcept;
  // Reads the rest of some neurons, at the latest in the next Poll. Each had only its gate ready,
  // and is asked for once.
  void FetchRests(const int32_t* positions, int64_t count) noexcept;
  // The same for all that is wanted, after all gates were ready; nothing is in flight. All other
  // neurons are ready again.
  void FetchAllRests(const int32_t* positions, int64_t count) noexcept;
  // Takes what has arrived, where `wait` at least one. False where nothing did or another thread is
  // here.
  bool Poll(bool wait) noexcept;
  bool in_flight() const { return queue_->in_flight() > 0; }
  bool is_reading_ahead() const { return num_reading_ahead_.load(std::memory_order_relaxed) > 0; }
  bool failed() const { return error_ != 0; }
  // Takes what was read ahead for some positions that are kRead to their slots. Different positions
  // may be settled at a time.
  void Settle(const int32_t* positions, int64_t count) const noexcept;
  // One of up to BundleStore::kMostChecked positions, which are ready in this state, where what was
  // read into their slots, which are listed too, does not fit its check; -1 where all do, or
  // nothing was read.
  int64_t FindDamaged(const kernels::KernelTable& table, const int32_t* positions,
                      const int32_t* slots, int64_t count, ReadyState state) const noexcept;
  // Nothing of the list is in flight. Hands the slots back to the cache. `damaged`: a position
  // whose check does not fit; -1 for none. Throws Error(kIo) where a read failed, Error(kCorrupt)
  // for damage; what was read is forgotten then.
  void End(int64_t damaged);

  // By position, among all of the store's.
  const int32_t* slots() const { return views_.slots; }
  const ReadyList& ready() const { return ready_; }
  // Of a position whose gate is ready and the rest not, nor asked for.
  bool lacks_rest(int64_t position) const { return views_.rests[position] == RestState::kMissing; }
  // How many of the list were in memory, with a gate at least.
  int64_t num_resident() const { return num_resident_.load(std::memory_order_relaxed); }

  // Later lists are drawn into `map`; null ends that.
  void Watch(NeuronMap* map) { map_ = map; }

  const StreamCounts& counts() const { return counts_; }

 private:
  // What a slot lacks of a listed neuron.
  enum class RestState : uint8_t {
    kNotMissing,  // nothing, or all of it comes at once
    kMissing,     // the other half
    kWanted,      // the other half, which has been asked for
  };

  struct Places;  // where things lie in memory_
  struct Views {  // of memory_, an entry per position unless said otherwise
    int32_t* slots = nullptr;
    int32_t* ahead_places = nullptr;  // where what is missing was read ahead; -1: it was not
    RestState* rests = nullptr;       // of the other half
    uint16_t* pieces = nullptr;       // that are being read
    // An entry per neuron that is looked up.
    CacheEntry* entries = nullptr;
    ReadRequest* requests = nullptr;  // as many as it may have pieces
    int32_t* missing = nullptr;  // positions that are read, those that were read ahead at the end
  };
  struct List {
    int64_t ffn = 0;
    std::span<const int32_t> neurons;
    std::span<const uint8_t> tokens_of;
    int64_t num_pinned = 0;                // positions below are
    int64_t num_missing = 0;               // entries of missing
    int64_t num_ahead = 0;                 // of them read ahead
    SlotPart first_part = SlotPart::kAll;  // that is read

    int64_t size() const { return std::ssize(neurons); }
    std::span<const int32_t> looked_up() const {
      return neurons.subspan(static_cast<size_t>(num_pinned));
    }
  };

  void LookUp() noexcept;
  bool Reap(bool wait) noexcept;
  void Submit(std::span<const int32_t> positions, SlotPart part, uint64_t tag) noexcept;
  size_t MakeRequests(std::span<const int32_t> positions, SlotPart part, uint64_t tag) noexcept;
  void Draw() noexcept;

  BundleStore& store_;
  const FetchSizes sizes_;
  const uint64_t piece_bytes_;  // as long as a slot where reads are not cut
  std::unique_ptr<ReadQueue> queue_;
  Buffer memory_;
  // In memory_. Whoever holds polling_ adds to ready_, and takes from wanted_rests_.
  ReadyList ready_;
  WantedRests wanted_rests_;
  Views views_;
  List list_;
  std::atomic<int64_t> num_resident_{0};         // until the list is looked up the pinned ones
  std::atomic<int> error_{0};                    // errno of a read that failed
  std::atomic_flag polling_ = ATOMIC_FLAG_INIT;  // whoever holds it uses the queue
  StreamCounts counts_;
  uint64_t gap_bytes_ = 0;    // of them, between reads
  NeuronMap* map_ = nullptr;  // null where nobody looks
  // Reading ahead.
  AheadReads ahead_;
  struct {
    std::atomic<bool> is_set{false};
    int64_t ffn = 0;
    std::vector<int32_t> neurons;
  } expected_;
  std::vector<ReadRequest> ahead_requests_;
  std::atomic<bool> is_looked_up_{false};  // the list
  std::atomic<int64_t> num_reading_ahead_{0};
};

}  // namespace hearth
