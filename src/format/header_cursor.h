// Reads a file header from front to back, a buffer at a time, and says in one sentence where and
// why it stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "storage/block_reader.h"

namespace hearth {

// Not thread-safe. The reader must outlive it. Every function throws Error(kCorrupt) where the
// file ends too early, naming the file, the context and the field.
class HeaderCursor {
 public:
  // No header passes max_bytes; beyond it Error(kUnsupported).
  HeaderCursor(const BlockReader& reader, uint64_t max_bytes);

  // What the fields read next belong to, e.g. "key 'general.name'"; empty for the file itself.
  void SetContext(std::string context) { context_ = std::move(context); }

  uint64_t position() const { return position_; }
  uint64_t bytes_left() const { return end_ - position_; }

  template <typename T>
  T Read(const char* field) {
    T value;
    Read(field, std::as_writable_bytes(std::span<T, 1>(&value, 1)));
    return value;
  }
  void Read(const char* field, std::span<std::byte> out);

  // A 64-bit count of items that take at least min_item_bytes each: refused where that is more
  // than the file has left, so that what is allocated for the items is bounded by the file.
  uint64_t ReadCount(const char* field, uint64_t min_item_bytes);

  // A 64-bit length and that many bytes.
  std::string ReadString(const char* field);

  [[noreturn]] void Fail(ErrorCode code, std::string_view field, std::string_view expected,
                         std::string_view found) const;

 private:
  void Refill();
  [[noreturn]] void FailAtEnd(const char* field, uint64_t wanted_bytes) const;

  const BlockReader& reader_;
  std::string context_;
  uint64_t end_;           // where the file, or what a header may take of it, ends
  uint64_t position_ = 0;  // of the next byte in the file
  std::vector<std::byte> buffer_;
  size_t buffer_at_ = 0;  // of the next byte in buffer_
};

}  // namespace hearth
