// Weight tiles (tensor/weight_tiles.h) out of bundle rows (tensor/row_groups.h), exactly.
#pragma once

#include "kernels/rows-inl.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels::HEARTH_ISA {

// A line of four rows, lane b of each belonging to block b, as lanes r..r+3 of the tile's lines of
// those blocks; `to` is that of the first block, for row r.
HWY_INLINE void PlaceQuadOfRows(const uint8_t* const (&lines)[4], int64_t lane, int64_t n,
                                size_t to_next_block, uint8_t* to) {
  FloatVec v[4];
  for (int r = 0; r < 4; ++r) {
    v[r] = hn::BitCast(kFloats, LoadQuads<false>(lines[r] + kRowLaneBytes * lane, n));
  }
  TransposeQuads(v);
  for (int i = 0; i < 4; ++i) {
    HWY_ALIGN uint8_t quads[kVectorBytes];
    hn::Store(hn::BitCast(ByteTag(), v[i]), ByteTag(), quads);
    for (int64_t q = 0; 4 * q + i < n; ++q) {
      __builtin_memcpy(to + static_cast<size_t>(lane + 4 * q + i) * to_next_block, quads + 16 * q,
                       16);
    }
  }
}

// Turns eight rows of eight numbers of 16 bits into columns, `to_next` bytes apart.
HWY_INLINE void PlaceEightHalves(const uint8_t* const* rows, int64_t from, uint8_t* to,
                                 int64_t to_next) {
  const hn::Full128<uint16_t> d16;
  const hn::Full128<uint32_t> d32;
  const hn::Full128<uint64_t> d64;
  hn::Vec<hn::Full128<uint16_t>> in[8];
  for (int r = 0; r < 8; ++r) {
    in[r] = hn::BitCast(d16, hn::LoadU(hn::Full128<uint8_t>(), rows[r] + from));
  }
  hn::Vec<hn::Full128<uint32_t>> pairs[8];  // of rows 2i and 2i + 1: columns 0..3, then 4..7
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = hn::BitCast(d32, hn::InterleaveLower(d16, in[2 * i], in[2 * i + 1]));
    pairs[2 * i + 1] = hn::BitCast(d32, hn::InterleaveUpper(d16, in[2 * i], in[2 * i + 1]));
  }
  for (int half = 0; half < 2; ++half) {
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[half], pairs[half + 2]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[half], pairs[half + 2]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d32, pairs[half + 4], pairs[half + 6]));
    const auto high23 =
        hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[half + 4], pairs[half + 6]));
    const decltype(low01) columns[4] = {
        hn::InterleaveLower(d64, low01, low23), hn::InterleaveUpper(d64, low01, low23),
        hn::InterleaveLower(d64, high01, high23), hn::InterleaveUpper(d64, high01, high23)};
    for (int i = 0; i < 4; ++i) {
      hn::StoreU(hn::BitCast(hn::Full128<uint8_t>(), columns[i]), hn::Full128<uint8_t>(),
                 to + (4 * half + i) * to_next);
    }
  }
}

// Halves at `from` of every row, one per block, as 16 per block at `to`.
HWY_INLINE void PlaceHalves(const uint8_t* const (&rows)[16], int64_t from, int64_t blocks,
                            uint8_t* to) {
  constexpr int64_t kBlockBytes = 2 * 16;
  int64_t b = 0;
  for (; b + 8 <= blocks; b += 8) {
    PlaceEightHalves(rows, from + 2 * b, to + kBlockBytes * b, kBlockBytes);
    PlaceEightHalves(rows + 8, from + 2 * b, to + kBlockBytes * b + 16, kBlockBytes);
  }
  for (; b < blocks; ++b) {
    for (int r = 0; r < 16; ++r) {
      __builtin_memcpy(to + kBlockBytes * b + 2 * r, rows[r] + from + 2 * b, 2);
    }
  }
}

// Where the codes, scales and minimums of a tile begin (TileLayout, whose inline functions belong
// to no instruction set).
template <class Type>
struct TilePlaces {
  int64_t codes_of_block = Type::kLines * kLineBytes;
  int64_t scales;
  int64_t minimums;
  int64_t end;
  int64_t padded_end;

  explicit TilePlaces(int64_t blocks) {
    scales = blocks * codes_of_block;
    minimums = scales + blocks * 32;
    end = minimums + (Type::kHasMinimum ? blocks * 32 : 0);
    padded_end = (end + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
};

// Zeros for the rows from `count` on.
template <class Type>
HWY_INLINE void ClearRows(int64_t count, const TilePlaces<Type>& places, uint8_t* tile) {
  const auto missing = static_cast<size_t>(16 - count);
  for (int64_t at = 0; at < places.scales; at += kLineBytes) {
    __builtin_memset(tile + at + 4 * count, 0, 4 * missing);
  }
  for (int64_t at = places.scales; at < places.end; at += 32) {
    __builtin_memset(tile + at + 2 * count, 0, 2 * missing);
  }
}

template <class Type>
void RowsToTile(const RowsToTileArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const TilePlaces<Type> places(layout.blocks);
  auto* tile = reinterpret_cast<uint8_t*>(a.tile);
  __builtin_memset(tile + places.end, 0, static_cast<size_t>(places.padded_end - places.end));
  if (a.list.count == 0) {
    __builtin_memset(tile, 0, static_cast<size_t>(places.end));
    return;
  }
  const int64_t count = a.list.count < 16 ? a.list.count : 16;
  const uint8_t* rows[16];
  for (int64_t r = 0; r < 16; ++r) rows[r] = RowAt(a.list, r < count ? r : count - 1);
  for (int64_t g = 0; g < layout.groups; ++g) {
    const GroupPlace at = PlaceOf(layout, g);
    const int64_t left = layout.blocks - g * kLineLanes;
    const int64_t blocks = left < kLineLanes ? left : kLineLanes;
    for (int line = 0; line < Type::kLines; ++line) {
      const int64_t from = at.codes + line * at.lanes * kRowLaneBytes;
      uint8_t* to = tile + g * kLineLanes * places.codes_of_block + line * kLineBytes;
      for (int r = 0; r < 16; r += 4) {
        const uint8_t* const lines[4] = {rows[r] + from, rows[r + 1] + from, rows[r + 2] + from,
                                         rows[r + 3] + from};
        for (int64_t lane = 0; lane < blocks; lane += kLanes) {
          const int64_t n = blocks - lane < kLanes ? blocks - lane : kLanes;
          PlaceQuadOfRows(lines, lane, n, static_cast<size_t>(places.codes_of_block), to + 4 * r);
        }
      }
    }
  }
  PlaceHalves(rows, layout.scales, layout.blocks, tile + places.scales);
  if constexpr (Type::kHasMinimum) {
    PlaceHalves(rows, layout.minimums, layout.blocks, tile + places.minimums);
  }
  if (count < 16) ClearRows(count, places, tile);
}

}  // namespace hearth::kernels::HEARTH_ISA
