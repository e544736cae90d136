#include "planner/cost/ffn_seconds.h"

#include <algorithm>
#include <vector>

#include "base/rounding.h"
#include "planner/cost/read_seconds.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

// Seconds of an FFN of single neurons, by what it is asked for and reads.
class FfnClock {
 public:
  // Neurons: those that are asked for, those of them that are not pinned, those that were not
  // there, and those of these that nobody has begun to read on a guess.
  struct Asked {
    double listed = 0;
    double looked_up = 0;
    double misses = 0;
    double reads = 0;
  };

  explicit FfnClock(const CostInputs& in)
      : in_(in),
        all_speed_(in.hardware.ForCores(in.cores)),
        speed_(in.io_core ? in.hardware.ForCores(ComputingCores(in)) : all_speed_),
        gates_held_(in.plan.bundles && in.plan.neurons.holds_gates) {
    const LayerWeights& w = in.plan.load.weights->main_layer();
    const RowsView& row = w.gate_rows;
    // A partly filled group of columns takes as long as a full one.
    const int64_t columns =
        HasRowGroups(row.dtype) ? RoundUp(row.cols, kRowGroupWeights) : row.cols;
    columns_ = static_cast<double>(columns);
    row_bytes_ = static_cast<double>(row.row_bytes()) * columns_ / static_cast<double>(row.cols);
    neurons_ = static_cast<double>(w.gate_rows.rows);
    const double asked = gates_held_ ? in.activity.up : in.activity.gate;
    up_share_ = asked > 0 && w.up_rows.rows > 0 ? in.activity.up / asked : 0;
    down_share_ = asked > 0 ? in.activity.down / asked : 0;
    if (in.plan.bundles) {
      const BundleLayout& layout = in.plan.bundles->layout;
      stride_ = layout.stride;
      read_bytes_ = gates_held_ ? layout.stride - layout.split : layout.stride;
      const int depth = in.plan.neurons.queue_depth;
      const uint64_t range = static_cast<uint64_t>(neurons_) * layout.stride;  // an FFN's
      read_cpu_seconds_ = in.hardware.IoCpuSecondsPerRead(read_bytes_, depth);
      if (ReadsHalves(in.strategy)) {
        AddPart(layout.split, range, 1);
        AddPart(layout.stride - layout.split, range, up_share_);
      } else {
        AddPart(read_bytes_, range, 1);
      }
    }
  }

  // On all threads: while one looks up and submits, the others do the rest. With a thread that only
  // reads, on the others, for FFNs of which anything is read.
  double Compute(const Asked& ffn) const {
    if (in_.io_core) return ComputeAt(ffn.misses > 0 ? speed_ : all_speed_, ffn);
    return ComputeAt(speed_, ffn) + Submit(ffn.reads) + LookUp(ffn) / in_.threads();
  }

  // Seconds of computing and reading together. A thread that only reads helps once all reads are
  // done.
  double Both(const Asked& ffn, double compute, double read_end) const {
    const double both = std::max(compute, read_end + AfterReads(ffn));
    if (!in_.io_core || read_end >= compute) return both;
    const double gain = ComputeAt(all_speed_, ffn) / ComputeAt(speed_, ffn);
    return std::max(read_end + (compute - read_end) * gain, read_end + AfterReads(ffn));
  }

  // Processor time that reading neurons takes from the threads.
  double Submit(double neurons) const {
    return in_.io_core ? 0 : ReadCpuSeconds(neurons) / in_.threads();
  }

  // What is read of a neuron, on average.
  double BytesOfNeuron() const {
    double bytes = 0;
    for (const Part& part : reads_) bytes += part.share * static_cast<double>(part.bytes);
    return bytes;
  }

  // On one thread, before the first read.
  double LookUp(const Asked& ffn) const { return ffn.looked_up * in_.hardware.LookUpSeconds(); }

  // Down rows are added in ascending order, and those that are read are spread over what is not
  // pinned: they, and all after the first of them, are added once the last has come.
  double AfterReads(const Asked& ffn) const { return Add(all_speed_, ffn.looked_up); }

  // Of `neurons` of an FFN, of which threads compute for `busy` seconds.
  double Read(double neurons, const FfnAccess& access, double busy) const {
    double seconds = 0;
    for (const Part& part : reads_) {
      const Together together = ReadTogether(part, neurons, access);
      const double more = together.neurons * static_cast<double>(part.bytes) + together.gap_bytes;
      seconds += part.clock.Seconds(neurons * part.share - together.neurons, more);
    }
    const int busy_threads = in_.threads() - (in_.io_core ? 1 : 0);
    const double beside = SecondsBeside(in_.hardware.BusyNeuronShare(busy_threads), seconds, busy);
    return in_.io_core ? std::max(beside, ReadCpuSeconds(neurons)) : beside;
  }

  // What is read for so many of its neurons.
  double BytesRead(double neurons, const FfnAccess& access) const {
    double bytes = 0;
    for (const Part& part : reads_) {
      bytes += neurons * part.share * static_cast<double>(part.bytes) +
               ReadTogether(part, neurons, access).gap_bytes;
    }
    return bytes;
  }

 private:
  static std::vector<int> ComputingCores(const CostInputs& in) {
    std::vector<int> cores(in.cores.begin(), in.cores.end());
    cores.erase(std::remove(cores.begin(), cores.end(), *in.io_core), cores.end());
    return cores;
  }

  double ComputeAt(const ThreadSpeed& speed, const Asked& ffn) const {
    const double gates = gates_held_ ? neurons_ : ffn.listed;
    const double dots = gates + ffn.listed * up_share_;
    return dots * RowSeconds(speed.dot_bytes_per_s, speed.narrow_dot_bytes_per_s) +
           Add(speed, ffn.listed) +
           Over(ffn.misses * BytesOfNeuron(), speed.check_bytes_per_s.median);
  }

  double Add(const ThreadSpeed& speed, double asked) const {
    return asked * down_share_ * RowSeconds(speed.add_bytes_per_s, speed.narrow_add_bytes_per_s);
  }

  // Of a row: its bytes at the rate of wide rows, and what else a row takes, which narrow ones
  // show. That part is in the rate of wide rows already: it grows as rows get narrower than these.
  double RowSeconds(const Spread& wide, const Spread& narrow) const {
    const auto narrow_bytes = static_cast<double>(RowBytes(DType::kQ4_0, kNarrowColumns));
    const double more = Over(narrow_bytes, narrow.median) - Over(narrow_bytes, wide.median);
    const double share = (kRowColumns - columns_) / (kRowColumns - kNarrowColumns);
    return Over(row_bytes_, wide.median) + std::max(0.0, more) * std::max(0.0, share);
  }

  // Processor time that reading so many neurons costs, on all threads that read together.
  double ReadCpuSeconds(double neurons) const {
    double reads = 0;
    for (const Part& part : reads_) reads += neurons * part.share;
    return reads * read_cpu_seconds_;
  }

  // Of a neuron, what is read at once.
  struct Part {
    ReadClock clock;
    uint64_t bytes = 0;
    double share = 1;  // reads of it a neuron
  };

  // So many bytes are read of a share of the neurons, from a range of the file.
  void AddPart(uint64_t bytes, uint64_t range, double share) {
    const int depth = in_.plan.neurons.queue_depth;
    if (!ReadsPieces(in_.strategy)) {
      reads_.push_back({ReadClock(in_.hardware, bytes, range, depth), bytes, share});
      return;
    }
    const uint64_t whole = bytes / kNeuronPieceBytes, last = bytes % kNeuronPieceBytes;
    if (whole > 0) {
      reads_.push_back({ReadClock(in_.hardware, kNeuronPieceBytes, range, depth), kNeuronPieceBytes,
                        share * static_cast<double>(whole)});
    }
    if (last > 0) reads_.push_back({ReadClock(in_.hardware, last, range, depth), last, share});
  }

  // Neurons that come with the one before them, and what lies between.
  struct Together {
    double neurons = 0;
    double gap_bytes = 0;
  };

  // Only what waits is read together: as many as are in flight at once go alone.
  Together ReadTogether(const Part& part, double neurons, const FfnAccess& access) const {
    const double waiting = neurons - in_.plan.neurons.queue_depth;
    if (waiting <= 0 || access.misses == 0 || !in_.merge_gap_bytes || reads_.size() > 1 ||
        ReadsPieces(in_.strategy)) {
      return {};
    }
    Together together;
    const auto add = [&](int32_t of_misses, uint64_t gap) {
      if (gap > *in_.merge_gap_bytes) return;
      const double more = waiting * of_misses / access.misses;
      together.neurons += more;
      together.gap_bytes += more * static_cast<double>(gap);
    };
    add(access.next_to, stride_ - part.bytes);
    add(access.one_between, 2 * stride_ - part.bytes);
    return together;
  }

  const CostInputs& in_;
  const ThreadSpeed all_speed_;  // of all threads
  const ThreadSpeed speed_;      // of those that compute while others read
  const bool gates_held_;
  // Bytes and columns of a row, rounded up to whole groups.
  double row_bytes_ = 0;
  double columns_ = 0;
  double neurons_ = 0;
  double up_share_ = 0, down_share_ = 0;
  uint64_t stride_ = 0;
  uint64_t read_bytes_ = 0;
  double read_cpu_seconds_ = 0;
  std::vector<Part> reads_;
};

// FFN by FFN the larger of computing, and of reading with what comes before and after it.
FfnSeconds SecondsInTurn(const FfnClock& clock, const MissReplay& replay) {
  FfnSeconds sum;
  for (const FfnAccess& access : replay.ffns) {
    const auto misses = static_cast<double>(access.misses);
    const FfnClock::Asked ffn = {static_cast<double>(access.listed),
                                 static_cast<double>(access.listed - access.pinned), misses,
                                 misses};
    const double compute = clock.Compute(ffn), read = clock.Read(misses, access, compute);
    sum.compute += compute;
    sum.read += read;
    sum.both += misses > 0 ? clock.Both(ffn, compute, clock.LookUp(ffn) + read) : compute;
    sum.bytes_read += clock.BytesRead(misses, access);
  }
  return sum;
}

// The same where each FFN's guessed neurons are read from the moment on in which the reads of the
// FFN before it have ended (docs/decisions/0014-lookahead.md): of those FFNs before which threads
// waited for `guess` seconds, in which they found out what to read. `between`: seconds from one FFN
// to the next.
FfnSeconds SecondsLookingAhead(const FfnClock& clock, const MissReplay& replay, double between,
                               double guess) {
  FfnSeconds sum;
  double idle = 0;  // seconds for which storage has had nothing else to do when an FFN begins
  bool is_guessed = false;  // the FFN at hand
  for (const FfnAccess& access : replay.ffns) {
    const auto misses = static_cast<double>(access.misses);
    const double ahead = is_guessed ? static_cast<double>(access.ahead) : 0;
    const double late = misses - (is_guessed ? static_cast<double>(access.used_ahead) : 0);
    const FfnClock::Asked ffn = {static_cast<double>(access.listed),
                                 static_cast<double>(access.listed - access.pinned), misses, late};
    const double compute = clock.Compute(ffn);
    // It comes while the threads are at what is between two FFNs, and takes their time from that.
    const double between_both = between + clock.Submit(ahead);
    // Beside the FFN before this one, taken to compute as long, and what is between the two.
    const double read_ahead = clock.Read(ahead, access, between_both + compute);
    const double ahead_end = std::max(0.0, read_ahead - idle);
    const double begin = late > 0 ? std::max(clock.LookUp(ffn), ahead_end) : ahead_end;
    const double read_late = clock.Read(late, access, compute);
    const double read_end = begin + read_late;
    const bool waits = misses > 0 && read_end > 0;
    const double both = waits ? clock.Both(ffn, compute, read_end) : compute;
    idle = both - read_end + between;
    is_guessed = both - compute >= guess;
    sum.compute += compute + clock.Submit(ahead);
    sum.read += read_ahead + read_late;
    sum.both += both + clock.Submit(ahead);
    sum.bytes_read += clock.BytesRead(late, access) + clock.BytesRead(ahead, access);
  }
  return sum;
}

bool HasReadsAhead(const MissReplay& replay) {
  return std::any_of(replay.ffns.begin(), replay.ffns.end(),
                     [](const FfnAccess& ffn) { return ffn.ahead > 0; });
}

}  // namespace

double SecondsOfFfnInMemory(const CostInputs& in, double listed) {
  return FfnClock(in).Compute({listed, 0, 0, 0});
}

FfnSeconds SecondsOfFfns(const CostInputs& in, double between, double guess) {
  const FfnClock clock(in);
  const FfnSeconds in_turn = SecondsInTurn(clock, *in.replay);
  if (in.strategy != IoStrategy::kWhole || !HasReadsAhead(*in.replay)) return in_turn;
  const FfnSeconds ahead = SecondsLookingAhead(clock, *in.replay, between, guess);
  return ahead.both < in_turn.both ? ahead : in_turn;
}

}  // namespace hearth
