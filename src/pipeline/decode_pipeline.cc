#include "pipeline/decode_pipeline.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "ops/scratch_places.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

// Neurons that a thread takes at a time: few enough to share out what has arrived, enough that the
// fetch-ahead of the row kernels works.
constexpr int64_t kFewestOfCluster = 16;
constexpr int64_t kMostOfCluster = 256;
// Down rows that are added together while others are still being computed.
constexpr int64_t kAddGrain = 128;
constexpr size_t kMaxColumnParts = 64;
// Looks for work before a thread without any gives up its processor.
constexpr int kSpins = 2000;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Some columns of the output. Whoever holds `busy` adds to them.
struct ColumnPart {
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::atomic<int64_t> added{0};  // positions whose down rows are in
  int64_t begin_group = 0;
  int64_t end_group = 0;
};

}  // namespace

const char* PipelineName(PipelineKind kind) {
  return kind == PipelineKind::kBlocking ? "blocking" : "cluster";
}

std::optional<PipelineKind> PipelineFromName(std::string_view name) {
  for (const PipelineKind kind : {PipelineKind::kBlocking, PipelineKind::kCluster}) {
    if (name == PipelineName(kind)) return kind;
  }
  return std::nullopt;
}

// What one thread needs to compute a cluster.
struct DecodePipeline::ClusterScratch {
  std::array<int32_t, kMostOfCluster> rows, fired, active;
  std::array<float, kMostOfCluster> gate, up, factors;

  NeuronCluster Cluster(int64_t count) {
    return {rows.data(),  count,         gate.data(),   up.data(),
            fired.data(), active.data(), factors.data()};
  }
};

// What the threads of a segment share.
struct DecodePipeline::Section {
  const kernels::KernelTable& table;
  FfnNeurons slots;  // rows are slots of the whole arena
  NeuronInput input;
  bool skip_silent = false;
  SilentGates silent = {};  // where they are skipped
  float* out = nullptr;
  int threads = 1;
  int64_t count = 0;                 // positions of the segment
  int64_t num_resident = 0;          // entries of ready_ that were there from the start
  std::atomic<int64_t> ready{0};     // entries of ready_
  std::atomic<int64_t> taken{0};     // of them
  std::atomic<int64_t> computed{0};  // positions
  std::atomic_flag polling = ATOMIC_FLAG_INIT;
  std::atomic<int> error{0};         // errno of a read that failed
  std::atomic<int64_t> damaged{-1};  // a position whose check does not fit
  std::atomic<int64_t> fired{0};
  std::atomic<int64_t> active{0};
  std::atomic<int64_t> idle_ns{0};
  std::array<ColumnPart, kMaxColumnParts> columns;
  size_t num_columns = 0;

  void SplitColumns(int64_t groups) {
    num_columns = static_cast<size_t>(
        std::min({groups, static_cast<int64_t>(threads), static_cast<int64_t>(kMaxColumnParts)}));
    for (size_t i = 0; i < num_columns; ++i) {
      columns[i].begin_group = groups * static_cast<int64_t>(i) / static_cast<int64_t>(num_columns);
      columns[i].end_group =
          groups * static_cast<int64_t>(i + 1) / static_cast<int64_t>(num_columns);
    }
  }

  void Reset(int64_t positions) {
    count = positions;
    ready = taken = computed = 0;
    for (size_t i = 0; i < num_columns; ++i) columns[i].added = 0;
  }

  bool IsDone() const {
    for (size_t i = 0; i < num_columns; ++i) {
      if (columns[i].added.load(std::memory_order_acquire) < count) return false;
    }
    return true;
  }
};

struct DecodePipeline::Places {
  size_t x, slots, entries, requests, missing, ready, factors, computed, end;

  Places(int64_t hidden, int64_t listed) {
    ScratchPlaces scratch;
    x = scratch.Take(RowGroupCount(hidden), sizeof(kernels::GroupQ8));
    slots = scratch.Take(listed, sizeof(int32_t));
    entries = scratch.Take(listed, sizeof(CacheEntry));
    requests = scratch.Take(listed, sizeof(ReadRequest));
    missing = scratch.Take(listed, sizeof(int32_t));
    ready = scratch.Take(listed, sizeof(int32_t));
    factors = scratch.Take(listed, sizeof(float));
    computed = scratch.Take(listed, sizeof(std::atomic<uint8_t>));
    end = scratch.used();
  }
};

namespace {
int64_t MostListed(const StreamShape& shape, const StreamPlan& plan) {
  return std::min(shape.neurons, plan.spare_slots());
}
}  // namespace

uint64_t DecodePipeline::ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                                      int64_t hidden_size) {
  return Buffer::ChargedBytes(Places(hidden_size, MostListed(shape, plan)).end);
}

DecodePipeline::DecodePipeline(Budget& budget, BundleStore& store, PipelineKind kind)
    : store_(store),
      kind_(kind),
      max_listed_(MostListed(store.source().shape(), store.plan())),
      queue_(store.file().OpenQueue(
          {.depth = store.plan().queue_depth,
           .capacity = std::max(static_cast<size_t>(max_listed_),
                                static_cast<size_t>(store.plan().queue_depth))})),
      memory_(budget, "activations", Places(store.source().hidden_size, max_listed_).end) {
  const Places at(store.source().hidden_size, max_listed_);
  std::byte* base = memory_.data();
  x_ = reinterpret_cast<kernels::GroupQ8*>(base + at.x);
  slots_ = reinterpret_cast<int32_t*>(base + at.slots);
  entries_ = reinterpret_cast<CacheEntry*>(base + at.entries);
  requests_ = reinterpret_cast<ReadRequest*>(base + at.requests);
  missing_ = reinterpret_cast<int32_t*>(base + at.missing);
  ready_ = reinterpret_cast<int32_t*>(base + at.ready);
  factors_ = reinterpret_cast<float*>(base + at.factors);
  computed_ = reinterpret_cast<std::atomic<uint8_t>*>(base + at.computed);
}

SparseFfnCounts DecodePipeline::Run(Compute& compute, const StreamedFfn& ffn, const float* x,
                                    std::span<const int32_t> listed, bool skip_silent, float* out) {
  const Clock::time_point start = Clock::now();
  const int64_t hidden = store_.source().hidden_size;
  Section section{.table = compute.kernels(),
                  .slots = store_.Rows(ffn, 0, store_.plan().all_slots(store_.source().shape())),
                  .skip_silent = skip_silent && CanSkipNeurons(ffn.activation),
                  .silent = SilentGatesOf(ffn.activation, ffn.threshold),
                  .out = out,
                  .threads = compute.threads()};
  section.SplitColumns(RowGroupCount(hidden));
  section.input = PrepareInput(section.table, section.slots, x, x_);
  std::memset(out, 0, static_cast<size_t>(hidden) * sizeof(float));
  for (size_t first = 0; first < listed.size(); first += static_cast<size_t>(max_listed_)) {
    const size_t count = std::min(listed.size() - first, static_cast<size_t>(max_listed_));
    RunSegment(compute, ffn, listed.subspan(first, count), section);
  }
  counts_.idle_seconds += static_cast<double>(section.idle_ns) * 1e-9;
  counts_.wall_seconds += SecondsSince(start);
  return {
      .gate = static_cast<int64_t>(listed.size()), .up = section.fired, .active = section.active};
}

void DecodePipeline::RunSegment(Compute& compute, const StreamedFfn& ffn,
                                std::span<const int32_t> listed, Section& section) {
  const int64_t index = store_.FfnIndex(ffn.layer, ffn.expert);
  section.Reset(static_cast<int64_t>(listed.size()));
  for (size_t i = 0; i < listed.size(); ++i) computed_[i].store(0, std::memory_order_relaxed);
  LookUp(index, listed);
  section.num_resident = section.count - num_missing_;
  section.ready = section.num_resident;
  SubmitMisses(index, listed);
  if (kind_ == PipelineKind::kBlocking) {
    const Clock::time_point start = Clock::now();
    while (queue_->in_flight() > 0) PollReads(section, true);
    section.idle_ns += static_cast<int64_t>(SecondsSince(start) * 1e9) * section.threads;
  }
  compute.team().Run([&](int) { Work(section); });
  Settle(index, listed, section);
}

// Fills slots_, and splits positions into ready_, those that are in memory, and missing_.
void DecodePipeline::LookUp(int64_t ffn, std::span<const int32_t> listed) {
  const auto pinned = static_cast<int32_t>(store_.plan().pinned_neurons);
  num_pinned_ = std::lower_bound(listed.begin(), listed.end(), pinned) - listed.begin();
  num_missing_ = 0;
  int64_t resident = 0;
  for (; resident < num_pinned_; ++resident) {
    const auto i = static_cast<size_t>(resident);
    slots_[i] = store_.PinnedSlot(ffn) + listed[i];
    ready_[i] = static_cast<int32_t>(i);
  }
  const std::span<const int32_t> looked_up = listed.subspan(static_cast<size_t>(num_pinned_));
  store_.cache().Lookup({store_.FirstKey(ffn), looked_up}, {entries_, looked_up.size()});
  int32_t spare = store_.spare_slot();
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
  counts_.neurons += static_cast<int64_t>(listed.size());
  counts_.pinned += num_pinned_;
  counts_.hits += resident - num_pinned_;
  counts_.misses += num_missing_;
}

void DecodePipeline::SubmitMisses(int64_t ffn, std::span<const int32_t> listed) {
  const auto stride = static_cast<uint32_t>(store_.source().layout.stride);
  for (int64_t i = 0; i < num_missing_; ++i) {
    const int32_t position = missing_[i];
    requests_[i] = {.offset = store_.FileOffset(ffn, listed[static_cast<size_t>(position)]),
                    .data = store_.Slots(slots_[position], 1).data(),
                    .bytes = stride,
                    .tag = static_cast<uint64_t>(position)};
  }
  if (num_missing_ == 0) return;
  // The queue has room for all: its capacity is max_listed_, and nothing else is in flight.
  const size_t taken = queue_->Submit({requests_, static_cast<size_t>(num_missing_)});
  if (taken != static_cast<size_t>(num_missing_)) {
    throw Error(ErrorCode::kInternal, "DecodePipeline", "a read queue without room");
  }
  counts_.bytes_read += static_cast<uint64_t>(num_missing_) * stride;
}

// Takes what has been read. One thread at a time; false where another one does, or nothing came.
bool DecodePipeline::PollReads(Section& section, bool wait) {
  if (section.polling.test_and_set(std::memory_order_acquire)) return false;
  std::array<ReadCompletion, 64> done;
  size_t count = 0;
  if (queue_->in_flight() > 0) count = wait ? queue_->Wait(done) : queue_->Poll(done);
  int64_t ready = section.ready.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    ready_[ready++] = static_cast<int32_t>(done[i].tag);
    if (done[i].error != 0) section.error = done[i].error;
  }
  section.ready.store(ready, std::memory_order_release);
  section.polling.clear(std::memory_order_release);
  return count > 0;
}

// Computes a cluster of what is ready; false where nothing is.
bool DecodePipeline::ComputeReady(Section& section, ClusterScratch& scratch) {
  int64_t first = section.taken.load(std::memory_order_relaxed);
  int64_t count = 0;
  do {
    const int64_t left = section.ready.load(std::memory_order_acquire) - first;
    if (left <= 0) return false;
    count =
        std::min(left, std::clamp(left / (2 * section.threads), kFewestOfCluster, kMostOfCluster));
  } while (!section.taken.compare_exchange_weak(first, first + count, std::memory_order_relaxed));
  const int32_t* positions = ready_ + first;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t slot = slots_[positions[i]];
    scratch.rows[static_cast<size_t>(i)] = slot;
    if (first + i >= section.num_resident && !store_.IsIntact(slot)) {
      section.damaged = positions[i];
    }
  }
  const NeuronCluster cluster = scratch.Cluster(count);
  const SilentGates* silent = section.skip_silent ? &section.silent : nullptr;
  const ClusterCounts counts =
      ComputeCluster(section.table, section.slots, section.input, silent, cluster);
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool is_active = next < counts.active && cluster.active[next] == cluster.rows[i];
    factors_[positions[i]] = is_active ? cluster.factors[next++] : 0.0f;
    computed_[positions[i]].store(1, std::memory_order_release);
  }
  section.fired.fetch_add(counts.fired, std::memory_order_relaxed);
  section.active.fetch_add(counts.active, std::memory_order_relaxed);
  section.computed.fetch_add(count, std::memory_order_release);
  return true;
}

// Adds down rows of the computed prefix to columns that nobody else adds to; false where there is
// too little to add.
bool DecodePipeline::AddComputed(Section& section) {
  bool added_any = false;
  const auto add = section.table.row_scaled_add[static_cast<size_t>(section.slots.down.dtype)];
  const RowsView& down = section.slots.down;
  for (size_t part = 0; part < section.num_columns; ++part) {
    ColumnPart& columns = section.columns[part];
    const bool is_last = section.computed.load(std::memory_order_acquire) == section.count;
    int64_t at = columns.added.load(std::memory_order_relaxed);
    if (at == section.count || (!is_last && section.count - at < kAddGrain)) continue;
    if (columns.busy.test_and_set(std::memory_order_acquire)) continue;
    at = columns.added.load(std::memory_order_relaxed);
    int64_t end = at;
    while (end < section.count && computed_[end].load(std::memory_order_acquire) != 0) ++end;
    if (is_last || end - at >= kAddGrain) {
      std::array<int32_t, kMostOfCluster> rows;
      std::array<float, kMostOfCluster> factors;
      while (at < end) {
        int64_t count = 0;
        for (; at < end && count < kMostOfCluster; ++at) {
          rows[static_cast<size_t>(count)] = slots_[at];
          factors[static_cast<size_t>(count)] = factors_[at];
          count += !section.skip_silent || factors_[at] != 0.0f ? 1 : 0;
        }
        add({{down.data, down.stride, rows.data(), count},
             factors.data(),
             down.cols,
             columns.begin_group,
             columns.end_group,
             section.out});
      }
      columns.added.store(end, std::memory_order_release);
      added_any = true;
    }
    columns.busy.clear(std::memory_order_release);
  }
  return added_any;
}

// What every thread of a segment does, until there is nothing left.
void DecodePipeline::Work(Section& section) {
  ClusterScratch scratch;
  int spins = 0;
  Clock::time_point idle_since;
  while (!section.IsDone()) {
    const bool has_reads = section.ready.load(std::memory_order_relaxed) < section.count;
    const bool arrived = has_reads && PollReads(section, false);
    if (ComputeReady(section, scratch) || AddComputed(section) || arrived) {
      if (spins > 0) section.idle_ns += static_cast<int64_t>(SecondsSince(idle_since) * 1e9);
      spins = 0;
      continue;
    }
    if (spins++ == 0) idle_since = Clock::now();
    if (spins > kSpins) {
      if (!has_reads || !PollReads(section, true)) std::this_thread::yield();
    }
  }
  if (spins > 0) section.idle_ns += static_cast<int64_t>(SecondsSince(idle_since) * 1e9);
}

// Tells the cache what became of the misses, and the caller what went wrong.
void DecodePipeline::Settle(int64_t ffn, std::span<const int32_t> listed, const Section& section) {
  const std::span<const int32_t> looked_up = listed.subspan(static_cast<size_t>(num_pinned_));
  const int32_t first_key = store_.FirstKey(ffn);
  NeuronCache& cache = store_.cache();
  cache.Release({first_key, looked_up}, {entries_, looked_up.size()});
  const bool is_good = section.error == 0 && section.damaged < 0;
  for (size_t k = 0; k < looked_up.size(); ++k) {
    if (entries_[k].found != CacheFound::kMiss) continue;
    if (is_good) {
      cache.Loaded(first_key + looked_up[k]);
    } else {
      cache.Failed(first_key + looked_up[k]);
    }
  }
  if (section.error != 0) store_.ThrowReadError(section.error);
  if (section.damaged >= 0) {
    store_.ThrowDamaged(ffn, listed[static_cast<size_t>(section.damaged.load())]);
  }
}

}  // namespace hearth
