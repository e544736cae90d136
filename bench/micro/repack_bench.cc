// Turns rows, as a file stores them, into tiles. Every extent that is streamed goes through this.
// All instruction sets share the code, which is therefore listed as scalar.
#include <string_view>

#include "bench/micro/micro.h"
#include "ops/repack.h"
#include "tensor/weight_tiles.h"

namespace hearth::micro {
namespace {

constexpr int64_t kColumns = 4096;
constexpr int64_t kRows = 256;  // some hundred kilobytes, as much as an extent of a small expert
constexpr DType kTypes[] = {DType::kQ2_K, DType::kQ3_K, DType::kQ4_0,   DType::kQ4_1,
                            DType::kQ4_K, DType::kQ5_0, DType::kQ5_1,   DType::kQ5_K,
                            DType::kQ6_K, DType::kQ8_0, DType::kIQ4_NL, DType::kIQ4_XS,
                            DType::kMXFP4};

// Counts stored bytes. The tiles are written to memory, not only to caches.
void MakeTiles(DType dtype, const Memory& memory, benchmark::State& state) {
  const WeightView view = {.dtype = dtype, .cols = kColumns, .rows = kRows, .is_tiled = true};
  const size_t stored = kRows * RowBytes(dtype, static_cast<size_t>(kColumns));
  const size_t made = view.expert_bytes();
  Pieces pieces(memory, stored, state);
  const size_t rounds = kLargestPiece / made;
  std::vector<std::byte> tiles(rounds * made), scratch;
  size_t round = 0;
  for (auto _ : state) {
    MakeResident(dtype, {pieces.Next(), stored}, kRows, view, tiles.data() + round * made, scratch);
    round = (round + 1) % rounds;
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(stored));
}

}  // namespace

void RegisterRepack(const Context& context) {
  if (std::string_view(context.table.isa) != "scalar") return;
  for (const DType dtype : kTypes) {
    Register(context, std::string("make_tiles/") + NameOf(dtype), BoundBy::kMemory,
             [dtype, &memory = context.memory](benchmark::State& state) {
               MakeTiles(dtype, memory, state);
             });
  }
}

}  // namespace hearth::micro
