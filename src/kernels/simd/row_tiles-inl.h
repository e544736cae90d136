// Weight tiles (tensor/weight_tiles.h) out of bundle rows (tensor/row_groups.h), exactly.
#pragma once

#include "kernels/simd/rows-inl.h"
#include "kernels/simd/tile_parts-inl.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels::HEARTH_ISA {

// Where blocks' codes, scales or minimums go: they lie two and two.
struct BlockPlaces {
  uint8_t* first;
  int64_t to_neighbour;  // from the first of a pair to the second
  int64_t to_next_pair;

  HWY_INLINE uint8_t* At(int64_t block) const {
    return first + block / 2 * to_next_pair + block % 2 * to_neighbour;
  }
};

// A line of four rows, lane b of each belonging to block b, as lanes r..r+3 of the tile's lines of
// blocks from block + lane on; `to` are those for row r.
HWY_INLINE void PlaceQuadOfRows(const uint8_t* const (&lines)[4], int64_t lane, int64_t n,
                                const BlockPlaces& to, int64_t block) {
  FloatVec v[4];
  for (int r = 0; r < 4; ++r) {
    v[r] = hn::BitCast(kFloats, LoadQuads<false>(lines[r] + kRowLaneBytes * lane, n));
  }
  TransposeQuads(v);
  for (int i = 0; i < 4; ++i) {
    HWY_ALIGN uint8_t quads[kVectorBytes];
    hn::Store(hn::BitCast(ByteTag(), v[i]), ByteTag(), quads);
    for (int64_t q = 0; 4 * q + i < n; ++q) {
      __builtin_memcpy(to.At(block + lane + 4 * q + i), quads + 16 * q, 16);
    }
  }
}

// Turns eight rows of eight numbers of 16 bits into columns: of blocks from `block` on, for the
// rows of `to`.
HWY_INLINE void PlaceEightHalves(const uint8_t* const* rows, int64_t from, const BlockPlaces& to,
                                 int64_t block) {
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
                 to.At(block + 4 * half + i));
    }
  }
}

// Halves at `from` of every row, one per block, as 16 per block.
HWY_INLINE void PlaceHalves(const uint8_t* const (&rows)[16], int64_t from, int64_t blocks,
                            const BlockPlaces& to) {
  const BlockPlaces to_second = {to.first + 16, to.to_neighbour, to.to_next_pair};
  int64_t b = 0;
  for (; b + 8 <= blocks; b += 8) {
    PlaceEightHalves(rows, from + 2 * b, to, b);
    PlaceEightHalves(rows + 8, from + 2 * b, to_second, b);
  }
  for (; b < blocks; ++b) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(to.At(b) + 2 * r, rows[r] + from + 2 * b, 2);
  }
}

// The places of a tile that is written.
template <class Type>
struct TilePlaces {
  using Parts = TileParts<Type>;

  uint8_t* tile;

  // For the rows from `row` on.
  HWY_INLINE BlockPlaces Codes(int64_t line, int64_t row) const {
    return {tile + Parts::kCodesBegin + line * kLineBytes + 4 * row, Parts::kBlockBytes,
            Parts::kGroupBytes};
  }
  HWY_INLINE BlockPlaces Scales(int64_t row) const {
    return {tile + 2 * row, Parts::kScalesBytes, Parts::kGroupBytes};
  }
  HWY_INLINE BlockPlaces Minimums(int64_t row) const {
    return {tile + Parts::kMinimumsBegin + 2 * row, Parts::kScalesBytes, Parts::kGroupBytes};
  }
};

// Zeros for the rows from `row` on.
template <class Type>
HWY_INLINE void ClearRows(int64_t row, int64_t blocks, const TilePlaces<Type>& places) {
  const auto missing = static_cast<size_t>(16 - row);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int line = 0; line < Type::kLines; ++line) {
      __builtin_memset(places.Codes(line, row).At(b), 0, 4 * missing);
    }
    __builtin_memset(places.Scales(row).At(b), 0, 2 * missing);
    if (Type::kHasMinimum) __builtin_memset(places.Minimums(row).At(b), 0, 2 * missing);
  }
}

template <class Type>
void RowsToTile(const RowsToTileArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const TilePlaces<Type> places = {reinterpret_cast<uint8_t*>(a.tile)};
  if (a.list.count == 0) {
    __builtin_memset(a.tile, 0, static_cast<size_t>(TileParts<Type>::TileBytes(layout.blocks)));
    return;
  }
  if (layout.blocks % 2 != 0) {  // the scales of the neighbour that the last block has not
    __builtin_memset(places.Scales(0).At(layout.blocks), 0, TileParts<Type>::kScalesBytes);
    if (Type::kHasMinimum) {
      __builtin_memset(places.Minimums(0).At(layout.blocks), 0, TileParts<Type>::kScalesBytes);
    }
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
      for (int r = 0; r < 16; r += 4) {
        const uint8_t* const lines[4] = {rows[r] + from, rows[r + 1] + from, rows[r + 2] + from,
                                         rows[r + 3] + from};
        for (int64_t lane = 0; lane < blocks; lane += kLanes) {
          const int64_t n = blocks - lane < kLanes ? blocks - lane : kLanes;
          PlaceQuadOfRows(lines, lane, n, places.Codes(line, r), g * kLineLanes);
        }
      }
    }
  }
  PlaceHalves(rows, layout.scales, layout.blocks, places.Scales(0));
  if constexpr (Type::kHasMinimum) {
    PlaceHalves(rows, layout.minimums, layout.blocks, places.Minimums(0));
  }
  if (count < 16) ClearRows(count, layout.blocks, places);
}

}  // namespace hearth::kernels::HEARTH_ISA
