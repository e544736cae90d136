#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "base/units.h"

namespace hearth {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
// Larger requests cannot be meant: they come from multiplied sizes of a hostile file.
constexpr size_t kMaxBufferBytes = size_t{1} << 46;

// Fresh memory; MAP_FAILED where there is none. What has room for huge pages begins or ends with
// one: direct reads into memory of scattered small pages go on at less than half the rate.
void* Map(size_t bytes, HugeEnd end) {
  const bool has_room = bytes >= kHugePageBytes;
  const size_t more = has_room ? kHugePageBytes : 0;
  void* memory = mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || !has_room) return memory;
  auto* begin = static_cast<std::byte*>(memory);
  const uintptr_t to_align =
      reinterpret_cast<uintptr_t>(begin) + (end == HugeEnd::kLast ? bytes : 0);
  const size_t skipped = (kHugePageBytes - to_align % kHugePageBytes) % kHugePageBytes;
  if (skipped > 0) munmap(begin, skipped);
  if (skipped < more) munmap(begin + skipped + bytes, more - skipped);
  madvise(begin + skipped, bytes, MADV_HUGEPAGE);  // a wish, not a need
  return begin + skipped;
}

}  // namespace

uint64_t Buffer::ChargedBytes(size_t bytes) {
  if (bytes == 0) return 0;
  return (bytes + kReadPadding + kPageBytes - 1) / kPageBytes * kPageBytes;
}

size_t Buffer::UpToHugePage(size_t bytes) {
  if (bytes < kHugePageBytes) return bytes;
  return RoundUp(bytes + kReadPadding, kHugePageBytes) - kReadPadding;
}

Buffer::Buffer(Budget& budget, std::string_view name, size_t bytes, HugeEnd end) {
  if (bytes == 0) return;
  if (bytes > kMaxBufferBytes) {
    throw Error(ErrorCode::kInvalidArgument, name, "buffer size", "at most 64 TiB",
                FormatSize(bytes));
  }
  const size_t mapped = ChargedBytes(bytes);
  charge_ = budget.Charge(name, mapped);
  void* memory = Map(mapped, end);
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kIo, name,
                "cannot get " + FormatSize(mapped) + " of memory: " + std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  mapped_bytes_ = mapped;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      charge_(std::move(other.charge_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, mapped_bytes_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
    charge_ = std::move(other.charge_);
  }
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

}  // namespace hearth
