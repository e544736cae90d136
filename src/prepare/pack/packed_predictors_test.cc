#include "prepare/pack/packed_predictors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "prepare/pack/test_pack_models.h"
#include "sparsity/predictor.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

std::vector<float> RandomFloats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// Predictors of these ranks, one per FFN.
std::vector<MadePredictor> Make(const std::vector<int64_t>& ranks, int64_t hidden,
                                int64_t neurons) {
  std::vector<MadePredictor> all;
  std::mt19937 random(11);
  for (const int64_t rank : ranks) {
    MadePredictor made{.rank = rank, .threshold = static_cast<float>(all.size()) - 1.5f};
    made.down = RandomFloats(static_cast<size_t>(rank * hidden), random);
    made.up = RandomFloats(static_cast<size_t>(rank * neurons), random);
    if (rank > 0) made.bias = RandomFloats(static_cast<size_t>(neurons), random);
    all.push_back(std::move(made));
  }
  return all;
}

PredictorSet SetOf(const std::vector<MadePredictor>& all, DType dtype) {
  PredictorSet set;
  set.input = PredictorInput::kResidual;
  set.relu = true;
  set.dtype = dtype;
  for (const MadePredictor& made : all) set.ffns.push_back(QuantizePredictor(made, dtype));
  return set;
}

class PackedPredictorsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 96, kNeurons = 160;

  // Packs a model of 2 layers with `set`, neurons moved by a profile.
  GgufFile Pack(const char* more, const PredictorSet& set) {
    MakeModel(folder_.Path("m"), ShapeText(kHidden, kNeurons, more), DType::kF16);
    const GgufFile source = GgufFile::Open(folder_.Path("m"));
    profile_ = MakeProfile(source);
    const PackResult result = PackModel(
        source, {.profile = &profile_, .predictors = &set, .threads = 2}, folder_.Path("p"));
    GgufFile packed = GgufFile::Open(folder_.Path("p"));
    CheckPackedFile(packed);
    uint64_t bytes = 0;
    for (const GgufTensor& tensor : packed.tensors()) {
      if (tensor.name.find(".predictor.") != std::string::npos) bytes += tensor.bytes;
    }
    EXPECT_EQ(result.predictor_bytes, bytes);
    return packed;
  }

  // Floats of one row, as stored.
  static std::vector<float> Row(const GgufFile& file, const GgufTensor& tensor, uint64_t row) {
    const uint64_t bytes = RowBytes(tensor.dtype, tensor.ne[0]);
    std::vector<std::byte> stored(bytes);
    file.ReadTensor(tensor, row * bytes, stored);
    std::vector<float> out(tensor.ne[0]);
    kernels::Dequantize(tensor.dtype, stored.data(), static_cast<int64_t>(out.size()), out.data());
    return out;
  }

  static std::vector<float> Stored(DType dtype, std::span<const float> row, size_t size) {
    std::vector<float> padded(row.begin(), row.end());
    padded.resize(size);
    std::vector<std::byte> blocks(RowBytes(dtype, size));
    kernels::Quantize(dtype, padded.data(), static_cast<int64_t>(size), blocks.data());
    kernels::Dequantize(dtype, blocks.data(), static_cast<int64_t>(size), padded.data());
    return padded;
  }

  static void ExpectPredictor(const GgufFile& file, int64_t layer, uint64_t expert,
                              const MadePredictor& made, DType dtype) {
    const GgufTensor& down = file.GetTensor(PredictorTensorName(layer, "down"));
    const GgufTensor& up = file.GetTensor(PredictorTensorName(layer, "up"));
    const GgufTensor& bias = file.GetTensor(PredictorTensorName(layer, "bias"));
    const auto order = ReadValues<int32_t>(file, BundleOrderName(layer));
    const uint64_t rank = down.ne[1];
    for (uint64_t r = 0; r < rank; ++r) {
      const std::span<const float> row = r < static_cast<uint64_t>(made.rank)
                                             ? std::span(made.down).subspan(r * kHidden, kHidden)
                                             : std::span<const float>();
      EXPECT_EQ(Row(file, down, expert * rank + r), Stored(dtype, row, kHidden));
    }
    const std::vector<float> biases = Row(file, bias, expert);
    for (uint64_t slot = 0; slot < kNeurons; ++slot) {
      const auto neuron = static_cast<size_t>(order[expert * kNeurons + slot]);
      const auto cols = static_cast<size_t>(made.rank);
      const auto row = std::span(made.up).subspan(neuron * cols, cols);
      EXPECT_EQ(Row(file, up, expert * kNeurons + slot), Stored(dtype, row, rank));
      EXPECT_EQ(biases[slot], made.rank > 0 ? made.bias[neuron] : 0.0f);
    }
  }

  TestFolder folder_{"hearth_packed_predictors"};
  ModelProfile profile_;
};

TEST_F(PackedPredictorsTest, DenseLayersHaveTheirsOrNone) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kF16, DType::kF32}) {
    const std::vector<MadePredictor> made = Make({0, 64}, kHidden, kNeurons);
    const GgufFile packed = Pack(kDenseShape, SetOf(made, dtype));
    const auto spec = ReadPredictorSpec(packed, ReadModelSpec(packed));
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->input, PredictorInput::kResidual);
    EXPECT_TRUE(spec->relu);
    EXPECT_EQ(spec->ranks, (std::vector<int64_t>{0, 64}));
    EXPECT_EQ(spec->thresholds[1], -0.5f);
    EXPECT_EQ(packed.FindTensorOrNull(PredictorTensorName(0, "up")), nullptr);
    ExpectPredictor(packed, 1, 0, made[1], dtype);
  }
}

TEST_F(PackedPredictorsTest, ExpertsShareTheLargestRankOfTheirLayer) {
  const std::vector<MadePredictor> made = Make({32, 0, 96, 0, 0, 0}, kHidden, kNeurons);
  const GgufFile packed = Pack(kExpertShape, SetOf(made, DType::kQ8_0));
  const auto spec = ReadPredictorSpec(packed, ReadModelSpec(packed));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->ranks, (std::vector<int64_t>{96, 0}));
  for (uint64_t e = 0; e < 3; ++e) ExpectPredictor(packed, 0, e, made[e], DType::kQ8_0);
  EXPECT_EQ(spec->thresholds[0], -1.5f);
  EXPECT_EQ(spec->thresholds[2], 0.5f);
  // Zeros stay above it: an expert without a predictor computes every neuron.
  EXPECT_LT(spec->thresholds[1], -1e38f);
}

TEST_F(PackedPredictorsTest, SetsOfOtherModelsAreRefused) {
  MakeModel(folder_.Path("m"), ShapeText(kHidden, kNeurons, kDenseShape), DType::kF16);
  const GgufFile source = GgufFile::Open(folder_.Path("m"));
  const PredictorSet good = SetOf(Make({32, 64}, kHidden, kNeurons), DType::kQ8_0);
  const auto refusal = [&](const std::function<void(PredictorSet&)>& change) {
    PredictorSet bad = good;
    change(bad);
    try {
      PackModel(source, {.predictors = &bad}, folder_.Path("p"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns.pop_back(); }), HasSubstr("count"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.dtype = DType::kQ6_K; }), HasSubstr("Q6_K"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns[1].rank = 48; }),
              HasSubstr("predictor 1: rank"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns[1].rank = -32; }), HasSubstr("rank"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns[1].rank = 192; }), HasSubstr("rank"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns[0].down.pop_back(); }), HasSubstr("down"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns[0].up.pop_back(); }), HasSubstr("of up"));
  EXPECT_THAT(refusal([](PredictorSet& s) { s.ffns[0].bias.clear(); }), HasSubstr("biases"));
  EXPECT_THAT(refusal([](PredictorSet& s) {
                s.ffns[0].threshold = std::numeric_limits<float>::infinity();
              }),
              HasSubstr("threshold"));
  EXPECT_EQ(refusal([](PredictorSet&) {}), "accepted");
}

}  // namespace
}  // namespace hearth
