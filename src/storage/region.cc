#include "storage/region.h"

#include <algorithm>

namespace hearth {
namespace {

bool Multiply(uint64_t by, uint64_t& value) { return !__builtin_mul_overflow(value, by, &value); }
bool Add(uint64_t more, uint64_t& value) { return !__builtin_add_overflow(value, more, &value); }

// Whether `outer` goes on where all steps of `inner` end.
bool GoesOn(const RegionLoop& outer, const RegionLoop& inner) {
  return outer.from_step == inner.from_step * inner.count &&
         outer.to_step == inner.to_step * inner.count;
}

void Remove(Region& region, size_t loop) {
  std::move(region.loops.begin() + static_cast<ptrdiff_t>(loop) + 1, region.loops.end(),
            region.loops.begin() + static_cast<ptrdiff_t>(loop));
  region.loops.back() = {};
}

// What the outermost loop repeats, from its first step.
Region BodyOf(Region region) {
  Remove(region, 0);
  return region;
}

bool HasSameShape(const Region& a, const Region& b) {
  return a.source == b.source && a.bytes == b.bytes && a.loops == b.loops;
}

// a's outermost loop with the steps of b behind its own.
std::optional<Region> Extended(const Region& a, const Region& b) {
  if (NumLoops(a) == 0) return std::nullopt;
  const RegionLoop& loop = a.loops[0];
  if (b.from != a.from + loop.count * loop.from_step || b.to != a.to + loop.count * loop.to_step) {
    return std::nullopt;
  }
  Region joined = a;
  if (HasSameShape(BodyOf(a), b)) {
    ++joined.loops[0].count;
    return joined;
  }
  const bool has_same_steps = NumLoops(b) > 0 && b.loops[0].from_step == loop.from_step &&
                              b.loops[0].to_step == loop.to_step;
  if (!has_same_steps || !HasSameShape(BodyOf(a), BodyOf(b))) return std::nullopt;
  joined.loops[0].count += b.loops[0].count;
  return joined;
}

// A loop of two steps over regions that are alike.
std::optional<Region> Repeated(const Region& a, const Region& b) {
  const size_t loops = NumLoops(a);
  if (!HasSameShape(a, b) || loops == a.loops.size() || b.from < a.from || b.to < a.to) {
    return std::nullopt;
  }
  Region joined = a;
  joined.loops[loops] = {2, b.from - a.from, b.to - a.to};
  return joined;
}

}  // namespace

std::optional<uint64_t> RunsOf(const Region& region) {
  uint64_t runs = region.bytes == 0 ? 0 : 1;
  for (const RegionLoop& loop : region.loops) {
    if (!Multiply(loop.count, runs)) return std::nullopt;
  }
  return runs;
}

std::optional<uint64_t> BytesOf(const Region& region) {
  std::optional<uint64_t> bytes = RunsOf(region);
  if (bytes && !Multiply(region.bytes, *bytes)) return std::nullopt;
  return bytes;
}

std::optional<uint64_t> ReachOf(const Region& region) {
  if (BytesOf(region) == 0) return 0;
  uint64_t reach = region.bytes;
  for (const RegionLoop& loop : region.loops) {
    uint64_t steps = loop.count - 1;
    if (!Multiply(loop.from_step, steps) || !Add(steps, reach)) return std::nullopt;
  }
  uint64_t end = region.from;
  if (!Add(reach, end)) return std::nullopt;
  return reach;
}

size_t NumLoops(const Region& region) {
  return static_cast<size_t>(std::count_if(region.loops.begin(), region.loops.end(),
                                           [](const RegionLoop& loop) { return loop.count > 1; }));
}

Region PackedRegion(Region region, uint64_t to) {
  region.to = to;
  uint64_t step = region.bytes;
  for (size_t i = region.loops.size(); i-- > 0;) {
    region.loops[i].to_step = step;
    step *= region.loops[i].count;
  }
  return region;
}

Region FusedRegion(const Region& region) {
  Region fused = region;
  for (RegionLoop& loop : fused.loops) {
    if (loop.count == 0) fused.bytes = 0;
  }
  if (fused.bytes == 0) {
    fused.loops = {};
    return fused;
  }
  for (RegionLoop& loop : fused.loops) {
    if (loop.count == 1) loop = {};
  }
  std::stable_sort(fused.loops.begin(), fused.loops.end(),
                   [](const RegionLoop& a, const RegionLoop& b) { return a.to_step > b.to_step; });
  size_t loops = NumLoops(fused);
  for (size_t i = loops; i-- > 0;) {
    RegionLoop& loop = fused.loops[i];
    if (i + 1 == loops && loop.from_step == fused.bytes && loop.to_step == fused.bytes) {
      fused.bytes *= loop.count;
    } else if (i + 1 < loops && GoesOn(loop, fused.loops[i + 1])) {
      fused.loops[i + 1].count *= loop.count;
    } else {
      continue;
    }
    Remove(fused, i);
    --loops;
  }
  return fused;
}

std::optional<Region> JoinedRegions(const Region& a, const Region& b) {
  if (a.source != b.source) return std::nullopt;
  const bool are_runs = NumLoops(a) == 0 && NumLoops(b) == 0;
  if (are_runs && b.from == a.from + a.bytes && b.to == a.to + a.bytes) {
    Region joined = a;
    joined.bytes += b.bytes;
    return joined;
  }
  std::optional<Region> joined = Extended(a, b);
  if (!joined) joined = Repeated(a, b);
  if (joined) joined = FusedRegion(*joined);
  return joined;
}

std::vector<Region> FuseRegions(const std::vector<Region>& regions) {
  std::vector<Region> fused;
  for (const Region& region : regions) {
    Region next = FusedRegion(region);
    if (next.bytes == 0) continue;
    while (!fused.empty()) {
      const std::optional<Region> joined = JoinedRegions(fused.back(), next);
      if (!joined) break;
      next = *joined;
      fused.pop_back();
    }
    fused.push_back(next);
  }
  return fused;
}

}  // namespace hearth
