// hearth plan --device-memory from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

// On a machine that 'hearth doctor' has not measured.
ProgramResult Plan(const std::string& model, std::vector<std::string> more) {
  setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), 1);
  std::vector<std::string> arguments = {
      "plan", model, "--device-bandwidth", "1008", "--link-bandwidth", "64", "--memory-bandwidth",
      "67.2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunHearth(arguments);
}

TEST(PlacementCommandTest, JsonFitsItsSchemaAndAddsUp) {
  const ProgramResult result = Plan("opt-30b", {"--device-memory", "8G", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("placement"), document), IsEmpty());
  int64_t neurons = 0;
  for (const auto& layer : document["layers"]) {
    neurons += layer["device_neurons"][0].get<int64_t>();
  }
  EXPECT_EQ(document["layers"].size(), 48);
  EXPECT_EQ(neurons * document["neuron_bytes"].get<int64_t>(), document["device"]["neurons_bytes"]);
  EXPECT_EQ(document["bound"], "device memory");
  EXPECT_EQ(document["rates"], "assumed");
  EXPECT_GT(document["decode_tok_s"], document["host_only"]["decode_tok_s"]);
}

TEST(PlacementCommandTest, FlashIsATier) {
  const std::vector<std::string> memory = {"--device-memory", "8G", "--memory", "16G"};
  std::vector<std::string> with_flash = memory;
  with_flash.insert(with_flash.end(), {"--flash-bandwidth", "2", "--json"});
  const ProgramResult result = Plan("opt-66b", with_flash);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("placement"), document), IsEmpty());
  EXPECT_GT(document["flash"]["neurons_bytes"], 0);
  EXPECT_EQ(document["flash"]["gb_s"], 2);
  with_flash.pop_back();
  EXPECT_THAT(Plan("opt-66b", with_flash).out, HasSubstr("of the host's neurons stay there"));
  ExpectRefused(Plan("opt-66b", memory), 1, "--flash-bandwidth");
}

TEST(PlacementCommandTest, PrintsTotalsAndWhatBinds) {
  const ProgramResult result = Plan("falcon-40b", {"--device-memory", "16G"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* word : {"layers", "activations", "bound by", "the device's memory", "tok/s"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
  EXPECT_THAT(Plan("opt-6.7b", {"--device-memory", "100G"}).out, HasSubstr("all neurons"));
}

TEST(PlacementCommandTest, TakesAModelAndItsProfile) {
  const std::string folder =
      testing::TempDir() + "placement_command." + std::to_string(getpid()) + "/";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "text") << "Once upon a time there was a little dog who liked to run.";
  const std::string model = SourcePath("models/hearth-stories-5m.gguf");
  ASSERT_EQ(RunHearth({"profile", model, "--text", folder + "text", "-o", folder + "p"}).exit_code,
            0);
  const ProgramResult result = Plan(
      model, {"--device-memory", "2M", "--profile", folder + "p", "--link-latency", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("placement"), document), IsEmpty());
  EXPECT_EQ(document["rates"], "measured");
  EXPECT_GT(document["device_activations"], 0);
  EXPECT_LT(document["device_activations"], 1);

  // The packed file says itself how often its neurons fire.
  ASSERT_EQ(
      RunHearth({"pack", model, "--profile", folder + "p", "-o", folder + "m.gguf"}).exit_code, 0);
  const ProgramResult packed =
      Plan(folder + "m.gguf", {"--device-memory", "100M", "--link-latency", "0", "--json"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(nlohmann::json::parse(packed.out)["device_activations"], 1);
  ExpectRefused(Plan(model, {"--device-memory", "2M"}), 1, "--profile");
  std::filesystem::remove_all(folder);
}

TEST(PlacementCommandTest, RefusesInOneSentence) {
  ExpectRefused(RunHearth({"plan", "opt-30b", "--device-memory", "8G"}), 2, "--device-bandwidth");
  ExpectRefused(Plan("opt-30b", {}), 2, "without --device-memory");
  ExpectRefused(Plan("opt-30b", {"--device-memory", "8X"}), 2, "--device-memory");
  ExpectRefused(Plan("opt-30b", {"--device-memory", "8G", "--skew", "0.01"}), 2, "--skew");
  ExpectRefused(Plan("opt-30b", {"--device-memory", "8G", "--dense", "moon"}), 2, "--dense");
  ExpectRefused(Plan("opt-30b", {"--device-memory", "8G", "--profile", "p"}), 2, "--profile");
  ExpectRefused(RunHearth({"plan", "opt-66b"}), 1, "two matrices");
  ExpectRefused(RunHearth({"plan", "/nowhere/shape.json"}), 1, "/nowhere/shape.json");
  ExpectRefused(Plan("opt-31b", {"--device-memory", "8G"}), 1, "opt-31b");
  ExpectRefused(Plan("opt-30b", {"--device-memory", "4G", "--memory", "8G"}), 1,
                "the neurons take");
  ExpectRefused(Plan("opt-30b", {"--device-memory", "1G", "--dense", "device"}), 1,
                "device memory");
}

}  // namespace
}  // namespace hearth
