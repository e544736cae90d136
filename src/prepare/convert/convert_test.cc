#include "prepare/convert/convert.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/error.h"
#include "import/test_published_folder.h"
#include "kernels/dequantize.h"
#include "prepare/pack/test_pack_models.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ConvertTest : public PublishedFolderTest {
 protected:
  ConvertTest() {
    AddUsual();
    AddUsualFfn();
    AddToLayer("input_layernorm.weight", {kHidden}, 0.5f);
  }

  GgufFile Convert(const GgufFile& source, std::optional<DType> type = {}) {
    result_ = ConvertModel(source, {.type = type}, out_.Path("m.gguf"), {});
    return GgufFile::Open(out_.Path("m.gguf"));
  }

  ConvertResult result_;
  TestFolder out_{"hearth_convert"};
};

TEST_F(ConvertTest, MatricesKeepTheirTypeAndVectorsAreF32) {
  struct Case {
    const char* dtype;
    DType type;
    uint32_t file_type;
  };
  for (const Case& c :
       {Case{"F32", DType::kF32, 0}, {"F16", DType::kF16, 1}, {"BF16", DType::kBF16, 32}}) {
    const GgufFile file = Convert(Open(UsualConfig("qwen2"), c.dtype));
    EXPECT_EQ(result_.type, c.type);
    EXPECT_EQ(file.metadata().GetUint("general.file_type"), c.file_type);
    EXPECT_EQ(file.metadata().GetString("general.type"), "model");
    EXPECT_EQ(file.GetTensor("blk.0.ffn_up.weight").dtype, c.type);
    EXPECT_EQ(file.GetTensor("blk.0.attn_norm.weight").dtype, DType::kF32);
    EXPECT_THAT(ReadValues<float>(file, "blk.0.attn_norm.weight"),
                ElementsAre(0.5f, 1.5f, 2.5f, 3.5f));
    EXPECT_EQ(result_.num_tensors, file.tensors().size());
    EXPECT_EQ(result_.file_bytes, std::filesystem::file_size(out_.Path("m.gguf")));
  }
}

TEST_F(ConvertTest, MatricesBecomeWhatIsAskedFor) {
  AddToLayer("mlp.up_proj.weight", {kFfn, kHidden}, 1.0f / 3);
  const GgufFile source = Open(UsualConfig("qwen2"));
  const float third = ReadValues<float>(source, "blk.0.ffn_up.weight")[0];
  const GgufFile half = Convert(source, DType::kF16);
  EXPECT_EQ(ReadValues<uint16_t>(half, "blk.0.ffn_up.weight")[0], 0x3555);
  EXPECT_EQ(half.GetTensor("output_norm.weight").dtype, DType::kF32);
  const GgufFile brain = Convert(source, DType::kBF16);
  EXPECT_EQ(ReadValues<uint16_t>(brain, "blk.0.ffn_up.weight")[0], 0x3eab);
  const GgufFile wide = Convert(Open(UsualConfig("qwen2"), "BF16"), DType::kF32);
  EXPECT_EQ(ReadValues<float>(wide, "blk.0.ffn_up.weight")[0], 0.333984375f);
  EXPECT_NE(third, 0.333984375f);
}

TEST_F(ConvertTest, NumbersBeyondTheTypeAreRefusedAndNothingIsLeft) {
  AddToLayer("mlp.up_proj.weight", {kFfn, kHidden}, 65519);  // 65520 would be infinite
  const GgufFile source = Open(UsualConfig("qwen2"));
  EXPECT_THAT([&] { Convert(source, DType::kF16); },
              ::testing::ThrowsMessage<Error>(::testing::AllOf(HasSubstr("blk.0.ffn_up.weight"),
                                                               HasSubstr("within the range of F16"),
                                                               HasSubstr("number 1 of"))));
  EXPECT_THAT(out_.Files(), ElementsAre());
  EXPECT_NO_THROW(Convert(source, DType::kBF16));
}

TEST_F(ConvertTest, AStoppedConversionLeavesNothingBehind) {
  const GgufFile source = Open(UsualConfig("qwen2"));
  int calls = 0;
  const auto stop = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    if (++calls == 3) throw Error(ErrorCode::kCancelled, "m.gguf", "stopped");
  };
  EXPECT_THROW(ConvertModel(source, {}, out_.Path("m.gguf"), stop), Error);
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(out_.Files(), ElementsAre());
}

TEST_F(ConvertTest, EveryRowOfTheEmbeddingHasAToken) {
  Add("model.embed_tokens.weight", {kTokens + 2, kHidden});
  Json config = UsualConfig("qwen2");
  config["vocab_size"] = kTokens + 2;
  config["tie_word_embeddings"] = true;
  const GgufFile file = Convert(Open(config));
  const std::vector<std::string>& tokens = *file.metadata().FindStrings("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), kTokens + 2);
  EXPECT_EQ(tokens[kTokens - 1], "t7");
  EXPECT_EQ(tokens.back(), "[unused 9]");
  EXPECT_EQ(file.metadata().FindInts("tokenizer.ggml.token_type")->back(),
            static_cast<int64_t>(TokenType::kUnused));
  EXPECT_EQ(file.metadata().FindFloats("tokenizer.ggml.scores")->size(), kTokens + 2);
}

TEST_F(ConvertTest, QuantizedTensorsStayOrBecomeFloats) {
  MakeModel(out_.Path("q.gguf"), ShapeText(64, 96, kDenseShape), DType::kQ4_0);
  const GgufFile source = GgufFile::Open(out_.Path("q.gguf"));
  const std::string name = "blk.0.ffn_up.weight";
  const std::vector<std::byte> stored = ReadAll(source, source.GetTensor(name));
  {
    const GgufFile file = Convert(source);
    EXPECT_EQ(result_.type, DType::kQ4_0);
    EXPECT_EQ(ReadAll(file, file.GetTensor(name)), stored);
  }
  const GgufFile file = Convert(source, DType::kF32);
  std::vector<float> expected(source.GetTensor(name).num_weights());
  kernels::Dequantize(DType::kQ4_0, stored.data(), static_cast<int64_t>(expected.size()),
                      expected.data());
  EXPECT_EQ(ReadValues<float>(file, name), expected);
  EXPECT_THAT([&] { ConvertModel(source, {.adapters = {{"a.gguf"}}}, out_.Path("a"), {}); },
              ::testing::ThrowsMessage<Error>(HasSubstr("floats to add adapters to")));
}

// However large tensors are.
TEST_F(ConvertTest, BuffersAreSmall) {
  MakeModel(out_.Path("large.gguf"), ShapeText(1024, 8192, kDenseShape), DType::kF32);
  const GgufFile source = GgufFile::Open(out_.Path("large.gguf"));
  const GgufFile file = Convert(source, DType::kBF16);
  EXPECT_LT(result_.peak_bytes, uint64_t{13} << 20);
  const GgufTensor& tensor = source.GetTensor("blk.1.ffn_down.weight");
  EXPECT_GT(tensor.bytes, result_.peak_bytes);
  const auto expected = ReadValues<float>(source, tensor.name);
  const auto found = ReadValues<uint16_t>(file, tensor.name);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); i += 997) EXPECT_EQ(found[i], FloatToBf16(expected[i])) << i;
  EXPECT_EQ(found.back(), FloatToBf16(expected.back()));
}

}  // namespace
}  // namespace hearth
