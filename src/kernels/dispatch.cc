// Chooses among the tables that are linked in. The only file of this folder that asks which
// processor the build is for.
#include "kernels/dispatch.h"

#include <array>
#include <cstddef>
#include <iterator>

#include "kernels/tables.h"

namespace hearth::kernels {
namespace {

struct Candidate {
  const KernelTable* table;
  bool (*usable)(const CpuFeatures&);
};

// Slowest first: the last usable one is the best.
constexpr Candidate kCandidates[] = {
    {&kScalarKernels, [](const CpuFeatures&) { return true; }},
#if defined(__x86_64__)
    {&kAvx2Kernels, [](const CpuFeatures& f) { return f.avx2; }},
    {&kAvxVnniKernels, [](const CpuFeatures& f) { return f.avx2 && f.avx_vnni; }},
    {&kAvx512Kernels, [](const CpuFeatures& f) { return f.avx2 && f.avx512; }},
    {&kAvx512VnniKernels, [](const CpuFeatures& f) { return f.avx2 && f.avx512 && f.avx512_vnni; }},
#elif defined(__aarch64__)
    {&kNeonKernels, [](const CpuFeatures& f) { return f.neon; }},
    {&kDotProdKernels, [](const CpuFeatures& f) { return f.neon && f.dotprod; }},
    {&kI8mmKernels, [](const CpuFeatures& f) { return f.neon && f.dotprod && f.i8mm; }},
#endif
};
constexpr size_t kNumCandidates = std::size(kCandidates);

struct TableList {
  std::array<const KernelTable*, kNumCandidates> tables{};
  size_t count = 0;
};

// The list for every set of usable candidates (bit i: candidate i), made at compile time: a span
// can then be handed out without any state that changes.
using Lists = std::array<TableList, size_t{1} << kNumCandidates>;

constexpr Lists MakeLists() {
  Lists lists{};
  for (size_t set = 0; set < lists.size(); ++set) {
    for (size_t i = 0; i < kNumCandidates; ++i) {
      TableList& list = lists[set];
      if ((set >> i & 1) != 0) list.tables[list.count++] = kCandidates[i].table;
    }
  }
  return lists;
}
constexpr Lists kLists = MakeLists();

}  // namespace

bool HasKernel(DType dtype) {
  // All tables hold the same kernels (dispatch_test.cc), so that one of them answers for all.
  const auto i = static_cast<size_t>(dtype);
  return kScalarKernels.matmul[i] != nullptr || kScalarKernels.matmul_tiles[i] != nullptr;
}

int64_t BestSideBySide() {
  static const bool is_amd = IsAmdProcessor();
  return is_amd ? 1 : kTileSteps[std::size(kTileSteps) - 1];
}

bool FetchesRowsNear() {
  // Eight rows of 2,304 bytes, as many that are asked for, and the activations.
  constexpr uint64_t kRoom = 40 * 1024;
  static const bool is_near = FirstLevelDataCacheBytes() >= kRoom;
  return is_near;
}

bool DropsFetches() {
  static const bool is_amd = IsAmdProcessor();
  return is_amd;
}

bool LoadsRowsFirst() { return DropsFetches() && FetchesRowsNear(); }

std::span<const KernelTable* const> UsableKernels(const CpuFeatures& features) {
  size_t set = 0;
  for (size_t i = 0; i < kNumCandidates; ++i) {
    if (kCandidates[i].usable(features)) set |= size_t{1} << i;
  }
  const TableList& list = kLists[set];
  return {list.tables.data(), list.count};
}

const KernelTable& BestKernels(const CpuFeatures& features) {
  return *UsableKernels(features).back();
}

const KernelTable* FindKernels(std::string_view isa, const CpuFeatures& features) {
  for (const KernelTable* table : UsableKernels(features)) {
    if (isa == table->isa) return table;
  }
  return nullptr;
}

}  // namespace hearth::kernels
