// Products of quantized weights with the geometry that the solver chooses: one token (decode, bound
// by memory) and many (prefill). tile_table.cc times all geometries.
#include <algorithm>

#include "bench/micro/micro.h"
#include "kernels/dispatch.h"
#include "kernels/solver/tile_solver.h"
#include "tensor/weight_tiles.h"

namespace hearth::micro {
namespace {

using kernels::BlockQ8;
using kernels::KernelTable;

constexpr int64_t kColumns = 4096;
// A call computes as many rows as ops/linear.cc hands out, of a matrix with so many.
constexpr int64_t kRows = 64;
constexpr int64_t kMatrixRows = 4096;

// Tokens in panels (TileMatMulArgs).
std::vector<BlockQ8> Panels(const KernelTable& table, int64_t tokens, int64_t panel_tokens) {
  const int64_t blocks = kColumns / 32;
  const std::vector<float> x = SomeFloats(tokens * kColumns);
  std::vector<BlockQ8> panels(static_cast<size_t>(tokens * blocks));
  for (int64_t t = 0; t < tokens; t += panel_tokens) {
    const int64_t count = std::min(panel_tokens, tokens - t);
    for (int64_t i = 0; i < count; ++i) {
      table.quantize_q8(x.data() + (t + i) * kColumns, kColumns, panels.data() + t * blocks + i,
                        count);
    }
  }
  return panels;
}

void RunTiles(const KernelTable& table, const Memory& memory, DType dtype, int64_t tokens,
              const TileGeometry& geometry, benchmark::State& state) {
  const TileLayout layout(dtype, kColumns);
  const size_t bytes = layout.matrix_bytes(kRows);
  const std::vector<BlockQ8> x = Panels(table, tokens, geometry.panel_tokens);
  std::vector<float> out(static_cast<size_t>(tokens * kMatrixRows));
  Pieces pieces(memory, bytes, state);
  kernels::TileMatMulArgs args{};
  args.tile_bytes = layout.tile_bytes();
  args.blocks = layout.blocks;
  args.x = x.data();
  args.tokens = tokens;
  args.out = out.data();
  args.out_stride = kMatrixRows;
  args.rows = kRows;
  args.tile_end = TileLayout::TilesFor(kRows);
  args.geometry = geometry;
  for (auto _ : state) {
    args.tiles = pieces.Next();
    table.matmul_tiles[static_cast<size_t>(dtype)](args);
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(bytes));
  CountMacs(state, kRows * kColumns * tokens);
}

}  // namespace

void RegisterMatMulTiles(const Context& context) {
  const KernelTable& table = context.table;
  const Memory& memory = context.memory;
  const kernels::TileChoice choice(table.tile_unit, kernels::BestSideBySide());
  for (const TileFormat& format : kTileFormats) {
    const DType dtype = format.dtype;
    const std::string name = std::string("matmul_tiles/") + NameOf(dtype) + "/tokens:";
    for (const int64_t tokens : {1, 6, 24, 96, 512}) {
      const TileGeometry geometry = choice.For(tokens);
      Register(context, name + std::to_string(tokens), BoundBy::kMemory,
               [&table, &memory, dtype, tokens, geometry](benchmark::State& state) {
                 RunTiles(table, memory, dtype, tokens, geometry, state);
               });
    }
  }
}

}  // namespace hearth::micro
