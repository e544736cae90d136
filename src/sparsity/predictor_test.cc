#include "sparsity/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/error.h"
#include "format/test_gguf_bytes.h"

namespace hearth {
namespace {

constexpr int64_t kHidden = 64;
constexpr int64_t kNeurons = 96;
constexpr int64_t kRank = 32;

ModelSpec MakeModel(int64_t layers, int64_t experts) {
  ModelSpec model;
  model.hidden_size = kHidden;
  model.num_layers = layers;
  model.layers.resize(static_cast<size_t>(layers));
  for (LayerSpec& layer : model.layers) {
    layer.ffn.intermediate_size = kNeurons;
    layer.ffn.num_experts = experts;
  }
  return model;
}

// What a file says; tests change one thing of it.
struct Contents {
  std::string input = "ffn_input";
  bool has_input = true;
  bool has_relu = true;
  bool has_thresholds = true;
  std::vector<float> thresholds;
  std::map<std::string, std::vector<uint64_t>> tensors;
  DType dtype = DType::kQ8_0;
  DType bias_dtype = DType::kF32;
};

// Predictors for layers 0 and 2 of three.
Contents RightContents(uint64_t experts) {
  Contents c;
  const uint64_t e = std::max<uint64_t>(experts, 1);
  c.thresholds.assign(3 * e, 0.5f);
  for (const int layer : {0, 2}) {
    auto with_experts = [&](std::vector<uint64_t> ne) {
      if (experts > 0) ne.push_back(experts);
      return ne;
    };
    c.tensors[PredictorTensorName(layer, "down")] = with_experts({kHidden, kRank});
    c.tensors[PredictorTensorName(layer, "up")] = with_experts({kRank, kNeurons});
    c.tensors[PredictorTensorName(layer, "bias")] = with_experts({kNeurons});
  }
  return c;
}

GgufFile MakeFile(const Contents& c) {
  GgufTestBytes bytes;
  bytes.Header(c.tensors.size(), static_cast<uint64_t>(c.has_input) +
                                     static_cast<uint64_t>(c.has_relu) +
                                     static_cast<uint64_t>(c.has_thresholds));
  if (c.has_input) bytes.Str(kPredictorInputKey).Type(GgufType::kString).Str(c.input);
  if (c.has_relu) bytes.Str(kPredictorReluKey).Type(GgufType::kBool).U8(1);
  if (c.has_thresholds) {
    bytes.Str(kPredictorThresholdKey).Type(GgufType::kArray).Type(GgufType::kFloat32);
    bytes.U64(c.thresholds.size());
    for (const float t : c.thresholds) bytes.Put(t);
  }
  uint64_t offset = 0;
  for (const auto& [name, ne] : c.tensors) {
    const DType dtype = name.ends_with("bias") ? c.bias_dtype : c.dtype;
    bytes.Tensor(name, ne, InfoOf(dtype).gguf_id, offset);
    uint64_t weights = 1;
    for (const uint64_t n : ne) weights *= n;
    offset += (RowBytes(dtype, weights) + 31) / 32 * 32;
  }
  bytes.PadTo(32).Zeros(offset);
  return OpenBytes(bytes.bytes());
}

TEST(PredictorSpecTest, AFileWithoutPredictorsHasNone) {
  GgufTestBytes bytes;
  bytes.Header(0, 0).PadTo(32);
  EXPECT_FALSE(ReadPredictorSpec(OpenBytes(bytes.bytes()), MakeModel(3, 0)).has_value());
}

TEST(PredictorSpecTest, ReadsWhatAFileSays) {
  for (const int64_t experts : {0, 4}) {
    Contents c = RightContents(static_cast<uint64_t>(experts));
    c.thresholds.back() = -2.5f;
    const auto spec = ReadPredictorSpec(MakeFile(c), MakeModel(3, experts));
    ASSERT_TRUE(spec.has_value());
    EXPECT_EQ(spec->input, PredictorInput::kFfnInput);
    EXPECT_TRUE(spec->relu);
    EXPECT_THAT(spec->ranks, ::testing::ElementsAre(kRank, 0, kRank));
    EXPECT_EQ(spec->thresholds, c.thresholds);
  }
}

TEST(PredictorSpecTest, DeclaresTensorsAndFindsThemByLayerAndExpert) {
  const ModelSpec model = MakeModel(3, 4);
  const auto spec = ReadPredictorSpec(MakeFile(RightContents(4)), model);
  ModelPredictors predictors;
  const std::vector<WeightDecl> decls = DeclarePredictors(*spec, model, predictors);
  ASSERT_EQ(decls.size(), 6u);
  std::vector<std::byte> memory(1 << 20);
  for (const WeightDecl& decl : decls) {
    *decl.slot = {.data = memory.data(),
                  .dtype = DType::kF32,
                  .cols = decl.cols,
                  .rows = decl.rows,
                  .experts = decl.experts};
  }
  predictors.spec.thresholds[2 * 4 + 3] = 7;
  EXPECT_TRUE(predictors.At(1, 2).empty());
  const PredictorView view = predictors.At(2, 3);
  EXPECT_EQ(view.rank(), kRank);
  EXPECT_EQ(view.down.data - memory.data(), 3 * kRank * kHidden * 4);
  EXPECT_EQ(view.up.data - memory.data(), 3 * kRank * kNeurons * 4);
  EXPECT_EQ(view.bias.data - memory.data(), 3 * kNeurons * 4);
  EXPECT_EQ(view.threshold, 7.0f);
  EXPECT_TRUE(view.relu);
}

struct Refusal {
  const char* what;  // part of the message
  void (*change)(Contents&);
};

class PredictorRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(PredictorRefusalTest, SaysWhatIsWrong) {
  Contents c = RightContents(0);
  GetParam().change(c);
  try {
    ReadPredictorSpec(MakeFile(c), MakeModel(3, 0));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr(GetParam().what));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, PredictorRefusalTest,
    ::testing::Values(
        Refusal{"hearth.predictor.input", [](Contents& c) { c.has_input = false; }},
        Refusal{"expected residual or ffn_input, found 'logits'",
                [](Contents& c) { c.input = "logits"; }},
        Refusal{"hearth.predictor.relu is missing", [](Contents& c) { c.has_relu = false; }},
        Refusal{"hearth.predictor.threshold is missing",
                [](Contents& c) { c.has_thresholds = false; }},
        Refusal{"expected 3 (one per layer and expert), found 2",
                [](Contents& c) { c.thresholds.pop_back(); }},
        Refusal{"hearth.predictor.threshold[1]: expected a finite number",
                [](Contents& c) { c.thresholds[1] = std::numeric_limits<float>::quiet_NaN(); }},
        Refusal{"hearth.predictor.threshold[2]: expected a finite number",
                [](Contents& c) { c.thresholds[2] = std::numeric_limits<float>::infinity(); }},
        Refusal{"blk.0.predictor.down is missing, blk.0.predictor.up is there",
                [](Contents& c) { c.tensors.erase("blk.0.predictor.down"); }},
        Refusal{"blk.2.predictor.up", [](Contents& c) { c.tensors.erase("blk.2.predictor.up"); }},
        Refusal{"blk.2.predictor.bias",
                [](Contents& c) { c.tensors.erase("blk.2.predictor.bias"); }},
        Refusal{"shape of blk.0.predictor.down: expected [64, 32]",
                [](Contents& c) {
                  c.tensors["blk.0.predictor.down"] = {32, kRank};
                }},
        Refusal{"shape of blk.0.predictor.up: expected [32, 96]",
                [](Contents& c) {
                  c.tensors["blk.0.predictor.up"] = {kRank, 95};
                }},
        Refusal{"shape of blk.0.predictor.up: expected [32, 96]",
                [](Contents& c) {
                  c.tensors["blk.0.predictor.up"] = {64, kNeurons};
                }},
        Refusal{"shape of blk.2.predictor.bias: expected [96]",
                [](Contents& c) {
                  c.tensors["blk.2.predictor.bias"] = {kNeurons, 2};
                }},
        Refusal{"type of blk.0.predictor.bias: expected F32, found F16",
                [](Contents& c) { c.bias_dtype = DType::kF16; }},
        Refusal{"rank of blk.0.predictor.down: expected 1 to 96", [](Contents& c) {
                  c.tensors["blk.0.predictor.down"] = {kHidden, 97};
                }}));

}  // namespace
}  // namespace hearth
