// How fast storage serves reads, by size, number in flight, range and issuing core (P2 §2.3,
// Figure 1b).
#include <fmt/format.h>
#include <sys/vfs.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "base/buffer.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/random_words.h"
#include "base/rounding.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "planner/doctor/hardware_probe.h"
#include "planner/doctor/hardware_probe_reads.h"
#include "storage/async/async_reader.h"

namespace hearth {
namespace {

// With 4096 columns in Q4_0 a gate half is 2560 bytes, the other half 4608, a bundle 7168.
constexpr std::array<uint64_t, 10> kBlockSizes = {512,   2560,  4096,   4608,    7168,
                                                  16384, 65536, 262144, 1 << 20, 4 << 20};
constexpr std::array<int, 5> kDepths = {1, 8, 32, 64, 128};
constexpr int kRangeDepth = 32;
constexpr std::array<uint64_t, 2> kRanges = {uint64_t{128} << 20, uint64_t{512} << 20};
constexpr std::array<uint64_t, 5> kRangeBlockSizes = {4096, 7168, 65536, 262144, 1 << 20};
// What one core after the other issues.
constexpr std::array<uint64_t, 2> kCoreBlockSizes = {4096, 7168};
constexpr int64_t kMostCores = 4;
constexpr uint64_t kMostInFlightBytes = uint64_t{64} << 20;

double ProcessSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A few of many, at even distances.
std::vector<int> SomeOf(const std::vector<int>& cpus) {
  std::vector<int> some;
  const auto count = std::min<int64_t>(kMostCores, std::ssize(cpus));
  for (int64_t i = 0; i < count; ++i) {
    some.push_back(cpus[static_cast<size_t>(i * std::ssize(cpus) / count)]);
  }
  return some;
}

// What is to be read: kinds of reads, without results.
std::vector<IoSpeed> ReadsToMeasure(uint64_t file_bytes, uint32_t alignment) {
  std::vector<IoSpeed> reads;
  const auto add = [&](uint64_t block, int depth, uint64_t range, int cpu) {
    IoSpeed read = {.block_bytes = RoundUp<uint64_t>(block, alignment),
                    .queue_depth = depth,
                    .range_bytes = range,
                    .cpu = cpu};
    const bool is_there = std::any_of(reads.begin(), reads.end(), [&](const IoSpeed& other) {
      return other.block_bytes == read.block_bytes && other.queue_depth == depth &&
             other.range_bytes == range && other.cpu == cpu;
    });
    const bool fits = read.block_bytes * static_cast<uint64_t>(depth) <= kMostInFlightBytes &&
                      2 * read.block_bytes <= file_bytes && range < file_bytes;
    if (fits && !is_there) reads.push_back(read);
  };
  for (const uint64_t block : kBlockSizes) {
    for (const int depth : kDepths) add(block, depth, 0, -1);
  }
  for (const uint64_t range : kRanges) {
    for (const uint64_t block : kRangeBlockSizes) add(block, kRangeDepth, range, -1);
  }
  for (const int cpu : SomeOf(AllowedCpus())) {
    for (const uint64_t block : kCoreBlockSizes) add(block, kRangeDepth, 0, cpu);
  }
  return reads;
}

struct RandomReadRates {
  double bytes_per_s;
  double cpu_seconds_per_read;
};

// Reads blocks at random places of the range for about `seconds`, always as many in flight as the
// depth says; waits for the last. What has arrived together is replaced in one submission.
RandomReadRates ReadAtRandom(AsyncFile& file, const IoSpeed& kind, std::span<std::byte> memory,
                             double seconds, RandomWords& random) {
  const double cpu_before = ProcessSeconds();
  const Stopwatch watch;
  ReadsInFlight reads(file, kind, memory, random);
  while (reads.in_flight() > 0) reads.TakeIn(true, watch.Seconds() < seconds);
  reads.CheckNoneFailed();
  return {reads.num_taken_in() * static_cast<double>(kind.block_bytes) / watch.Seconds(),
          (ProcessSeconds() - cpu_before) / reads.num_taken_in()};
}

// Seconds from submitting as many blocks at random places as the depth says, together, until the
// last is there: the mean of about `seconds` of such batches.
double SecondsOfBatch(AsyncFile& file, const IoSpeed& kind, std::span<std::byte> memory,
                      double seconds, RandomWords& random) {
  const auto queue = file.OpenQueue({.depth = kind.queue_depth});
  std::vector<ReadRequest> batch(static_cast<size_t>(kind.queue_depth));
  std::array<ReadCompletion, 64> done;
  double batches = 0;
  const Stopwatch watch;
  do {
    for (size_t i = 0; i < batch.size(); ++i) {
      batch[i] = RandomRead(file, kind, memory, i, random);
    }
    static_cast<void>(queue->Submit(batch));  // takes its depth
    while (queue->in_flight() > 0) {
      const size_t count = queue->Wait(done);
      for (const ReadCompletion& completion : std::span(done).first(count)) {
        if (completion.error != 0) ThrowReadError(file, "a block", completion.error);
      }
    }
    batches += 1;
  } while (watch.Seconds() < seconds);
  return watch.Seconds() / batches;
}

// File systems whose files lie in memory.
bool IsInMemory(const std::string& path) {
  constexpr unsigned long kTmpfs = 0x01021994, kRamfs = 0x858458f6;
  struct statfs info = {};
  if (statfs(path.c_str(), &info) != 0) return false;
  const auto type = static_cast<unsigned long>(info.f_type);
  return type == kTmpfs || type == kRamfs;
}

class StorageProbe final : public HardwareProbe {
 public:
  StorageProbe(const ProfilerEffort& effort, const ProbeFile& probe_file)
      : place_(probe_file.place()),
        file_(probe_file.file()),
        seconds_(effort.read_seconds),
        reads_(ReadsToMeasure(file_.size_bytes(), file_.alignment_bytes())) {
    bytes_per_s_.resize(reads_.size());
    cpu_seconds_.resize(reads_.size());
    batch_seconds_.resize(reads_.size());
    uint64_t most = 0;
    for (const IoSpeed& read : reads_) {
      most = std::max(most, read.block_bytes * static_cast<uint64_t>(read.queue_depth));
    }
    memory_ = Buffer(budget_, "reads", most);
  }

  int steps() const override { return static_cast<int>(reads_.size()); }
  std::string Name(int step) const override {
    const IoSpeed& read = reads_[static_cast<size_t>(step)];
    return fmt::format("reads of {}, {} at a time", FormatSize(read.block_bytes), read.queue_depth);
  }
  void Measure(int step) override {
    const auto i = static_cast<size_t>(step);
    RunOnCpu(reads_[i].cpu, [&] {
      const std::span<std::byte> memory = {memory_.data(), memory_.size_bytes()};
      const RandomReadRates rates = ReadAtRandom(file_, reads_[i], memory, seconds_ / 2, random_);
      batch_seconds_[i].push_back(SecondsOfBatch(file_, reads_[i], memory, seconds_ / 2, random_));
      bytes_per_s_[i].push_back(rates.bytes_per_s);
      cpu_seconds_[i].push_back(rates.cpu_seconds_per_read);
    });
  }
  void Finish(HardwareProfile& profile) const override {
    StorageProfile& storage = profile.storage;
    storage.directory = std::filesystem::weakly_canonical(place_).string();
    storage.file_bytes = file_.size_bytes();
    storage.backend = file_.backend();
    storage.note = file_.note();
    storage.is_direct = file_.direct();
    storage.is_in_memory = IsInMemory(place_);
    storage.alignment_bytes = file_.alignment_bytes();
    storage.reads = reads_;
    for (size_t i = 0; i < reads_.size(); ++i) {
      storage.reads[i].bytes_per_s = SpreadOf(bytes_per_s_[i]);
      storage.reads[i].cpu_seconds_per_read = SpreadOf(cpu_seconds_[i]);
      storage.reads[i].batch_seconds = SpreadOf(batch_seconds_[i]);
    }
  }

 private:
  const std::string place_;
  AsyncFile& file_;
  const double seconds_;
  std::vector<IoSpeed> reads_;
  std::vector<std::vector<double>> bytes_per_s_;  // per kind of read, per round
  std::vector<std::vector<double>> cpu_seconds_;
  std::vector<std::vector<double>> batch_seconds_;
  Budget budget_;
  Buffer memory_;
  RandomWords random_{3};
};

}  // namespace

std::unique_ptr<HardwareProbe> MakeStorageProbe(const ProfilerEffort& effort,
                                                const ProbeFile& file) {
  return std::make_unique<StorageProbe>(effort, file);
}

}  // namespace hearth
