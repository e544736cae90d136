#include "prepare/quantize/recipe.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class RecipeTest : public testing::Test {
 protected:
  GgufFile Model(const std::string& shape = kDenseShape, int64_t hidden = 256, int64_t ffn = 512) {
    MakeModel(folder_.Path("m.gguf"), ShapeText(hidden, ffn, shape), DType::kF32);
    return GgufFile::Open(folder_.Path("m.gguf"));
  }
  static PlannedTensor Of(const GgufFile& file, const QuantizeRules& rules,
                          const std::string& name) {
    const std::vector<PlannedTensor> planned = PlanTypes(file, rules);
    for (size_t i = 0; i < planned.size(); ++i) {
      if (file.tensors()[i].name == name) return planned[i];
    }
    ADD_FAILURE() << name;
    return {};
  }
  static QuantizeRules Rules(const std::string& recipe) {
    QuantizeRules rules;
    rules.recipe = FindRecipe(recipe);
    return rules;
  }

  TestFolder folder_{"hearth_recipe"};
};

TEST(Recipe, NamesAreFoundInEitherCaseAndDescribed) {
  for (const std::string& name : RecipeNames()) {
    EXPECT_EQ(FindRecipe(name).name, name);
    EXPECT_FALSE(DescribeRecipe(FindRecipe(name)).empty());
  }
  EXPECT_EQ(FindRecipe("Q4_K_M").name, "q4_k_m");
  EXPECT_THAT([] { FindRecipe("q4_k_xl"); },
              testing::ThrowsMessage<Error>(HasSubstr("expected q2_k, q3_k_s")));
}

TEST(Recipe, PatternsMatchPartsOfNames) {
  const std::string name = "blk.1.ffn_down_exps.weight";
  for (const char* pattern :
       {"ffn_down", "blk.1.", "blk.*.weight", "*", "", "blk.1.*exps", "*weight"}) {
    EXPECT_TRUE(MatchesPattern(pattern, name)) << pattern;
  }
  for (const char* pattern : {"blk.11", "ffn_up", "weight*blk", "ffn_*_shexp", "weights"}) {
    EXPECT_FALSE(MatchesPattern(pattern, name)) << pattern;
  }
}

TEST(Recipe, RulesAreParsed) {
  const TensorRule rule = ParseTensorRule("blk.*.attn_v=q6_K");
  EXPECT_EQ(rule.pattern, "blk.*.attn_v");
  EXPECT_EQ(rule.type, DType::kQ6_K);
  for (const char* text : {"attn_v", "=q6_k", "", "attn_v=", "attn_v=q9", "attn_v=i32", "a=f64",
                           "a=iq3_s", "a=nvfp4"}) {
    EXPECT_THROW(ParseTensorRule(text), Error) << text;
  }
}

TEST_F(RecipeTest, AMixtureHasMoreBitsInOuterLayers) {
  MakeModel(folder_.Path("m.gguf"),
            R"({"hidden_size": 256, "intermediate_size": 512, "num_layers": 8, "num_heads": 2,
                "num_kv_heads": 1, "head_dim": 128, "vocab_size": 300, "arch": "llama"})",
            DType::kF32);
  const GgufFile file = GgufFile::Open(folder_.Path("m.gguf"));
  const QuantizeRules rules = Rules("q4_k_m");
  for (const int layer : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const DType more = layer < 2 || layer > 5 ? DType::kQ6_K : DType::kQ4_K;
    EXPECT_EQ(Of(file, rules, prefix + "ffn_down.weight").type, more) << layer;
    EXPECT_EQ(Of(file, rules, prefix + "attn_v.weight").type, more) << layer;
    EXPECT_EQ(Of(file, rules, prefix + "ffn_up.weight").type, DType::kQ4_K);
    EXPECT_EQ(Of(file, rules, prefix + "attn_norm.weight").type, DType::kF32);
  }
}

TEST_F(RecipeTest, OutputAndEmbeddingHaveTypesOfTheirOwn) {
  const GgufFile file = Model();
  ASSERT_NE(file.FindTensorOrNull("output.weight"), nullptr);
  QuantizeRules rules = Rules("mnn-int4");
  EXPECT_EQ(Of(file, rules, "token_embd.weight").type, DType::kBF16);
  EXPECT_EQ(Of(file, rules, "output.weight").type, DType::kQ8_0);
  EXPECT_EQ(Of(file, rules, "blk.0.attn_q.weight").type, DType::kQ4_1);
  rules.embedding = DType::kQ8_0;
  rules.output = DType::kQ5_0;
  EXPECT_EQ(Of(file, rules, "token_embd.weight").type, DType::kQ8_0);
  EXPECT_EQ(Of(file, rules, "output.weight").type, DType::kQ5_0);
}

TEST_F(RecipeTest, TheLastRuleThatMatchesCounts) {
  const GgufFile file = Model();
  QuantizeRules rules = Rules("q4_0");
  rules.tensors = {ParseTensorRule("ffn=q8_0"), ParseTensorRule("blk.1.ffn_up=q5_1")};
  EXPECT_EQ(Of(file, rules, "blk.0.ffn_up.weight").type, DType::kQ8_0);
  EXPECT_EQ(Of(file, rules, "blk.1.ffn_up.weight").type, DType::kQ5_1);
  EXPECT_EQ(Of(file, rules, "blk.1.attn_q.weight").type, DType::kQ4_0);
  rules.tensors = {ParseTensorRule("no_such=q8_0")};
  EXPECT_THAT([&] { PlanTypes(file, rules); },
              testing::ThrowsMessage<Error>(HasSubstr("'no_such' matches no tensor")));
  rules.tensors = {ParseTensorRule("ffn_norm=q8_0")};
  EXPECT_THAT([&] { PlanTypes(file, rules); },
              testing::ThrowsMessage<Error>(HasSubstr("only tensors that stay F32")));
}

TEST_F(RecipeTest, RowsThatBlocksDoNotDivideFallBack) {
  const GgufFile file = Model(kDenseShape, 64, 96);
  const PlannedTensor up = Of(file, Rules("q4_k_s"), "blk.0.ffn_up.weight");
  EXPECT_EQ(up.type, DType::kQ5_0);
  EXPECT_EQ(up.wished, DType::kQ4_K);
  EXPECT_TRUE(up.has_fallback());
  EXPECT_FALSE(Of(file, Rules("q4_0"), "blk.0.ffn_up.weight").has_fallback());
  EXPECT_EQ(Of(file, Rules("iq4_xs"), "blk.0.ffn_up.weight").type, DType::kIQ4_NL);
  const GgufFile odd = GgufFile::Open(SourcePath("tests/goldens/llama.gguf"));  // rows of 40
  EXPECT_EQ(Of(odd, Rules("q6_k"), "blk.0.ffn_down.weight").type, DType::kF16);
}

TEST_F(RecipeTest, ExpertsMayHaveATypeOfTheirOwn) {
  const GgufFile file = Model(kExpertShape);
  const QuantizeRules rules = Rules("mxfp4");
  EXPECT_EQ(Of(file, rules, "blk.0.ffn_up_exps.weight").type, DType::kMXFP4);
  EXPECT_EQ(Of(file, rules, "blk.0.attn_q.weight").type, DType::kQ8_0);
  EXPECT_EQ(Of(file, rules, "blk.0.ffn_gate_inp.weight").type, DType::kF32);
  EXPECT_THAT(
      [&] { PlanTypes(Model(), rules); },
      testing::ThrowsMessage<Error>(HasSubstr("for experts, of which this model has none")));
}

}  // namespace
}  // namespace hearth
