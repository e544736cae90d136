// hearth quantize and hearth profile --imatrix, as users call them.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "format/gguf.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QuantizeCommandTest : public testing::Test {
 protected:
  QuantizeCommandTest() {
    const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
    std::ofstream(folder_.Path("text"), std::ios::binary) << text.substr(0, 3000);
  }

  std::string Out() const { return folder_.Path("m.gguf"); }
  ProgramResult Quantize(const std::vector<std::string>& more,
                         const std::string& model = SourcePath("models/hearth-stories-5m.gguf")) {
    std::vector<std::string> command = {"quantize", model, "-o", Out()};
    command.insert(command.end(), more.begin(), more.end());
    return RunHearth(command);
  }
  nlohmann::json Document(std::vector<std::string> more) {
    more.push_back("--json");
    const ProgramResult result = Quantize(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  // Of stories that each are a text of their own, as the model learned them: in a text of several
  // the first words of the next one cost most, which says nothing about weights.
  double Nll(const std::vector<std::string>& stories, const std::string& activations = "i8") {
    double nll = 0, tokens = 0;
    for (const std::string& story : stories) {
      std::ofstream(folder_.Path("story"), std::ios::binary) << story;
      const ProgramResult result =
          RunHearth({"eval", Out(), "--text", folder_.Path("story"), "--ctx", "512",
                     "--activations", activations, "--json"});
      EXPECT_EQ(result.exit_code, 0) << result.err;
      const nlohmann::json json = nlohmann::json::parse(result.out);
      nll += json["nll_per_token"].get<double>() * json["tokens"].get<double>();
      tokens += json["tokens"].get<double>();
    }
    return nll / tokens;
  }
  void MakeImatrix(const std::vector<std::string>& stories) {
    std::ofstream text(folder_.Path("calibration"), std::ios::binary);
    for (const std::string& story : stories) text << story << "\n\n";
    text.close();
    const ProgramResult result =
        RunHearth({"profile", SourcePath("models/hearth-stories-5m.gguf"), "--text",
                   folder_.Path("calibration"), "--imatrix", folder_.Path("i.gguf")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("importance of the inputs of"));
  }

  TestFolder folder_{"hearth_quantize_command"};
};

TEST_F(QuantizeCommandTest, MakesAFileThatRuns) {
  const ProgramResult result = Quantize({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "") << "silent in a pipe";
  EXPECT_THAT(result.out, HasSubstr("q4_k_m"));
  EXPECT_THAT(result.out, HasSubstr("Q4_K"));
  EXPECT_LT(std::filesystem::file_size(Out()), 5'000'000u);
  const ProgramResult run =
      RunHearth({"run", Out(), "--raw", "-p", "Once upon", "-n", "4", "--temp", "0"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const ProgramResult inspect = RunHearth({"inspect", Out()});
  EXPECT_THAT(inspect.out, HasSubstr("Q6_K"));
}

// Activations of 11 bits are closer to floats than those of 8: with weights that lose nothing, of
// which Q8_0 loses least, so is the result.
TEST_F(QuantizeCommandTest, ActivationsOf11BitsAreCloserToFloats) {
  const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
  const std::vector<std::string> stories = {text.substr(0, 1500)};
  ASSERT_EQ(Quantize({"--recipe", "f16"}).exit_code, 0);
  const double floats = Nll(stories);
  ASSERT_EQ(Quantize({"--recipe", "q8_0", "--force"}).exit_code, 0);
  const double int8 = Nll(stories), half = Nll(stories, "f16");
  EXPECT_NE(int8, half);
  EXPECT_NEAR(half, floats, 2e-3 * floats);
  EXPECT_NEAR(int8, floats, 2e-2 * floats);
}

TEST_F(QuantizeCommandTest, ActivationsThatChangeNothingAreRefused) {
  const std::string model = SourcePath("models/hearth-stories-5m.gguf");
  const ProgramResult floats =
      RunHearth({"eval", model, "--text", folder_.Path("text"), "--activations", "f16"});
  EXPECT_EQ(floats.exit_code, 1);
  EXPECT_THAT(floats.err, HasSubstr("--activations: f16 has no effect: no matrix is quantized"));
  const std::string packed = folder_.Path("packed.gguf");
  ASSERT_EQ(RunHearth({"pack", model, "-o", packed}).exit_code, 0);
  const ProgramResult neurons =
      RunHearth({"eval", packed, "--text", folder_.Path("text"), "--activations", "f16"});
  EXPECT_EQ(neurons.exit_code, 1);
  EXPECT_THAT(neurons.err, HasSubstr("--activations: a packed model's neurons multiply 8-bit"));
}

TEST_F(QuantizeCommandTest, JsonIsAsItsSchemaSaysAndTellsWhatItCosts) {
  const nlohmann::json json = Document({"--recipe", "Q4_0", "--text", folder_.Path("text")});
  EXPECT_THAT(SchemaComplaints(Schema("quantize"), json), ElementsAre());
  EXPECT_EQ(json["recipe"], "q4_0");
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(Out()));
  EXPECT_GT(json["bits_per_weight"]["before"], 15.9);
  EXPECT_LT(json["bits_per_weight"]["after"], 5.5);
  EXPECT_GT(json["text"]["same_likeliest"], 0.8);
  const double before = json["text"]["perplexity"]["before"];
  const double after = json["text"]["perplexity"]["after"];
  EXPECT_LT(std::abs(after / before - 1), 0.2);
}

TEST_F(QuantizeCommandTest, RecipesAndRulesDecideTypes) {
  Document({"--recipe", "mnn-int4", "--tensor", "blk.0.ffn_down=q6_k", "--tensor", "attn_v=q8_0",
            "--embedding", "f16"});
  const GgufFile file = GgufFile::Open(Out());
  EXPECT_EQ(file.GetTensor("blk.0.ffn_down.weight").dtype, DType::kQ6_K);
  EXPECT_EQ(file.GetTensor("blk.1.ffn_down.weight").dtype, DType::kQ4_1);
  EXPECT_EQ(file.GetTensor("blk.1.attn_v.weight").dtype, DType::kQ8_0);
  EXPECT_EQ(file.GetTensor("token_embd.weight").dtype, DType::kF16);
  EXPECT_EQ(file.GetTensor("output_norm.weight").dtype, DType::kF32);
}

std::vector<std::string> Stories() {
  const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
  std::vector<std::string> stories;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    stories.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return stories;
}

TEST_F(QuantizeCommandTest, AnImportanceMatrixHelpsWithOtherTexts) {
  const std::vector<std::string> stories = Stories();
  ASSERT_EQ(stories.size(), 12u);
  const std::vector<std::string> others(stories.begin() + 6, stories.end());
  MakeImatrix({stories.begin(), stories.begin() + 6});
  for (const std::string recipe : {"q2_k", "q3_k_s"}) {
    Document({"--recipe", recipe, "--force"});
    const double plain = Nll(others);
    const std::string bytes = folder_.Bytes("m.gguf");
    const nlohmann::json json =
        Document({"--recipe", recipe, "--imatrix", folder_.Path("i.gguf"), "--force"});
    EXPECT_THAT(SchemaComplaints(Schema("quantize"), json), ElementsAre());
    EXPECT_EQ(json["without_importance"], 0);
    EXPECT_NE(folder_.Bytes("m.gguf"), bytes);
    EXPECT_LT(Nll(others), plain) << recipe;
  }
}

TEST_F(QuantizeCommandTest, MakingAnImportanceMatrixIsDocumented) {
  const ProgramResult result = RunHearth(
      {"profile", SourcePath("tests/goldens/mixtral.gguf"), "--text", folder_.Path("text"),
       "--imatrix", folder_.Path("i.gguf"), "--ctx", "64", "--tokens", "100", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("imatrix"), json), ElementsAre());
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(folder_.Path("i.gguf")));
  const GgufFile file = GgufFile::Open(folder_.Path("i.gguf"));
  EXPECT_NE(file.FindTensorOrNull("blk.0.ffn_up_exps.weight.in_sum2"), nullptr);
  EXPECT_NE(file.FindTensorOrNull("blk.0.ffn_up_exps.weight.counts"), nullptr);
}

TEST_F(QuantizeCommandTest, AFileThatIsThereStays) {
  std::ofstream(Out()) << "precious";
  ExpectRefused(Quantize({}), 1, "--force replaces it");
  EXPECT_EQ(folder_.Bytes("m.gguf"), "precious");
  EXPECT_EQ(Quantize({"--force", "--recipe", "q8_0"}).exit_code, 0);
  EXPECT_EQ(folder_.Bytes("m.gguf").substr(0, 4), "GGUF");
}

TEST_F(QuantizeCommandTest, WhatIsQuantizedNeedsToBeAskedFor) {
  ASSERT_EQ(Quantize({"--recipe", "q8_0"}).exit_code, 0);
  const std::string eight = folder_.Path("eight.gguf");
  std::filesystem::rename(Out(), eight);
  ExpectRefused(Quantize({}, eight), 1, "--requantize does it all the same");
  const ProgramResult result = Quantize({"--requantize"}, eight);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("quantized already"));
}

TEST_F(QuantizeCommandTest, WhatCannotBeIsSaid) {
  ExpectRefused(Quantize({"--recipe", "q4_k_xl"}), 2, "--recipe: there is no such recipe");
  ExpectRefused(Quantize({"--tensor", "attn_v"}), 2, "expected PATTERN=TYPE");
  ExpectRefused(Quantize({"--tensor", "attn_v=q9"}), 2, "expected one of f32, f16");
  ExpectRefused(Quantize({"--embedding", "i8"}), 2, "expected one of");
  ExpectRefused(Quantize({"--tensor", "no_such=q8_0"}), 1, "matches no tensor of the model");
  ExpectRefused(Quantize({"--recipe", "mxfp4"}), 1, "this model has none");
  ExpectRefused(Quantize({"--imatrix", folder_.Path("text")}), 1, "it is no importance matrix");
  ExpectRefused(Quantize({"--imatrix", folder_.Path("missing")}), 1, "missing");
  ExpectRefused(Quantize({"--memory", "1M"}), 1, "");
  ExpectRefused(Quantize({}, folder_.Path("text")), 1, "text");
  ExpectRefused(RunHearth({"quantize", SourcePath("models/hearth-stories-5m.gguf"), "-o",
                           SourcePath("models/hearth-stories-5m.gguf")}),
                2, "is read as MODEL");
  ExpectRefused(RunHearth({"profile", SourcePath("models/hearth-stories-5m.gguf"), "--text",
                           folder_.Path("text"), "--imatrix", Out(), "-o", folder_.Path("p")}),
                2, "--imatrix: without -o");
  EXPECT_THAT(folder_.Files(), ElementsAre("text"));
}

// A limit on the size of files stands for a full disk.
TEST_F(QuantizeCommandTest, AFileThatCannotBeWrittenLeavesNothing) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = 200000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult result = Quantize({});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ExpectRefused(result, 1, "m.gguf");
  EXPECT_THAT(folder_.Files(), ElementsAre("text"));
}

}  // namespace
}  // namespace hearth
