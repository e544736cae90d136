#include "accel/neuron_kernels.h"

#include <gmock/gmock.h>

#include <numeric>

#include "accel/test_device.h"
#include "base/error.h"
#include "kernels/dequantize.h"
#include "kernels/row_pack.h"
#include "kernels/tables.h"
#include "tensor/row_groups.h"

namespace hearth::accel {
namespace {

using testing::RandomFloats;
using testing::SumTolerance;
using testing::TestBench;

// Random rows as bundles have them, a bias of four bytes after each, and what they mean.
struct TestRows {
  std::vector<std::byte> bytes;
  std::vector<float> weights;  // [neurons][hidden]
  std::vector<float> biases;
  int64_t row_bytes = 0;
  int64_t stride = 0;

  TestRows(DType type, int64_t neurons, int64_t hidden, unsigned seed) {
    const auto k = static_cast<size_t>(hidden);
    const auto n = static_cast<size_t>(neurons);
    row_bytes = HasRowGroups(type) ? RowGroupsOf(type, hidden).bytes
                                   : static_cast<int64_t>(RowBytes(type, k));
    stride = row_bytes + 4;
    bytes.resize(n * static_cast<size_t>(stride));
    weights = RandomFloats(n * k, seed);
    biases = RandomFloats(n, seed + 1);
    std::vector<std::byte> blocks(RowBytes(type, k));
    for (size_t i = 0; i < n; ++i) {
      float* row = weights.data() + i * k;
      std::byte* at = bytes.data() + i * static_cast<size_t>(stride);
      kernels::Quantize(type, row, hidden, blocks.data());
      kernels::Dequantize(type, blocks.data(), hidden, row);
      if (HasRowGroups(type)) {
        kernels::PackRow(type, blocks.data(), hidden, at);
      } else {
        std::memcpy(at, blocks.data(), blocks.size());
      }
      std::memcpy(at + row_bytes, &biases[i], sizeof(float));
    }
  }

  DeviceRows On(TestBench& bench, bool with_biases) const {
    return {&bench.Put(bytes), 0, stride, with_biases ? row_bytes : -1,
            static_cast<int64_t>(biases.size())};
  }
};

struct FfnCase {
  DType type = DType::kF16;
  int64_t neurons = 1;
  int64_t hidden = 32;
  int64_t tokens = 1;
  bool is_gated = true;
  bool with_biases = false;
  bool own_lists = true;  // a list per token; else all neurons
  FfnActivation activation = FfnActivation::kRelu;
};

// A number and how far from it a result may be.
struct Expected {
  double value = 0;
  double slack = 0;
};

class FfnOnDevice {
 public:
  explicit FfnOnDevice(const FfnCase& c)
      : case_(c),
        gate_(c.type, c.neurons, c.hidden, 1),
        up_(c.type, c.neurons, c.hidden, 3),
        down_(c.type, c.neurons, c.hidden, 5),
        x_(RandomFloats(static_cast<size_t>(c.tokens * c.hidden), 7)) {
    std::mt19937 random(static_cast<unsigned>(c.neurons));
    for (int64_t t = 0; t < (c.own_lists ? c.tokens : 1); ++t) {
      counts_.push_back(0);
      for (int32_t n = 0; n < c.neurons; ++n) {
        if (!c.own_lists || random() % 3 != 0) lists_.push_back(n), ++counts_.back();
      }
      lists_.resize(static_cast<size_t>((t + 1) * c.neurons), 0);
    }
  }

  void Run() {
    TestBench bench;
    NeuronKernels kernels(bench.device(), case_.type);
    const auto places = static_cast<size_t>(case_.tokens * case_.neurons);
    const auto outs = static_cast<size_t>(case_.tokens * case_.hidden);
    DeviceBuffer& gates = bench.Room(places);
    DeviceBuffer& factors = bench.Room(places);
    DeviceBuffer& out = bench.Room(outs);
    DeviceBuffer& partial = bench.Room(outs * NeuronKernels::kSlices);
    const DeviceLists lists = {&bench.Put(lists_), &bench.Put(counts_),
                               case_.own_lists ? case_.neurons : 0, case_.neurons};
    const DeviceTokens tokens = {&bench.Put(x_), case_.tokens, case_.hidden};
    const DeviceRows up = up_.On(bench, case_.with_biases);
    const DeviceRows down = down_.On(bench, false);
    kernels.Gates(bench.queue(), gate_.On(bench, case_.with_biases), lists, tokens, gates);
    const bool skips = case_.activation == FfnActivation::kRelu;
    kernels.MakeFactors(bench.queue(),
                        {case_.is_gated ? &up : nullptr,
                         {case_.activation, 0.3f, skips, 0.0f, INFINITY, -INFINITY},
                         &gates,
                         &factors},
                        lists, tokens);
    kernels.AddDown(bench.queue(), {&down, &factors, &partial, &out}, lists, case_.tokens,
                    case_.hidden);
    found_gates_ = bench.Floats(gates, places);
    found_factors_ = bench.Floats(factors, places);
    found_out_ = bench.Floats(out, outs);
  }

  void Check() const {
    for (int64_t t = 0; t < case_.tokens; ++t) CheckToken(t);
  }
  const std::vector<float>& out() const { return found_out_; }

 private:
  Expected RowDot(const TestRows& rows, int32_t neuron, int64_t token) const {
    double sum = 0, magnitude = 0;
    for (int64_t i = 0; i < case_.hidden; ++i) {
      const double product = double{rows.weights[static_cast<size_t>(neuron * case_.hidden + i)]} *
                             static_cast<double>(x_[static_cast<size_t>(token * case_.hidden + i)]);
      sum += product;
      magnitude += std::abs(product);
    }
    if (case_.with_biases) sum += static_cast<double>(rows.biases[static_cast<size_t>(neuron)]);
    return {sum, SumTolerance(static_cast<size_t>(case_.hidden), magnitude + std::abs(sum))};
  }

  // Each step is judged by what the device had from the one before.
  void CheckToken(int64_t t) const {
    const auto list = static_cast<size_t>(case_.own_lists ? t : 0);
    const auto n = static_cast<size_t>(case_.neurons);
    std::vector<double> sums(static_cast<size_t>(case_.hidden)), slack(sums.size());
    for (size_t i = 0; i < static_cast<size_t>(counts_[list]); ++i) {
      const int32_t neuron = lists_[list * n + i];
      const float gate = found_gates_[static_cast<size_t>(t) * n + i];
      const float factor = found_factors_[static_cast<size_t>(t) * n + i];
      const Expected of_gate = RowDot(gate_, neuron, t);
      ASSERT_NEAR(gate, of_gate.value, of_gate.slack) << "token " << t << " neuron " << neuron;
      const Expected up = case_.is_gated ? RowDot(up_, neuron, t) : Expected{1, 0};
      const float rounded = static_cast<float>(up.value);
      float expected = 0;
      kernels::kScalarKernels.ffn_activation[static_cast<size_t>(case_.activation)](
          &gate, &rounded, 1, 0.3f, &expected);
      const double room = std::abs(static_cast<double>(gate)) * up.slack +
                          64 * 0x1p-24 * std::abs(static_cast<double>(gate) * up.value);
      ASSERT_NEAR(factor, expected, room) << "token " << t << " neuron " << neuron;
      for (size_t c = 0; c < sums.size(); ++c) {
        const double product = static_cast<double>(factor) *
                               down_.weights[static_cast<size_t>(neuron) * sums.size() + c];
        sums[c] += product;
        slack[c] += std::abs(product);
      }
    }
    for (size_t c = 0; c < sums.size(); ++c) {
      ASSERT_NEAR(found_out_[static_cast<size_t>(t) * sums.size() + c], sums[c],
                  SumTolerance(n, slack[c]))
          << "token " << t << " column " << c;
    }
  }

  const FfnCase case_;
  const TestRows gate_, up_, down_;
  const std::vector<float> x_;
  std::vector<int32_t> lists_, counts_;
  std::vector<float> found_gates_, found_factors_, found_out_;
};

constexpr DType kNeuronTypes[] = {DType::kF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

TEST(NeuronKernels, AgreeWithTheOracle) {
  HEARTH_NEED_DEVICE();
  for (const DType type : kNeuronTypes) {
    ASSERT_TRUE(NeuronKernels::Has(type));
    for (const int64_t hidden : {32, 96, 544, 1056}) {
      SCOPED_TRACE(::testing::Message() << NameOf(type) << " hidden " << hidden);
      for (const FfnCase& c :
           {FfnCase{type, 1, hidden, 1}, FfnCase{type, 37, hidden, 3, true, true},
            FfnCase{type, 19, hidden, 2, false, true, false},
            FfnCase{type, 23, hidden, 1, true, false, false}}) {
        FfnOnDevice ffn(c);
        ffn.Run();
        ffn.Check();
      }
    }
  }
}

TEST(NeuronKernels, KnowAllActivations) {
  HEARTH_NEED_DEVICE();
  for (int kind = 0; kind < kNumFfnActivations; ++kind) {
    SCOPED_TRACE(::testing::Message() << "activation " << kind);
    FfnCase c = {DType::kF16, 33, 64, 2};
    c.activation = static_cast<FfnActivation>(kind);
    FfnOnDevice ffn(c);
    ffn.Run();
    ffn.Check();
  }
}

TEST(NeuronKernels, RefuseRowsThatEndInsideABlock) {
  HEARTH_NEED_DEVICE();
  TestBench bench;
  NeuronKernels kernels(bench.device(), DType::kF16);
  DeviceBuffer& room = bench.Room(1024);
  const DeviceRows rows = {&room, 0, 72, -1, 1};
  const DeviceLists lists = {&room, &room, 0, 1};
  EXPECT_THROW(kernels.Gates(bench.queue(), rows, lists, {&room, 1, 36}, room), Error);
  EXPECT_THROW(kernels.AddDown(bench.queue(), {&rows, &room, &room, &room}, lists, 1, 36), Error);
}

TEST(NeuronKernels, GiveTheSameBitsEveryTime) {
  HEARTH_NEED_DEVICE();
  FfnOnDevice ffn({DType::kQ4_0, 50, 544, 2});
  ffn.Run();
  const std::vector<float> first = ffn.out();
  for (int i = 0; i < 3; ++i) {
    ffn.Run();
    EXPECT_EQ(ffn.out(), first);
  }
}

}  // namespace
}  // namespace hearth::accel
