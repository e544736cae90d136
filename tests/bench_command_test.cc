// hearth bench from outside. Speeds are never asserted, only that they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Model() { return SourcePath("models/hearth-stories-5m.gguf"); }

// A small measurement, within a limit below the 256 MiB that the bandwidth probe takes at least. It
// leaves the program room for what sanitizers add to it.
ProgramResult Bench(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", Model()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunHearth(arguments);
}

const std::vector<std::string> kSmall = {"--prefill", "8,20", "--decode", "4",
                                         "--reps",    "2",    "--memory", "250M"};
constexpr uint64_t kLimitBytes = 250 << 20;

TEST(BenchCommandTest, TheDocumentIsWhatItsSchemaSays) {
  std::vector<std::string> arguments = kSmall;
  arguments.push_back("--json");
  const ProgramResult result = Bench(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const nlohmann::json document = nlohmann::json::parse(result.out);
  const nlohmann::json schema = Schema("bench");
  EXPECT_THAT(SchemaComplaints(schema, document), IsEmpty());
  EXPECT_EQ(document["shape"], "Hearth Stories 5M");
  EXPECT_EQ(document["prefill"].size(), 2u);
  EXPECT_EQ(document["prefill"][1]["tokens"], 20);
  EXPECT_EQ(document["decode"]["tokens"], 4);
  EXPECT_EQ(document["decode"]["context"], 32);
  EXPECT_GT(document["decode"]["bytes_per_token"], 5 << 20);
  EXPECT_TRUE(document["machine"]["read_bandwidth_gb_s"].is_null());
  EXPECT_THAT(document["machine"]["read_bandwidth_missing"], HasSubstr("the memory limit leaves"));
  EXPECT_EQ(document["memory"]["budget_bytes"], kLimitBytes);
  EXPECT_LT(document["memory"]["rss_peak_bytes"], kLimitBytes);
}

TEST(BenchCommandTest, TheProfileIsThereWhenAskedFor) {
  std::vector<std::string> arguments = kSmall;
  arguments.push_back("--json");
  EXPECT_TRUE(nlohmann::json::parse(Bench(arguments).out)["profile"].is_null());
  arguments.insert(arguments.end(), {"--profile", "--parallel", "2,3"});
  const nlohmann::json document = nlohmann::json::parse(Bench(arguments).out);
  const nlohmann::json schema = Schema("bench");
  EXPECT_THAT(SchemaComplaints(schema, document), IsEmpty());
  const nlohmann::json& profile = document["profile"];
  ASSERT_EQ(document["parallel"].size(), 2u);
  EXPECT_EQ(document["parallel"][1]["sequences"], 3);
  EXPECT_GT(document["parallel"][1]["speedup"], 0);
  EXPECT_EQ(profile["parallel"].size(), 2u);
  ASSERT_EQ(profile["prefill"].size(), 2u);
  EXPECT_EQ(profile["prefill"][1]["tokens"], 20);
  double shares = 0;
  for (const auto& op : profile["decode"]["ops"]) {
    shares += op["share"].get<double>();
    EXPECT_NE(op["op"], "router") << "a model without experts";
    EXPECT_TRUE(op["floor_ms_per_token"].is_null()) << "the bandwidth is not known";
  }
  EXPECT_NEAR(shares, 1, 1e-9);
}

TEST(BenchCommandTest, TheProfileIsATableToo) {
  std::vector<std::string> arguments = kSmall;
  arguments.push_back("--profile");
  const ProgramResult result = Bench(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"attention_qkv", "ffn_gate_up", "logits", "time/floor"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(BenchCommandTest, TheSchemaRefusesOtherDocuments) {
  const nlohmann::json schema = Schema("bench");
  EXPECT_GT(SchemaComplaints(schema, nlohmann::json::object()).size(), 5u);
  std::vector<std::string> arguments = kSmall;
  arguments.push_back("--json");
  nlohmann::json document = nlohmann::json::parse(Bench(arguments).out);
  document["decode"]["speed"] = 1;
  document["threads"] = "two";
  document["machine"].erase("int8_gmac_s");
  EXPECT_EQ(SchemaComplaints(schema, document).size(), 3u);
}

TEST(BenchCommandTest, DecodesAfterALongContextToo) {
  std::vector<std::string> arguments = kSmall;
  for (const char* more : {"--context", "300", "--json"}) arguments.push_back(more);
  const nlohmann::json far = nlohmann::json::parse(Bench(arguments).out)["decode"];
  arguments[arguments.size() - 2] = "1";
  const nlohmann::json near = nlohmann::json::parse(Bench(arguments).out)["decode"];
  EXPECT_EQ(far["context"], 300);
  EXPECT_EQ(near["context"], 1);
  EXPECT_GT(far["bytes_per_token"], near["bytes_per_token"]);
}

TEST(BenchCommandTest, TheTableNamesEveryMeasure) {
  const ProgramResult result = Bench(kSmall);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"prefill 8 ", "prefill 20 ", "decode 4 ", "median", "p99", "read bandwidth not known"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(BenchCommandTest, EveryInstructionSetIsMeasured) {
  std::vector<std::string> arguments = kSmall;
  for (const char* more : {"--isa", "scalar", "--threads", "1", "--kv", "f32", "--json"}) {
    arguments.push_back(more);
  }
  const nlohmann::json document = nlohmann::json::parse(Bench(arguments).out);
  EXPECT_EQ(document["isa"], "scalar");
  EXPECT_EQ(document["threads"], 1);
  EXPECT_GT(document["machine"]["int8_gmac_s"], 0);
}

TEST(BenchCommandTest, FlagsThatCannotWorkAreRefused) {
  ExpectRefused(Bench({"--prefill", "many"}), 2, "--prefill: expected numbers of tokens");
  for (const char* counts : {"", ",", "8,", "0", "-8", "8;9", "8, 9", "99999999999"}) {
    ExpectRefused(Bench({"--prefill", counts}), 2, "--prefill");
  }
  ExpectRefused(Bench({"--decode", "0"}), 2, "--decode");
  ExpectRefused(Bench({"--reps", "0"}), 2, "--reps");
  ExpectRefused(Bench({"--context", "0"}), 2, "--context");
  ExpectRefused(Bench({"--frobnicate"}), 2, "--frobnicate");
  ExpectRefused(RunHearth({"bench"}), 2, "MODEL");
  ExpectRefused(RunHearth({"bench", Model(), "--parallel", "2,0"}), 2, "--parallel");
  ExpectRefused(RunHearth({"bench", "/nowhere"}), 1, "/nowhere");
}

TEST(BenchCommandTest, WhatDoesNotFitTheContextIsRefused) {
  ExpectRefused(Bench({"--prefill", "8,513"}), 1, "--prefill: the context is 512 tokens");
  ExpectRefused(Bench({"--prefill", "65", "--ctx", "64"}), 1, "found 65");
  ExpectRefused(Bench({"--prefill", "8", "--decode", "481"}), 1, "--decode");
  ExpectRefused(Bench({"--prefill", "8", "--context", "512"}), 1, "--context");
  ExpectRefused(Bench({"--prefill", "8", "--context", "500"}), 1, "--decode");
  ExpectRefused(Bench({"--prefill", "8", "--ctx", "4096"}), 1, "at most 512");
}

TEST(BenchCommandTest, HelpListsIt) {
  EXPECT_THAT(RunHearth({"help"}).out, HasSubstr("bench"));
  EXPECT_THAT(RunHearth({"help", "bench"}).out, HasSubstr("--prefill N,..."));
}

}  // namespace
}  // namespace hearth
