#include "accel/device_ffns.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "accel/test_device.h"
#include "accel/test_faulty_device.h"
#include "base/error.h"
#include "kernels/tables.h"
#include "tensor/half.h"

namespace hearth::accel {
namespace {

using testing::RandomFloats;
using testing::SumTolerance;

constexpr int64_t kHidden = 96;

// F16 rows: gate, up, down and a gap.
DeviceFfnShape ShapeOf(int64_t neurons, int64_t max_tokens, bool is_gated) {
  constexpr int64_t kRow = 2 * kHidden;
  DeviceFfnShape shape = {
      .hidden = kHidden, .neurons = {neurons, neurons}, .max_tokens = max_tokens};
  shape.layout = {.gate = 0, .up = is_gated ? kRow : -1, .down = 2 * kRow, .stride = 3 * kRow + 32};
  return shape;
}

// Random neurons of both FFNs, and what they are.
struct TestFfns {
  explicit TestFfns(const DeviceFfnShape& of) : shape(of) {
    for (int64_t ffn = 0; ffn < shape.num_ffns(); ++ffn) {
      bytes.emplace_back(static_cast<size_t>(shape.most_neurons() * shape.layout.stride));
      const auto numbers = static_cast<size_t>(shape.most_neurons() * 3 * kHidden);
      weights.push_back(RandomFloats(numbers, static_cast<unsigned>(ffn + 1)));
      for (size_t i = 0; i < numbers; ++i) {
        const uint16_t half = FloatToHalf(weights.back()[i]);
        weights.back()[i] = HalfToFloat(half);
        const size_t neuron = i / (3 * kHidden), at = i % (3 * kHidden);
        std::memcpy(&bytes.back()[neuron * static_cast<size_t>(shape.layout.stride) + 2 * at],
                    &half, sizeof(half));
      }
    }
  }
  const float* Row(int64_t ffn, int64_t neuron, int64_t part) const {
    return weights[static_cast<size_t>(ffn)].data() + (3 * neuron + part) * kHidden;
  }

  const DeviceFfnShape shape;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::vector<float>> weights;  // [neurons][gate, up, down][hidden]
};

double Dot(const float* a, const float* b) {
  double sum = 0;
  for (int64_t i = 0; i < kHidden; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

// What listed neurons add to a token: a ReLU FFN in doubles.
std::vector<double> WhatIsAdded(const TestFfns& ffns, int64_t ffn, const float* x,
                                std::span<const int32_t> listed) {
  std::vector<double> out(kHidden);
  for (const int32_t neuron : listed) {
    const double gate = Dot(ffns.Row(ffn, neuron, 0), x);
    const double up = ffns.shape.layout.up < 0 ? 1 : Dot(ffns.Row(ffn, neuron, 1), x);
    const double factor = std::max(gate, 0.0) * up;
    for (size_t c = 0; c < out.size(); ++c) {
      out[c] += factor * double{ffns.Row(ffn, neuron, 2)[c]};
    }
  }
  return out;
}

void ExpectNear(const std::vector<double>& expected, const float* found) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t c = 0; c < expected.size(); ++c) {
    ASSERT_NEAR(found[c], expected[c], 1e-4 * largest + 1e-6) << "column " << c;
  }
}

constexpr DeviceActivation kRelu = {FfnActivation::kRelu, 0, true, 0, INFINITY, -INFINITY};

TEST(DeviceFfns, AddWhatListedNeuronsDo) {
  HEARTH_NEED_DEVICE();
  for (const int64_t neurons : {1, 19, 70}) {
    for (const bool is_gated : {true, false}) {
      SCOPED_TRACE(::testing::Message() << neurons << " neurons, gated " << is_gated);
      const TestFfns ffns(ShapeOf(neurons, 3, is_gated));
      DeviceFfns device(testing::TestDevice(), ffns.shape);
      for (int64_t ffn = 0; ffn < 2; ++ffn) {
        const std::span<const std::byte> all = ffns.bytes[static_cast<size_t>(ffn)];
        const auto half = static_cast<size_t>(neurons / 2 * ffns.shape.layout.stride);
        if (half > 0) device.Fill(ffn, 0, all.first(half));
        device.Fill(ffn, neurons / 2, all.subspan(half));
      }
      std::vector<int32_t> everyone, lists, counts;
      for (int32_t i = 0; i < neurons; ++i) everyone.push_back(i);
      for (int64_t token = 0; token < 3; ++token) {  // each another list, one of them empty
        const size_t begin = lists.size();
        for (int32_t i = 0; i < neurons; ++i) {
          if (token > 0 && i % (token + 1) == 0) lists.push_back(i);
        }
        counts.push_back(static_cast<int32_t>(lists.size() - begin));
        lists.resize(begin + static_cast<size_t>(neurons));
      }
      std::vector<float> x = RandomFloats(3 * kHidden, 9), out(3 * kHidden);
      const FloatView x_view = {x.data(), 3, kHidden, kHidden};
      const FloatView out_view = {out.data(), 3, kHidden, kHidden};
      for (int64_t ffn = 0; ffn < 2; ++ffn) {
        device.Launch({ffn, kRelu, x_view, lists, counts, out_view, {}, {}});
        device.Wait();
        for (int64_t t = 0; t < 3; ++t) {
          const auto token = static_cast<size_t>(t);
          ExpectNear(WhatIsAdded(ffns, ffn, x.data() + t * kHidden,
                                 std::span(lists).subspan(token * static_cast<size_t>(neurons),
                                                          static_cast<size_t>(counts[token]))),
                     out.data() + t * kHidden);
        }
        // All of them, and what they fire.
        std::vector<float> gates(static_cast<size_t>(2 * neurons)), factors(gates.size());
        device.Launch({ffn, kRelu, x_view.Rows(1, 2), {}, {}, out_view.Rows(1, 2), gates, factors});
        device.Wait();
        for (int64_t t = 1; t < 3; ++t) {
          ExpectNear(WhatIsAdded(ffns, ffn, x.data() + t * kHidden, everyone),
                     out.data() + t * kHidden);
        }
        for (size_t i = 0; i < gates.size(); ++i) {
          const int64_t t = 1 + static_cast<int64_t>(i) / neurons;
          const double gate =
              Dot(ffns.Row(ffn, static_cast<int64_t>(i) % neurons, 0), x.data() + t * kHidden);
          ASSERT_NEAR(gates[i], gate, 1e-3);
          ASSERT_EQ(factors[i] == 0, gates[i] <= 0);
        }
      }
    }
  }
}

// The shape says how many neurons each FFN has; an FFN without any has no buffer.
TEST(DeviceFfns, FfnsMayDiffer) {
  HEARTH_NEED_DEVICE();
  const TestFfns ffns(ShapeOf(19, 3, true));
  DeviceFfnShape shape = ffns.shape;
  shape.neurons = {7, 19, 0};
  EXPECT_EQ(DeviceFfns::NeuronBytes(shape), static_cast<uint64_t>(26 * shape.layout.stride));
  DeviceFfns device(testing::TestDevice(), shape);
  std::vector<float> x = RandomFloats(3 * kHidden, 9), out(3 * kHidden);
  const FloatView x_view = {x.data(), 3, kHidden, kHidden};
  const FloatView out_view = {out.data(), 3, kHidden, kHidden};
  for (const int64_t ffn : {0, 1}) {
    const int64_t neurons = shape.neurons[static_cast<size_t>(ffn)];
    device.Fill(ffn, 0,
                std::span(ffns.bytes[static_cast<size_t>(ffn)])
                    .first(static_cast<size_t>(neurons * shape.layout.stride)));
    std::vector<int32_t> everyone(static_cast<size_t>(neurons));
    std::iota(everyone.begin(), everyone.end(), 0);
    const int64_t before = device.neurons_computed();
    device.Launch({ffn, kRelu, x_view, {}, {}, out_view, {}, {}});
    device.Wait();
    EXPECT_EQ(device.neurons_computed() - before, 3 * neurons);
    for (int64_t t = 0; t < 3; ++t) {
      ExpectNear(WhatIsAdded(ffns, ffn, x.data() + t * kHidden, everyone),
                 out.data() + t * kHidden);
    }
    // Lists lie `neurons` apart.
    std::vector<int32_t> lists(static_cast<size_t>(3 * neurons)), counts = {1, 0, 2};
    lists[0] = 3;
    lists[static_cast<size_t>(2 * neurons)] = 2;
    lists[static_cast<size_t>(2 * neurons) + 1] = 6;
    device.Launch({ffn, kRelu, x_view, lists, counts, out_view, {}, {}});
    device.Wait();
    const std::vector<std::vector<int32_t>> expected = {{3}, {}, {2, 6}};
    for (int64_t t = 0; t < 3; ++t) {
      ExpectNear(WhatIsAdded(ffns, ffn, x.data() + t * kHidden, expected[static_cast<size_t>(t)]),
                 out.data() + t * kHidden);
    }
  }
  EXPECT_THROW(device.Launch({2, kRelu, x_view, {}, {}, out_view, {}, {}}), Error);
}

TEST(DeviceFfns, ChargesWhatItSays) {
  HEARTH_NEED_DEVICE();
  const DeviceFfnShape shape = ShapeOf(33, 5, true);
  Budget& memory = testing::TestDevice().memory();
  const uint64_t before = memory.used_bytes();
  {
    const DeviceFfns device(testing::TestDevice(), shape);
    EXPECT_EQ(memory.Ledger().at("neurons"), DeviceFfns::NeuronBytes(shape));
    EXPECT_EQ(DeviceFfns::NeuronBytes(shape), uint64_t{2 * 33} * (6 * kHidden + 32));
    EXPECT_EQ(memory.used_bytes() - before,
              DeviceFfns::NeuronBytes(shape) + DeviceFfns::ScratchBytes(shape));
  }
  EXPECT_EQ(memory.used_bytes(), before);
  // MostNeurons says how many fit into some memory.
  constexpr uint64_t kNoLimit = uint64_t{1} << 40;
  const uint64_t bytes = DeviceFfns::NeuronBytes(shape) + DeviceFfns::ScratchBytes(shape);
  EXPECT_EQ(DeviceFfns::MostNeurons(shape, 1000, bytes, kNoLimit), 33);
  EXPECT_EQ(DeviceFfns::MostNeurons(shape, 1000, bytes - 1, kNoLimit), 32);
  EXPECT_EQ(DeviceFfns::MostNeurons(shape, 20, bytes, kNoLimit), 20);
  EXPECT_EQ(DeviceFfns::MostNeurons(shape, 1000, 0, kNoLimit), 0);
  const auto stride = static_cast<uint64_t>(shape.layout.stride);
  EXPECT_EQ(DeviceFfns::MostNeurons(shape, 1000, bytes, 7 * stride + 1), 7);
}

TEST(DeviceFfns, RefusesWhatDoesNotFit) {
  HEARTH_NEED_DEVICE();
  DeviceFfns device(testing::TestDevice(), ShapeOf(4, 2, true));
  std::vector<float> x(3 * (kHidden + 16)), out(3 * kHidden);
  const FloatView out_view = {out.data(), 3, kHidden, kHidden};
  const auto launch = [&](const FloatView& from, const FloatView& to) {
    device.Launch({0, kRelu, from, {}, {}, to, {}, {}});
  };
  EXPECT_THROW(launch({x.data(), 3, kHidden, kHidden}, out_view), Error);  // 3 of at most 2
  EXPECT_THROW(launch({x.data(), 2, kHidden + 16, kHidden + 16}, out_view.Rows(0, 2)), Error);
  EXPECT_THROW(launch({x.data(), 2, kHidden, kHidden}, out_view.Rows(0, 1)), Error);
  DeviceFfnShape other = ShapeOf(4, 2, true);
  other.layout.up_type = DType::kQ6_K;
  EXPECT_THROW(DeviceFfns(testing::TestDevice(), other), Error);
}

TEST(DeviceFfns, WorkGoesOnAfterAnError) {
  HEARTH_NEED_DEVICE();
  testing::DeviceFaults faults;
  testing::FaultyDevice lossy(
      OpenDevice(testing::TestDeviceIndex(), {.cache_folder = testing::TestProgramsFolder()}),
      faults);
  DeviceFfns device(lossy, ShapeOf(4, 2, true));
  std::vector<float> x(kHidden), out(kHidden, 1);
  const FloatView x_view = {x.data(), 1, kHidden, kHidden},
                  out_view = {out.data(), 1, kHidden, kHidden};
  faults.marks_left = 0;
  EXPECT_THROW(device.Launch({0, kRelu, x_view, {}, {}, out_view, {}, {}}), Error);
  device.Abandon();
  device.Wait();  // for nothing
  faults.marks_left = 1;
  device.Launch({0, kRelu, x_view, {}, {}, out_view, {}, {}});
  device.Wait();
  EXPECT_EQ(out, std::vector<float>(kHidden));
}

// Every command once, in order, while the host waited.
TEST(DeviceFfns, TimesItsCommands) {
  HEARTH_NEED_DEVICE();
  DeviceFfns device(testing::TestDevice(), ShapeOf(40, 1, true));
  DeviceTrace trace;
  device.Trace(trace);
  std::vector<float> x(kHidden), out(kHidden);
  const double begin = DeviceTrace::Now();
  device.Launch({1,
                 kRelu,
                 {x.data(), 1, kHidden, kHidden},
                 {},
                 {},
                 {out.data(), 1, kHidden, kHidden},
                 {},
                 {}});
  device.Wait();
  const double end = DeviceTrace::Now();
  std::vector<std::string> names;
  double last = begin;
  for (const TraceSpan& span : trace.spans()) {
    names.push_back(span.what);
    EXPECT_EQ(span.ffn, 1);
    EXPECT_EQ(span.side, TraceSide::kDevice);
    EXPECT_LE(span.begin_seconds, span.end_seconds);
    // Two clocks are compared by when a command was sent.
    EXPECT_GT(span.begin_seconds, last - 1e-3);
    EXPECT_LT(span.end_seconds, end + 1e-3);
    last = span.begin_seconds;
  }
  EXPECT_THAT(names, ::testing::ElementsAre("upload", "neuron_gates", "neuron_factors",
                                            "neuron_down", "merge_slices", "download"));
}

}  // namespace
}  // namespace hearth::accel
