// Several sources as one: ranges of other readers, and bytes in memory, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/block_reader.h"

namespace hearth {

// A range of a source.
struct SplicedRange {
  size_t source = 0;
  uint64_t begin = 0;  // in the source
  uint64_t bytes = 0;
  // Where not 0, rows of that many bytes in groups of `group_rows` (even) that are read in another
  // order: row 2i of a group is the source's row i, row 2i + 1 its row i + group_rows / 2.
  uint64_t row_bytes = 0;
  uint64_t group_rows = 0;
};

// Thread-safe, as its sources are.
class SplicedReader final : public BlockReader {
 public:
  SplicedReader(std::string name, std::vector<std::unique_ptr<BlockReader>> sources);

  // Appends a range, or `bytes` zeros. Throws Error(kInvalidArgument) for a range that is not
  // inside its source or not of whole groups.
  void Append(const SplicedRange& range);
  void AppendZeros(uint64_t bytes);

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return size_; }
  void ReadAt(uint64_t offset, std::span<std::byte> out) const override;
  void WillRead(uint64_t offset, uint64_t bytes) const noexcept override;
  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override;

 private:
  static constexpr size_t kZeros = static_cast<size_t>(-1);
  struct Piece {
    uint64_t offset;  // here
    SplicedRange range;
  };

  void ReadPiece(const Piece& piece, uint64_t begin, std::span<std::byte> out) const;
  // Calls fn(piece, begin inside it, bytes) for what of [offset, offset + bytes) lies in each.
  template <typename Fn>
  void ForPieces(uint64_t offset, uint64_t bytes, Fn fn) const;

  std::string name_;
  std::vector<std::unique_ptr<BlockReader>> sources_;
  std::vector<Piece> pieces_;
  uint64_t size_ = 0;
};

}  // namespace hearth
