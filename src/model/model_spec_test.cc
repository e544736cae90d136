#include "model/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>

#include "base/error.h"
#include "format/gguf_writer.h"
#include "model/registry.h"
#include "model/weights.h"

namespace hearth {
namespace {

GgufMetadata SmallLlama() {
  GgufMetadata m;
  m.SetString("general.architecture", "llama");
  m.SetUint32("llama.embedding_length", 64);
  m.SetUint32("llama.block_count", 1);
  m.SetUint32("llama.context_length", 32);
  m.SetUint32("llama.feed_forward_length", 96);
  m.SetUint32("llama.attention.head_count", 4);
  m.SetUint32("llama.attention.head_count_kv", 2);
  m.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  return m;
}

// A file with this metadata and a token embedding, reopened.
GgufFile WriteAndOpen(const GgufMetadata& metadata) {
  const std::string path = ::testing::TempDir() + "hearth_spec.gguf";
  GgufWriter writer(path, metadata, {{"token_embd.weight", DType::kF32, {64, 10}}});
  const std::vector<std::byte> zeros(64 * 10 * 4);
  writer.Append(zeros);
  writer.Finish();
  GgufFile file = GgufFile::Open(path);
  std::remove(path.c_str());
  return file;
}

ModelSpec Read(const GgufMetadata& metadata) { return ReadModelSpec(WriteAndOpen(metadata)); }

TEST(ModelSpecTest, ReadsSizesAndDefaults) {
  const ModelSpec spec = Read(SmallLlama());
  EXPECT_EQ(spec.hidden_size, 64);
  EXPECT_EQ(spec.vocab_size, 10);
  EXPECT_EQ(spec.layers[0].attention.rope->dims, 16)
      << "hidden / heads where the file says nothing";
  EXPECT_EQ(spec.layers[0].attention.rope->base, 10000);
  EXPECT_EQ(spec.layers[0].attention.rope->layout, RopeLayout::kAdjacent);
  EXPECT_TRUE(spec.tied_embeddings);
  const LayerSpec& layer = spec.layers.front();
  EXPECT_FLOAT_EQ(layer.norm_epsilon, 1e-6f);
  EXPECT_EQ(layer.attention.num_kv_heads, 2);
  EXPECT_EQ(layer.ffn.activation, FfnActivation::kSilu);
  EXPECT_DOUBLE_EQ(layer.attention.query_scale, 0.25);
}

TEST(ModelSpecTest, ReadsTheActivationOfSparseModels) {
  GgufMetadata m = SmallLlama();
  m.SetString("hearth.ffn_activation", "fatrelu");
  m.SetFloat32("hearth.ffn_threshold", 0.25f);
  const ModelSpec spec = Read(m);
  EXPECT_EQ(spec.layers[0].ffn.activation, FfnActivation::kFatRelu);
  EXPECT_EQ(spec.layers[0].ffn.threshold, 0.25f);
}

struct BadCase {
  const char* words;  // of the message
  std::function<void(GgufMetadata&)> change;
};

TEST(ModelSpecTest, RefusesWhatContradictsItself) {
  const BadCase cases[] = {
      {"head_count", [](auto& m) { m.SetUint32("llama.attention.head_count", 0); }},
      {"divisor", [](auto& m) { m.SetUint32("llama.attention.head_count_kv", 3); }},
      {"head_count_kv", [](auto& m) { m.SetUint32("llama.attention.head_count_kv", 8); }},
      {"block_count", [](auto& m) { m.SetUint32("llama.block_count", 0); }},
      {"block_count", [](auto& m) { m.SetUint32("llama.block_count", 4000000000u); }},
      {"embedding_length", [](auto& m) { m.SetUint64("llama.embedding_length", 1ull << 40); }},
      {"embedding_length", [](auto& m) { m.SetString("llama.embedding_length", "wide"); }},
      {"context_length", [](auto& m) { m.SetUint32("llama.context_length", 0); }},
      {"feed_forward_length", [](auto& m) { m.SetUint32("llama.feed_forward_length", 0); }},
      {"an even number", [](auto& m) { m.SetUint32("llama.rope.dimension_count", 7); }},
      {"rope.dimension_count", [](auto& m) { m.SetUint32("llama.rope.dimension_count", 18); }},
      {"freq_base", [](auto& m) { m.SetFloat32("llama.rope.freq_base", -1); }},
      {"freq_base", [](auto& m) { m.SetFloat32("llama.rope.freq_base", NAN); }},
      {"'spiral'", [](auto& m) { m.SetString("llama.rope.scaling.type", "spiral"); }},
      {"scaling.factor", [](auto& m) { m.SetFloat32("llama.rope.scaling.factor", -1); }},
      {"layer (others cannot be run yet), found 2 and 1",
       [](auto& m) {
         m.SetUint32("llama.block_count", 2);
         m.SetInt32s("llama.attention.head_count_kv", {2, 1});
       }},
      {"head_count_kv: expected 1 numbers, one per layer, found 2",
       [](auto& m) {
         m.SetInt32s("llama.attention.head_count_kv", {2, 2});
       }},
      {"expected 0 to 3 (none, mean, first or last token), found 4 (rank)",
       [](auto& m) { m.SetUint32("llama.pooling_type", 4); }},
      {"scaling.factor", [](auto& m) { m.SetString("llama.rope.scaling.type", "linear"); }},
      {"found nan", [](auto& m) { m.SetFloat32("llama.attention.layer_norm_rms_epsilon", NAN); }},
      {"from 0 to 1, found 1e+30",
       [](auto& m) { m.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e30f); }},
      {"llama.vocab_size: expected 10, the rows of token_embd.weight, found 11",
       [](auto& m) { m.SetUint32("llama.vocab_size", 11); }},
      {"expert_used_count", [](auto& m) { m.SetUint32("llama.expert_count", 4); }},
      {"smallthinker.expert_count: expected at least 1",
       [](auto& m) {
         for (const char* key : {"embedding_length", "block_count", "context_length",
                                 "feed_forward_length", "attention.head_count"}) {
           m.SetUint32(std::string("smallthinker.") + key, key[0] == 'b' ? 1 : 64);
         }
         m.SetString("general.architecture", "smallthinker");
       }},
      {"'mish'", [](auto& m) { m.SetString("hearth.ffn_activation", "mish"); }},
      {"value_length", [](auto& m) { m.SetUint32("llama.attention.value_length", 8); }},
      {"'gpt9'", [](auto& m) { m.SetString("general.architecture", "gpt9"); }},
  };
  for (const BadCase& bad : cases) {
    GgufMetadata m = SmallLlama();
    bad.change(m);
    try {
      Read(m);
      ADD_FAILURE() << "accepted: " << bad.words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(bad.words));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("hearth_spec.gguf"));
    }
  }
}

// Run as anything else, such a model would answer, and wrongly. Names are told apart by every
// letter.
TEST(ModelSpecTest, UnknownActivationsAreRefusedByName) {
  const auto message = [](const GgufMetadata& metadata) -> std::string {
    try {
      Read(metadata);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const std::string name : {"", "Relu", "relu2", "swish", "gelu_new", "silu ", "none"}) {
    GgufMetadata m = SmallLlama();
    m.SetString("hearth.ffn_activation", name);
    EXPECT_THAT(message(m), ::testing::AllOf(::testing::HasSubstr("hearth.ffn_activation"),
                                             ::testing::HasSubstr("found '" + name + "'"),
                                             ::testing::HasSubstr("drelu")))
        << name;
  }
  GgufMetadata number = SmallLlama();
  number.SetUint32("hearth.ffn_activation", 1);
  EXPECT_THAT(message(number), ::testing::HasSubstr("hearth.ffn_activation"));
  for (const char* name : {"silu", "relu", "fatrelu", "drelu"}) {
    GgufMetadata m = SmallLlama();
    m.SetString("hearth.ffn_activation", name);
    EXPECT_EQ(message(m), "accepted");
  }
}

// Converters of families whose layers may differ write one number per layer.
TEST(ModelSpecTest, ReadsArraysOfEqualNumbers) {
  GgufMetadata m = SmallLlama();
  m.SetUint32("llama.block_count", 3);
  m.SetInt32s("llama.attention.head_count", {4, 4, 4});
  m.SetInt32s("llama.attention.head_count_kv", {2, 2, 2});
  m.SetInt32s("llama.feed_forward_length", {96, 96, 96});
  const ModelSpec spec = Read(m);
  EXPECT_EQ(spec.layers.at(2).attention.num_heads, 4);
  EXPECT_EQ(spec.layers.at(2).attention.num_kv_heads, 2);
  EXPECT_EQ(spec.layers.at(2).ffn.intermediate_size, 96);
}

TEST(ModelSpecTest, LayersHaveKeysAndValuesOfOneWidth) {
  GgufMetadata m = SmallLlama();
  m.SetUint32("llama.block_count", 3);
  ModelSpec spec = Read(m);
  EXPECT_NO_THROW(ValidateSpec(spec, "model.gguf"));
  spec.layers[2].attention.num_kv_heads = 1;
  EXPECT_THAT([&] { ValidateSpec(spec, "model.gguf"); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("in all layers, 2 of ")));
}

TEST(ModelSpecTest, AFactorOfZeroIsNone) {
  for (const char* type : {"linear", "yarn", "none"}) {
    GgufMetadata m = SmallLlama();
    m.SetString("llama.rope.scaling.type", type);
    m.SetFloat32("llama.rope.scaling.factor", 0);
    const RopeSpec rope = *Read(m).layers[0].attention.rope;
    EXPECT_EQ(rope.factor, 1) << type;
    EXPECT_EQ(rope.attention_factor, 1) << type;
  }
  GgufMetadata old = SmallLlama();
  old.SetFloat32("llama.rope.scale_linear", 0);
  EXPECT_EQ(Read(old).layers[0].attention.rope->scaling, RopeScalingKind::kNone);
}

TEST(ModelSpecTest, ReadsHowEmbeddingsArePooled) {
  const auto pooling = [](std::optional<int32_t> number) {
    GgufMetadata m = SmallLlama();
    if (number) m.SetInt32("llama.pooling_type", *number);
    return Read(m).pooling;
  };
  EXPECT_EQ(pooling({}), PoolingKind::kMean);
  EXPECT_EQ(pooling(-1), PoolingKind::kMean);
  EXPECT_EQ(pooling(0), PoolingKind::kNone);
  EXPECT_EQ(pooling(1), PoolingKind::kMean);
  EXPECT_EQ(pooling(2), PoolingKind::kFirst);
  EXPECT_EQ(pooling(3), PoolingKind::kLast);
}

TEST(ModelSpecTest, FilesThatAreNoModelsAreNamed) {
  const auto message = [](const std::function<void(GgufMetadata&)>& change) {
    GgufMetadata m = SmallLlama();
    change(m);
    try {
      Read(m);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message([](auto& m) { m.SetString("general.type", "adapter"); }),
              ::testing::HasSubstr("is a LoRA adapter"));
  EXPECT_THAT(message([](auto& m) { m.SetString("general.type", "imatrix"); }),
              ::testing::HasSubstr("is an importance matrix"));
  EXPECT_THAT(message([](auto& m) { m.SetString("general.architecture", "clip"); }),
              ::testing::HasSubstr("mmproj"));
  EXPECT_EQ(message([](auto& m) { m.SetString("general.type", "model"); }), "accepted");
}

TEST(WeightsTest, DeclaresWhatTheSpecNeedsAndNamesWhatIsMissing) {
  const GgufFile file = WriteAndOpen(SmallLlama());
  const ModelSpec spec = ReadModelSpec(file);
  ModelWeights weights;
  const auto decls = DeclareWeights(spec, weights);
  ASSERT_EQ(decls.size(), 11u) << "embedding, nine of the layer, the output norm";
  EXPECT_EQ(&MatchTensor(file, decls[0]), &file.tensors()[0]);
  EXPECT_THROW(MatchTensor(file, decls[1]), Error);
  WeightDecl wrong = decls[0];
  wrong.cols = 32;
  EXPECT_THROW(MatchTensor(file, wrong), Error);
}

TEST(WeightsTest, NormsAreNeverQuantized) {
  const WeightDecl norm{.name = "output_norm.weight", .cols = 64, .is_vector = true};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0}) {
    const std::string path = ::testing::TempDir() + "hearth_norm.gguf";
    GgufWriter writer(path, SmallLlama(), {{norm.name, type, {64}}});
    writer.Append(std::vector<std::byte>(writer.BytesLeftInTensor()));
    writer.Finish();
    const GgufFile file = GgufFile::Open(path);
    std::remove(path.c_str());
    if (type != DType::kQ4_0) {
      EXPECT_NO_THROW(MatchTensor(file, norm)) << NameOf(type);
      continue;
    }
    EXPECT_THAT(
        [&] { MatchTensor(file, norm); },
        ::testing::ThrowsMessage<Error>(::testing::HasSubstr("type of output_norm.weight")));
  }
}

TEST(WeightsTest, ExpertsBiasesAndNormsAreDeclared) {
  ModelSpec spec = Read(SmallLlama());
  LayerSpec& layer = spec.layers[0];
  layer.ffn.num_experts = 6;
  layer.attention.qkv_bias = layer.attention.output_bias = true;
  layer.attention.qk_norm = QkNorm::kHeads;
  spec.layers[0].attention.rope->has_factors = true;
  ModelWeights weights;
  const auto decls = DeclareWeights(spec, weights);
  const auto find = [&](const std::string& name) -> const WeightDecl* {
    for (const auto& decl : decls) {
      if (decl.name == name) return &decl;
    }
    return nullptr;
  };
  ASSERT_NE(find("blk.0.ffn_down_exps.weight"), nullptr);
  EXPECT_EQ(find("blk.0.ffn_down_exps.weight")->experts, 6);
  EXPECT_EQ(find("blk.0.ffn_down_exps.weight")->cols, 96);
  ASSERT_NE(find("blk.0.attn_k.bias"), nullptr);
  EXPECT_EQ(find("blk.0.attn_k.bias")->cols, 32);
  EXPECT_NE(find("blk.0.attn_q_norm.weight"), nullptr);
  EXPECT_NE(find("rope_freqs.weight"), nullptr);
  EXPECT_EQ(find("blk.0.ffn_down.weight"), nullptr);
}

}  // namespace
}  // namespace hearth
