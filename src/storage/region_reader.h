// Several sources as one, in another order: regions of other readers, and zeros, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/block_reader.h"
#include "storage/region.h"

namespace hearth {

// Thread-safe, as its sources are.
class RegionReader final : public BlockReader {
 public:
  RegionReader(std::string name, std::vector<std::unique_ptr<BlockReader>> sources);

  // Appends the runs of a region in the order of its loops; where it says they go to has no
  // meaning. It is joined with the last one where that gives one region. Throws
  // Error(kInvalidArgument) for one that is not inside its source.
  void Append(const Region& region);
  void AppendZeros(uint64_t bytes);

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return size_; }
  // Many rows of a transposed matrix are read at a time: one read of whole rows of the source is
  // far faster than one for every few numbers.
  void ReadAt(uint64_t offset, std::span<std::byte> out) const override;
  void WillRead(uint64_t offset, uint64_t bytes) const noexcept override;
  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override;

  // Regions that it reads, after joining; zeros count too.
  size_t num_regions() const { return regions_.size(); }

 private:
  static constexpr size_t kZeros = static_cast<size_t>(-1);

  // Calls fn(region, begin inside it, bytes) for what of [offset, offset + bytes) lies in each.
  template <typename Fn>
  void ForRegions(uint64_t offset, uint64_t bytes, Fn fn) const;

  std::string name_;
  std::vector<std::unique_ptr<BlockReader>> sources_;
  std::vector<Region> regions_;  // packed and fused, by `to`
  uint64_t size_ = 0;
};

}  // namespace hearth
