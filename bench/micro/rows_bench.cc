// Single neurons out of bundles: rows gathered at random from all of the memory; and the rows of a
// matrix of which a share is left out (P1 Figure 16).
#include <algorithm>
#include <numeric>
#include <random>

#include "bench/micro/micro.h"
#include "tensor/view.h"

namespace hearth::micro {
namespace {

using kernels::GroupQ8;
using kernels::KernelTable;
using kernels::RowList;

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16};
constexpr int64_t kColumns = 4096;
constexpr int64_t kListRows = 256;  // per call
// A bundle has a gate, an up and a down row and begins at a sector.
constexpr size_t kRowsOfBundle = 3;
constexpr size_t kSectorBytes = 512;

size_t RowBytesOf(DType dtype) { return RowsView{.dtype = dtype, .cols = kColumns}.row_bytes(); }

// Lists that together name every bundle of a thread's memory once, in random order.
class RandomLists {
 public:
  // A list's bundles are at most kLargestPiece.
  RandomLists(const Memory& memory, DType dtype, const benchmark::State& state)
      : row_bytes_(RowBytesOf(dtype)) {
    stride_ = (kRowsOfBundle * row_bytes_ + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
    const size_t threads = static_cast<size_t>(state.threads());
    const size_t lists = memory.bytes().size() / threads / stride_ / kListRows;
    base_ = Pieces(memory, lists * kListRows * stride_, state).Next();
    rows_.resize(lists * kListRows);
    std::iota(rows_.begin(), rows_.end(), 0);
    std::shuffle(rows_.begin(), rows_.end(), std::mt19937(1));
  }

  RowList Next() {
    const RowList list{base_, stride_, rows_.data() + at_, kListRows};
    at_ = (at_ + kListRows) % rows_.size();
    return list;
  }
  int64_t bytes_per_list() const { return kListRows * static_cast<int64_t>(row_bytes_); }

 private:
  size_t row_bytes_;
  size_t stride_ = 0;
  const std::byte* base_ = nullptr;
  std::vector<int32_t> rows_;
  size_t at_ = 0;
};

void RunDot(const KernelTable& table, const Memory& memory, DType dtype, benchmark::State& state) {
  RandomLists lists(memory, dtype, state);
  const auto type = static_cast<size_t>(dtype);
  const std::vector<float> floats = SomeFloats(kColumns);
  std::vector<GroupQ8> x(static_cast<size_t>(RowGroupCount(kColumns)));
  table.quantize_q8_groups(floats.data(), kColumns, x.data());
  std::vector<float> out(kListRows);
  for (auto _ : state) {
    if (HasRowGroups(dtype)) {
      table.row_dot[type]({lists.Next(), kColumns, x.data(), out.data()});
    } else {
      table.float_row_dot[type]({lists.Next(), kColumns, floats.data(), out.data()});
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, lists.bytes_per_list());
  CountMacs(state, kListRows * kColumns);
}

void RunScaledAdd(const KernelTable& table, const Memory& memory, DType dtype,
                  benchmark::State& state) {
  RandomLists lists(memory, dtype, state);
  const std::vector<float> a = SomeFloats(kListRows);
  std::vector<float> out(kColumns);
  for (auto _ : state) {
    table.row_scaled_add[static_cast<size_t>(dtype)](
        {lists.Next(), a.data(), kColumns, 0, RowGroupCount(kColumns), out.data()});
    benchmark::ClobberMemory();
  }
  CountBytes(state, lists.bytes_per_list());
  CountMacs(state, kListRows * kColumns);
}

void RunHash(const KernelTable& table, const Memory& memory, benchmark::State& state) {
  RandomLists lists(memory, DType::kQ4_0, state);
  std::vector<uint32_t> out(kListRows);
  for (auto _ : state) {
    table.xxh32_rows({lists.Next(), RowBytesOf(DType::kQ4_0), out.data()});
    benchmark::ClobberMemory();
  }
  CountBytes(state, lists.bytes_per_list());
}

// Matrices of contiguous rows, as an engine keeps gates, of which random ones are listed,
// ascending, as active neurons are.
class SparseMatrices {
 public:
  SparseMatrices(const Memory& memory, DType dtype, int sparsity, const benchmark::State& state)
      : row_bytes_(RowBytesOf(dtype)), pieces_(memory, kMatrixRows * row_bytes_, state) {
    std::mt19937 random(2);
    for (int32_t row = 0; row < kMatrixRows; ++row) {
      if (static_cast<int>(random() % 100) >= sparsity) rows_.push_back(row);
    }
  }

  RowList Next() {
    return {pieces_.Next(), row_bytes_, rows_.data(), static_cast<int64_t>(rows_.size())};
  }
  int64_t listed() const { return static_cast<int64_t>(rows_.size()); }
  int64_t bytes_per_list() const { return listed() * static_cast<int64_t>(row_bytes_); }

 private:
  static constexpr int64_t kMatrixRows = 1792;  // an eighth of an FFN of 14336 neurons

  size_t row_bytes_;
  Pieces pieces_;
  std::vector<int32_t> rows_;
};

void RunSparse(const KernelTable& table, const Memory& memory, bool is_dot, int sparsity,
               benchmark::State& state) {
  constexpr auto kType = static_cast<size_t>(DType::kQ4_0);
  SparseMatrices matrices(memory, DType::kQ4_0, sparsity, state);
  std::vector<GroupQ8> x(static_cast<size_t>(RowGroupCount(kColumns)));
  table.quantize_q8_groups(SomeFloats(kColumns).data(), kColumns, x.data());
  std::vector<float> factors = SomeFloats(matrices.listed());
  std::vector<float> out(kColumns);
  for (auto _ : state) {
    if (is_dot) {
      table.row_dot[kType]({matrices.Next(), kColumns, x.data(), factors.data()});
    } else {
      table.row_scaled_add[kType](
          {matrices.Next(), factors.data(), kColumns, 0, RowGroupCount(kColumns), out.data()});
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, matrices.bytes_per_list());
  CountMacs(state, matrices.listed() * kColumns);
}

}  // namespace

void RegisterRows(const Context& context) {
  const KernelTable& table = context.table;
  const Memory& memory = context.memory;
  for (const DType dtype : kTypes) {
    Register(
        context, std::string("row_dot/") + NameOf(dtype), BoundBy::kMemory,
        [&table, &memory, dtype](benchmark::State& state) { RunDot(table, memory, dtype, state); });
    Register(context, std::string("row_scaled_add/") + NameOf(dtype), BoundBy::kMemory,
             [&table, &memory, dtype](benchmark::State& state) {
               RunScaledAdd(table, memory, dtype, state);
             });
  }
  Register(context, "xxh32_rows", BoundBy::kMemory,
           [&table, &memory](benchmark::State& state) { RunHash(table, memory, state); });
  for (const int sparsity : {0, 15, 30, 50, 70, 80, 90, 95}) {
    for (const bool is_dot : {true, false}) {
      Register(context,
               std::string(is_dot ? "row_dot" : "row_scaled_add") +
                   "/Q4_0/percent_left_out:" + std::to_string(sparsity),
               BoundBy::kMemory, [&table, &memory, is_dot, sparsity](benchmark::State& state) {
                 RunSparse(table, memory, is_dot, sparsity, state);
               });
    }
  }
}

}  // namespace hearth::micro
