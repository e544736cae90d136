// Model folders as published on Hugging Face, given to the commands that take a model.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "import/test_model_folder.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FolderCommandTest : public ModelFolderTest {
 protected:
  FolderCommandTest() {
    std::ofstream(out_.Path("text"))
        << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 2000);
  }

  // Publishes a model with random weights of this shape.
  void PublishRandom(const std::string& shape, const std::string& model_type,
                     const nlohmann::json& changes) {
    MakeModel(out_.Path("m"),
              R"({"hidden_size": 64, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1,
                  "head_dim": 32, "vocab_size": 300, "context_length": 256, )" +
                  shape + "}",
              DType::kF32);
    Publish(GgufFile::Open(out_.Path("m")), model_type, changes);
  }

  TestFolder out_{"hearth_folder_command"};
};

TEST_F(FolderCommandTest, IsTheModelThatItsFileIs) {
  Publish(Golden("qwen2"), "qwen2");
  const std::string file = SourcePath("tests/goldens/qwen2.gguf");
  const auto both = [&](std::vector<std::string> words) {
    std::vector<std::string> of_file = words;
    for (std::string& word : words) {
      if (word == "MODEL") word = folder_.Path("");
    }
    for (std::string& word : of_file) {
      if (word == "MODEL") word = file;
    }
    const ProgramResult folder = RunHearth(words);
    EXPECT_EQ(folder.exit_code, 0) << folder.err;
    EXPECT_NE(folder.out, "");
    EXPECT_EQ(folder.out, RunHearth(of_file).out) << words.front();
  };
  both({"run", "MODEL", "--raw", "-p", "the", "-n", "5", "--temp", "0"});
  both({"tokenize", "MODEL", "-p", "Once upon a time"});
  const auto perplexity = [&](const std::string& model) {
    const ProgramResult result = RunHearth({"eval", model, "--text", out_.Path("text"), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["perplexity"];
  };
  EXPECT_EQ(perplexity(folder_.Path("")), perplexity(file));
  EXPECT_THAT(RunHearth({"inspect", folder_.Path("")}).out, HasSubstr("qwen2"));
}

TEST_F(FolderCommandTest, WhatDoesNotFitSaysHowToStream) {
  PublishRandom(R"("arch": "llama", "intermediate_size": 65536)", "llama", {});
  const ProgramResult refused =
      RunHearth({"run", folder_.Path(""), "-p", "a", "--memory", "64M", "--ctx", "64"});
  EXPECT_THAT(refused.err, HasSubstr("'hearth convert'"));
  ExpectRefused(refused, 1, "does not fit into");
}

// P1's and P2's models, from what their authors publish to predictors, by one command.
TEST_F(FolderCommandTest, SparseFamiliesReachPredictors) {
  struct Family {
    const char* shape;
    const char* model_type;
    nlohmann::json changes;
    const char* activation;
  };
  const Family families[] = {
      {R"("arch": "llama", "intermediate_size": 512, "activation": "relu")",
       "llama",
       {{"hidden_act", "relu"}},
       "relu"},
      {R"("arch": "llama", "intermediate_size": 512, "activation": "fatrelu", "threshold": 0.01)",
       "sparsellama",
       {{"hidden_act", "fatrelu"}, {"hidden_act_param", 0.01}},
       "fatrelu"},
      {R"("arch": "mixtral", "intermediate_size": 256, "num_experts": 4,
          "num_experts_per_token": 2, "activation": "drelu")",
       "turbosparsemixtral",
       {{"hidden_act", "relu"}},
       "drelu"},
  };
  for (const Family& family : families) {
    SCOPED_TRACE(family.model_type);
    PublishRandom(family.shape, family.model_type, family.changes);
    const std::string packed = out_.Path("packed.gguf");
    const ProgramResult pack = RunHearth(
        {"pack", folder_.Path(""), "-o", packed, "--text", out_.Path("text"), "--quant", "f16"});
    ASSERT_EQ(pack.exit_code, 0) << pack.err;
    EXPECT_THAT(pack.out, HasSubstr("of the activation and change perplexity by"));
    EXPECT_THAT(pack.out, HasSubstr("before packing")) << "the perplexity of both";
    EXPECT_THAT(RunHearth({"inspect", packed}).out, HasSubstr(family.activation));
    const ProgramResult run = RunHearth(
        {"run", packed, "--raw", "-p", "Once", "-n", "4", "--temp", "0", "--mode", "predicted"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
}

TEST_F(FolderCommandTest, ProfilesAreTakenOfFolders) {
  PublishRandom(R"("arch": "llama", "intermediate_size": 512, "activation": "relu")", "llama",
                {{"hidden_act", "relu"}});
  const ProgramResult profile = RunHearth({"profile", folder_.Path(""), "--text", out_.Path("text"),
                                           "--tokens", "200", "-o", out_.Path("profile")});
  EXPECT_EQ(profile.exit_code, 0) << profile.err;
  const ProgramResult pack = RunHearth({"pack", folder_.Path(""), "-o", out_.Path("packed.gguf"),
                                        "--profile", out_.Path("profile")});
  EXPECT_EQ(pack.exit_code, 0) << pack.err;
}

// Another program's predictors change nothing about the model.
TEST_F(FolderCommandTest, OtherPredictorsAreLeftOutAloud) {
  MakeModel(out_.Path("m"), ShapeText(64, 96, R"("arch": "llama", "activation": "drelu")"),
            DType::kF32);
  const GgufFile model = GgufFile::Open(out_.Path("m"));
  PublishAs(model, "turbosparsemistral", [](std::string name) { return name; });
  const ProgramResult plain =
      RunHearth({"run", folder_.Path(""), "--raw", "-p", "a", "-n", "2", "--temp", "0"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.err, Not(HasSubstr("predictors")));
  std::string bytes = folder_.Bytes("model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  nlohmann::json header = nlohmann::json::parse(bytes.substr(sizeof(length), length));
  const size_t data_bytes = bytes.size() - sizeof(length) - length;
  header["model.layers.0.mlp.predictor.0.weight"] = {
      {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {data_bytes, data_bytes + 4}}};
  const std::string text = header.dump();
  const uint64_t new_length = text.size();
  std::ofstream(folder_.Path("model.safetensors"), std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&new_length), sizeof(new_length)) << text
      << bytes.substr(sizeof(length) + length) << "abcd";
  const ProgramResult with =
      RunHearth({"run", folder_.Path(""), "--raw", "-p", "a", "-n", "2", "--temp", "0"});
  EXPECT_EQ(with.exit_code, 0) << with.err;
  EXPECT_EQ(with.out, plain.out);
  EXPECT_THAT(with.err, HasSubstr("'hearth pack --text' makes its own"));
}

}  // namespace
}  // namespace hearth
