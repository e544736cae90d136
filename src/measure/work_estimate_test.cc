#include "measure/work_estimate.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

struct Shape {
  int64_t hidden, ffn, layers, heads, kv_heads, vocab;
  int64_t experts = 0, experts_per_token = 0;
};
constexpr Shape kMistral7b = {4096, 14336, 32, 32, 8, 32000};

// A model of a shape: views that point at nothing, since only sizes are asked for.
struct Model {
  ModelSpec spec;
  ModelWeights weights;

  Model(const Shape& shape, DType dtype) {
    spec.hidden_size = shape.hidden;
    spec.num_layers = shape.layers;
    spec.vocab_size = shape.vocab;
    LayerSpec layer;
    layer.attention.num_heads = shape.heads;
    layer.attention.num_kv_heads = shape.kv_heads;
    layer.attention.head_dim = shape.hidden / shape.heads;
    layer.ffn.intermediate_size = shape.ffn;
    layer.ffn.num_experts = shape.experts;
    layer.ffn.num_experts_per_token = shape.experts_per_token;
    spec.layers.assign(static_cast<size_t>(shape.layers), layer);
    static constexpr std::byte kNothing{};
    for (const WeightDecl& decl : DeclareWeights(spec, weights)) {
      *decl.slot = {.data = &kNothing,
                    .dtype = decl.is_vector ? DType::kF32 : dtype,
                    .cols = decl.cols,
                    .rows = decl.rows,
                    .experts = decl.experts};
    }
  }

  WorkByOp Pass(const EstimatedPass& pass) const { return EstimatePass(spec, weights, pass); }
};

OpWork Of(const WorkByOp& work, PassOp op) { return work[static_cast<size_t>(op)]; }

// Figures worked out by hand: 18 bytes per 32 weights.
TEST(WorkEstimateTest, ATokenOfMistral7bInQ4_0) {
  const WorkByOp work = Model(kMistral7b, DType::kQ4_0).Pass({});
  EXPECT_NEAR(Total(work).bytes, 4.00e9, 0.005e9);
  EXPECT_NEAR(Of(work, PassOp::kAttentionQkv).bytes + Of(work, PassOp::kAttentionOutput).bytes,
              755e6, 1e6);
  EXPECT_NEAR(Of(work, PassOp::kLogits).bytes, 74e6, 1e6);
  EXPECT_NEAR(Of(work, PassOp::kFfnGateUp).bytes + Of(work, PassOp::kFfnDown).bytes, 3171e6, 1e6);
  EXPECT_NEAR(Total(work).int8_macs - Of(work, PassOp::kLogits).int8_macs, 6.98e9, 0.005e9);
}

TEST(WorkEstimateTest, APromptReadsWeightsOncePerPassAndTheHeadOnce) {
  const Model model(kMistral7b, DType::kQ4_0);
  const WorkByOp one = EstimatePrompt(model.spec, model.weights, 256, 256, KvCodec::kF16, {});
  const WorkByOp two = EstimatePrompt(model.spec, model.weights, 512, 256, KvCodec::kF16, {});
  EXPECT_EQ(Of(two, PassOp::kFfnDown).bytes, 2 * Of(one, PassOp::kFfnDown).bytes);
  EXPECT_EQ(Of(one, PassOp::kFfnDown).bytes, Of(model.Pass({}), PassOp::kFfnDown).bytes);
  EXPECT_EQ(Of(two, PassOp::kLogits).bytes, Of(one, PassOp::kLogits).bytes);
  EXPECT_EQ(Of(two, PassOp::kLogits).int8_macs, 4096.0 * 32000);
  EXPECT_NEAR(Total(two).int8_macs / 512, 6.98e9, 0.005e9);
}

TEST(WorkEstimateTest, TheKvCacheGrowsWithTheContextUpToTheWindow) {
  Model model(kMistral7b, DType::kQ4_0);
  const double position = 2.0 * 8 * 128 * 2 * 32;  // keys and values, KV heads, F16, layers
  const auto attention = [&](int64_t context, KvCodec kv) {
    return Of(model.Pass({.context = context, .kv_codec = kv}), PassOp::kAttention).bytes;
  };
  EXPECT_EQ(attention(0, KvCodec::kF16), position);
  EXPECT_EQ(attention(99, KvCodec::kF16), 100 * position);
  EXPECT_EQ(attention(99, KvCodec::kF32), 200 * position);
  // Codes, scales and zeros of keys, with 4 bits for every 32 components; numbers and scale of
  // values.
  EXPECT_EQ(attention(99, KvCodec::kK8V8), 100.0 * 8 * (128 + 4 + 128 + 2) * 32);
  EXPECT_EQ(attention(99, KvCodec::kK4), 100.0 * 8 * (64 + 4 * 4 + 256) * 32);
  for (LayerSpec& layer : model.spec.layers) layer.attention.sliding_window = 50;
  EXPECT_EQ(attention(99, KvCodec::kF16), 50 * position);
}

TEST(WorkEstimateTest, OfExpertsOnlyTheChosenOnesCount) {
  Shape shape = kMistral7b;
  shape.experts = 8;
  shape.experts_per_token = 2;
  const Model dense(kMistral7b, DType::kQ4_0), mixture(shape, DType::kQ4_0);
  const double one = Of(dense.Pass({}), PassOp::kFfnDown).bytes;
  EXPECT_EQ(Of(mixture.Pass({}), PassOp::kFfnDown).bytes, 2 * one);
  EXPECT_EQ(Of(mixture.Pass({}), PassOp::kFfnDown).int8_macs,
            2 * Of(dense.Pass({}), PassOp::kFfnDown).int8_macs);
  const WorkByOp two = mixture.Pass({.tokens = 2});
  EXPECT_NEAR(Of(two, PassOp::kFfnDown).bytes, 3.5 * one, 1) << "8 * (1 - (6/8)^2)";
  const WorkByOp many = mixture.Pass({.tokens = 256});
  EXPECT_NEAR(Of(many, PassOp::kFfnDown).bytes, 8 * one, 1);
  EXPECT_EQ(Of(many, PassOp::kFfnDown).int8_macs,
            512 * Of(dense.Pass({}), PassOp::kFfnDown).int8_macs);
}

TEST(WorkEstimateTest, FloatWeightsMakeNoInt8Products) {
  const OpWork work = Total(Model(kMistral7b, DType::kF16).Pass({}));
  EXPECT_EQ(work.int8_macs, 0);
  EXPECT_NEAR(work.bytes, 14.2e9, 0.1e9);
}

TEST(WorkEstimateTest, TheFloorIsTheSlowerOfReadingAndComputing) {
  const OpWork work{.bytes = 100, .int8_macs = 1000};
  EXPECT_EQ(FloorSeconds(work, 10, 1000), 10);
  EXPECT_EQ(FloorSeconds(work, 1000, 10), 100);
  EXPECT_EQ(FloorSeconds(work, 0, 10), 100);
  EXPECT_EQ(FloorSeconds(work, 10, 0), 10);
}

}  // namespace
}  // namespace hearth
