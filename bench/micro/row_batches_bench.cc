// Single neurons for the tokens of a prompt that fire them: rows times tokens (up) and rows added
// to the sums of tokens (down), for some share of all pairs of a row and a token.
#include <fmt/format.h>

#include <numeric>
#include <random>

#include "bench/micro/micro.h"
#include "tensor/view.h"

namespace hearth::micro {
namespace {

using kernels::GroupQ8;
using kernels::KernelTable;
using kernels::kLanesOfEntry;
using kernels::kRowsOfBatch;
using kernels::kRowsOfSums;
using kernels::RowList;

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr int64_t kColumns = 4096;
constexpr int64_t kTokens = 512;
// The average of a ReLU model, and rows that nearly every token fires.
constexpr unsigned kFiringPercents[] = {10, 90};

// On the lines of caches, as the engine has its buffers.
struct alignas(64) AlignedFloats {
  static constexpr int64_t kCount = 16;
  float floats[kCount];
};
struct alignas(64) AlignedGroup : GroupQ8 {};
static_assert(sizeof(AlignedGroup) == sizeof(GroupQ8));
static_assert(AlignedFloats::kCount == kLanesOfEntry);

// Who fires of some rows, as kernel_table.h has it.
struct Entries {
  std::vector<int32_t> begin;
  std::vector<int32_t> places;

  Entries(int64_t rows, unsigned percent) {
    std::mt19937 random(3);
    for (int64_t t = 0; t < kTokens; ++t) {
      begin.push_back(static_cast<int32_t>(places.size()));
      for (int32_t r = 0; r < rows; ++r) {
        if (random() % 100 < percent) places.push_back(r);
      }
    }
    begin.push_back(static_cast<int32_t>(places.size()));
  }
  int64_t size() const { return static_cast<int64_t>(places.size()); }
};

// Lists of neighbouring rows that walk through the memory.
class RowLists {
 public:
  RowLists(const Memory& memory, DType dtype, int64_t rows, const benchmark::State& state)
      : row_bytes_(RowsView{.dtype = dtype, .cols = kColumns}.row_bytes()),
        pieces_(memory, static_cast<size_t>(rows) * row_bytes_, state),
        rows_(static_cast<size_t>(rows)) {
    std::iota(rows_.begin(), rows_.end(), 0);
  }
  RowList Next() { return At(pieces_.Next()); }
  RowList Following() const { return At(pieces_.following()); }
  int64_t bytes_per_list() const { return static_cast<int64_t>(rows_.size() * row_bytes_); }

 private:
  RowList At(const std::byte* base) const {
    return {base, row_bytes_, rows_.data(), static_cast<int64_t>(rows_.size())};
  }

  size_t row_bytes_;
  Pieces pieces_;
  std::vector<int32_t> rows_;
};

void RunTimesTokens(const KernelTable& table, const Memory& memory, DType dtype, unsigned percent,
                    benchmark::State& state) {
  const Entries entries(kRowsOfBatch, percent);
  RowLists lists(memory, dtype, kRowsOfBatch, state);
  const int64_t groups = RowGroupCount(kColumns);
  std::vector<AlignedGroup> x(static_cast<size_t>(kTokens * groups));
  const std::vector<float> floats = SomeFloats(kColumns);
  for (int64_t t = 0; t < kTokens; ++t) {
    table.quantize_q8_groups(floats.data(), kColumns, x.data() + t * groups);
  }
  std::vector<AlignedFloats> lanes(static_cast<size_t>(entries.size()));
  std::vector<float> out(static_cast<size_t>(entries.size()));
  for (auto _ : state) {
    const RowList list = lists.Next();
    table.rows_times_tokens[static_cast<size_t>(dtype)](
        {list, kColumns, x.data(), kTokens, entries.begin.data(), entries.places.data(),
         lanes.data()->floats, out.data(), lists.Following()});
    benchmark::ClobberMemory();
  }
  CountBytes(state, lists.bytes_per_list());
  CountMacs(state, entries.size() * kColumns);
}

// All groups of columns, one after the other: each reads a part of every row.
void RunToSums(const KernelTable& table, const Memory& memory, DType dtype, unsigned percent,
               benchmark::State& state) {
  const Entries entries(kRowsOfSums, percent);
  RowLists lists(memory, dtype, kRowsOfSums, state);
  const std::vector<float> factors = SomeFloats(entries.size());
  const int64_t groups = RowGroupCount(kColumns);
  std::vector<AlignedFloats> sums(
      static_cast<size_t>(kTokens * groups * kRowGroupWeights / AlignedFloats::kCount));
  // Lists inside, as an FFN has them: the sums of a group stay in the second-level cache.
  constexpr int kLists = 8;
  RowList list[kLists + 1];
  for (auto _ : state) {
    for (RowList& each : list) each = lists.Next();
    for (int64_t g = 0; g < groups; ++g) {
      for (int l = 0; l < kLists; ++l) {
        table.rows_to_sums[static_cast<size_t>(dtype)](
            {list[l], kColumns, g, kTokens, entries.begin.data(), entries.places.data(),
             factors.data(), sums.data()->floats + g * kTokens * kRowGroupWeights, list[l + 1]});
      }
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, kLists * lists.bytes_per_list());
  CountMacs(state, kLists * entries.size() * kColumns);
}

}  // namespace

void RegisterRowBatches(const Context& context) {
  const KernelTable& table = context.table;
  const Memory& memory = context.memory;
  for (const DType dtype : kTypes) {
    for (const unsigned percent : kFiringPercents) {
      const std::string name = fmt::format("{}/fired:{}", NameOf(dtype), percent);
      Register(context, "rows_times_tokens/" + name, BoundBy::kMemory,
               [&table, &memory, dtype, percent](benchmark::State& state) {
                 RunTimesTokens(table, memory, dtype, percent, state);
               });
      Register(context, "rows_to_sums/" + name, BoundBy::kMemory,
               [&table, &memory, dtype, percent](benchmark::State& state) {
                 RunToSums(table, memory, dtype, percent, state);
               });
    }
  }
}

}  // namespace hearth::micro
