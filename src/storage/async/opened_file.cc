#include "storage/async/opened_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kDefaultCapacity = 4096;
// The larger of the alignments that disks ask for.
constexpr uint32_t kLargestUsualAlignment = 4096;
constexpr uint64_t kPageBytes = 4096;

struct Alignments {
  uint32_t file = 0;  // 0: no direct reads
  uint32_t memory = 0;
};

// What the kernel says of this file (6.1 and later, where the file system knows).
bool AlignmentsFromStatx(int fd, Alignments* out) {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0) return false;
  if ((info.stx_mask & STATX_DIOALIGN) == 0) return false;
  *out = {info.stx_dio_offset_align, info.stx_dio_mem_align};
  return true;
#else
  static_cast<void>(fd);
  static_cast<void>(out);
  return false;
#endif
}

// Whether one direct read of so many bytes, to memory aligned to just so many, is accepted.
bool DirectReadWorks(int fd, uint32_t alignment, uint64_t file_bytes) {
  const size_t block = std::max(alignment, kLargestUsualAlignment);
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(block, 2 * block),
                                                           &std::free);
  if (memory == nullptr) return false;
  // Neither the memory nor, in a file long enough, the offset is aligned to more.
  char* data = static_cast<char*>(memory.get()) + (alignment < block ? alignment : 0);
  const uint64_t offset = file_bytes >= 2 * uint64_t{alignment} ? alignment : 0;
  ssize_t got;
  do {
    got = pread(fd, data, alignment, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got >= 0;
}

// The alignments of direct reads from `fd`, whose O_DIRECT is on; {0, 0} where none works.
Alignments FindAlignments(int fd, uint64_t file_bytes) {
  Alignments found;
  if (AlignmentsFromStatx(fd, &found)) {
    if (!std::has_single_bit(found.file) || !std::has_single_bit(found.memory)) return {};
    return DirectReadWorks(fd, std::max(found.file, found.memory), file_bytes) ? found
                                                                               : Alignments{};
  }
  for (const uint32_t alignment : {512u, kLargestUsualAlignment}) {
    if (DirectReadWorks(fd, alignment, file_bytes)) return {alignment, alignment};
  }
  return {};
}

// Turns direct reads on. Returns whether they work; everything is as before where they do not.
bool TryDirect(OpenedFile& file, uint32_t most_alignment) {
  const int fd = file.handle.get();
  if (fcntl(fd, F_SETFL, O_DIRECT) != 0) return false;
  const Alignments found = FindAlignments(fd, file.limits.size_bytes);
  if (found.file == 0 || std::max(found.file, found.memory) > most_alignment) {
    fcntl(fd, F_SETFL, 0);
    return false;
  }
  file.direct = true;
  file.limits.alignment_bytes = found.file;
  file.limits.memory_alignment_bytes = found.memory;
  return true;
}

}  // namespace

int CheckRequest(const ReadLimits& limits, const ReadRequest& request) noexcept {
  const uint64_t mask = limits.alignment_bytes - uint64_t{1};
  const uint64_t memory_mask = limits.memory_alignment_bytes - uint64_t{1};
  const auto address = reinterpret_cast<uintptr_t>(request.data);
  if (request.bytes == 0 || request.data == nullptr) return EINVAL;
  if (((request.offset | request.bytes) & mask) != 0 || (address & memory_mask) != 0) return EINVAL;
  if (request.offset >= limits.size_bytes) return ERANGE;
  const uint64_t end = CoveringRange(0, limits.size_bytes, limits.alignment_bytes).bytes;
  return request.bytes <= end - request.offset ? 0 : ERANGE;
}

OpenedFile PrepareReads(std::string name, FileHandle handle, uint64_t size_bytes, DirectIo direct,
                        uint32_t most_alignment) {
  OpenedFile file;
  file.path = std::move(name);
  file.handle = std::move(handle);
  file.limits.size_bytes = size_bytes;
  if (direct != DirectIo::kOff && !TryDirect(file, most_alignment)) {
    if (direct == DirectIo::kOn) {
      throw Error(ErrorCode::kUnsupported, file.path, "its file system has no direct reads");
    }
    file.note = "the file system has no direct reads";
  }
  // What lies around a random read would only fill the page cache.
  if (!file.direct) posix_fadvise(file.handle.get(), 0, 0, POSIX_FADV_RANDOM);
  return file;
}

OpenedFile OpenForReading(const std::string& path, DirectIo direct) {
  RegularFile opened = OpenRegularFile(path);
  OpenedFile file = PrepareReads(path, std::move(opened.handle), opened.identity.size_bytes, direct,
                                 std::numeric_limits<uint32_t>::max());
  file.identity = opened.identity;
  return file;
}

void CacheDropper::Note(uint64_t begin, uint64_t end) noexcept {
  if (file_.direct) return;
  begin_ = std::min(begin_, begin);
  end_ = std::max(end_, end);
  bytes_ += CoveringRange(begin, end - begin, kPageBytes).bytes;
  if (bytes_ >= kUndroppedBytes) Drop();
}

void CacheDropper::Drop() noexcept {
  if (bytes_ == 0) return;
  // One call for everything in between: it costs what is cached there, not how wide it is.
  const AlignedRange range = CoveringRange(begin_, end_ - begin_, kLargestFolioBytes);
  posix_fadvise(file_.handle.get(), static_cast<off_t>(range.offset),
                static_cast<off_t>(range.bytes), POSIX_FADV_DONTNEED);
  begin_ = UINT64_MAX;
  end_ = 0;
  bytes_ = 0;
}

QueueOptions CheckedQueueOptions(const std::string& name, const QueueOptions& options) {
  QueueOptions checked = options;
  if (options.depth < 1 || options.depth > kMaxQueueDepth) {
    throw Error(ErrorCode::kInvalidArgument, name, "depth of a read queue",
                fmt::format("1 to {}", kMaxQueueDepth), fmt::format("{}", options.depth));
  }
  const auto depth = static_cast<size_t>(options.depth);
  if (options.capacity == 0) checked.capacity = std::max(depth, kDefaultCapacity);
  if (checked.capacity < depth || checked.capacity > kMaxQueueCapacity) {
    throw Error(ErrorCode::kInvalidArgument, name, "capacity of a read queue",
                fmt::format("{} to {}", depth, kMaxQueueCapacity),
                fmt::format("{}", options.capacity));
  }
  if (options.merge_gap_bytes.value_or(0) > kMaxGapBytes) {
    throw Error(ErrorCode::kInvalidArgument, name, "bytes between reads that are merged",
                fmt::format("0 to {}", kMaxGapBytes), fmt::format("{}", *options.merge_gap_bytes));
  }
  return checked;
}

}  // namespace hearth
