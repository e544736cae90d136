// hearth emulate from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProgramResult Emulate(const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"emulate", "--model",  model, "--active", "0.03", "--skew",
                                        "0.26",    "--tokens", "2",   "--prompt", "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunHearth(arguments);
}

TEST(EmulateCommandTest, TheDocumentIsWhatItsSchemaSays) {
  const ProgramResult result = Emulate("opt-30b", {"--machine", "rtx-4090", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("emulate"), document), IsEmpty());
  EXPECT_EQ(document["device_bytes"], int64_t{24} << 30);
  ASSERT_EQ(document["points"].size(), 4u);
  EXPECT_EQ(document["points"][0]["system"], "layers");
  EXPECT_LT(document["points"][3]["token_ms"], document["points"][0]["token_ms"]);
  EXPECT_EQ(Emulate("opt-30b", {"--machine", "rtx-4090", "--json"}).out, result.out);
}

// 8 and 16 GiB hold attention, not all neurons.
TEST(EmulateCommandTest, FlashTakesWhatNeitherHolds) {
  const ProgramResult result = Emulate("opt-66b", {"--machine", "rtx-4090", "--quant", "q4_0",
                                                   "--device-memory", "8G", "--memory", "16G"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* word : {"opt-66b", "8.00 GiB", "16.0 GiB", "placed", "from flash"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
}

TEST(EmulateCommandTest, WhatCannotBeIsOneSentence) {
  ExpectRefused(Emulate("opt-30b", {"--machine", "rtx-9090"}), 1, "is no emulated machine");
  ExpectRefused(Emulate("opt-30b", {"--machine", "rtx-4090", "--device-memory", "48G"}), 2,
                "--device-memory: rtx-4090 has 24.0 GiB");
  ExpectRefused(Emulate("opt-30b", {"--machine", "rtx-2080ti", "--memory", "4G"}), 1,
                "P1 constraint 6");
  ExpectRefused(Emulate("mixtral-8x7b", {"--machine", "rtx-4090"}), 1, "a mixture of experts");
  ExpectRefused(Emulate("opt-30b", {"--machine", "rtx-4090", "--quant", "q1"}), 2, "--quant");
}

}  // namespace
}  // namespace hearth
