// hearth bench --trace from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReplayCommandTest : public testing::Test {
 protected:
  ReplayCommandTest()
      : folder_(testing::TempDir() + "replay_command." + std::to_string(getpid()) + "/") {
    std::filesystem::create_directory(folder_);
    std::ofstream routes(folder_ + "a.route.csv");
    routes << "# route_trace v1\n# model=/m/tiny.gguf n_layer=2 n_expert=10\n"
              "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
    for (int token = 0; token < 40; ++token) {
      for (int layer = 0; layer < 2; ++layer) {
        routes << "0,1," << token << "," << layer << ",0," << token % 3 << ",1,0,1\n";
        routes << "0,1," << token << "," << layer << ",1," << 3 + token % 7 << ",1,0,1\n";
      }
    }
  }
  ~ReplayCommandTest() override { std::filesystem::remove_all(folder_); }

  ProgramResult Replay(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"bench", "--trace", folder_ + "a.route.csv"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }

  const std::string folder_;
};

TEST_F(ReplayCommandTest, SynthPlantsWhatATraceShows) {
  const auto write_shape =
      [&](const std::string& name, const std::string& more) {
        std::ofstream(folder_ + name)
            << R"({"name": "small", "hidden_size": 64, "intermediate_size": 64, "num_layers": 2,
               "num_heads": 2, "vocab_size": 400, )" +
                   more + "}";
        return folder_ + name;
      };
  const std::string experts =
      write_shape("e.json", R"("num_experts": 10, "num_experts_per_token": 2)");
  const std::string trace = folder_ + "a.route.csv";
  const ProgramResult like =
      RunHearth({"synth", "--shape", experts, "-o", folder_ + "e.gguf", "--like", trace});
  EXPECT_EQ(like.exit_code, 0) << like.err;
  EXPECT_THAT(like.out, HasSubstr("of the experts (asked "));
  const std::string neurons = write_shape("n.json", R"("activation": "relu")");
  const std::string out = folder_ + "n.gguf";
  ExpectRefused(RunHearth({"synth", "--shape", neurons, "-o", out, "--like", trace}), 2, "--like");
  ExpectRefused(RunHearth({"synth", "--shape", experts, "-o", out, "--like", folder_ + "no"}), 1,
                "no");
  const ProgramResult measured =
      RunHearth({"synth", "--shape", neurons, "-o", out, "--locality", "measured"});
  EXPECT_THAT(measured.out, HasSubstr("(asked 67.0%)")) << measured.err;
}

TEST_F(ReplayCommandTest, JsonFitsItsSchemaAndAddsUp) {
  const ProgramResult result =
      Replay({"--policy", "two-queue,static", "--capacity", "10%,12.5%,100%", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const auto document = nlohmann::json::parse(result.out);
  const auto schema =
      nlohmann::json::parse(ReadWholeFile(SourcePath("docs/formats/schemas/replay.schema.json")));
  EXPECT_THAT(SchemaComplaints(schema, document), IsEmpty());
  EXPECT_EQ(document["model"], "tiny.gguf");
  EXPECT_EQ(document["accesses"], 160);
  EXPECT_EQ(document["passes"], 40);
  EXPECT_EQ(document["working_set"]["slots"], 4);
  EXPECT_EQ(document["working_set"]["lru_hits_nothing"], 2);
  ASSERT_EQ(document["points"].size(), 3);
  EXPECT_EQ(document["points"][1]["slots"], 2);
  EXPECT_EQ(document["points"][0]["lru_hit_rate"], 0);
  // With room for all, only first uses miss, whatever the policy.
  const auto& all = document["points"][2];
  EXPECT_EQ(all["belady_hit_rate"], 140.0 / 160);
  EXPECT_EQ(all["policies"][0]["policy"], "two-queue");
  for (const auto& policy : all["policies"]) {
    EXPECT_EQ(policy["hit_rate"], 140.0 / 160);
    EXPECT_TRUE(policy["gap_closed"].is_null());
  }
}

TEST_F(ReplayCommandTest, PrintsEveryPolicyBesideTheBound) {
  const ProgramResult result = Replay({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* word : {"two-queue", "lru", "s3-fifo", "lfu-decay", "layer-lfu", "hit-density",
                           "static", "Belady's bound", "60.0%", "of the way from LRU"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
}

TEST_F(ReplayCommandTest, DrawsAPicture) {
  ASSERT_EQ(Replay({"--plot", folder_ + "p.svg"}).exit_code, 0);
  const std::string svg = ReadWholeFile(folder_ + "p.svg");
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr("layer-lfu"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST_F(ReplayCommandTest, ReplaysTheNeuronsOfAModel) {
  std::ofstream(folder_ + "text") << "Once upon a time there was a little dog.";
  const std::string trace = folder_ + "n.trace";
  ASSERT_EQ(RunHearth({"profile", SourcePath("models/hearth-stories-5m.gguf"), "--text",
                       folder_ + "text", "--trace", trace})
                .exit_code,
            0);
  const ProgramResult result =
      RunHearth({"bench", "--trace", trace, "--capacity", "50%", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["unit"], "neurons");
  EXPECT_EQ(document["keys"], 5120);
}

// Of a language model whose FFNs were trained to dReLU (tests/goldens/README.md): how local real
// activations are, and that `synth` plants that.
TEST_F(ReplayCommandTest, ARealModelsTraceIsReplayedAndPlanted) {
  const std::string trace = SourcePath("tests/goldens/smollm2-drelu.trace");
  const ProgramResult replayed = RunHearth(
      {"bench", "--trace", trace, "--capacity", "50%", "--policy", "lru,layer-lfu", "--json"});
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  const auto document = nlohmann::json::parse(replayed.out);
  EXPECT_EQ(document["keys"], 30 * 1536);
  EXPECT_EQ(document["accesses"], 306001);  // 16.6% of the keys, in each of 40 tokens
  const auto& half = document["points"][0];
  EXPECT_NEAR(half["belady_hit_rate"], 0.837726, 1e-6);
  EXPECT_NEAR(half["policies"][0]["hit_rate"], 0.723442, 1e-6);
  EXPECT_NEAR(half["policies"][1]["hit_rate"], 0.749746, 1e-6);
  std::ofstream(folder_ + "r.json")
      << R"({"hidden_size": 256, "intermediate_size": 2048, "num_layers": 3, "num_heads": 4,
             "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "drelu"})";
  const ProgramResult planted = RunHearth({"synth", "--shape", folder_ + "r.json", "--packed",
                                           "--like", trace, "-o", folder_ + "r.gguf"});
  ASSERT_EQ(planted.exit_code, 0) << planted.err;
  double skew, asked_skew, found, asked_found;
  const size_t at = planted.out.find("planted: ");
  ASSERT_NE(at, std::string::npos) << planted.out;
  ASSERT_EQ(std::sscanf(planted.out.c_str() + at,
                        "planted: 80%% of activations in %lf%% of the neurons (asked %lf%%); a "
                        "cache of 50%% of them finds %lf%% (asked %lf%%)",
                        &skew, &asked_skew, &found, &asked_found),
            4)
      << planted.out;
  EXPECT_NEAR(skew, asked_skew, 2);
  EXPECT_NEAR(found, asked_found, 3);
  EXPECT_NEAR(asked_skew, 42, 1);
}

TEST_F(ReplayCommandTest, RefusesWhatMakesNoSenseTogether) {
  ExpectRefused(Replay({"--threads", "2"}), 2, "--threads has no effect: --trace runs no model");
  ExpectRefused(Replay({"model.gguf"}), 2, "MODEL has no effect");
  ExpectRefused(Replay({"--decode", "8"}), 2, "--decode");
  ExpectRefused(Replay({"--profile"}), 2, "--profile");
  ExpectRefused(RunHearth({"bench", "m.gguf", "--policy", "lru"}), 2,
                "--policy: there is no --trace");
  ExpectRefused(RunHearth({"bench", "m.gguf", "--capacity", "5%"}), 2, "--capacity");
  ExpectRefused(RunHearth({"bench", "m.gguf", "--plot", "p.svg"}), 2, "--plot");
  ExpectRefused(Replay({"--policy", "fifo"}), 2, "expected some of lru, two-queue");
  ExpectRefused(Replay({"--policy", "lru,lru"}), 2, "lru is named twice");
  for (const char* shares : {"", "5", "0%", "101%", "5%,", "-1%", "nan%", "5%;6%"}) {
    ExpectRefused(Replay({"--capacity", shares}), 2, "--capacity");
  }
}

TEST_F(ReplayCommandTest, FailsInOneSentence) {
  ExpectRefused(RunHearth({"bench", "--trace", "/nowhere"}), 1, "/nowhere");
  std::ofstream(folder_ + "b.csv") << "step,layer\n";
  ExpectRefused(RunHearth({"bench", "--trace", folder_ + "b.csv"}), 1, "line 1");
  ExpectRefused(Replay({"--plot", "/nowhere/p.svg"}), 1, "/nowhere/p.svg");
}

}  // namespace
}  // namespace hearth
