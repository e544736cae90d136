#include "pipeline/decode_pipeline.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "ops/elementwise.h"
#include "ops/scratch_places.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

// Neurons that a thread takes at a time, at the most.
constexpr int64_t kMostOfCluster = ReadyNeurons::kMost;
static_assert(kMostOfCluster == ClusterSizes::kLimit);
static_assert(kMostOfCluster <= BundleStore::kMostChecked);
// Down rows that are added together while others are still being computed.
constexpr int64_t kAddGrain = 128;
constexpr size_t kMaxColumnParts = 64;
// Looks for work before a thread without any gives up its processor.
constexpr int kSpins = 2000;

// Some columns of the output. Whoever holds `busy` adds to them.
struct ColumnPart {
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  std::atomic<int64_t> added{0};  // positions whose down rows are in
  int64_t begin_group = 0;
  int64_t end_group = 0;
};

}  // namespace

std::span<const PipelineKind> AllPipelines() {
  static constexpr std::array kAll = {PipelineKind::kCluster, PipelineKind::kMatrix,
                                      PipelineKind::kBlocking, PipelineKind::kLlmFlash};
  return kAll;
}

const char* PipelineName(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::kBlocking:
      return "blocking";
    case PipelineKind::kMatrix:
      return "matrix";
    case PipelineKind::kCluster:
      return "cluster";
    case PipelineKind::kLlmFlash:
      return "llmflash";
  }
  return "unknown";
}

std::optional<PipelineKind> PipelineFromName(std::string_view name) {
  for (const PipelineKind kind : AllPipelines()) {
    if (name == PipelineName(kind)) return kind;
  }
  return std::nullopt;
}

std::span<const IoThread> AllIoThreads() {
  static constexpr std::array kAll = {IoThread::kShared, IoThread::kOwn};
  return kAll;
}

const char* IoThreadName(IoThread thread) { return thread == IoThread::kOwn ? "own" : "shared"; }

std::optional<IoThread> IoThreadFromName(std::string_view name) {
  for (const IoThread thread : AllIoThreads()) {
    if (name == IoThreadName(thread)) return thread;
  }
  return std::nullopt;
}

// What the threads share that compute a list, or as much of it as fits.
struct DecodePipeline::Section {
  const kernels::KernelTable& table;
  NeuronWork& work;
  int64_t ffn = 0;
  int threads = 1;
  // The segment.
  int64_t count = 0;  // positions
  bool is_last = false;
  // The phase.
  Step step = Step::kFinish;
  bool adds = false;                 // down rows of what is computed
  bool fetches = false;              // begins with looking up and reading
  bool one_reads = false;            // worker 0, and no other; where it fetches
  std::atomic<int64_t> taken{0};     // of those that are ready
  std::atomic<int64_t> computed{0};  // positions
  // Of all segments.
  std::atomic<int64_t> damaged{-1};  // a position whose check does not fit
  std::atomic<int64_t> fired{0};
  std::atomic<int64_t> active{0};
  std::atomic<int64_t> clusters{0};  // taken
  std::atomic<int64_t> idle_ns{0};
  ListGuess* guess = nullptr;  // what the next FFN lists, in the last segment
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

  void Begin() {
    count = std::ssize(work.listed());
    for (size_t i = 0; i < num_columns; ++i) columns[i].added = 0;
  }

  bool IsDone() const {
    if (!adds) return computed.load(std::memory_order_acquire) == count;
    for (size_t i = 0; i < num_columns; ++i) {
      if (columns[i].added.load(std::memory_order_acquire) < count) return false;
    }
    return true;
  }
};

struct DecodePipeline::Places {
  size_t x, gates, factors, rests, computed, all, end;

  // neurons: of an FFN, where gates are read first; otherwise 0.
  Places(int64_t hidden, int64_t listed, int64_t neurons) {
    ScratchPlaces scratch;
    x = scratch.Take(RowGroupCount(hidden), sizeof(kernels::GroupQ8));
    gates = scratch.Take(listed, sizeof(float));
    factors = scratch.Take(listed, sizeof(float));
    rests = scratch.Take(listed, sizeof(int32_t));
    computed = scratch.Take(listed, sizeof(std::atomic<uint8_t>));
    all = scratch.Take(neurons, sizeof(int32_t));
    end = scratch.used();
  }
};

uint64_t DecodePipeline::ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                                      int64_t hidden_size, const DecodeOptions& options) {
  const int64_t listed = FetchSizes(shape, plan, options.reads_ahead).listed;
  const int64_t all = options.gates_first ? shape.neurons : 0;
  return NeuronFetch::ChargedBytes(shape, plan, options.fetch()) +
         (plan.holds_gates ? GateScan::ChargedBytes(shape.neurons) : 0) +
         Buffer::ChargedBytes(Places(hidden_size, listed, all).end);
}

DecodePipeline::DecodePipeline(Budget& budget, BundleStore& store, const DecodeOptions& options)
    : store_(store),
      options_(options),
      fetch_(budget, store, options.fetch()),
      memory_(budget, "activations",
              Places(store.source().hidden_size, fetch_.sizes().listed,
                     options.gates_first ? store.source().neurons : 0)
                  .end),
      processors_(options.processors) {
  if (options.kind == PipelineKind::kMatrix || options.gates_first) store.source().RequireHalves();
  if (store.plan().holds_gates) gate_scan_.emplace(budget, store.source().neurons);
  const int64_t all = options.gates_first ? store.source().neurons : 0;
  const Places at(store.source().hidden_size, fetch_.sizes().listed, all);
  std::byte* base = memory_.data();
  x_ = reinterpret_cast<kernels::GroupQ8*>(base + at.x);
  gates_ = reinterpret_cast<float*>(base + at.gates);
  factors_ = reinterpret_cast<float*>(base + at.factors);
  rests_ = reinterpret_cast<int32_t*>(base + at.rests);
  computed_ = reinterpret_cast<std::atomic<uint8_t>*>(base + at.computed);
  all_ = {reinterpret_cast<int32_t*>(base + at.all), static_cast<size_t>(all)};
  std::iota(all_.begin(), all_.end(), 0);
}

StreamCounts DecodePipeline::counts() const {
  StreamCounts counts = fetch_.counts();
  counts.clusters = clusters_;
  counts.idle_seconds = idle_seconds_;
  counts.wall_seconds = wall_seconds_;
  return counts;
}

SparseFfnCounts DecodePipeline::Run(Compute& compute, const StreamedFfn& ffn, const float* x,
                                    std::optional<std::span<const int32_t>> listed,
                                    bool skip_silent, float* out) {
  if (!listed && !finds_firing()) {
    throw Error(ErrorCode::kInternal, "DecodePipeline", "all neurons, without their gates");
  }
  if (!listed && !gate_scan_) listed = all_;
  const Stopwatch watch;
  const FfnNeurons rows = BundleRows(store_).OfSlots(ffn);
  const SilentGates gates_of_silent = SilentGatesOf(ffn.activation, ffn.threshold);
  const SilentGates* silent =
      skip_silent && CanSkipNeurons(ffn.activation) ? &gates_of_silent : nullptr;
  const NeuronInput input = PrepareInput(compute.kernels(), rows, x, x_);
  const int64_t gates = listed ? std::ssize(*listed) : rows.gate.rows;
  const float* known = nullptr;
  if (gate_scan_) {
    gate_scan_->Run(compute, rows.gate, input, listed, silent);
    listed = gate_scan_->fired();
    known = gate_scan_->gates().data();
  }
  TokenWork work(compute.kernels(), rows, input, {silent, known}, {gates_, factors_}, out);
  const ClusterCounts counts = RunList(compute, ffn, *listed, {}, work);
  wall_seconds_ += watch.Seconds();
  return {.gate = gates, .up = counts.fired, .active = counts.active};
}

SparseFfnCounts DecodePipeline::RunBatch(Compute& compute, SparseBatch& batch,
                                         const StreamedFfn& ffn,
                                         const SparseBatch::Tokens& tokens) {
  if (tokens.listed.empty() && !finds_firing()) {
    throw Error(ErrorCode::kInternal, "DecodePipeline", "all neurons, without their gates");
  }
  const Stopwatch watch;
  const FfnNeurons rows = BundleRows(store_).OfSlots(ffn);
  FillZero(tokens.out);
  batch.Begin(compute, rows, store_.source().neurons, tokens);
  if (store_.plan().holds_gates) batch.ScanGates(compute, rows.gate);
  BatchWork work(compute.kernels(), rows, batch);
  const ClusterCounts counts = RunList(compute, ffn, batch.neurons(), batch.tokens_of(), work);
  wall_seconds_ += watch.Seconds();
  return {.gate = batch.num_listed(), .up = counts.fired, .active = counts.active};
}

ClusterCounts DecodePipeline::RunList(Compute& compute, const StreamedFfn& ffn,
                                      std::span<const int32_t> listed,
                                      std::span<const uint8_t> tokens_of, NeuronWork& work) {
  Section section{.table = compute.kernels(),
                  .work = work,
                  .ffn = store_.FfnIndex(ffn.layer, ffn.expert),
                  .threads = compute.threads()};
  section.SplitColumns(RowGroupCount(store_.source().hidden_size));
  ListGuess* guess = std::exchange(guess_, nullptr);
  size_t count = 0;
  for (size_t first = 0; first < listed.size(); first += count) {
    count = static_cast<size_t>(fetch_.CountThatFits(listed.subspan(first)));
    work.BeginSegment(listed.subspan(first, count), store_.plan().holds_gates,
                      tokens_of.empty() ? tokens_of : tokens_of.subspan(first, count));
    section.Begin();
    section.is_last = first + count == listed.size();
    if (section.is_last) section.guess = guess;
    RunSegment(compute, section);
  }
  clusters_ += section.clusters;
  idle_seconds_ += static_cast<double>(section.idle_ns) * 1e-9;
  return {section.fired, section.active};
}

void DecodePipeline::RunSegment(Compute& compute, Section& section) {
  fetch_.Begin(section.ffn, section.work.listed(), section.work.tokens_of());
  if (options_.kind == PipelineKind::kMatrix) {
    RunMatrices(compute, section);
  } else {
    section.fetches = options_.kind == PipelineKind::kCluster && !processors_.is_loaded();
    section.one_reads =
        section.fetches && options_.io_thread == IoThread::kOwn && section.threads > 1;
    if (!section.fetches) {
      fetch_.Fetch(FirstPart(section));
      const Stopwatch watch;
      while (fetch_.ready().is_awaiting()) fetch_.Poll(true);
      section.idle_ns += static_cast<int64_t>(watch.Seconds() * 1e9) * section.threads;
    }
    if (options_.kind == PipelineKind::kCluster) {
      processors_.BeginJob(section.threads, since_begin_.Seconds());
    }
    RunPhase(compute, section, Step::kFinish, true);
    processors_.EndJob();
  }
  fetch_.End(section.damaged);
}

// A barrier after gate and after up.
void DecodePipeline::RunMatrices(Compute& compute, Section& section) {
  if (!section.work.knows_gates()) {
    fetch_.Fetch(SlotPart::kGateHalf);
    RunPhase(compute, section, Step::kGate, false);
    if (fetch_.failed()) return;
    section.work.TakeGates();
    ReadFiringRests(section);
  } else {
    fetch_.Fetch(SlotPart::kAll);
  }
  RunPhase(compute, section, Step::kFinish, false);
  RunPhase(compute, section, Step::kNone, true);
}

// What of missing neurons is read first.
SlotPart DecodePipeline::FirstPart(const Section& section) const {
  const bool gates_first = options_.gates_first && !section.work.knows_gates();
  return gates_first ? SlotPart::kGateHalf : SlotPart::kAll;
}

// Between the gates and the rest: of what lacks its rest, that of neurons that fire is read.
void DecodePipeline::ReadFiringRests(Section& section) {
  std::array<int32_t, kMostOfCluster> positions, slots, fired;
  int64_t wanted = 0;
  for (int64_t at = 0; at < section.count;) {
    int64_t count = 0;
    for (; at < section.count && count < kMostOfCluster; ++at) {
      positions[static_cast<size_t>(count)] = static_cast<int32_t>(at);
      slots[static_cast<size_t>(count)] = fetch_.slots()[at];
      count += fetch_.lacks_rest(at) ? 1 : 0;
    }
    const int64_t firing =
        section.work.TakeSilent({positions.data(), slots.data(), count}, fired.data());
    std::copy_n(fired.data(), firing, rests_ + wanted);
    wanted += firing;
  }
  fetch_.FetchAllRests(rests_, wanted);
}

void DecodePipeline::RunPhase(Compute& compute, Section& section, Step step, bool adds) {
  section.step = step;
  section.adds = adds;
  if (step != Step::kNone) {
    section.taken = section.computed = 0;
    for (int64_t i = 0; i < section.count; ++i) computed_[i].store(0, std::memory_order_relaxed);
  }
  compute.team().Run([&](int worker) {
    // The others begin with what is pinned.
    if (worker == 0 && section.fetches) fetch_.Fetch(FirstPart(section));
    Work(section, worker);
    processors_.Look(worker);
  });
}

// Takes some neurons that are ready in the same way; false where none is.
bool DecodePipeline::TakeReady(Section& section, ReadyNeurons& ready, ReadyState& state) {
  const ReadyList& list = fetch_.ready();
  int64_t first = section.taken.load(std::memory_order_relaxed);
  do {
    const int64_t left = list.size() - first;
    if (left <= 0) return false;
    const int64_t most = std::min(left, store_.plan().clusters.Of(left, section.threads));
    state = list.states()[first];
    ready.count = 1;
    while (ready.count < most && list.states()[first + ready.count] == state) ++ready.count;
  } while (
      !section.taken.compare_exchange_weak(first, first + ready.count, std::memory_order_relaxed));
  ready.positions = list.positions() + first;
  return true;
}

// Computes a cluster of what is ready; false where nothing is.
bool DecodePipeline::ComputeReady(Section& section) {
  ReadyNeurons ready;
  ReadyState state;
  if (!TakeReady(section, ready, state)) return false;
  section.clusters.fetch_add(1, std::memory_order_relaxed);
  std::array<int32_t, kMostOfCluster> slots;
  for (int64_t i = 0; i < ready.count; ++i) {
    slots[static_cast<size_t>(i)] = fetch_.slots()[ready.positions[i]];
  }
  ready.slots = slots.data();
  int64_t computed = ready.count;
  if (section.step == Step::kGate) {
    section.work.MultiplyGates(ready);
  } else {
    if (state == ReadyState::kRead) fetch_.Settle(ready.positions, ready.count);
    const int64_t damaged =
        fetch_.FindDamaged(section.table, ready.positions, ready.slots, ready.count, state);
    if (damaged >= 0) section.damaged = damaged;
    const bool knows_gates = section.work.knows_gates();
    if (IsGateAlone(state) && !knows_gates) {
      computed = MultiplyReady(section, ready);
    } else {
      FinishReady(section, ready, knows_gates || state == ReadyState::kRestRead);
    }
  }
  section.computed.fetch_add(computed, std::memory_order_release);
  return true;
}

// Gates that came alone: reads the rest of what fires. Returns how many are silent, and computed.
int64_t DecodePipeline::MultiplyReady(Section& section, const ReadyNeurons& ready) {
  section.work.MultiplyGates(ready);
  std::array<int32_t, kMostOfCluster> fired;
  const int64_t count = section.work.TakeSilent(ready, fired.data());
  int64_t next = 0;
  for (int64_t i = 0; i < ready.count; ++i) {
    const int32_t position = ready.positions[i];
    if (next < count && fired[static_cast<size_t>(next)] == position) {
      ++next;
    } else {
      computed_[position].store(1, std::memory_order_release);
    }
  }
  if (count > 0) {
    fetch_.FetchRests(fired.data(), count);
    if (!section.one_reads) fetch_.Poll(false);
  }
  return ready.count - count;
}

// The activation of a cluster: what reaches down.
void DecodePipeline::FinishReady(Section& section, const ReadyNeurons& ready, bool knows_gates) {
  const ClusterCounts counts = section.work.Finish(ready, knows_gates);
  for (int64_t i = 0; i < ready.count; ++i) {
    computed_[ready.positions[i]].store(1, std::memory_order_release);
  }
  section.fired.fetch_add(counts.fired, std::memory_order_relaxed);
  section.active.fetch_add(counts.active, std::memory_order_relaxed);
}

// Adds down rows of the computed prefix to columns that nobody else adds to; false where there is
// too little to add.
bool DecodePipeline::AddComputed(Section& section) {
  bool added_any = false;
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
      section.work.AddDown(fetch_.slots(), at, end, columns.begin_group, columns.end_group);
      columns.added.store(end, std::memory_order_release);
      added_any = true;
    }
    columns.busy.clear(std::memory_order_release);
  }
  return added_any;
}

// A step of finding out what the next FFN will list; false where there is none. What is left of it
// when the section is done is not worth more than reading later.
bool DecodePipeline::Guess(Section& section) {
  if (section.guess == nullptr) return false;
  const ListGuess::Step step = section.guess->TakeStep();
  if (step == ListGuess::Step::kLast) {
    fetch_.Expect(guessed_ffn_, section.guess->listed());
  }
  return step != ListGuess::Step::kNone;
}

// What every thread of a phase does, until there is nothing left.
void DecodePipeline::Work(Section& section, int worker) {
  const bool reads = !section.one_reads || worker == 0;
  int spins = 0;
  Stopwatch idle;
  while (!section.IsDone()) {
    const bool has_reads = fetch_.ready().is_awaiting();
    if (reads && !has_reads && section.is_last) fetch_.ReadAhead();
    const bool arrived = reads && (has_reads || fetch_.is_reading_ahead()) && fetch_.Poll(false);
    const bool computes = !section.one_reads || worker > 0 || !has_reads;
    const bool computed = computes && section.step != Step::kNone && ComputeReady(section);
    const bool added = !computed && computes && section.adds && AddComputed(section);
    if (computed || added || arrived || Guess(section)) {
      if (spins > 0) section.idle_ns += static_cast<int64_t>(idle.Seconds() * 1e9);
      spins = 0;
      continue;
    }
    if (spins++ == 0) idle = Stopwatch();
    if (spins <= kSpins) continue;
    if (!reads || !has_reads || !fetch_.Poll(true)) std::this_thread::yield();
  }
  if (spins > 0) section.idle_ns += static_cast<int64_t>(idle.Seconds() * 1e9);
  // Where the guess was the last to be done.
  if (reads && section.is_last) fetch_.ReadAhead();
}

}  // namespace hearth
