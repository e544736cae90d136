// hearth pack, and hearth inspect of what it makes, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "json_schema.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Stories() { return SourcePath("models/hearth-stories-5m.gguf"); }

void ExpectOneSentence(const ProgramResult& result, int exit_code, const std::string& words) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("hearth: "), HasSubstr(words)));
}

class PackCommandTest : public ::testing::Test {
 protected:
  // A packed file with experts, rates and predictors.
  void MakePacked() {
    MakeModel(folder_.Path("m"), ShapeText(96, 64, kExpertShape), DType::kF16);
    const GgufFile source = GgufFile::Open(folder_.Path("m"));
    const ModelProfile profile = MakeProfile(source);
    PredictorSet set{.input = PredictorInput::kResidual};
    for (int i = 0; i < 6; ++i) {
      MadePredictor made;
      if (i != 1) {
        made = {.rank = 32,
                .down = std::vector<float>(32 * 96, 0.5f),
                .up = std::vector<float>(32 * 64, 0.25f),
                .bias = std::vector<float>(64, 1.0f),
                .threshold = 0.125f};
      }
      set.ffns.push_back(QuantizePredictor(made, set.dtype));
    }
    PackModel(source,
              {.profile = &profile, .predictors = &set, .quant = DType::kQ8_0, .threads = 1},
              folder_.Path("p"));
  }

  void FlipByte(const std::string& name, uint64_t offset) {
    std::fstream file(folder_.Path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
  }

  TestFolder folder_{"hearth_pack_command"};
};

TEST_F(PackCommandTest, PacksAndSaysWhatItDid) {
  const ProgramResult result =
      RunHearth({"pack", Stories(), "-o", folder_.Path("p"), "--quant", "q8_0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("no --profile"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("5120 neurons"), HasSubstr("1536 bytes (Q8_0)"),
                                HasSubstr("perplexity was not measured: there is no --text"),
                                HasSubstr("\ndense "), HasSubstr("\ngated "),
                                HasSubstr("the fastest of these here")));
  const ProgramResult verified = RunHearth({"inspect", "--verify", folder_.Path("p")});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, AllOf(HasSubstr("is intact"), HasSubstr("5120 bundles")));
  const ProgramResult text = RunHearth({"inspect", folder_.Path("p")});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("bundles    5120 neurons of 1536 bytes"),
                              HasSubstr("gate Q8_0 272, check xxh32 8"), HasSubstr("5.4 million"),
                              HasSubstr("order of the source"), HasSubstr("predictors none")));
}

TEST_F(PackCommandTest, ATextMakesPredictorsThatRun) {
  std::ofstream(folder_.Path("text"))
      << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 1500);
  const ProgramResult packed =
      RunHearth({"pack", Stories(), "--text", folder_.Path("text"), "-o", folder_.Path("p")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(packed.err, "");
  EXPECT_THAT(packed.out, AllOf(HasSubstr("predictors name"), HasSubstr("before packing"),
                                HasSubstr("\ngated "), HasSubstr("--mode auto is ")));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("p.predictors"))) << "left behind";
  const ProgramResult inspected = RunHearth({"inspect", folder_.Path("p")});
  EXPECT_THAT(inspected.out, HasSubstr("runs       dense, gated, predicted"));
  const ProgramResult run = RunHearth(
      {"run", folder_.Path("p"), "-p", "Once", "-n", "8", "--temp", "0", "--mode", "predicted"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(run.out.empty());
}

TEST_F(PackCommandTest, PredictorsAreTrainedWhereTheyAreToBe) {
  std::ofstream(folder_.Path("text"))
      << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 1500);
  const auto trained = [&](const std::string& method) {
    const ProgramResult packed =
        RunHearth({"pack", Stories(), "--text", folder_.Path("text"), "-o", folder_.Path(method),
                   "--predictor", method, "--mode", "predicted", "--json"});
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    return nlohmann::json::parse(packed.out)["predictors"]["trained"].get<int>();
  };
  EXPECT_EQ(trained("computed"), 0);
  EXPECT_EQ(trained("trained"), 5) << "every layer";
  const auto pack = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"pack", Stories(), "-o", folder_.Path("q")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  ExpectOneSentence(pack({"--predictor", "trained"}), 2, "no --text");
  ExpectOneSentence(pack({"--predictor", "best"}), 2, "auto, computed or trained");
}

TEST_F(PackCommandTest, ATextThatTeachesNothingIsRefused) {
  std::ofstream(folder_.Path("empty")) << "";
  ExpectOneSentence(
      RunHearth({"pack", Stories(), "--text", folder_.Path("empty"), "-o", folder_.Path("p")}), 1,
      "the text is empty");
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("p")));
}

// Before the text is read, which is not even there.
TEST_F(PackCommandTest, WhatCannotBeWrittenIsKnownBeforeAnythingIsLearned) {
  const auto pack = [&](const std::string& source, const std::string& out) {
    return RunHearth({"pack", source, "--text", "/nowhere/text", "-o", out});
  };
  MakeModel(folder_.Path("m"), ShapeText(64, 64, kDenseShape), DType::kF16);
  ExpectOneSentence(pack(folder_.Path("m"), "/nowhere/p.gguf"), 1, "/nowhere/p.gguf");
  ExpectOneSentence(pack(folder_.Path("m"), folder_.Path("m")), 2, "would be replaced");
  ExpectOneSentence(pack(folder_.Path("m"), folder_.Path("p")), 1, "/nowhere/text");
  EXPECT_THAT(folder_.Files(), ElementsAre("m"));
}

TEST_F(PackCommandTest, TheDocumentIsWhatItsSchemaSays) {
  std::ofstream(folder_.Path("text"))
      << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 3000);
  const auto document = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "pack");
    arguments.insert(arguments.end(), {"-o", folder_.Path("p"), "--json"});
    const ProgramResult result = RunHearth(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json parsed = nlohmann::json::parse(result.out);
    EXPECT_THAT(SchemaComplaints(Schema("pack"), parsed), IsEmpty());
    return parsed;
  };
  const nlohmann::json plain = document({Stories(), "--mode", "dense"});
  EXPECT_TRUE(plain["perplexity"].is_null());
  EXPECT_TRUE(plain["speeds"].is_null());
  EXPECT_EQ(plain["mode"], "dense");
  EXPECT_THAT(RunHearth({"inspect", folder_.Path("p")}).out, HasSubstr("(auto: dense)"));
  // Four bits cost something, and eight next to nothing.
  const nlohmann::json coarse =
      document({Stories(), "--text", folder_.Path("text"), "--quant", "q4_0"});
  EXPECT_GT(coarse["perplexity"]["change"], 0.005);
  EXPECT_GT(coarse["predictors"]["recall"], 0.9);
  EXPECT_GE(coarse["speeds"].size(), 2u);
  EXPECT_EQ(coarse["speeds"][0]["mode"], "dense");
}

// Of a text that ends in what no story is, the end alone is reported, and nothing learned from it.
TEST_F(PackCommandTest, WhatIsReportedIsOfAPartThatNothingWasLearnedFrom) {
  const std::string stories =
      ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 3000);
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 200; ++i) {  // about as many tokens, a fifth of all
    state = state * 1664525 + 1013904223;
    noise += static_cast<char>('!' + (state >> 24) % 90);
  }
  std::ofstream(folder_.Path("stories")) << stories;
  std::ofstream(folder_.Path("text")) << stories << noise;
  const auto pack = [&](const std::string& text) {
    const ProgramResult result = RunHearth({"pack", Stories(), "--text", folder_.Path(text), "-o",
                                            folder_.Path("p"), "--mode", "predicted", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const nlohmann::json document = pack("text");
  const nlohmann::json& perplexity = document["perplexity"];
  EXPECT_TRUE(perplexity["unseen"]);
  const nlohmann::json eval = nlohmann::json::parse(
      RunHearth({"eval", Stories(), "--text", folder_.Path("text"), "--json"}).out);
  EXPECT_GT(perplexity["source"], 30 * eval["perplexity"].get<double>());
  // Every token is either learned from or reported on.
  const nlohmann::json packing =
      nlohmann::json::parse(RunHearth({"inspect", folder_.Path("p"), "--json"}).out)["packing"];
  const auto learned = packing["activity"]["profile_tokens"].get<int64_t>();
  const auto reported = perplexity["tokens"].get<int64_t>();
  const auto all = eval["tokens"].get<int64_t>();
  EXPECT_NEAR(static_cast<double>(learned), 0.8 * static_cast<double>(all),
              0.02 * static_cast<double>(all));
  EXPECT_NEAR(static_cast<double>(reported), 0.2 * static_cast<double>(all),
              0.02 * static_cast<double>(all));
  // Predictors are judged there too: in noise more neurons fire than in stories.
  EXPECT_EQ(document["predictors"]["tokens"], perplexity["tokens"]);
  EXPECT_GT(document["predictors"]["listed"],
            1.4 * pack("stories")["predictors"]["listed"].get<double>());
}

// The same command writes the same bytes where it is told what to record.
TEST_F(PackCommandTest, SameBytesWithAMode) {
  for (const std::string name : {"p", "q"}) {
    ASSERT_EQ(RunHearth({"pack", Stories(), "-o", folder_.Path(name), "--mode", "gated",
                         "--threads", name == "p" ? "1" : "2"})
                  .exit_code,
              0);
  }
  EXPECT_EQ(folder_.Bytes("p"), folder_.Bytes("q"));
}

TEST_F(PackCommandTest, SiluModelsGoSparseWhereAskedTo) {
  HEARTH_NEED_SHARED("data/models/stories260K.gguf");
  const std::string silu = SharedPath("data/models/stories260K.gguf");
  std::ofstream(folder_.Path("text"))
      << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 1500);
  const auto pack = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "pack", silu, "--text", folder_.Path("text"), "-o", folder_.Path("p")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  const ProgramResult refused = pack({});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--silu-threshold"), HasSubstr("--force")));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("p")));
  const ProgramResult whole = pack({"--force"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("every neuron of this model is always active"),
                               HasSubstr("--silu-threshold"), HasSubstr("auto is dense")));
  const ProgramResult sparse = pack({"--silu-threshold", "2%", "--json"});
  ASSERT_EQ(sparse.exit_code, 0) << sparse.err;
  const nlohmann::json document = nlohmann::json::parse(sparse.out);
  EXPECT_THAT(SchemaComplaints(Schema("pack"), document), IsEmpty());
  const nlohmann::json& made = document["silu"];
  EXPECT_LT(made["active"], 1.0);
  EXPECT_NEAR(made["perplexity_after"].get<double>() / made["perplexity_before"].get<double>(), 1,
              0.0201);
  EXPECT_LT(document["active"], 1.0);
  const ProgramResult run =
      RunHearth({"eval", folder_.Path("p"), "--text", folder_.Path("text"), "--mode", "gated"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  // What cannot be.
  ExpectOneSentence(pack({"--silu-threshold", "0"}), 2, "--silu-threshold");
  ExpectOneSentence(pack({"--silu-threshold", "1%%"}), 2, "--silu-threshold");
  ExpectOneSentence(pack({"--silu-threshold", "1%", "--profile", "x"}), 2, "--profile");
  ExpectOneSentence(RunHearth({"pack", silu, "-o", folder_.Path("q"), "--silu-threshold", "1%"}), 2,
                    "no --text");
  ExpectOneSentence(pack({"--mode", "gated"}), 1, "with silu all add something");
  ExpectOneSentence(RunHearth({"pack", Stories(), "--text", folder_.Path("text"), "-o",
                               folder_.Path("q"), "--silu-threshold", "1%"}),
                    1, "silu");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", folder_.Path("q"), "--mode", "predicted"}),
                    2, "--mode predicted");
}

TEST_F(PackCommandTest, InspectDescribesThePackingAsItsSchemaSays) {
  MakePacked();
  const ProgramResult result = RunHearth({"inspect", folder_.Path("p"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("inspect"), document), IsEmpty());
  const nlohmann::json& packing = document["packing"];
  EXPECT_EQ(packing["bundle"]["stride"], 1024);
  EXPECT_EQ(packing["bundle"]["parts"][3]["role"], "down");
  EXPECT_EQ(packing["neurons"], 2 * 3 * 64);
  EXPECT_TRUE(packing["order"]);
  EXPECT_EQ(packing["activity"]["profile_tokens"], 1000);
  EXPECT_GT(packing["activity"]["mean_rate"], 0.01);
  EXPECT_GT(packing["activity"]["neurons_with_80_percent"], 0.1);
  EXPECT_LT(packing["activity"]["neurons_with_80_percent"], 0.7);
  EXPECT_EQ(packing["predictors"]["input"], "residual");
  EXPECT_EQ(packing["predictors"]["ranks"], nlohmann::json({32, 32}));
  EXPECT_EQ(packing["predictors"]["thresholds"].size(), 6u);
  const ProgramResult text = RunHearth({"inspect", folder_.Path("p")});
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("predictors rank 32 to 32, Q8_0"),
                    HasSubstr("thresholds 0.125 to 0.125"), HasSubstr("over 1000 tokens")));
  const ProgramResult plain = RunHearth({"inspect", Stories(), "--json"});
  const nlohmann::json plain_document = nlohmann::json::parse(plain.out);
  EXPECT_THAT(SchemaComplaints(Schema("inspect"), plain_document), IsEmpty());
  EXPECT_TRUE(plain_document["packing"].is_null());
}

// The whole way: a profile, the order that follows from it, and the same perplexity.
TEST_F(PackCommandTest, AProfileGivesTheOrder) {
  const std::string text = SourcePath("models/hearth-stories.txt");
  const ProgramResult profiled = RunHearth(
      {"profile", Stories(), "--text", text, "--tokens", "600", "-o", folder_.Path("profile")});
  ASSERT_EQ(profiled.exit_code, 0) << profiled.err;
  const ProgramResult packed = RunHearth({"pack", Stories(), "-o", folder_.Path("p"), "--profile",
                                          folder_.Path("profile"), "--quant", "q8_0"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(packed.err, "");
  {
    const GgufFile file = GgufFile::Open(folder_.Path("p"));
    EXPECT_GE(file.metadata().GetUint("hearth.profile.tokens"), 600u);
    const auto rates = ReadValues<float>(file, BundleRateName(2));
    EXPECT_TRUE(std::is_sorted(rates.rbegin(), rates.rend()));
    EXPECT_GT(rates.front(), 0.2f);
    EXPECT_LT(rates.back(), 0.05f);
    const auto order = ReadValues<int32_t>(file, BundleOrderName(2));
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  }
  const auto perplexity = [&](const std::string& model) {
    const ProgramResult result = RunHearth({"eval", model, "--text", text, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["perplexity"].get<double>();
  };
  // Q8_0 costs this model 0.1%; a neuron whose rows were not its own would cost everything.
  const double plain = perplexity(Stories());
  EXPECT_NEAR(perplexity(folder_.Path("p")), plain, 0.01 * plain);
  MakeModel(folder_.Path("other"),
            ShapeText(64, 64, std::string(kDenseShape) + R"(, "activation": "drelu")"),
            DType::kF16);
  ExpectOneSentence(RunHearth({"pack", folder_.Path("other"), "-o", folder_.Path("q"), "--profile",
                               folder_.Path("profile")}),
                    1, "hash of the model");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", folder_.Path("q"), "--profile", Stories()}),
                    1, Stories());
}

TEST_F(PackCommandTest, VerifyNamesWhatWasAltered) {
  MakePacked();
  const ProgramResult good = RunHearth({"inspect", folder_.Path("p"), "--verify", "--json"});
  ASSERT_EQ(good.exit_code, 0) << good.err;
  const nlohmann::json document = nlohmann::json::parse(good.out);
  EXPECT_THAT(SchemaComplaints(Schema("verify"), document), IsEmpty());
  EXPECT_EQ(document["bundles"], 384);
  uint64_t bundle = 0;
  uint64_t norm = 0;
  {
    const GgufFile file = GgufFile::Open(folder_.Path("p"));
    const GgufTensor& bundles = file.GetTensor(BundleTensorName(1));
    bundle = bundles.offset + (2 * 64 + 5) * bundles.ne[0] + 600;
    norm = file.GetTensor("blk.1.attn_norm.weight").offset + 5;
  }
  FlipByte("p", bundle);
  ExpectOneSentence(RunHearth({"inspect", folder_.Path("p"), "--verify"}), 1,
                    "layer 1, expert 2, neuron 5 was altered");
  FlipByte("p", norm);
  ExpectOneSentence(RunHearth({"inspect", folder_.Path("p"), "--verify", "--json"}), 1,
                    "tensor 'blk.1.attn_norm.weight' was altered");
  FlipByte("p", 400);
  ExpectOneSentence(RunHearth({"inspect", folder_.Path("p"), "--verify"}), 1, folder_.Path("p"));
  ExpectOneSentence(RunHearth({"inspect", Stories(), "--verify"}), 1, "plain model file");
}

TEST_F(PackCommandTest, FailuresAreOneSentenceAndLeaveNothing) {
  const std::string out = folder_.Path("p");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", out, "--memory", "1M"}), 1,
                    "the smallest that can is ");
  ExpectOneSentence(RunHearth({"pack", "/nowhere/m.gguf", "-o", out}), 1, "/nowhere/m.gguf");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", "/nowhere/p.gguf"}), 1, "/nowhere/p.gguf");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", ::testing::TempDir()}), 1, "a directory");
  ExpectOneSentence(RunHearth({"pack", Stories()}), 2, "--output");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", ""}), 2, "--output");
  for (const std::string quant : {"q6_k", "f32", "bf16", "", "much"}) {
    ExpectOneSentence(RunHearth({"pack", Stories(), "-o", out, "--quant", quant}), 2, "--quant");
  }
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", out, "--memory", "much"}), 2, "--memory");
  ExpectOneSentence(RunHearth({"pack", Stories(), "-o", out, "--threads", "0"}), 2, "--threads");
  EXPECT_THAT(folder_.Files(), IsEmpty());
  ASSERT_EQ(RunHearth({"pack", Stories(), "-o", out}).exit_code, 0);
  ExpectOneSentence(RunHearth({"pack", out, "-o", folder_.Path("again")}), 1,
                    "packed file already");
  EXPECT_THAT(folder_.Files(), ElementsAre("p"));
}

// Of a text too short to make predictors from, which is known after the folder for them is there.
TEST_F(PackCommandTest, NoEmptyFolderIsLeft) {
  std::ofstream(folder_.Path("text")) << "Once upon a time there was a dog.";
  ExpectOneSentence(
      RunHearth({"pack", Stories(), "--text", folder_.Path("text"), "-o", folder_.Path("p")}), 1,
      "tokens to make predictors from");
  EXPECT_THAT(folder_.Files(), ElementsAre("text"));
}

// The limit that a refusal names.
std::string NamedIn(const std::string& refusal) {
  const size_t at = refusal.find("can is ") + 7;
  return refusal.substr(at, refusal.find_first_of(" \n", at) - at);
}

// The budget that a refusal names is enough, and memory stays within it.
TEST_F(PackCommandTest, TheSmallestMemoryNamedWorks) {
  const std::string out = folder_.Path("p");
  const ProgramResult refused =
      RunHearth({"pack", Stories(), "-o", out, "--memory", "1M", "--threads", "2"});
  const std::string size = NamedIn(refused.err);
  const ProgramResult done =
      RunHearth({"pack", Stories(), "-o", out, "--memory", size, "--threads", "2"});
  EXPECT_EQ(done.exit_code, 0) << size << ": " << done.err;
}

// The model is streamed while it is learned from, and so is what is written while it is scored.
TEST_F(PackCommandTest, LearnsWithLittleMemoryToo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer keeps what learning gave back, so that packing has less than it";
#endif
  std::ofstream(folder_.Path("text"))
      << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 420);
  const auto make = [&](const std::string& activation) {
    MakeModel(folder_.Path("m"),
              R"({"arch": "llama", "hidden_size": 256, "intermediate_size": 6144,
              "num_layers": 6, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64,
              "vocab_size": 300, "context_length": 512, "activation": ")" +
                  activation + "\"}",
              DType::kQ8_0);
  };
  const auto pack_little = [&](const std::vector<std::string>& more) {
    const auto pack = [&](const std::string& memory) {
      std::vector<std::string> words = {"pack",      folder_.Path("m"),
                                        "--text",    folder_.Path("text"),
                                        "-o",        folder_.Path("little"),
                                        "--threads", "2",
                                        "--memory",  memory};
      words.insert(words.end(), more.begin(), more.end());
      return RunHearth(words);
    };
    const ProgramResult refused = pack("1M");
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, Not(HasSubstr("--ctx"))) << "pack has none";
    SCOPED_TRACE(refused.err);
    const ProgramResult little = pack(NamedIn(refused.err));
    EXPECT_EQ(little.exit_code, 0) << little.err;
    EXPECT_THAT(little.err, HasSubstr("larger than this memory"));
    EXPECT_THAT(little.out, HasSubstr("before packing")) << "the perplexity of both";
    EXPECT_THAT(folder_.Files(), ElementsAre("little", "m", "text"));
    return RunHearth({"inspect", folder_.Path("little")}).out;
  };
  make("drelu");
  EXPECT_THAT(pack_little({}), HasSubstr("predictors rank"));
  make("silu");
  EXPECT_THAT(pack_little({"--silu-threshold", "5%"}), HasSubstr("silu"));
  for (const std::vector<std::string>& text :
       {std::vector<std::string>{}, {"--text", folder_.Path("text")}}) {
    std::vector<std::string> words = {"pack", folder_.Path("m"), "-o", folder_.Path("q")};
    words.insert(words.end(), text.begin(), text.end());
    ExpectOneSentence(RunHearth(words), 1, "--force");
  }
  EXPECT_EQ(RunHearth({"pack", folder_.Path("m"), "-o", folder_.Path("q"), "--force"}).exit_code,
            0);
}

}  // namespace
}  // namespace hearth
