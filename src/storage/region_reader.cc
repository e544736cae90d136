#include "storage/region_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

// What is read of the source at a time where runs are picked from it.
constexpr uint64_t kPickedBytes = uint64_t{256} << 10;
// Runs of this size or more are read by themselves, shorter ones with what is between them.
constexpr uint64_t kLongRun = 512;
constexpr uint64_t kLineBytes = 64;  // of a processor's cache

// Short runs; the usual sizes are known to the compiler.
void CopyRun(const std::byte* from, uint64_t bytes, std::byte* to) {
  if (bytes == sizeof(float)) {
    std::memcpy(to, from, sizeof(float));
  } else if (bytes == sizeof(uint16_t)) {
    std::memcpy(to, from, sizeof(uint16_t));
  } else {
    std::memcpy(to, from, bytes);
  }
}

// Runs of the source that lie `step` bytes apart.
struct Runs {
  uint64_t from;
  uint64_t count;
  uint64_t step;
};

// Reads a region that is packed and fused: matrices of rows of runs, in the words of its most
// frequent use.
class RegionRead {
 public:
  RegionRead(const BlockReader& source, const Region& region) : source_(source), region_(region) {
    const size_t loops = NumLoops(region);
    if (loops > 0) cols_ = region.loops[loops - 1];
    if (loops > 1) rows_ = region.loops[loops - 2];
    if (loops > 2) matrices_ = region.loops[0];
  }

  // What the region gives from `begin` on.
  void ReadAt(uint64_t begin, std::span<std::byte> out) const {
    const uint64_t row_bytes = cols_.count * region_.bytes;
    while (!out.empty()) {
      const uint64_t row = begin / row_bytes;
      const uint64_t in_row = begin % row_bytes;
      uint64_t done = 0;
      if (in_row == 0 && out.size() >= row_bytes) {
        const uint64_t whole = std::min(out.size() / row_bytes, rows_.count - row % rows_.count);
        done = whole * row_bytes;
        ReadRows(AtRow(row), whole, out.data());
      } else {
        done = std::min<uint64_t>(out.size(), row_bytes - in_row);
        ReadPartOfRow(AtRow(row), in_row, out.first(done));
      }
      out = out.subspan(done);
      begin += done;
    }
  }

 private:
  uint64_t AtRow(uint64_t row) const {
    return region_.from + row / rows_.count * matrices_.from_step +
           row % rows_.count * rows_.from_step;
  }

  void ReadPartOfRow(uint64_t from, uint64_t begin, std::span<std::byte> out) const {
    const uint64_t bytes = region_.bytes;
    if (bytes >= kLongRun) {
      while (!out.empty()) {
        const uint64_t in_run = begin % bytes;
        const uint64_t count = std::min<uint64_t>(out.size(), bytes - in_run);
        source_.ReadAt(from + begin / bytes * cols_.from_step + in_run, out.first(count));
        out = out.subspan(count);
        begin += count;
      }
      return;
    }
    const uint64_t first = begin / bytes;
    const uint64_t count = (begin + out.size() + bytes - 1) / bytes - first;
    std::vector<std::byte> runs(count * bytes);
    ReadRuns({from + first * cols_.from_step, count, cols_.from_step}, runs.data());
    std::memcpy(out.data(), runs.data() + (begin - first * bytes), out.size());
  }

  // `count` whole rows of one matrix.
  void ReadRows(uint64_t from, uint64_t count, std::byte* out) const {
    const uint64_t bytes = region_.bytes;
    const bool is_transposed = count > 1 && cols_.from_step > rows_.from_step;
    if (!is_transposed) {
      for (uint64_t r = 0; r < count; ++r) {
        ReadRuns({from + r * rows_.from_step, cols_.count, cols_.from_step},
                 out + r * cols_.count * bytes);
      }
      return;
    }
    // Some columns at a time, so that what is written of a row fills a line of the cache.
    const uint64_t at_a_time = std::max<uint64_t>(1, kLineBytes / bytes);
    std::vector<std::byte> columns(at_a_time * count * bytes);
    for (uint64_t c = 0; c < cols_.count; c += at_a_time) {
      const uint64_t width = std::min(at_a_time, cols_.count - c);
      for (uint64_t i = 0; i < width; ++i) {
        ReadRuns({from + (c + i) * cols_.from_step, count, rows_.from_step},
                 columns.data() + i * count * bytes);
      }
      for (uint64_t r = 0; r < count; ++r) {
        std::byte* row = out + (r * cols_.count + c) * bytes;
        for (uint64_t i = 0; i < width; ++i) {
          CopyRun(columns.data() + (i * count + r) * bytes, bytes, row + i * bytes);
        }
      }
    }
  }

  // Runs, one after another.
  void ReadRuns(const Runs& runs, std::byte* out) const {
    const uint64_t bytes = region_.bytes;
    if (runs.step == bytes || runs.count == 1) {
      source_.ReadAt(runs.from, {out, runs.count * bytes});
      return;
    }
    const uint64_t at_a_time =
        bytes >= kLongRun ? 1 : std::max<uint64_t>(1, kPickedBytes / std::max(runs.step, bytes));
    std::vector<std::byte> piece;
    for (uint64_t i = 0; i < runs.count; i += at_a_time) {
      const uint64_t count = std::min(at_a_time, runs.count - i);
      const uint64_t from = runs.from + i * runs.step;
      if (count == 1) {
        source_.ReadAt(from, {out + i * bytes, bytes});
        continue;
      }
      piece.resize((count - 1) * runs.step + bytes);
      source_.ReadAt(from, piece);
      for (uint64_t k = 0; k < count; ++k) {
        CopyRun(piece.data() + k * runs.step, bytes, out + (i + k) * bytes);
      }
    }
  }

  const BlockReader& source_;
  const Region& region_;
  RegionLoop matrices_{}, rows_{}, cols_{};
};

// Of a packed and fused region: what of it is asked for and forgotten together. Those are steps of
// the outermost loop where they are long and lie apart in the source, and else all of it.
struct Parts {
  uint64_t bytes;  // of a part, as it is read
  uint64_t step;   // between parts in the source
  uint64_t reach;  // of a part in the source
};
Parts PartsOf(const Region& region) {
  const Parts whole = {BytesOf(region).value_or(0), 0, ReachOf(region).value_or(0)};
  if (NumLoops(region) == 0) return whole;
  const RegionLoop& outer = region.loops[0];
  const uint64_t reach = whole.reach - (outer.count - 1) * outer.from_step;
  if (reach > outer.from_step || outer.to_step < kLongRun) return whole;
  return {outer.to_step, outer.from_step, reach};
}

// Calls fn(where it begins in the source, its reach there, whether its last byte is among them) for
// the parts that bytes [begin, begin + count) of a region lie in.
template <typename Fn>
void ForParts(const Region& region, uint64_t begin, uint64_t count, Fn fn) {
  if (NumLoops(region) == 0) return fn(region.from + begin, count, true);
  const Parts parts = PartsOf(region);
  for (uint64_t part = begin / parts.bytes; part * parts.bytes < begin + count; ++part) {
    fn(region.from + part * parts.step, parts.reach, (part + 1) * parts.bytes <= begin + count);
  }
}

}  // namespace

RegionReader::RegionReader(std::string name, std::vector<std::unique_ptr<BlockReader>> sources)
    : name_(std::move(name)), sources_(std::move(sources)) {}

void RegionReader::Append(const Region& region) {
  const std::optional<uint64_t> bytes = BytesOf(region), reach = ReachOf(region);
  const uint64_t available =
      region.source < sources_.size() ? sources_[region.source]->size_bytes() : 0;
  if (!bytes || !reach || region.source >= sources_.size() || region.from > available ||
      *reach > available - region.from) {
    throw Error(ErrorCode::kInvalidArgument, name_, fmt::format("region at {}", region.from),
                "all of it inside a source", "another");
  }
  if (*bytes == 0) return;
  const Region next = FusedRegion(PackedRegion(region, size_));
  size_ += *bytes;
  // What lies together in one source and is packed still is when it is joined.
  if (!regions_.empty() && regions_.back().source != kZeros) {
    if (const std::optional<Region> joined = JoinedRegions(regions_.back(), next)) {
      regions_.back() = *joined;
      return;
    }
  }
  regions_.push_back(next);
}

void RegionReader::AppendZeros(uint64_t bytes) {
  if (bytes == 0) return;
  regions_.push_back({.source = kZeros, .to = size_, .bytes = bytes});
  size_ += bytes;
}

template <typename Fn>
void RegionReader::ForRegions(uint64_t offset, uint64_t bytes, Fn fn) const {
  auto region = std::upper_bound(regions_.begin(), regions_.end(), offset,
                                 [](uint64_t at, const Region& r) { return at < r.to; });
  if (region != regions_.begin()) --region;
  for (; region != regions_.end() && bytes > 0; ++region) {
    const uint64_t size = BytesOf(*region).value_or(0);
    const uint64_t begin = offset - region->to;
    if (begin >= size) continue;
    const uint64_t count = std::min(bytes, size - begin);
    fn(*region, begin, count);
    offset += count;
    bytes -= count;
  }
}

void RegionReader::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    throw Error(ErrorCode::kCorrupt, name_,
                fmt::format("read of {} bytes at {}", out.size(), offset), "a range inside",
                fmt::format("{} bytes", size_));
  }
  ForRegions(offset, out.size(), [&](const Region& region, uint64_t begin, uint64_t bytes) {
    const std::span<std::byte> piece = out.first(bytes);
    if (region.source == kZeros) {
      std::memset(piece.data(), 0, piece.size());
    } else {
      RegionRead(*sources_[region.source], region).ReadAt(begin, piece);
    }
    out = out.subspan(bytes);
  });
}

void RegionReader::WillRead(uint64_t offset, uint64_t bytes) const noexcept {
  ForRegions(offset, bytes, [&](const Region& region, uint64_t begin, uint64_t count) {
    if (region.source == kZeros) return;
    ForParts(region, begin, count, [&](uint64_t from, uint64_t reach, bool /*is_over*/) {
      sources_[region.source]->WillRead(from, reach);
    });
  });
}

void RegionReader::DropCached(uint64_t offset, uint64_t bytes) const noexcept {
  ForRegions(offset, bytes, [&](const Region& region, uint64_t begin, uint64_t count) {
    if (region.source == kZeros) return;
    ForParts(region, begin, count, [&](uint64_t from, uint64_t reach, bool is_over) {
      if (is_over) sources_[region.source]->DropCached(from, reach);
    });
  });
}

}  // namespace hearth
