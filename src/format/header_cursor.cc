#include "format/header_cursor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace hearth {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

}  // namespace

HeaderCursor::HeaderCursor(const BlockReader& reader, uint64_t max_bytes)
    : reader_(reader), end_(std::min(reader.size_bytes(), max_bytes)) {}

void HeaderCursor::Refill() {
  buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, bytes_left())));
  buffer_at_ = 0;
  reader_.ReadAt(position_, buffer_);
}

void HeaderCursor::Read(const char* field, std::span<std::byte> out) {
  if (out.size() > bytes_left()) FailAtEnd(field, out.size());
  while (!out.empty()) {
    if (buffer_at_ == buffer_.size()) {
      if (out.size() >= kBufferBytes) {
        reader_.ReadAt(position_, out);
        position_ += out.size();
        return;
      }
      Refill();
    }
    const size_t count = std::min(out.size(), buffer_.size() - buffer_at_);
    std::memcpy(out.data(), buffer_.data() + buffer_at_, count);
    buffer_at_ += count;
    position_ += count;
    out = out.subspan(count);
  }
}

uint64_t HeaderCursor::ReadCount(const char* field, uint64_t min_item_bytes) {
  const auto count = Read<uint64_t>(field);
  if (count > bytes_left() / min_item_bytes) {
    Fail(ErrorCode::kCorrupt, field,
         fmt::format("at most {}, with {} left in the header", bytes_left() / min_item_bytes,
                     FormatSize(bytes_left())),
         fmt::format("{}", count));
  }
  return count;
}

std::string HeaderCursor::ReadString(const char* field) {
  const uint64_t length = ReadCount(field, 1);
  std::string text(static_cast<size_t>(length), '\0');
  Read(field, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

void HeaderCursor::Fail(ErrorCode code, std::string_view field, std::string_view expected,
                        std::string_view found) const {
  const std::string what =
      context_.empty() ? std::string(field) : fmt::format("{}: {}", context_, field);
  throw Error(code, reader_.name(), what, expected, found);
}

void HeaderCursor::FailAtEnd(const char* field, uint64_t wanted_bytes) const {
  if (end_ < reader_.size_bytes()) {
    Fail(ErrorCode::kUnsupported, field, fmt::format("a header of at most {}", FormatSize(end_)),
         "a longer one");
  }
  Fail(ErrorCode::kCorrupt, field, fmt::format("{} bytes", wanted_bytes),
       fmt::format("{} before the end of the file at byte {}", bytes_left(), end_));
}

}  // namespace hearth
