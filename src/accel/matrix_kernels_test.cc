#include "accel/matrix_kernels.h"

#include <gmock/gmock.h>

#include "accel/test_device.h"
#include "base/error.h"
#include "kernels/dequantize.h"
#include "kernels/test_encoders.h"
#include "kernels/test_weights.h"

namespace hearth::accel {
namespace {

using accel::testing::RandomFloats;
using accel::testing::SumTolerance;
using accel::testing::TestBench;

std::vector<std::byte> EncodeMatrix(DType type, const std::vector<float>& values) {
  if (kernels::test_encoders::CanEncode(type)) {
    return kernels::test_encoders::Encode(type, values);
  }
  if (!kernels::CanQuantize(type)) {
    std::mt19937 random(3);
    return kernels::testing::RandomWeights(type, values.size(), random, 1);
  }
  std::vector<std::byte> bytes(RowBytes(type, values.size()));
  kernels::Quantize(type, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

struct Shape {
  int64_t rows, columns, tokens;
};

void CheckProduct(DType type, const Shape& shape) {
  SCOPED_TRACE(::testing::Message() << NameOf(type) << " rows " << shape.rows << " columns "
                                    << shape.columns << " tokens " << shape.tokens);
  const auto weights = static_cast<size_t>(shape.rows * shape.columns);
  const auto outs = static_cast<size_t>(shape.tokens * shape.rows);
  const std::vector<std::byte> bytes = EncodeMatrix(type, RandomFloats(weights, 1));
  const std::vector<float> x = RandomFloats(static_cast<size_t>(shape.tokens * shape.columns), 2);
  std::vector<float> w(weights);
  kernels::Dequantize(type, bytes.data(), static_cast<int64_t>(weights), w.data());
  TestBench bench;
  MatrixKernels kernels(bench.device(), type);
  // Behind bytes that are not the matrix's.
  constexpr int64_t kBefore = 32;
  std::vector<std::byte> placed(kBefore, std::byte{0xff});
  placed.insert(placed.end(), bytes.begin(), bytes.end());
  const DeviceMatrix matrix = {&bench.Put(placed), shape.rows, shape.columns, kBefore};
  for (const MatmulWay way : {MatmulWay::kByToken, MatmulWay::kInTiles}) {
    DeviceBuffer& out = bench.Room(outs);
    kernels.Multiply(bench.queue(), matrix, bench.Put(x), shape.tokens, out, way);
    const std::vector<float> found = bench.Floats(out, outs);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      for (int64_t r = 0; r < shape.rows; ++r) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < shape.columns; ++i) {
          const double product = double{w[static_cast<size_t>(r * shape.columns + i)]} *
                                 static_cast<double>(x[static_cast<size_t>(t * shape.columns + i)]);
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(found[static_cast<size_t>(t * shape.rows + r)], sum,
                    SumTolerance(static_cast<size_t>(shape.columns), magnitude))
            << "token " << t << " row " << r;
      }
    }
  }
}

constexpr DType kMatrixTypes[] = {DType::kF32,    DType::kF16,  DType::kBF16, DType::kQ4_0,
                                  DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                  DType::kQ4_K,   DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                  DType::kIQ4_XS, DType::kMXFP4};

class MatrixKernelsOfType : public ::testing::TestWithParam<DType> {};

// Tiles of rows and of tokens that are full, and that are not. Where the device interprets its
// kernels (scripts/test_kernels.sh), fewer numbers of each.
TEST_P(MatrixKernelsOfType, AgreeWithTheOracle) {
  HEARTH_NEED_DEVICE();
  const DType type = GetParam();
  ASSERT_TRUE(MatrixKernels::Has(type));
  const int64_t block = InfoOf(type).block_size;
  if (std::getenv("HEARTH_INTERPRETED") != nullptr) {
    const int64_t columns = block == 1 ? 77 : block;
    CheckProduct(type, {37, columns, 1});
    CheckProduct(type, {3, columns, 34});
    return;
  }
  for (const int64_t blocks :
       block == 1 ? std::vector<int64_t>{1, 31, 77} : std::vector<int64_t>{1, 3}) {
    for (const int64_t tokens : {1, 3, 5, 34}) CheckProduct(type, {37, block * blocks, tokens});
    CheckProduct(type, {1, block * blocks, 2});
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatrixKernelsOfType, ::testing::ValuesIn(kMatrixTypes),
                         [](const auto& type) { return std::string(NameOf(type.param)); });

TEST(MatrixKernels, RefuseWhatTheyDoNotHaveOrHaveNoRoomFor) {
  HEARTH_NEED_DEVICE();
  EXPECT_FALSE(MatrixKernels::Has(DType::kQ3_K));
  EXPECT_THROW(MatrixKernels(testing::TestDevice(), DType::kQ3_K), Error);
  TestBench bench;
  MatrixKernels kernels(bench.device(), DType::kF32);
  DeviceBuffer& small = bench.Room(8);
  EXPECT_THROW(
      kernels.Multiply(bench.queue(), {&small, 3, 3}, small, 1, small, MatmulWay::kByToken), Error);
  EXPECT_THROW(
      kernels.Multiply(bench.queue(), {&small, 1, 8}, small, 2, small, MatmulWay::kInTiles), Error);
  MatrixKernels blocks(bench.device(), DType::kQ4_0);
  EXPECT_THROW(blocks.Multiply(bench.queue(), {&small, 1, 5}, small, 1, small, MatmulWay::kByToken),
               Error);
  EXPECT_THROW(
      kernels.Multiply(bench.queue(), {&small, -1, 8}, small, 1, small, MatmulWay::kByToken),
      Error);
  EXPECT_THROW(kernels.Multiply(bench.queue(), {&small, int64_t{1} << 40, 8}, small, 1, small,
                                MatmulWay::kByToken),
               Error);
}

}  // namespace
}  // namespace hearth::accel
