#include "storage/async/spliced_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hearth {

SplicedReader::SplicedReader(std::string name, std::vector<std::unique_ptr<BlockReader>> sources)
    : name_(std::move(name)), sources_(std::move(sources)) {}

void SplicedReader::Append(const SplicedRange& range) {
  const uint64_t group = range.row_bytes * range.group_rows;
  const bool has_groups =
      range.row_bytes == 0 || (group > 0 && range.group_rows % 2 == 0 && range.bytes % group == 0);
  if (range.source >= sources_.size() || !has_groups ||
      range.begin > sources_[range.source]->size_bytes() ||
      range.bytes > sources_[range.source]->size_bytes() - range.begin) {
    throw Error(ErrorCode::kInvalidArgument, name_,
                fmt::format("range of {} bytes at {}", range.bytes, range.begin),
                "whole groups inside a source", "another");
  }
  pieces_.push_back({size_, range});
  size_ += range.bytes;
}

void SplicedReader::AppendZeros(uint64_t bytes) {
  pieces_.push_back({size_, {.source = kZeros, .bytes = bytes}});
  size_ += bytes;
}

template <typename Fn>
void SplicedReader::ForPieces(uint64_t offset, uint64_t bytes, Fn fn) const {
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](uint64_t at, const Piece& p) { return at < p.offset; });
  if (piece != pieces_.begin()) --piece;
  for (; piece != pieces_.end() && bytes > 0; ++piece) {
    const uint64_t begin = offset - piece->offset;
    if (begin >= piece->range.bytes) continue;
    const uint64_t count = std::min(bytes, piece->range.bytes - begin);
    fn(*piece, begin, count);
    offset += count;
    bytes -= count;
  }
}

void SplicedReader::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    throw Error(ErrorCode::kCorrupt, name_,
                fmt::format("read of {} bytes at {}", out.size(), offset), "a range inside",
                fmt::format("{} bytes", size_));
  }
  ForPieces(offset, out.size(), [&](const Piece& piece, uint64_t begin, uint64_t bytes) {
    ReadPiece(piece, begin, out.first(bytes));
    out = out.subspan(bytes);
  });
}

void SplicedReader::ReadPiece(const Piece& piece, uint64_t begin, std::span<std::byte> out) const {
  const SplicedRange& range = piece.range;
  if (range.source == kZeros) {
    std::memset(out.data(), 0, out.size());
    return;
  }
  const BlockReader& source = *sources_[range.source];
  if (range.row_bytes == 0) {
    source.ReadAt(range.begin + begin, out);
    return;
  }
  while (!out.empty()) {
    const uint64_t row = begin / range.row_bytes;
    const uint64_t in_row = begin % range.row_bytes;
    const uint64_t in_group = row % range.group_rows;
    const uint64_t moved = row - in_group + in_group / 2 + (in_group % 2) * (range.group_rows / 2);
    const auto count =
        static_cast<size_t>(std::min<uint64_t>(out.size(), range.row_bytes - in_row));
    source.ReadAt(range.begin + moved * range.row_bytes + in_row, out.first(count));
    out = out.subspan(count);
    begin += count;
  }
}

// Rows in another order: all of their range, which is read anyway.
void SplicedReader::WillRead(uint64_t offset, uint64_t bytes) const noexcept {
  ForPieces(offset, bytes, [&](const Piece& piece, uint64_t begin, uint64_t count) {
    if (piece.range.source == kZeros) return;
    const bool is_moved = piece.range.row_bytes > 0;
    sources_[piece.range.source]->WillRead(piece.range.begin + (is_moved ? 0 : begin),
                                           is_moved ? piece.range.bytes : count);
  });
}

void SplicedReader::DropCached(uint64_t offset, uint64_t bytes) const noexcept {
  ForPieces(offset, bytes, [&](const Piece& piece, uint64_t begin, uint64_t count) {
    if (piece.range.source == kZeros) return;
    // Rows in another order are forgotten with the last of them.
    const bool is_moved = piece.range.row_bytes > 0;
    if (is_moved && begin + count < piece.range.bytes) return;
    sources_[piece.range.source]->DropCached(piece.range.begin + (is_moved ? 0 : begin),
                                             is_moved ? piece.range.bytes : count);
  });
}

}  // namespace hearth
