#include "storage/async/uring_file.h"

#include <fmt/format.h>
#include <liburing.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "storage/async/slot_queue.h"

namespace hearth {
namespace {

// The kernel refuses registered buffers that are larger than this.
constexpr size_t kLargestRegisteredBytes = size_t{1} << 30;
constexpr unsigned kNoBuffer = static_cast<unsigned>(-1);

// Whether a submission that failed so may succeed later as it is.
bool IsPassingErrno(int error) { return error == EAGAIN || error == EBUSY || error == EINTR; }

int InitRing(unsigned entries, io_uring* ring) {
  // Completions are made ready when the owner next enters the kernel or asks for them, rather than
  // by interrupting what it computes (5.19). Not the stricter flags for a single thread: a queue
  // may be made by one thread and used by another.
  const int result =
      io_uring_queue_init(entries, ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
  if (result != -EINVAL) return -result;
  return -io_uring_queue_init(entries, ring, 0);
}

// Some sandboxes allow a process to make a ring, but not to enter it.
int TryRing(io_uring* ring) {
  int result = 0;
  io_uring_prep_nop(io_uring_get_sqe(ring));
  do {
    result = io_uring_submit_and_wait(ring, 1);
  } while (result < 0 && IsPassingErrno(-result));
  io_uring_cqe* done = nullptr;
  if (result >= 0) result = io_uring_wait_cqe(ring, &done);
  if (result < 0) return -result;
  io_uring_cqe_seen(ring, done);
  return 0;
}

// Returns 0 or an errno.
int MakeRing(unsigned entries, io_uring* ring) {
  if (const int error = InitRing(entries, ring); error != 0) return error;
  const int error = TryRing(ring);
  if (error != 0) io_uring_queue_exit(ring);
  return error;
}

class UringQueue final : public SlotQueue {
 public:
  UringQueue(const OpenedFile& opened, const QueueOptions& options);
  ~UringQueue() override;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  bool RegisterBuffers(std::span<const std::span<std::byte>> regions) override;
  bool registered() const noexcept override { return !buffers_.empty(); }

 protected:
  void Start(uint32_t index) noexcept override;
  void Flush() noexcept override;
  size_t Reap(std::span<ReadCompletion> completions, bool block) noexcept override;

 private:
  // The registered buffer around [data, data + bytes), or kNoBuffer.
  unsigned BufferOf(const std::byte* data, size_t bytes) const noexcept;
  void Submitted(int result) noexcept;
  void SubmitAndWait() noexcept;

  io_uring ring_ = {};
  bool registered_file_ = false;
  int broken_ = 0;                   // errno of a ring that takes no more
  FixedRing<uint32_t> unsubmitted_;  // slots whose entries the kernel has not taken yet
  std::vector<iovec> buffers_;       // registered, by address
};

UringQueue::UringQueue(const OpenedFile& opened, const QueueOptions& options)
    : SlotQueue(opened, options), unsubmitted_(static_cast<size_t>(options.depth)) {
  const int error = MakeRing(static_cast<unsigned>(options.depth), &ring_);
  if (error != 0) {
    throw Error(ErrorCode::kIo, opened.path,
                fmt::format("cannot make an io_uring of depth {}: {}", options.depth,
                            std::strerror(error)));
  }
  // Saves looking the file up for every read; everything works without it.
  const int fd = opened.handle.get();
  registered_file_ = io_uring_register_files(&ring_, &fd, 1) == 0;
}

UringQueue::~UringQueue() {
  Drain();
  io_uring_queue_exit(&ring_);
}

bool UringQueue::RegisterBuffers(std::span<const std::span<std::byte>> regions) {
  if (registered() || in_flight() > 0) return registered();
  std::vector<iovec> pieces;
  for (std::span<std::byte> region : regions) {
    while (!region.empty()) {
      const size_t bytes = std::min(region.size(), kLargestRegisteredBytes);
      pieces.push_back({region.data(), bytes});
      region = region.subspan(bytes);
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const iovec& a, const iovec& b) { return a.iov_base < b.iov_base; });
  if (pieces.empty()) return false;
  const auto count = static_cast<unsigned>(pieces.size());
  if (io_uring_register_buffers(&ring_, pieces.data(), count) == 0) buffers_ = std::move(pieces);
  return registered();
}

unsigned UringQueue::BufferOf(const std::byte* data, size_t bytes) const noexcept {
  const auto after = std::upper_bound(
      buffers_.begin(), buffers_.end(), data,
      [](const std::byte* address, const iovec& buffer) { return address < buffer.iov_base; });
  if (after == buffers_.begin()) return kNoBuffer;
  const iovec& buffer = *(after - 1);
  const auto skipped = static_cast<size_t>(data - static_cast<const std::byte*>(buffer.iov_base));
  if (skipped > buffer.iov_len || bytes > buffer.iov_len - skipped) return kNoBuffer;
  return static_cast<unsigned>(after - 1 - buffers_.begin());
}

void UringQueue::Start(uint32_t index) noexcept {
  if (broken_ != 0) {
    Fail(index, broken_);
    return;
  }
  // There is an entry: no more than depth() are in use.
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  const ReadProgress& read = slot(index);
  const int fd = registered_file_ ? 0 : file().handle.get();
  const std::span<const iovec> parts = pieces(index);
  const unsigned buffer = parts.empty() ? BufferOf(read.data, read.bytes) : kNoBuffer;
  if (!parts.empty()) {
    io_uring_prep_readv(entry, fd, parts.data(), static_cast<unsigned>(parts.size()), read.offset);
  } else if (buffer == kNoBuffer) {
    io_uring_prep_read(entry, fd, read.data, read.bytes, read.offset);
  } else {
    io_uring_prep_read_fixed(entry, fd, read.data, read.bytes, read.offset,
                             static_cast<int>(buffer));
  }
  if (registered_file_) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(entry, index);
  unsubmitted_.Push(index);
}

// What a call that submits returned: how many entries were taken, or a negative errno.
void UringQueue::Submitted(int result) noexcept {
  for (int i = 0; i < result; ++i) unsubmitted_.Pop();
  if (result >= 0 || IsPassingErrno(-result)) return;
  broken_ = -result;
  while (!unsubmitted_.empty()) Fail(unsubmitted_.Pop(), broken_);
}

void UringQueue::SubmitAndWait() noexcept {
  int result;
  if (broken_ == 0) {
    result = io_uring_submit_and_wait(&ring_, 1);
    Submitted(result);
  } else {
    // What the kernel never took has failed and must not be submitted any more.
    io_uring_cqe* ignored = nullptr;
    result = io_uring_wait_cqe(&ring_, &ignored);
  }
  if (result < 0) sched_yield();  // short of memory, perhaps: let others end
}

void UringQueue::Flush() noexcept {
  if (!unsubmitted_.empty() && broken_ == 0) Submitted(io_uring_submit(&ring_));
}

size_t UringQueue::Reap(std::span<ReadCompletion> completions, bool block) noexcept {
  if (!block) {
    Flush();
  } else if (io_uring_cq_ready(&ring_) == 0) {
    SubmitAndWait();
  }
  size_t count = 0;
  while (count < completions.size()) {
    std::array<io_uring_cqe*, 32> entries;
    const size_t wanted = std::min(completions.size() - count, entries.size());
    const unsigned got =
        io_uring_peek_batch_cqe(&ring_, entries.data(), static_cast<unsigned>(wanted));
    for (unsigned i = 0; i < got; ++i) {
      const auto index = static_cast<uint32_t>(io_uring_cqe_get_data64(entries[i]));
      if (Advance(index, entries[i]->res, &completions[count])) ++count;
    }
    io_uring_cq_advance(&ring_, got);
    if (got == 0) break;
  }
  return count;
}

class UringFile final : public DiskFile {
 public:
  using DiskFile::DiskFile;

  const char* backend() const override { return "io_uring"; }
  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override {
    return std::make_unique<UringQueue>(file_, CheckedQueueOptions(file_.path, options));
  }
};

}  // namespace

std::string WhyNoUring() {
  io_uring ring = {};
  const int error = MakeRing(1, &ring);
  if (error != 0) return std::strerror(error);
  std::string reason;
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr || io_uring_opcode_supported(probe, IORING_OP_READ) == 0) {
    reason = "the kernel is older than 5.6";
  }
  if (probe != nullptr) io_uring_free_probe(probe);
  io_uring_queue_exit(&ring);
  return reason;
}

std::unique_ptr<AsyncFile> MakeUringFile(OpenedFile file) {
  return std::make_unique<UringFile>(std::move(file));
}

}  // namespace hearth
