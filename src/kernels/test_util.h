// What the kernel tests share: operands that end at a page which cannot be touched, data of
// several kinds, and the tables as test parameters.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/dispatch.h"
#include "kernels/kernel_table.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels::testing {

// n elements whose last byte is followed (or, with kAtStart, whose first byte is preceded) by a
// page without access: a kernel that reads or writes outside its operand dies. At the end of a
// page the start has whatever alignment the size leaves, so odd sizes test misalignment too.
enum class Placement { kAtEnd, kAtStart };

template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(int64_t n, Placement placement = Placement::kAtEnd)
      : size_(static_cast<size_t>(n)) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = size_ * sizeof(T);
    const size_t used = (bytes + page - 1) / page * page;
    map_bytes_ = used + 2 * page;
    map_ = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    char* start = static_cast<char*>(map_) + page;
    if (used > 0 && mprotect(start, used, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    if (placement == Placement::kAtEnd) start += used - bytes;
    data_ = reinterpret_cast<T*>(start);
  }
  explicit GuardedArray(const std::vector<T>& values, Placement placement = Placement::kAtEnd)
      : GuardedArray(static_cast<int64_t>(values.size()), placement) {
    std::copy(values.begin(), values.end(), data_);
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;
  ~GuardedArray() { munmap(map_, map_bytes_); }

  T* data() { return data_; }
  size_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  std::vector<T> ToVector() { return std::vector<T>(begin(), end()); }

 private:
  size_t size_;
  size_t map_bytes_ = 0;
  void* map_ = nullptr;
  T* data_ = nullptr;
};

// Ones (minus ones) become the largest (smallest) codes of activations; weights then have the
// codes whose products are largest, so that sums of integers go as far as they can.
enum class DataKind { kNormal, kZeros, kLarge, kDenormal, kMixed, kOnes, kMinusOnes };
inline constexpr DataKind kAllDataKinds[] = {
    DataKind::kNormal, DataKind::kZeros, DataKind::kLarge,    DataKind::kDenormal,
    DataKind::kMixed,  DataKind::kOnes,  DataKind::kMinusOnes};

inline float RandomFloat(std::mt19937& random, DataKind kind) {
  const float normal = std::normal_distribution<float>(0.0f, 1.0f)(random);
  switch (kind) {
    case DataKind::kNormal:
      return normal;
    case DataKind::kZeros:
      return 0.0f;
    case DataKind::kLarge:
      return normal * 1e15f;
    case DataKind::kDenormal:
      return normal * 1e-40f;
    case DataKind::kMixed:
      return std::ldexp(normal, static_cast<int>(random() % 41) - 20);
    case DataKind::kOnes:
      return 1.0f;
    case DataKind::kMinusOnes:
      return -1.0f;
  }
  return 0.0f;
}

inline std::vector<float> RandomFloats(std::mt19937& random, int64_t n,
                                       DataKind kind = DataKind::kNormal) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = RandomFloat(random, kind);
  return values;
}

template <class T>
void Append(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(value));
}

// Where a block has its scale and its minimum (or the factors of its scales and minimums), both
// binary16; -1 where it has none.
struct HalvesOfBlock {
  int scale;
  int minimum;
};
inline HalvesOfBlock HalvesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      return {0, 2};
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)};
    case DType::kQ6_K:
      return {offsetof(BlockQ6_K, d), -1};
    case DType::kQ2_K:
      return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
    case DType::kQ3_K:
      return {offsetof(BlockQ3_K, d), -1};
    case DType::kTQ1_0:
      return {offsetof(BlockTQ1_0, d), -1};
    case DType::kTQ2_0:
      return {offsetof(BlockTQ2_0, d), -1};
    case DType::kMXFP4:
    case DType::kNVFP4:
    case DType::kIQ1_M:
      return {-1, -1};
    default:
      return {0, -1};
  }
}

// IQ1_M's scale lies in the upper four bits of its last four words.
inline void PutScaleOfIq1M(std::byte* block, uint16_t half) {
  for (int i = 0; i < 4; ++i) {
    std::byte& high = block[offsetof(BlockIQ1_M, scales) + static_cast<size_t>(2 * i + 1)];
    high = (high & std::byte{15}) | std::byte((half >> (4 * i) & 15) << 4);
  }
}

// A row of `columns` weights of a type of kTileFormats. Codes and the scales of sub-blocks are
// uniform, so that the extreme ones occur too (Q8_0's -128 among them), but with kOnes and
// kMinusOnes, where all are extreme.
inline std::vector<std::byte> RandomBlocks(DType dtype, int64_t columns, std::mt19937& random,
                                           DataKind kind) {
  const DTypeInfo& info = InfoOf(dtype);
  const bool is_extreme = kind == DataKind::kOnes || kind == DataKind::kMinusOnes;
  const auto put_half = [&](std::byte* block, int at, float value) {
    const uint16_t half = FloatToHalf(value);
    if (at >= 0) std::memcpy(block + at, &half, sizeof(half));
  };
  std::vector<std::byte> row(RowBytes(dtype, static_cast<size_t>(columns)));
  for (size_t begin = 0; begin < row.size(); begin += info.block_bytes) {
    std::byte* block = row.data() + begin;
    for (uint32_t i = 0; i < info.block_bytes; ++i) {
      const auto code = static_cast<uint8_t>(random());
      block[i] = std::byte{is_extreme ? uint8_t{0xFF} : code};
      if (is_extreme && dtype == DType::kQ8_0) block[i] = std::byte{0x80};
    }
    if (is_extreme && dtype == DType::kQ6_K) {
      std::memset(block + offsetof(BlockQ6_K, scales), 0x80, sizeof(BlockQ6_K::scales));
    }
    float scale = 0.1f * RandomFloat(random, DataKind::kNormal);
    if (kind == DataKind::kZeros) scale = 0;
    if (kind == DataKind::kDenormal) scale *= 1e-6f;
    if (dtype == DType::kMXFP4) {  // powers of two; 0 and 1 are subnormals
      const bool is_small = kind == DataKind::kZeros || kind == DataKind::kDenormal;
      block[0] = std::byte(is_small ? random() % 3 : 120 + random() % 8);
    }
    if (dtype == DType::kNVFP4) {  // below 8 they are subnormals
      const bool is_small = kind == DataKind::kZeros || kind == DataKind::kDenormal;
      for (int i = 0; i < 4; ++i) block[i] = std::byte(is_small ? random() % 3 : random() % 128);
    }
    if (dtype == DType::kIQ1_M) PutScaleOfIq1M(block, FloatToHalf(scale));
    put_half(block, HalvesOf(dtype).scale, scale);
    put_half(block, HalvesOf(dtype).minimum, RandomFloat(random, DataKind::kNormal));
  }
  return row;
}

// All types that tiles hold.
inline std::vector<DType> TiledTypes() {
  std::vector<DType> types;
  for (const TileFormat& format : kTileFormats) types.push_back(format.dtype);
  return types;
}

// At least `blocks` blocks of 32 columns that make whole GGUF blocks of the type.
inline int64_t WholeBlocks(DType dtype, int64_t blocks) {
  const int64_t multiple = InfoOf(dtype).block_size / 32;
  return (blocks + multiple - 1) / multiple * multiple;
}

inline bool SameBits(const void* a, const void* b, size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

inline constexpr double kFloatEpsilon = 0x1p-24;  // relative error of one rounding

// Test over all tables that this machine can run, the oracle among them.
class TableTest : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
  const KernelTable& oracle() const { return *UsableKernels(DetectCpuFeatures()).front(); }
};

inline std::vector<const KernelTable*> TablesOfThisMachine() {
  const auto tables = UsableKernels(DetectCpuFeatures());
  return {tables.begin(), tables.end()};
}

inline std::string TableName(const ::testing::TestParamInfo<const KernelTable*>& info) {
  std::string name = info.param->isa;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace hearth::kernels::testing

#define HEARTH_FOR_ALL_TABLES(Suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite,                                                           \
                           ::testing::ValuesIn(hearth::kernels::testing::TablesOfThisMachine()), \
                           hearth::kernels::testing::TableName)
