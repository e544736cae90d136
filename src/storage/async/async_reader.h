// Many reads of one file in flight at a time (P2 §4.4).
//
// An AsyncFile is opened once; every thread that reads opens a ReadQueue of its own, submits a
// batch of reads and polls for completions between other work. Backends: io_uring, a pool of
// threads that call pread, bytes in memory (storage/async/memory_file.h). Decorators give each of
// them a phone's speed, faults or counters (throttled_file.h, faulty_file.h, counting_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace hearth {

// One read: `bytes` from `offset` into `data`, which the kernel may write until the read's
// completion has been handed back. The file says how the three must be aligned.
struct ReadRequest {
  uint64_t offset = 0;
  std::byte* data = nullptr;
  uint32_t bytes = 0;  // at least 1
  uint64_t tag = 0;    // comes back with the completion
  // Nobody waits for it yet: of the requests that wait in a queue, it begins after those that
  // somebody does wait for, and may be withdrawn.
  bool is_guess = false;
};

// Short reads are continued inside, so a read succeeds whole or not at all. `error` is 0 or an
// errno: EINVAL for no bytes or a wrong alignment, ERANGE for a range past the end, EIO where the
// file ended early or the device failed, ECANCELED for a guess that was withdrawn, or what else the
// system said. After an error the contents of the request's `data` are unspecified.
struct ReadCompletion {
  uint64_t tag = 0;
  int error = 0;
};

// Reads in flight for one thread at a time: not thread-safe. It may be handed to another thread
// when the two synchronize. Destruction waits until nothing writes to a request's data any more.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;

  // How many reads the system is given at once; those beyond it wait inside, in order, guesses
  // after all others.
  virtual int depth() const noexcept = 0;
  // How many reads may be in flight, those that wait included.
  virtual size_t capacity() const noexcept = 0;
  // Reads submitted whose completions have not been handed back.
  virtual size_t in_flight() const noexcept = 0;

  // Takes the first capacity() - in_flight() requests, or all, and returns how many. Never blocks
  // or allocates. A request that makes no sense is taken, and completes with an error.
  [[nodiscard]] virtual size_t Submit(std::span<const ReadRequest> requests) noexcept = 0;

  // Ends the guesses that wait inside. The next calls of Poll or Wait hand them back with
  // ECANCELED, before anything else, so that a caller who polls until nothing comes has them all.
  // Never blocks or allocates.
  virtual void WithdrawGuesses() noexcept = 0;

  // Hands back completions, in any order, and returns how many. Never blocks or allocates. Reads
  // that wait inside are started here (and in Submit and Wait): a queue that is not polled starts
  // no more than depth() of them.
  virtual size_t Poll(std::span<ReadCompletion> completions) noexcept = 0;

  // Poll that sleeps until there is at least one completion. Returns 0 only where nothing is in
  // flight or `completions` is empty.
  virtual size_t Wait(std::span<ReadCompletion> completions) noexcept = 0;

  // Tells the system once about memory that most reads will go to, so that it need not look its
  // pages up for every read. Only with nothing in flight; the regions must outlive the queue, and
  // reads to other memory stay possible. Returns registered(): false, with everything working as
  // before, where the backend has no such thing or the limit on locked memory does not allow it.
  virtual bool RegisterBuffers(std::span<const std::span<std::byte>> regions) {
    static_cast<void>(regions);
    return false;
  }
  virtual bool registered() const noexcept { return false; }

  // Bytes between requests that were read together, so far: nobody asked for them.
  virtual uint64_t gap_bytes() const noexcept { return 0; }
};

struct QueueOptions {
  int depth = 32;  // from 1 to kMaxQueueDepth
  // From depth to kMaxQueueCapacity; takes 96 bytes for each, 136 where reads are merged. 0: 4096.
  size_t capacity = 0;
  // A request that begins at most so many bytes after the one submitted before it may be read
  // together with it, and what lies between them is thrown away: a disk that serves reads at random
  // places is paid by the read. Files on disks do so for up to SlotQueue::kMostTogether requests.
  // 0: only where nothing lies between; nothing: never. At most kMaxGapBytes.
  std::optional<uint32_t> merge_gap_bytes = std::nullopt;
};
inline constexpr uint32_t kMaxGapBytes = uint32_t{1} << 20;
inline constexpr int kMaxQueueDepth = 4096;
inline constexpr size_t kMaxQueueCapacity = size_t{1} << 20;

// A file that is open for reading. Thread-safe. Its queues must be destroyed before it.
class AsyncFile {
 public:
  virtual ~AsyncFile() = default;

  virtual const std::string& name() const = 0;  // for messages: the path, or a made-up name
  virtual uint64_t size_bytes() const = 0;      // when it was opened
  virtual const char* backend() const = 0;      // "io_uring", "pread" or "memory"
  // Says why what was left to `auto` is not what it prefers; empty where it is.
  virtual const std::string& note() const = 0;

  // Whether reads go past the page cache. Where they do not, what was read is dropped from it in
  // batches: a queue leaves at most kUndroppedBytes there, beside what is in flight.
  virtual bool direct() const = 0;

  // Powers of two: every request's offset and bytes are multiples of the first, the address of its
  // data one of the second. Both are 1 where reads are not direct. A request may pass the end of
  // the file only within the last such block; what lies past the end is then unspecified.
  virtual uint32_t alignment_bytes() const = 0;
  virtual uint32_t memory_alignment_bytes() const = 0;

  // Throws Error(kInvalidArgument) for a depth or capacity that makes no sense and Error(kIo)
  // where the system refuses another queue.
  virtual std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) = 0;

  // Throws Error(kIo) where the file has been truncated, written to, replaced or removed since it
  // was opened.
  virtual void CheckUnchanged() const = 0;
};

// Of files that are not read directly: what a queue may leave in the page cache.
inline constexpr uint64_t kUndroppedBytes = uint64_t{4} << 20;

enum class IoBackend { kAuto, kIoUring, kPread };
enum class DirectIo { kAuto, kOn, kOff };

struct AsyncFileOptions {
  IoBackend backend = IoBackend::kAuto;  // auto: io_uring where the system permits it, else pread
  DirectIo direct = DirectIo::kAuto;     // auto: direct where the file system has it
  int pread_threads = 8;                 // of the pread backend, for all queues together
};

// Opens a regular file. Throws Error(kNotFound) where there is none, Error(kIo) for a directory, a
// device or a file that may not be read, Error(kUnsupported) for a backend or for direct reads
// that were asked for and cannot be had here, Error(kInvalidArgument) for no threads.
std::unique_ptr<AsyncFile> OpenAsyncFile(const std::string& path,
                                         const AsyncFileOptions& options = {});

// For a read of `what` that failed with this errno: throws Error(kIo), which says that the file is
// another one where that is why.
[[noreturn]] void ThrowReadError(const AsyncFile& file, const std::string& what, int error);

// The smallest aligned range around [offset, offset + bytes), which begins `skip` bytes into it.
// `alignment` is a power of two; the range ends below 2^63.
struct AlignedRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t skip = 0;
};
constexpr AlignedRange CoveringRange(uint64_t offset, uint64_t bytes, uint32_t alignment) {
  const uint64_t mask = uint64_t{alignment} - 1;
  const uint64_t begin = offset & ~mask;
  const uint64_t end = (offset + bytes + mask) & ~mask;
  return {begin, end - begin, offset - begin};
}

}  // namespace hearth
