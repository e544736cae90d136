// What threads of the engine do together with weights in memory, by the operators that decoding and
// prompts use.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/buffer.h"
#include "base/cpu.h"
#include "base/memory_info.h"
#include "base/random_words.h"
#include "base/rounding.h"
#include "base/stopwatch.h"
#include "format/bundle_layout.h"
#include "ops/linear.h"
#include "ops/probe.h"
#include "ops/sparse_ffn.h"
#include "planner/doctor/hardware_probe.h"
#include "planner/doctor/hardware_probe_reads.h"

namespace hearth {
namespace {

constexpr uint64_t kUsualMemoryBytes = uint64_t{1} << 30;
constexpr uint64_t kLeastMemoryBytes = uint64_t{16} << 20;
// Small models have three to four neurons per column.
constexpr int64_t kNarrowNeuronsOfColumn = 3;
constexpr double kListedShare = 0.1;  // of an FFN's neurons, as a ReLU model's token fires
constexpr int kSectionsAtOnce = 100;
// Rows that a thread hashes at a time: bundle_checks.h takes as many.
constexpr int64_t kCheckGrain = 16;
// Up to here every number of threads is measured; from there on powers of 2 and all.
constexpr int kEveryNumber = 4;

enum Quantity {
  kRead,
  kMatrix,
  kDotAndAdd,
  kNarrowDotAndAdd,
  kCheck,
  kPrompt,
  kSection,
  kBusyReads,
  kBusyNeurons,
  kRangeRing,
  kNumQuantities
};
constexpr std::array<const char*, kNumQuantities> kQuantityNames = {"reading memory",
                                                                    "matrix times token",
                                                                    "listed neurons",
                                                                    "narrow neurons",
                                                                    "checks",
                                                                    "matrix times prompt",
                                                                    "sections",
                                                                    "reads beside memory",
                                                                    "neurons read beside memory",
                                                                    "ranges read in order"};

// What is read beside memory: as layers are that are read in order, and as single neurons are.
constexpr IoSpeed kBusyRead = {.block_bytes = kBusyBlockBytes, .queue_depth = kBusyQueueDepth};
constexpr IoSpeed kBusyNeuron = {.block_bytes = kBusyNeuronBytes, .queue_depth = kBusyNeuronDepth};
constexpr uint64_t BytesInFlight(const IoSpeed& kind) {
  return kind.block_bytes * static_cast<uint64_t>(kind.queue_depth);
}
// Memory that a thread takes in before it looks at the reads again: some tens of microseconds.
constexpr size_t kBusyPartBytes = size_t{512} << 10;
// The work between two ranges is short, so threads look at the clock every few microseconds.
constexpr size_t kRangePartBytes = size_t{32} << 10;

std::vector<int> ThreadNumbers() {
  const int cpus = AvailableCpus();
  std::vector<int> numbers;
  for (int n = 1; n < cpus; n = n < kEveryNumber ? n + 1 : 2 * n) numbers.push_back(n);
  numbers.push_back(cpus);
  return numbers;
}

uint64_t MemoryBytesFor(const ProfilerEffort& effort) {
  const uint64_t wanted = effort.memory_bytes != 0 ? effort.memory_bytes
                                                   : std::max(kUsualMemoryBytes, LeastProbeBytes());
  return std::max(kLeastMemoryBytes, std::min(wanted, AvailableMemoryBytes() / 4));
}

// Memory that all quantities are measured on, and the shapes in which they see it. Every byte is
// below 64, so that halves are ordinary numbers wherever a shape has them.
class Operands {
 public:
  explicit Operands(const ProfilerEffort& effort)
      : hidden_(effort.hidden_size),
        memory_(budget_, "operands", MemoryBytesFor(effort)),
        layout_(MakeBundleLayout(DType::kQ4_0, hidden_)),
        narrow_layout_(MakeBundleLayout(DType::kQ4_0, narrow())) {
    Fill();
    const auto bytes = static_cast<int64_t>(memory_.size_bytes());
    const auto stride = static_cast<int64_t>(layout_.stride);
    neurons_ = std::min(effort.ffn_neurons, bytes / stride);
    const auto tile_bytes = static_cast<int64_t>(TileLayout(DType::kQ4_0, hidden_).tile_bytes());
    rows_ = std::min(RoundUp<int64_t>(effort.ffn_neurons, TileLayout::kRows),
                     bytes / tile_bytes * TileLayout::kRows);
  }

  Budget& budget() { return budget_; }
  int64_t hidden() const { return hidden_; }
  int64_t narrow() const {
    return std::max<int64_t>(hidden_ / (kRowColumns / kNarrowColumns),
                             InfoOf(DType::kQ4_0).block_size);
  }
  int64_t neurons() const { return neurons_; }  // of an FFN
  int64_t narrow_neurons() const { return std::min(kNarrowNeuronsOfColumn * narrow(), neurons_); }
  int64_t rows() const { return rows_; }  // of a matrix
  const BundleLayout& layout() const { return layout_; }
  const BundleLayout& narrow_layout() const { return narrow_layout_; }
  std::span<const std::byte> bytes() const { return {memory_.data(), memory_.size_bytes()}; }

  // Each call has other bytes, in turn, until all have been used.
  WeightView NextMatrix() {
    WeightView view = {.dtype = DType::kQ4_0, .cols = hidden_, .rows = rows_, .is_tiled = true};
    view.data = Next(view.expert_bytes());
    return view;
  }
  FfnNeurons NextFfn() { return NextFfn(layout_, hidden_, neurons_); }
  FfnNeurons NextNarrowFfn() { return NextFfn(narrow_layout_, narrow(), narrow_neurons()); }
  const std::byte* NextBundles() { return Next(layout_.stride * static_cast<size_t>(neurons_)); }

 private:
  FfnNeurons NextFfn(const BundleLayout& layout, int64_t columns, int64_t neurons) {
    const std::byte* base = Next(layout.stride * static_cast<size_t>(neurons));
    const auto part = [&](BundleRole role) {
      return RowsView{.data = base + layout.Part(role).offset,
                      .dtype = DType::kQ4_0,
                      .stride = layout.stride,
                      .cols = columns,
                      .rows = neurons};
    };
    return {.gate = part(BundleRole::kGate),
            .up = part(BundleRole::kUp),
            .down = part(BundleRole::kDown)};
  }
  void Fill() {
    std::array<uint64_t, 8192> words;
    RandomWords random(1);
    for (uint64_t& word : words) word = random.Next() & 0x3f3f3f3f3f3f3f3fu;
    for (size_t at = 0; at < memory_.size_bytes(); at += sizeof(words)) {
      std::memcpy(memory_.data() + at, words.data(),
                  std::min(sizeof(words), memory_.size_bytes() - at));
    }
  }
  const std::byte* Next(size_t bytes) {
    if (place_ + bytes > memory_.size_bytes()) place_ = 0;
    const std::byte* at = memory_.data() + place_;
    place_ += bytes;
    return at;
  }

  Budget budget_;
  int64_t hidden_;
  Buffer memory_;
  BundleLayout layout_, narrow_layout_;
  int64_t neurons_ = 0;
  int64_t rows_ = 0;
  size_t place_ = 0;
};

// Repeats once(), which returns how much it did, for about `seconds`; how much per second.
template <typename Once>
double Repeat(double seconds, Once&& once) {
  const Stopwatch watch;
  double amount = 0;
  double elapsed = 0;
  do {
    amount += once();
    elapsed = watch.Seconds();
  } while (elapsed < seconds);
  return amount / elapsed;
}

class ThreadProbe final : public HardwareProbe {
 public:
  ThreadProbe(const ProfilerEffort& effort, const ProbeFile& file)
      : file_(file.file()),
        seconds_(effort.thread_seconds),
        tokens_(effort.prompt_tokens),
        operands_(effort),
        ffn_(operands_.budget(), operands_.hidden(), operands_.neurons()),
        narrow_ffn_(operands_.budget(), operands_.narrow(), operands_.narrow_neurons()),
        input_(operands_.budget(), tokens_, operands_.hidden()),
        x_(static_cast<size_t>(tokens_ * operands_.hidden())),
        out_(static_cast<size_t>(std::max(tokens_ * operands_.rows(), operands_.hidden()))),
        hashes_(static_cast<size_t>(operands_.neurons())),
        read_memory_(operands_.budget(), "reads",
                     std::max({BytesInFlight(kBusyRead), BytesInFlight(kBusyNeuron),
                               kRangesInFlight * kRangeBytes})) {
    for (float& x : x_) x = static_cast<float>(random_.NextUnit() - 0.5);
    for (int32_t i = 0; i < operands_.neurons(); ++i) all_.push_back(i);
    for (const int threads : ThreadNumbers()) rows_.emplace_back(threads);
  }

  int steps() const override { return static_cast<int>(rows_.size()) * kNumQuantities; }
  std::string Name(int step) const override {
    const int threads = RowOf(step).compute->threads();
    return fmt::format("{}, {} {}", kQuantityNames[static_cast<size_t>(step % kNumQuantities)],
                       threads, threads == 1 ? "thread" : "threads");
  }

  void Measure(int step) override {
    Row& row = rows_[static_cast<size_t>(step / kNumQuantities)];
    switch (step % kNumQuantities) {
      case kRead:
        row.read.push_back(ProbeRead(*row.compute, operands_.bytes()).PerSecond());
        break;
      case kMatrix:
        row.matrix.push_back(MatrixBytesPerSecond(*row.compute));
        break;
      case kDotAndAdd:
        MeasureListed(row);
        break;
      case kNarrowDotAndAdd:
        MeasureNarrow(row);
        break;
      case kCheck:
        row.check.push_back(CheckBytesPerSecond(*row.compute));
        break;
      case kPrompt:
        row.prompt.push_back(PromptMacsPerSecond(*row.compute));
        break;
      case kSection:
        row.section.push_back(SectionSeconds(*row.compute));
        break;
      case kBusyReads:
        row.busy_io.push_back(BusyReadBytesPerSecond(*row.compute, kBusyRead));
        break;
      case kBusyNeurons:
        row.busy_neurons.push_back(BusyReadBytesPerSecond(*row.compute, kBusyNeuron));
        break;
      default:
        row.range_share.push_back(RangeShare(*row.compute));
    }
  }

  void Finish(HardwareProfile& profile) const override {
    profile.probe_memory_bytes = operands_.bytes().size();
    for (const Row& row : rows_) {
      profile.threads.push_back({row.compute->threads(), SpreadOf(row.read), SpreadOf(row.matrix),
                                 SpreadOf(row.dot), SpreadOf(row.add), SpreadOf(row.narrow_dot),
                                 SpreadOf(row.narrow_add), SpreadOf(row.check),
                                 SpreadOf(row.prompt), SpreadOf(row.section), SpreadOf(row.busy_io),
                                 SpreadOf(row.busy_neurons), SpreadOf(row.range_share)});
    }
  }

 private:
  struct Row {
    explicit Row(int threads) : compute(std::make_unique<Compute>("auto", threads)) {}
    std::unique_ptr<Compute> compute;
    // Per round.
    std::vector<double> read, matrix, dot, add, narrow_dot, narrow_add, check, prompt, section,
        busy_io, busy_neurons, range_share;
  };

  const Row& RowOf(int step) const { return rows_[static_cast<size_t>(step / kNumQuantities)]; }

  // The product of `tokens` tokens with the next matrix. Returns the bytes of the matrix.
  double Multiply(Compute& compute, int64_t tokens) {
    const WeightView weights = operands_.NextMatrix();
    const int64_t hidden = operands_.hidden();
    input_.Set({x_.data(), tokens, hidden, hidden});
    const Product product = {weights, {out_.data(), tokens, weights.rows, weights.rows}};
    MatMul(compute, {&product, 1}, input_);
    return static_cast<double>(weights.expert_bytes());
  }
  double MatrixBytesPerSecond(Compute& compute) {
    return Repeat(seconds_, [&] { return Multiply(compute, 1); });
  }
  double PromptMacsPerSecond(Compute& compute) {
    const auto macs = static_cast<double>(operands_.rows() * operands_.hidden() * tokens_);
    return Repeat(seconds_, [&] {
      Multiply(compute, tokens_);
      return macs;
    });
  }

  // Ten in a hundred of an FFN's neurons, others each time, ascending.
  std::span<const int32_t> ListNeurons() {
    list_.clear();
    for (const int32_t neuron : all_) {
      if (random_.NextUnit() < kListedShare) list_.push_back(neuron);
    }
    if (list_.empty()) list_.push_back(0);
    return list_;
  }
  // Bytes per second of gate and up rows, and of the down rows of the same neurons, as decoding
  // takes them in turn. next() returns an FFN's rows, list() which of its neurons are computed.
  template <typename NextFfn, typename List>
  std::pair<double, double> MeasureNeurons(Compute& compute, SparseFfn& operation,
                                           const BundleLayout& layout, const NextFfn& next,
                                           const List& list) {
    const auto row_bytes = static_cast<double>(layout.Part(BundleRole::kGate).bytes);
    double dot_bytes = 0, dot_seconds = 0, add_bytes = 0, add_seconds = 0;
    while (dot_seconds + add_seconds < 2 * seconds_) {
      const FfnNeurons ffn = next();
      const std::span<const int32_t> listed = list();
      const Stopwatch of_dots;
      const SparseFfnCounts done = operation.Activate(compute, ffn, x_.data(), listed, false);
      dot_seconds += of_dots.Seconds();
      dot_bytes += row_bytes * static_cast<double>(done.gate + done.up);
      const Stopwatch of_adds;
      operation.AddDown(compute, ffn, out_.data());
      add_seconds += of_adds.Seconds();
      add_bytes += row_bytes * static_cast<double>(done.active);
    }
    return {dot_bytes / dot_seconds, add_bytes / add_seconds};
  }
  void MeasureListed(Row& row) {
    const auto [dot, add] = MeasureNeurons(
        *row.compute, ffn_, operands_.layout(), [&] { return operands_.NextFfn(); },
        [&] { return ListNeurons(); });
    row.dot.push_back(dot);
    row.add.push_back(add);
  }
  // Lists all neurons, so that gaps between rows cost nothing. The FFN has as few neurons as models
  // with such narrow rows have, so that the rates include the time that parallel sections take.
  void MeasureNarrow(Row& row) {
    const auto all = std::span(all_).first(static_cast<size_t>(operands_.narrow_neurons()));
    const auto [dot, add] = MeasureNeurons(
        *row.compute, narrow_ffn_, operands_.narrow_layout(),
        [&] { return operands_.NextNarrowFfn(); }, [&] { return all; });
    row.narrow_dot.push_back(dot);
    row.narrow_add.push_back(add);
  }

  // Both checks of all bundles of an FFN.
  double CheckBytesPerSecond(Compute& compute) {
    const BundleLayout& layout = operands_.layout();
    const auto hash = compute.kernels().xxh32_rows;
    return Repeat(seconds_, [&] {
      const std::byte* bundles = operands_.NextBundles();
      compute.team().ParallelFor(
          operands_.neurons(), kCheckGrain, [&](int64_t begin, int64_t end, int) {
            for (const CheckedPart part : {GateChecked(layout), RestChecked(layout)}) {
              hash({{bundles + part.offset, layout.stride, all_.data() + begin, end - begin},
                    part.bytes,
                    hashes_.data() + begin});
            }
          });
      return static_cast<double>(layout.stride) * static_cast<double>(operands_.neurons());
    });
  }

  double SectionSeconds(Compute& compute) {
    return 1 / Repeat(seconds_ / 4, [&] {
             for (int i = 0; i < kSectionsAtOnce; ++i) {
               compute.team().ParallelFor(4 * compute.threads(), 1, [](int64_t, int64_t, int) {});
             }
             return kSectionsAtOnce;
           });
  }

  // Of reads from storage, while the team takes memory in as fast as it comes.
  double BusyReadBytesPerSecond(Compute& compute, const IoSpeed& kind) {
    ReadsInFlight reads(file_, kind, {read_memory_.data(), read_memory_.size_bytes()}, random_);
    const auto run = [&](double seconds) {
      const Stopwatch watch;
      TakeInMemory(compute, seconds, kBusyPartBytes, [&](int worker) {
        if (worker == 0) reads.TakeIn(false, true);
      });
      return watch.Seconds();
    };
    // The first reads are under way before it counts what arrives.
    run(seconds_ / 4);
    const double before = reads.num_taken_in();
    const double elapsed = run(seconds_);
    const double arrived = reads.num_taken_in() - before;
    while (reads.in_flight() > 0) reads.TakeIn(true, false);
    reads.CheckNoneFailed();
    // Of a disk that is slower than a read in all that time, it is known that it is.
    return std::max(arrived, 1.0) * static_cast<double>(kind.block_bytes) / elapsed;
  }

  // All threads read the operands, part by part, for `seconds`, and call then(worker) after each
  // part.
  template <typename Then>
  void TakeInMemory(Compute& compute, double seconds, size_t part_bytes, const Then& then) {
    const std::span<const std::byte> memory = operands_.bytes();
    const size_t parts = memory.size() / part_bytes;
    const Stopwatch watch;
    compute.team().Run([&](int worker) {
      while (watch.Seconds() < seconds) {
        const size_t at = next_part_.fetch_add(1, std::memory_order_relaxed) % parts;
        compute.kernels().probe_read(memory.data() + at * part_bytes,
                                     static_cast<int64_t>(part_bytes));
        then(worker);
      }
    });
  }

  // Measures ThreadSpeed::range_share with work that takes half as long as a range alone.
  double RangeShare(Compute& compute) {
    double computing = 0;
    const auto seconds_of_range = [&](double between) {
      RangesInOrder ranges(file_, {read_memory_.data(), read_memory_.size_bytes()}, kRangeBytes,
                           kRangesInFlight);
      double count = 0;
      computing = 0;
      const Stopwatch watch;
      do {
        ranges.Take();
        const Stopwatch of_part;
        if (between > 0) TakeInMemory(compute, between, kRangePartBytes, [](int) {});
        computing += of_part.Seconds();
        ranges.ReadNext();
        count += 1;
      } while (watch.Seconds() < seconds_);
      computing /= count;
      return watch.Seconds() / count;
    };
    const double alone = seconds_of_range(0);
    const double both = seconds_of_range(alone / 2);
    return std::clamp(1 - (both - std::max(alone, computing)) / computing, 0.0, 1.0);
  }

  AsyncFile& file_;
  const double seconds_;
  const int64_t tokens_;
  RandomWords random_{2};
  Operands operands_;
  SparseFfn ffn_, narrow_ffn_;
  MatMulInput input_;
  std::vector<float> x_;
  std::vector<float> out_;
  std::vector<uint32_t> hashes_;
  Buffer read_memory_;
  std::atomic<size_t> next_part_{0};
  std::vector<int32_t> all_;   // 0, 1, 2, ...
  std::vector<int32_t> list_;  // of the last ListNeurons
  std::vector<Row> rows_;
};

}  // namespace

std::unique_ptr<HardwareProbe> MakeThreadProbe(const ProfilerEffort& effort,
                                               const ProbeFile& file) {
  return std::make_unique<ThreadProbe>(effort, file);
}

}  // namespace hearth
