#include "accel/vector_kernels.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "accel/test_device.h"
#include "base/error.h"
#include "kernels/tables.h"
#include "tensor/half.h"

namespace hearth::accel {
namespace {

using kernels::kScalarKernels;
using testing::RandomFloats;
using testing::TestBench;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Each result within `roundings` of the oracle's, and `slack` more.
void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected,
                double roundings, double slack = 1e-30) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double room = roundings * 0x1p-24 * std::abs(static_cast<double>(expected[i])) + slack;
    ASSERT_NEAR(found[i], expected[i], room) << "number " << i;
  }
}

TEST(VectorKernels, NormAsTheOracle) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  VectorKernels kernels(bench.device());
  for (const int64_t columns : {1, 63, 65, 200}) {
    constexpr int64_t kRows = 3;
    const auto k = static_cast<size_t>(columns);
    std::vector<float> x = RandomFloats(kRows * k, 1);
    const std::vector<float> weight = RandomFloats(k, 2);
    DeviceBuffer& device_x = bench.Put(x);
    kernels.RmsNorm(bench.queue(), {&device_x, kRows, columns}, bench.Put(weight), 1e-5f, device_x);
    for (size_t r = 0; r < kRows; ++r) {
      kScalarKernels.rms_norm(&x[r * k], weight.data(), columns, 1e-5f, &x[r * k]);
    }
    ExpectNear(bench.Floats(device_x, x.size()), x, static_cast<double>(columns) + 16);
  }
}

TEST(VectorKernels, NormWithABiasAsTheFormula) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  VectorKernels kernels(bench.device());
  for (const int64_t columns : {1, 63, 65, 200}) {
    constexpr int64_t kRows = 3;
    const auto k = static_cast<size_t>(columns);
    std::vector<float> x = RandomFloats(kRows * k, 1);
    for (float& value : x) value += 3;  // the mean counts
    const std::vector<float> weight = RandomFloats(k, 2), bias = RandomFloats(k, 3);
    DeviceBuffer& device_x = bench.Put(x);
    DeviceBuffer& out = bench.Room(x.size());
    kernels.Normalize(bench.queue(), {&device_x, kRows, columns},
                      {&bench.Put(weight), &bench.Put(bias), 1e-2f}, out);
    std::vector<float> expected(x.size());
    for (size_t r = 0; r < kRows; ++r) {
      const std::span<const float> row(&x[r * k], k);
      const double mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(k);
      double squares = 0;
      for (const double value : row) squares += (value - mean) * (value - mean);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(k) + 1e-2);
      for (size_t i = 0; i < k; ++i) {
        expected[r * k + i] = static_cast<float>((row[i] - mean) * scale * weight[i] + bias[i]);
      }
    }
    // Numbers near the mean keep few digits.
    ExpectNear(bench.Floats(out, x.size()), expected, 64, 1e-5);
    // Without a bias it is an RMS norm.
    kernels.Normalize(bench.queue(), {&device_x, kRows, columns},
                      {&bench.Put(weight), nullptr, 1e-2f}, device_x);
    for (size_t r = 0; r < kRows; ++r) {
      kScalarKernels.rms_norm(&x[r * k], weight.data(), columns, 1e-2f, &x[r * k]);
    }
    ExpectNear(bench.Floats(device_x, x.size()), x, static_cast<double>(columns) + 16);
  }
}

TEST(VectorKernels, SoftmaxAsTheOracle) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  VectorKernels kernels(bench.device());
  for (const int64_t columns : {1, 63, 65, 200}) {
    constexpr int64_t kRows = 3;
    const auto k = static_cast<size_t>(columns);
    std::vector<float> x = RandomFloats(kRows * k, 3);
    if (columns > 1) x[0] = x[k + 1] = -kInfinity;
    DeviceBuffer& device_x = bench.Put(x);
    kernels.Softmax(bench.queue(), {&device_x, kRows, columns});
    for (size_t r = 0; r < kRows; ++r) kScalarKernels.softmax(&x[r * k], columns);
    ExpectNear(bench.Floats(device_x, x.size()), x, static_cast<double>(columns) + 32);
  }
}

TEST(VectorKernels, RowsAreGatheredScatteredAndAddedTo) {
  HEARTH_NEED_DEVICE();
  constexpr size_t kRows = 5;
  const std::vector<int32_t> list = {0, 2, 4};
  for (const int64_t columns : {1, 63, 65, 200}) {
    TestBench bench;
    VectorKernels kernels(bench.device());
    const auto k = static_cast<size_t>(columns);
    const std::vector<float> x = RandomFloats(kRows * k, 5);
    const std::vector<float> row = RandomFloats(k + 3, 6);
    const std::vector<float> weights = RandomFloats(list.size(), 7);
    const VectorKernels::RowList rows = {&bench.Put(list), std::ssize(list)};
    DeviceBuffer& gathered = bench.Room(list.size() * k);
    DeviceBuffer& sum = bench.Put(x);
    kernels.GatherRows(bench.queue(), bench.Put(x), rows, columns, gathered);
    kernels.AddToRows(bench.queue(), bench.Put(row), 3, {&gathered, std::ssize(list), columns});
    kernels.ScatterAddRows(bench.queue(), gathered, rows, bench.Put(weights), columns, sum);
    std::vector<float> expected = x, expected_gathered(list.size() * k);
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t c = 0; c < k; ++c) {
        const size_t at = static_cast<size_t>(list[i]) * k + c;
        expected_gathered[i * k + c] = x[at] + row[3 + c];
        expected[at] += weights[i] * expected_gathered[i * k + c];
      }
    }
    EXPECT_EQ(bench.Floats(gathered, expected_gathered.size()), expected_gathered);
    ExpectNear(bench.Floats(sum, expected.size()), expected, 4, 1e-6);
  }
}

TEST(VectorKernels, RowsThatDoNotFitAreRefused) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  VectorKernels kernels(bench.device());
  DeviceBuffer& small = bench.Room(8);
  EXPECT_THROW(kernels.GatherRows(bench.queue(), small, {&small, 3}, 3, small), Error);
  EXPECT_THROW(kernels.ScatterAddRows(bench.queue(), small, {&small, 9}, small, 1, small), Error);
  EXPECT_THROW(kernels.AddToRows(bench.queue(), small, 1, {&small, 1, 8}), Error);
  EXPECT_THROW(kernels.ActivateAlone(bench.queue(), {}, small, 9, small), Error);
}

TEST(VectorKernels, RotateAsTheOracle) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  VectorKernels kernels(bench.device());
  constexpr int64_t kTokens = 3, kHeads = 2, kHeadDim = 10;
  for (const RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalves}) {
    for (const int64_t pairs : {1, 3, 5}) {
      std::vector<float> x = RandomFloats(kTokens * kHeads * kHeadDim, 4);
      const auto angles = static_cast<size_t>(kTokens * pairs);
      const std::vector<float> cosines = RandomFloats(angles, 5), sines = RandomFloats(angles, 6);
      DeviceBuffer& device_x = bench.Put(x);
      kernels.Rope(bench.queue(), {&device_x, kTokens, kHeads, kHeadDim},
                   {&bench.Put(cosines), &bench.Put(sines), pairs, layout});
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t h = 0; h < kHeads; ++h) {
          kScalarKernels.rope(&x[static_cast<size_t>((t * kHeads + h) * kHeadDim)],
                              &cosines[static_cast<size_t>(t * pairs)],
                              &sines[static_cast<size_t>(t * pairs)], pairs, layout);
        }
      }
      ExpectNear(bench.Floats(device_x, x.size()), x, 2, 0x1p-20);
    }
  }
}

TEST(VectorKernels, ActivateAndAddAsTheOracle) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  VectorKernels kernels(bench.device());
  for (const size_t count : {1, 63, 131}) {
    const std::vector<float> gate = RandomFloats(count, 7), up = RandomFloats(count, 8);
    const auto n = static_cast<int64_t>(count);
    for (int kind = 0; kind < kNumFfnActivations; ++kind) {
      SCOPED_TRACE(::testing::Message() << "activation " << kind);
      DeviceBuffer& out = bench.Room(count);
      kernels.Activate(bench.queue(), {static_cast<FfnActivation>(kind), 0.3f}, bench.Put(gate),
                       bench.Put(up), n, out);
      std::vector<float> expected(count);
      kScalarKernels.ffn_activation[kind](gate.data(), up.data(), n, 0.3f, expected.data());
      ExpectNear(bench.Floats(out, count), expected, 64, 0x1p-20);

      const std::vector<float> ones(count, 1.0f);
      DeviceBuffer& alone = bench.Room(count);
      kernels.ActivateAlone(bench.queue(), {static_cast<FfnActivation>(kind), 0.3f},
                            bench.Put(gate), n, alone);
      kScalarKernels.ffn_activation[kind](gate.data(), ones.data(), n, 0.3f, expected.data());
      ExpectNear(bench.Floats(alone, count), expected, 64, 0x1p-20);
    }
    DeviceBuffer& cleared = bench.Put(gate);
    kernels.Clear(bench.queue(), cleared, n - 1);
    std::vector<float> all_but_one(count);
    all_but_one.back() = gate.back();
    EXPECT_EQ(bench.Floats(cleared, count), all_but_one);
    std::vector<float> sum = gate;
    DeviceBuffer& out = bench.Put(sum);
    kernels.Add(bench.queue(), bench.Put(up), n, out);
    kScalarKernels.add(up.data(), n, sum.data());
    EXPECT_EQ(bench.Floats(out, count), sum);
    kernels.Add(bench.queue(), bench.Put(up), n, out, -0.25f);
    for (size_t i = 0; i < count; ++i) sum[i] -= 0.25f * up[i];
    ExpectNear(bench.Floats(out, count), sum, 4, 1e-6);
  }
}

}  // namespace
}  // namespace hearth::accel
