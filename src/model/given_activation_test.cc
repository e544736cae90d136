#include "model/given_activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/error.h"
#include "format/gguf_writer.h"
#include "format/packed_file.h"
#include "model/registry.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

GgufMetadata NamedLlama(const std::string& name, const std::string& architecture = "llama") {
  GgufMetadata m;
  m.SetString("general.architecture", architecture);
  m.SetString("general.name", name);
  const std::string prefix = architecture + ".";
  m.SetUint32(prefix + "embedding_length", 64);
  m.SetUint32(prefix + "block_count", 2);
  m.SetUint32(prefix + "context_length", 32);
  m.SetUint32(prefix + "feed_forward_length", 96);
  m.SetUint32(prefix + "attention.head_count", 4);
  return m;
}

GgufFile WriteAndReopen(const GgufMetadata& metadata, const std::string& name = "plain.gguf") {
  const std::string path = ::testing::TempDir() + name;
  GgufWriter writer(path, metadata, {{"token_embd.weight", DType::kF32, {64, 10}}});
  writer.Append(std::vector<std::byte>(64 * 10 * 4));
  writer.Finish();
  GgufFile file = GgufFile::Open(path);
  std::remove(path.c_str());
  return file;
}

GivenActivation Of(FfnActivation activation) { return {activation, std::nullopt}; }

FfnSpec FfnOf(const GgufFile& file) { return ReadModelSpec(file).layers.back().ffn; }

std::string RefusalOf(const GgufMetadata& metadata, const std::string& given) {
  GgufFile file = WriteAndReopen(metadata);
  try {
    GiveActivation(ParseActivation(given), &file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(GivenActivationTest, NamesAreReadAndWritten) {
  for (const char* text :
       {"silu", "gelu", "relu", "fatrelu", "fatrelu:0.02", "fatrelu:0", "drelu"}) {
    EXPECT_EQ(ActivationText(ParseActivation(text)), text);
  }
  for (const char* text : {"", "RELU", "relu:0.1", "fatrelu:", "fatrelu:-1", "fatrelu:nan",
                           "fatrelu:0.1x", "fatrelu:1e99", "thresholded_silu", "swiglu"}) {
    EXPECT_THROW(ParseActivation(text), Error) << text;
  }
}

TEST(GivenActivationTest, AFileThatSaysNothingTakesIt) {
  GgufFile file = WriteAndReopen(NamedLlama("m"));
  const uint64_t hash = ModelHash(file);
  EXPECT_FALSE(SaysActivation(file));
  EXPECT_EQ(FfnOf(file).activation, FfnActivation::kSilu);
  GiveActivation(ParseActivation("fatrelu:0.5"), &file);
  EXPECT_FALSE(SaysActivation(file)) << "what was given does not count";
  EXPECT_EQ(FfnOf(file).activation, FfnActivation::kFatRelu);
  EXPECT_EQ(FfnOf(file).threshold, 0.5f);
  // Profiles, records and sessions of one activation are none of another.
  EXPECT_NE(ModelHash(file), hash);
  GgufFile other = WriteAndReopen(NamedLlama("m"));
  GiveActivation(ParseActivation("fatrelu:0.25"), &other);
  EXPECT_NE(ModelHash(other), ModelHash(file));
}

TEST(GivenActivationTest, FatreluTakesTheFilesThresholdOrTheUsualOne) {
  GgufFile usual = WriteAndReopen(NamedLlama("m"));
  GiveActivation(Of(FfnActivation::kFatRelu), &usual);
  EXPECT_EQ(FfnOf(usual).threshold, kUsualFatReluThreshold);
  GgufMetadata with_threshold = NamedLlama("m");
  with_threshold.SetFloat32("hearth.ffn_threshold", 0.125f);
  GgufFile said = WriteAndReopen(with_threshold);
  GiveActivation(Of(FfnActivation::kFatRelu), &said);
  EXPECT_EQ(FfnOf(said).threshold, 0.125f);
  EXPECT_THAT(RefusalOf(with_threshold, "fatrelu:0.5"), HasSubstr("fatrelu:0.125, which the file"));
}

TEST(GivenActivationTest, AFileThatSaysAnotherRefusesIt) {
  GgufMetadata relu = NamedLlama("m");
  relu.SetString("hearth.ffn_activation", "relu");
  EXPECT_THAT(RefusalOf(relu, "drelu"), HasSubstr("expected relu, which the file says itself"));
  EXPECT_EQ(RefusalOf(relu, "relu"), "");
  // An architecture says it too.
  EXPECT_THAT(RefusalOf(NamedLlama("m", "bamboo"), "silu"), HasSubstr("expected drelu"));
  EXPECT_THAT(RefusalOf(NamedLlama("m", "prosparse"), "fatrelu:0.5"),
              HasSubstr("expected fatrelu:0.01"));
  EXPECT_EQ(RefusalOf(NamedLlama("m", "prosparse"), "fatrelu"), "");
  GgufFile same = WriteAndReopen(relu);
  const uint64_t hash = ModelHash(same);
  GiveActivation(Of(FfnActivation::kRelu), &same);
  EXPECT_EQ(ModelHash(same), hash);
}

TEST(GivenActivationTest, NamesOfReluModelsAreHints) {
  const auto hint = [](const std::string& name) {
    return FindActivationHint(WriteAndReopen(NamedLlama(name)));
  };
  const struct {
    const char* name;
    FfnActivation activation;
  } kNames[] = {{"SparseLLM ReluLLaMA-7B", FfnActivation::kRelu},
                {"prosparse-llama-2-7b", FfnActivation::kFatRelu},
                {"Bamboo-base-v0_1", FfnActivation::kDRelu},
                {"TurboSparse-Mistral-Instruct", FfnActivation::kDRelu},
                {"turbo_sparse mixtral", FfnActivation::kDRelu},
                {"SmallThinker-21B-A3B", FfnActivation::kRelu},
                {"Llama-7B-dReLU", FfnActivation::kDRelu},
                {"llamaReLU 3b", FfnActivation::kRelu}};
  for (const auto& [name, activation] : kNames) {
    const auto found = hint(name);
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_EQ(found->probable.activation, activation) << name;
    EXPECT_EQ(found->where, "general.name");
  }
  for (const char* name : {"Llama 2 7B", "Mistral-7B-v0.3", "Prelude-8B", "reluctant-writer", ""}) {
    EXPECT_FALSE(hint(name).has_value()) << name;
  }
}

TEST(GivenActivationTest, HintsAreSoughtInAllGeneralKeysAndTheFileName) {
  GgufMetadata tags = NamedLlama("m");
  tags.SetStrings("general.tags", {"text-generation", "prosparse"});
  EXPECT_EQ(FindActivationHint(WriteAndReopen(tags))->where, "general.tags");
  const auto by_file = FindActivationHint(WriteAndReopen(NamedLlama("m"), "ReluLLaMA.q4.gguf"));
  ASSERT_TRUE(by_file.has_value());
  EXPECT_EQ(by_file->where, "its file name");
  EXPECT_THAT(ActivationWarning("f.gguf", by_file),
              HasSubstr("its file name 'ReluLLaMA.q4.gguf' is that of a ReLU model"));
  EXPECT_EQ(ActivationWarning("f.gguf", std::nullopt), "");

  // What does not name the model, and what is known, is no hint.
  GgufMetadata license = NamedLlama("m");
  license.SetString("general.license.name", "bamboo licence");
  EXPECT_FALSE(FindActivationHint(WriteAndReopen(license)).has_value());
  GgufMetadata said = NamedLlama("ReluLLaMA");
  said.SetString("hearth.ffn_activation", "silu");
  EXPECT_FALSE(FindActivationHint(WriteAndReopen(said)).has_value());
  EXPECT_FALSE(FindActivationHint(WriteAndReopen(NamedLlama("Bamboo", "bamboo"))).has_value());
  GgufFile given = WriteAndReopen(NamedLlama("ReluLLaMA"));
  GiveActivation(Of(FfnActivation::kSilu), &given);
  EXPECT_FALSE(FindActivationHint(given).has_value());
}

}  // namespace
}  // namespace hearth
