#include "accel/device_predictors.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "accel/test_device.h"
#include "base/error.h"
#include "tensor/half.h"

namespace hearth::accel {
namespace {

using testing::RandomFloats;

struct Sizes {
  int64_t hidden, rank, neurons;
};

// Rounded to binary16.
std::vector<float> RandomHalves(int64_t count, unsigned seed) {
  std::vector<float> values = RandomFloats(static_cast<size_t>(count), seed);
  for (float& value : values) value = HalfToFloat(FloatToHalf(value));
  return values;
}

std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(FloatToHalf(value));
  return halves;
}

// Layer 1 of 2 has a predictor on the device.
class TestPredictor {
 public:
  TestPredictor(const Sizes& sizes, bool relu, int64_t max_tokens)
      : sizes_(sizes),
        relu_(relu),
        down_(RandomHalves(sizes.rank * sizes.hidden, 1)),
        up_(RandomHalves(sizes.neurons * sizes.rank, 2)),
        bias_(RandomFloats(static_cast<size_t>(sizes.neurons), 3)),
        matrices_(testing::TestDevice(),
                  {.matrices = {{.type = DType::kF16, .rows = sizes.rank, .columns = sizes.hidden},
                                {.type = DType::kF16,
                                 .rows = sizes.neurons,
                                 .columns = sizes.rank,
                                 .has_bias = true}}}),
        predictors_(matrices_, {sizes.hidden, sizes.rank, sizes.neurons, max_tokens},
                    {{}, {matrices_.At(0), matrices_.At(1), relu}}) {
    const std::vector<uint16_t> down = Halves(down_), up = Halves(up_);
    matrices_.Fill(0, 0, std::as_bytes(std::span(down)));
    matrices_.Fill(1, 0, std::as_bytes(std::span(up)));
    matrices_.FillBias(1, 0, bias_);
  }

  DevicePredictors& predictors() { return predictors_; }

  // In doubles.
  double Logit(const float* input, int64_t neuron) const {
    double logit = bias_[static_cast<size_t>(neuron)];
    for (int64_t r = 0; r < sizes_.rank; ++r) {
      double inner = 0;
      for (int64_t c = 0; c < sizes_.hidden; ++c) {
        inner += double{down_[static_cast<size_t>(r * sizes_.hidden + c)]} * double{input[c]};
      }
      if (relu_) inner = std::max(inner, 0.0);
      logit += double{up_[static_cast<size_t>(neuron * sizes_.rank + r)]} * inner;
    }
    return logit;
  }

 private:
  const Sizes sizes_;
  const bool relu_;
  const std::vector<float> down_, up_, bias_;
  DeviceMatrices matrices_;
  DevicePredictors predictors_;
};

// Rows that lie apart.
FloatView Apart(std::vector<float>& values, int64_t rows, int64_t columns) {
  return {values.data(), rows, columns, columns + 3};
}

TEST(DevicePredictors, LogitsAreThoseOfTheFormula) {
  HEARTH_NEED_DEVICE();
  for (const bool relu : {false, true}) {
    for (const Sizes& sizes : {Sizes{64, 8, 40}, Sizes{96, 33, 257}, Sizes{31, 1, 1}}) {
      TestPredictor predictor(sizes, relu, 4);
      EXPECT_FALSE(predictor.predictors().Has(0));
      ASSERT_TRUE(predictor.predictors().Has(1));
      EXPECT_EQ(predictor.predictors().neurons(1), sizes.neurons);
      for (const int64_t tokens : {1, 3, 4, 11}) {
        std::vector<float> inputs =
            RandomFloats(static_cast<size_t>(tokens * (sizes.hidden + 3)), 7);
        std::vector<float> logits(static_cast<size_t>(tokens * sizes.neurons), -1e9f);
        const FloatView x = Apart(inputs, tokens, sizes.hidden);
        const FloatView out{logits.data(), tokens, sizes.neurons, sizes.neurons};
        predictor.predictors().Ask(1, x, out);
        for (int64_t t = 0; t < tokens; ++t) {
          std::vector<float> alone(static_cast<size_t>(sizes.neurons));
          predictor.predictors().Ask(1, x.Rows(t, 1),
                                     {alone.data(), 1, sizes.neurons, sizes.neurons});
          for (int64_t n = 0; n < sizes.neurons; ++n) {
            const double expected = predictor.Logit(x.row(t), n);
            ASSERT_NEAR(out.row(t)[n], expected,
                        1e-5 * static_cast<double>(sizes.hidden * sizes.rank) + 1e-5)
                << t << " " << n;
            ASSERT_EQ(out.row(t)[n], alone[static_cast<size_t>(n)])
                << "other tokens change nothing";
          }
        }
      }
      EXPECT_EQ(predictor.predictors().tokens_asked(), 2 * (1 + 3 + 4 + 11));
    }
  }
}

TEST(DevicePredictors, ChargeWhatTheySay) {
  HEARTH_NEED_DEVICE();
  const Budget& memory = testing::TestDevice().memory();
  const uint64_t before = memory.used_bytes();
  const DevicePredictorsShape shape = {64, 8, 40, 4};
  DeviceMatrices matrices(testing::TestDevice(),
                          {.matrices = {{.type = DType::kF16, .rows = 8, .columns = 64}}});
  const uint64_t with_matrices = memory.used_bytes();
  {
    const DevicePredictors predictors(matrices, shape, {});
    EXPECT_EQ(memory.used_bytes() - with_matrices, DevicePredictors::ScratchBytes(shape));
    EXPECT_EQ(memory.Ledger().at("predictors"), DevicePredictors::ScratchBytes(shape));
  }
  EXPECT_EQ(DevicePredictors::ScratchBytes({}), 0u);
  EXPECT_GT(with_matrices, before);
}

TEST(DevicePredictors, OtherSizesAreRefused) {
  HEARTH_NEED_DEVICE();
  TestPredictor predictor({64, 8, 40}, true, 4);
  std::vector<float> memory(1000);
  const auto ask = [&](int64_t tokens, int64_t hidden, int64_t rows, int64_t neurons) {
    predictor.predictors().Ask(1, {memory.data(), tokens, hidden, hidden},
                               {memory.data() + 500, rows, neurons, neurons});
  };
  ask(2, 64, 2, 40);
  EXPECT_THROW(ask(2, 63, 2, 40), Error);
  EXPECT_THROW(ask(2, 64, 2, 41), Error);
  EXPECT_THROW(ask(2, 64, 1, 40), Error);
}

}  // namespace
}  // namespace hearth::accel
