// Models larger than --memory on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "json_schema.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class StreamingCommandTest : public testing::Test {
 protected:
  // As sparse as bamboo-7b, with predictors; 36 MiB of neurons.
  static void SetUpTestSuite() {
    folder_ = new TestFolder("streaming_command");
    SynthesizeSparseModel(Model());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Model() { return folder_->Path("model.gguf"); }

  // The smallest limit that a refusal names, and some more.
  static std::string Memory(uint64_t more_mib, const char* mode = "predicted") {
    const ProgramResult refused = RunHearth(
        {"bench", Model(), "--memory", "1M", "--prefill", "16", "--decode", "8", "--mode", mode});
    return std::to_string((LimitOfRefusal(refused.err) >> 20) + more_mib) + "M";
  }

  static ProgramResult Bench(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench",    Model(), "--prefill", "16",
                                          "--decode", "8",     "--reps",    "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }

  // What bench says of its reads, with one way of reading.
  static nlohmann::json IoOfReads(const char* reads, const std::string& memory) {
    const ProgramResult result =
        Bench({"--memory", memory, "--json", "--lookahead", "off", "--reads", reads});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["io"];
  }

  // Bundles of 1,536 bytes: a gate half of 512, and the rest of what fires. Some gates were in
  // memory before their rest was read.
  static void ExpectHalves(const nlohmann::json& io) {
    const double left = io["rests_left_per_token"];
    const double missing = (io["reads_per_token"].get<double>() + left) / 2;
    EXPECT_GT(left, 0);
    const double expected = missing * 1536 - left * 1024;
    EXPECT_NEAR(io["bytes_read_per_token"], expected, 0.02 * expected);
  }

  static TestFolder* folder_;
};

TestFolder* StreamingCommandTest::folder_ = nullptr;

TEST_F(StreamingCommandTest, BenchSaysWhatWasReadAndHowGoodItIs) {
  const std::string memory = Memory(14);
  const ProgramResult result = Bench({"--memory", memory, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("bench"), document), IsEmpty());
  const nlohmann::json& io = document["io"];
  ASSERT_TRUE(io.is_object());
  EXPECT_GT(io["hit_rate"], 0.3);
  EXPECT_LT(io["hit_rate"], 1.0);
  EXPECT_GT(io["bytes_read_per_token"], 0);
  EXPECT_GE(io["miss_rate_p99"].get<double>(), 1 - io["hit_rate"].get<double>());
  EXPECT_GT(document["memory"]["ledger"]["neurons"], 0);
  EXPECT_GE(document["quality"]["recall"], 0.97) << "measured in the same run";
  EXPECT_THAT(Bench({"--memory", memory}).out,
              AllOf(HasSubstr("of neurons pinned"), HasSubstr("of neurons found in memory")));
}

TEST_F(StreamingCommandTest, BenchSaysThatGatesStay) {
  const std::string memory = Memory(12, "gated");
  const ProgramResult result = Bench({"--memory", memory, "--mode", "gated", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("bench"), document), IsEmpty());
  EXPECT_EQ(document["io"]["gates_pinned"], true);
  EXPECT_GT(document["io"]["bytes_read_per_token"], 0);
  EXPECT_LT(document["io"]["hit_rate"], 1.0);
  // 24,576 gates of 512 weights, with the check of what is not held.
  EXPECT_GE(document["memory"]["ledger"]["gates"], 24576 * (16 * 18 + 4));
  EXPECT_EQ(document["quality"]["top1_agreement"], 1.0) << "dense while gates are held";
  // Without room for gates every token needs all neurons and reads those that are neither
  // pinned nor in the cache.
  const nlohmann::json least = nlohmann::json::parse(
      Bench({"--memory", Memory(4, "gated"), "--mode", "gated", "--json"}).out);
  EXPECT_EQ(least["io"]["gates_pinned"], false);
  const double pinned = least["io"]["pinned_share"], cached = least["io"]["cache_share"];
  EXPECT_GE(least["io"]["hit_rate"].get<double>(), pinned - 1e-9);
  EXPECT_LE(least["io"]["hit_rate"].get<double>(), pinned + cached + 1e-9);
  EXPECT_GT(least["io"]["bytes_read_per_token"],
            2 * document["io"]["bytes_read_per_token"].get<double>());
  const std::string text = Bench({"--memory", memory, "--mode", "gated"}).out;
  EXPECT_THAT(text, HasSubstr("all gates pinned; up and down: "));
  EXPECT_THAT(Bench({"--memory", Memory(12)}).out,
              AllOf(HasSubstr("of neurons pinned"), Not(HasSubstr("all gates pinned"))));
}

TEST_F(StreamingCommandTest, EveryWayOfStreamingIsNamedInTheDocument) {
  const std::string memory = Memory(14);
  for (const char* pipeline : {"cluster", "matrix", "blocking"}) {
    const ProgramResult result =
        Bench({"--memory", memory, "--json", "--pipeline", pipeline, "--io", "pread",
               "--cache-policy", "lru", "--pinned", "0", "--merge-gap", "none"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json io = nlohmann::json::parse(result.out)["io"];
    EXPECT_EQ(io["pipeline"], pipeline);
    EXPECT_EQ(io["backend"], "pread");
    EXPECT_EQ(io["cache_policy"], "lru");
    EXPECT_EQ(io["pinned_share"], 0);
    EXPECT_EQ(io["gates_pinned"], false);
    if (std::string(pipeline) == "matrix") {
      ExpectHalves(io);
    } else {
      EXPECT_NEAR(io["bytes_read_per_token"], 1536 * io["reads_per_token"].get<double>(), 1);
    }
  }
}

// What is missing is read gate first, and of the rest what fires: the same numbers from fewer
// bytes.
TEST_F(StreamingCommandTest, GatesAreReadFirst) {
  const std::string memory = Memory(14);
  const nlohmann::json whole = IoOfReads("whole", memory);
  const nlohmann::json gates_first = IoOfReads("gates-first", memory);
  EXPECT_EQ(whole["rests_left_per_token"], 0);
  EXPECT_GT(gates_first["rests_left_per_token"], 0);
  EXPECT_LT(gates_first["bytes_read_per_token"], whole["bytes_read_per_token"]);
  ExpectHalves(gates_first);
  EXPECT_THAT(Bench({"--memory", memory, "--reads", "gates-first"}).out,
              HasSubstr("of what was missing left out"));
  // In gated, without room for all gates.
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "run",    Model(), "--raw",  "-p",     "a",     "-n",       "6",
        "--temp", "0",     "--json", "--mode", "gated", "--memory", Memory(0, "gated")};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = RunHearth(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const nlohmann::json all = run({}), firing = run({"--reads", "gates-first"});
  EXPECT_EQ(all["token_ids"], firing["token_ids"]);
  EXPECT_LT(firing["io"]["bytes_read_per_token"].get<double>(),
            0.65 * all["io"]["bytes_read_per_token"].get<double>());
  for (const auto& [option, value] : {std::pair{"--pipeline", "blocking"}, {"--merge-gap", "4K"}}) {
    EXPECT_THAT(Bench({"--memory", memory, "--reads", "gates-first", option, value}).err,
                HasSubstr("has no effect with"))
        << option;
  }
  EXPECT_THAT(
      Bench({"--memory", Memory(12, "gated"), "--mode", "gated", "--reads", "gates-first"}).err,
      HasSubstr("all gates are in memory"));
}

// Bundles of this model are smaller than a piece.
TEST_F(StreamingCommandTest, PiecesChangeNothingButReads) {
  const std::string memory = Memory(14);
  const nlohmann::json pieces = IoOfReads("pieces", memory);
  const nlohmann::json halves = IoOfReads("gates-first-pieces", memory);
  EXPECT_NEAR(pieces["bytes_read_per_token"], 1536 * pieces["reads_per_token"].get<double>(), 1);
  ExpectHalves(halves);
  EXPECT_THAT(Bench({"--memory", memory, "--reads", "pieces", "--merge-gap", "4K"}).err,
              HasSubstr("has no effect with --reads pieces"));
}

TEST_F(StreamingCommandTest, NeighboursAreReadTogether) {
  const std::string memory = Memory(14);
  const auto bytes_per_read = [&](const char* gap) {
    const ProgramResult result = Bench({"--memory", memory, "--json", "--merge-gap", gap});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json io = nlohmann::json::parse(result.out)["io"];
    return io["bytes_read_per_token"].get<double>() /
           std::max(io["reads_per_token"].get<double>(), 1.0);
  };
  EXPECT_NEAR(bytes_per_read("0"), 1536, 1);     // a bundle; nothing lies between
  EXPECT_GT(bytes_per_read("16K"), 1536 * 1.1);  // ten bundles may
  for (const char* nonsense : {"2M", "-1", "some"}) {
    EXPECT_EQ(Bench({"--memory", memory, "--merge-gap", nonsense}).exit_code, 2) << nonsense;
  }
}

TEST_F(StreamingCommandTest, TheNextLayerIsReadAhead) {
  const std::string memory = Memory(14);
  const auto io_of = [&](const char* lookahead) {
    const ProgramResult result = Bench({"--memory", memory, "--json", "--lookahead", lookahead});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["io"];
  };
  const nlohmann::json off = io_of("off"), on = io_of("on");
  EXPECT_EQ(off["reads_ahead_per_token"], 0);
  EXPECT_GT(on["reads_ahead_per_token"], 0);
  EXPECT_GT(on["used_ahead_per_token"], 0);
  EXPECT_LE(on["used_ahead_per_token"], on["reads_ahead_per_token"]);
  EXPECT_EQ(Bench({"--memory", memory, "--lookahead", "far"}).exit_code, 2);
  EXPECT_THAT(Bench({"--memory", memory, "--io-thread", "own", "--pipeline", "matrix"}).err,
              HasSubstr("--io-thread has no effect with --pipeline matrix"));
  EXPECT_THAT(Bench({"--memory", memory, "--io-thread", "own", "--threads", "1"}).err,
              HasSubstr("--io-thread has no effect: there is no second thread"));
  const ProgramResult blocking =
      Bench({"--memory", memory, "--lookahead", "on", "--pipeline", "blocking"});
  EXPECT_EQ(blocking.exit_code, 2);
  EXPECT_THAT(blocking.err, HasSubstr("--lookahead has no effect with --pipeline blocking"));
  const ProgramResult gated =
      Bench({"--memory", Memory(12, "gated"), "--mode", "gated", "--lookahead", "on"});
  EXPECT_EQ(gated.exit_code, 2);
  EXPECT_THAT(gated.err, HasSubstr("--lookahead has no effect: only predictors"));
}

TEST_F(StreamingCommandTest, OtherDevicesAreEmulated) {
  const std::string memory = Memory(14);
  const ProgramResult result = Bench({"--memory", memory, "--json", "--io-device", "oneplus-12"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("bench"), document), IsEmpty());
  EXPECT_EQ(document["io"]["backend"], "emulated UFS 4.0");
  EXPECT_EQ(
      document["quality"]["top1_agreement"],
      nlohmann::json::parse(Bench({"--memory", memory, "--json"}).out)["quality"]["top1_agreement"])
      << "the device changes no bit";
  EXPECT_THAT(Bench({"--io-device", "oneplus-12"}).err, HasSubstr("--io-device has no effect"));
  for (const auto& [said, value] : {std::pair("--io", "pread"), std::pair("--merge-gap", "0")}) {
    EXPECT_EQ(Bench({"--memory", memory, "--io-device", "oneplus-12", said, value}).exit_code, 2)
        << said;
  }
  const ProgramResult unknown = Bench({"--memory", memory, "--io-device", "a-phone"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("a-phone"));
}

TEST_F(StreamingCommandTest, LlmFlashComesWithItsWindow) {
  const std::string memory = Memory(14);
  const ProgramResult result = Bench({"--memory", memory, "--json", "--pipeline", "llmflash"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("bench"), document), IsEmpty());
  EXPECT_EQ(document["io"]["pipeline"], "llmflash");
  EXPECT_EQ(document["io"]["cache_policy"], "window");
  EXPECT_EQ(document["io"]["pinned_share"], 0);
  // No weak foil: it finds nearly what LRU finds in the same memory.
  const ProgramResult lru = Bench({"--memory", memory, "--json", "--pipeline", "blocking",
                                   "--cache-policy", "lru", "--pinned", "0"});
  ASSERT_EQ(lru.exit_code, 0) << lru.err;
  const nlohmann::json of_lru = nlohmann::json::parse(lru.out);
  EXPECT_GT(document["io"]["hit_rate"].get<double>(),
            of_lru["io"]["hit_rate"].get<double>() - 0.05);
  for (const std::vector<std::string>& both :
       {std::vector<std::string>{"--pipeline", "llmflash", "--cache-policy", "lru"},
        {"--cache-policy", "window", "--pipeline", "llmflash"}}) {
    const ProgramResult refused = Bench(both);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--cache-policy has no effect with --pipeline llmflash"));
  }
}

TEST_F(StreamingCommandTest, TheTextIsTheOneOfMemory) {
  const auto text = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", Model(),  "-p", "",      "-n",
                                          "20",  "--temp", "0",  "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunHearth(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json document = nlohmann::json::parse(result.out);
    EXPECT_THAT(SchemaComplaints(Schema("run"), document), IsEmpty());
    EXPECT_EQ(document["io"].is_null(), more.empty());
    return document["token_ids"];
  };
  EXPECT_EQ(text({"--memory", Memory(8)}), text({}));
}

TEST_F(StreamingCommandTest, FlagsWithoutEffectAndNonsenseAreRefused) {
  const ProgramResult unused = Bench({"--pipeline", "cluster"});
  EXPECT_EQ(unused.exit_code, 2);
  EXPECT_THAT(unused.err, HasSubstr("--pipeline has no effect"));
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--pipeline", "tensor"},
                                                {"--io", "mmap"},
                                                {"--cache-policy", "random"},
                                                {"--pinned", "1.5"}}) {
    const ProgramResult result = Bench(wrong);
    EXPECT_EQ(result.exit_code, 2) << wrong[0];
    EXPECT_THAT(result.err, HasSubstr(wrong[0]));
  }
}

// Models that are not packed stream too.
TEST_F(StreamingCommandTest, AnyGgufStreamsAndSaysWhetherPackingHelps) {
  const std::string path = folder_->Path("plain.gguf");
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run",    path, "-p",    "a",  "-n",    "8",
                                          "--temp", "0",  "--ctx", "64", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  for (const std::string activation : {"silu", "relu"}) {
    const ModelShape shape = ParseShape(
        R"({"hidden_size": 512, "intermediate_size": 6144, "num_layers": 4, "num_heads": 8,
            "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600, "activation": ")" +
            activation + R"("})",
        "plain");
    SynthesizeModel(shape, {.threads = 2}, path);
    const ProgramResult whole = run({});
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(whole.err, "");
    const std::string memory =
        std::to_string((LimitOfRefusal(run({"--memory", "1M"}).err) >> 20) + 4) + "M";
    const ProgramResult streamed = run({"--memory", memory});
    ASSERT_EQ(streamed.exit_code, 0) << streamed.err;
    const nlohmann::json document = nlohmann::json::parse(streamed.out);
    EXPECT_THAT(SchemaComplaints(Schema("run"), document), IsEmpty());
    EXPECT_EQ(document["token_ids"], nlohmann::json::parse(whole.out)["token_ids"]);
    EXPECT_EQ(document["io"]["unit"], "matrices");
    EXPECT_GT(document["io"]["bytes_read_per_token"], 0);
    EXPECT_THAT(streamed.err, HasSubstr(activation == "relu" ? "'hearth pack' makes a file"
                                                             : "'hearth pack' would not help"));
    for (const std::vector<std::string>& unused :
         {std::vector<std::string>{"--pipeline", "blocking"},
          {"--pinned", "0.5"},
          {"--cache-policy", "lru"}}) {
      const ProgramResult refused = run({"--memory", memory, unused[0], unused[1]});
      EXPECT_EQ(refused.exit_code, 2) << unused[0];
      EXPECT_THAT(refused.err, HasSubstr(unused[0] + " has no effect"));
    }
  }
}

}  // namespace
}  // namespace hearth
