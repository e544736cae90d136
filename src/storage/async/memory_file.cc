#include "storage/async/memory_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random_words.h"
#include "storage/async/fixed_ring.h"
#include "storage/async/opened_file.h"
#include "storage/async/waiting_reads.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

class MemoryQueue final : public ReadQueue {
 public:
  // With `shuffled`, completions come in the order of `random`.
  MemoryQueue(const Buffer& bytes, const ReadLimits& limits, const QueueOptions& options,
              bool shuffled, RandomWords random)
      : bytes_(bytes),
        limits_(limits),
        depth_(static_cast<size_t>(options.depth)),
        capacity_(options.capacity),
        shuffled_(shuffled),
        random_(random),
        waiting_(options.capacity),
        withdrawn_(options.capacity) {}

  int depth() const noexcept override { return static_cast<int>(depth_); }
  size_t capacity() const noexcept override { return capacity_; }
  size_t in_flight() const noexcept override { return waiting_.size() + withdrawn_.size(); }

  size_t Submit(std::span<const ReadRequest> requests) noexcept override {
    const size_t taken = std::min(requests.size(), capacity_ - in_flight());
    for (const ReadRequest& request : requests.first(taken)) waiting_.Push(request);
    return taken;
  }

  size_t Poll(std::span<ReadCompletion> completions) noexcept override {
    return Complete(completions, 0);
  }

  size_t Wait(std::span<ReadCompletion> completions) noexcept override {
    return Complete(completions, 1);
  }

  void WithdrawGuesses() noexcept override { waiting_.WithdrawGuesses(withdrawn_); }

 private:
  // What was withdrawn, and of the rest all or, with `shuffled`, a random part that makes it at
  // least `least` where that many are in flight.
  size_t Complete(std::span<ReadCompletion> completions, size_t least) noexcept {
    const size_t most = std::min(completions.size(), in_flight());
    least = std::clamp(withdrawn_.size(), std::min(least, most), most);
    const size_t count = shuffled_ ? least + random_.NextBelow(most - least + 1) : most;
    for (size_t i = 0; i < count; ++i) {
      if (!withdrawn_.empty()) {
        completions[i] = withdrawn_.Pop();
        continue;
      }
      FixedRing<ReadRequest>& next = waiting_.next();
      if (shuffled_) std::swap(next[0], next[random_.NextBelow(std::min(depth_, next.size()))]);
      completions[i] = Read(next.Pop());
    }
    return count;
  }

  ReadCompletion Read(const ReadRequest& request) const noexcept {
    const int error = CheckRequest(limits_, request);
    if (error == 0) {
      const uint64_t there = std::min<uint64_t>(request.bytes, limits_.size_bytes - request.offset);
      std::memcpy(request.data, bytes_.data() + request.offset, there);
      std::memset(request.data + there, 0, request.bytes - there);
    }
    return {request.tag, error};
  }

  const Buffer& bytes_;
  const ReadLimits limits_;
  const size_t depth_;
  const size_t capacity_;
  const bool shuffled_;
  RandomWords random_;
  WaitingReads waiting_;
  FixedRing<ReadCompletion> withdrawn_;
};

class MemoryFile final : public AsyncFile {
 public:
  MemoryFile(std::string name, Buffer bytes, const MemoryFileOptions& options)
      : name_(std::move(name)),
        bytes_(std::move(bytes)),
        limits_{bytes_.size_bytes(), options.alignment_bytes, options.memory_alignment_bytes},
        seed_(options.completion_seed) {
    if (!std::has_single_bit(options.alignment_bytes) ||
        !std::has_single_bit(options.memory_alignment_bytes)) {
      throw Error(
          ErrorCode::kInvalidArgument, name_, "alignment of reads", "powers of two",
          fmt::format("{} and {}", options.alignment_bytes, options.memory_alignment_bytes));
    }
  }

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return limits_.size_bytes; }
  const char* backend() const override { return "memory"; }
  const std::string& note() const override { return note_; }
  bool direct() const override { return true; }  // there is no page cache to go through
  uint32_t alignment_bytes() const override { return limits_.alignment_bytes; }
  uint32_t memory_alignment_bytes() const override { return limits_.memory_alignment_bytes; }
  void CheckUnchanged() const override {}

  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override {
    const RandomWords random(StreamOf(seed_, queues_.fetch_add(1), 0));
    return std::make_unique<MemoryQueue>(bytes_, limits_, CheckedQueueOptions(name_, options),
                                         seed_ != 0, random);
  }

 private:
  const std::string name_;
  const std::string note_;
  const Buffer bytes_;
  const ReadLimits limits_;
  const uint64_t seed_;
  std::atomic<uint64_t> queues_ = 0;  // opened so far
};

}  // namespace

std::unique_ptr<AsyncFile> MakeMemoryFile(std::string name, Buffer bytes,
                                          const MemoryFileOptions& options) {
  return std::make_unique<MemoryFile>(std::move(name), std::move(bytes), options);
}

std::unique_ptr<AsyncFile> LoadMemoryFile(const std::string& path, Budget& budget,
                                          const MemoryFileOptions& options) {
  const std::unique_ptr<BlockReader> reader = OpenFileReader(path);
  Buffer bytes(budget, "file in memory", reader->size_bytes());
  // In pieces, so that the page cache does not hold the file a second time.
  constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
  for (uint64_t offset = 0; offset < bytes.size_bytes(); offset += kPieceBytes) {
    const uint64_t piece = std::min(kPieceBytes, bytes.size_bytes() - offset);
    reader->ReadAt(offset, {bytes.data() + offset, piece});
    reader->DropCached(offset, piece);
  }
  return MakeMemoryFile(path, std::move(bytes), options);
}

}  // namespace hearth
