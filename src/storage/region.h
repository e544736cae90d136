// Moves of data as plain data: offsets and steps in place of code for every rearrangement
// (MNN-LLM §5.4). A list of moves can then be fused into one of fewer, longer moves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hearth {

// Steps are in bytes.
struct RegionLoop {
  uint64_t count = 1;
  uint64_t from_step = 0;
  uint64_t to_step = 0;

  friend bool operator==(const RegionLoop&, const RegionLoop&) = default;
};

// For all i, j and k below the counts of the loops: `bytes` bytes from
//   from + i * loops[0].from_step + j * loops[1].from_step + k * loops[2].from_step
// of a source go to the same sum of `to` and to_steps. What is written does not overlap, so the
// order of moves is free.
struct Region {
  size_t source = 0;
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t bytes = 0;  // that lie together on both sides: a run
  std::array<RegionLoop, 3> loops{};

  friend bool operator==(const Region&, const Region&) = default;
};

// Runs of a region, and bytes that it moves. Nothing where 64 bits do not hold the number.
std::optional<uint64_t> RunsOf(const Region& region);
std::optional<uint64_t> BytesOf(const Region& region);
// Bytes of the source from the first that is read to behind the last, 0 where nothing is read.
// Nothing where 64 bits do not hold where that is.
std::optional<uint64_t> ReachOf(const Region& region);

// Loops that count 1 or more, the first of them outermost, as FusedRegion leaves them.
size_t NumLoops(const Region& region);

// The same region with its runs one after another from `to` on, in the order of the loops.
Region PackedRegion(Region region, uint64_t to);

// The same moves in as few loops and as long runs as possible: loops are interchanged so that
// what is written ascends, those that go on where the next one ends become one, and the innermost
// becomes part of the run where its runs touch on both sides. Loops of one step come last.
Region FusedRegion(const Region& region);

// One region that moves what `a` and then `b` move, both as FusedRegion leaves them; nothing where
// three loops do not say it, or where its source would have to be read backwards.
std::optional<Region> JoinedRegions(const Region& a, const Region& b);

// The same moves in fewer regions: each is fused, and neighbours are joined while they can be.
std::vector<Region> FuseRegions(const std::vector<Region>& regions);

}  // namespace hearth
