// hearth doctor, hearth plan MODEL and --plan, one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "prepare/pack_test_models.h"
#include "program.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelPlanCommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("model_plan_command");
    setenv("XDG_CACHE_HOME", folder_->Path("cache").c_str(), 1);
    SynthesizeSparseModel(Model());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
    unsetenv("XDG_CACHE_HOME");
  }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::string PlanPath() { return folder_->Path("plan.json"); }
  static ProgramResult Plan(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan",  Model(), "--mode",   "predicted",
                                          "--ctx", "128",   "--tokens", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }

  static TestFolder* folder_;
};

TestFolder* ModelPlanCommandTest::folder_ = nullptr;

TEST_F(ModelPlanCommandTest, FromMeasuringToRunning) {
  EXPECT_THAT(Plan({}).err, HasSubstr("'hearth doctor' measures this machine"));
  const ProgramResult doctor = RunHearth({"doctor", "--quick", "--dir", folder_->Path("")});
  ASSERT_EQ(doctor.exit_code, 0) << doctor.err;

  const ProgramResult whole = Plan({"--memory", "4G", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("learning which neurons"));
  const auto document = nlohmann::json::parse(whole.out);
  EXPECT_THAT(SchemaComplaints(Schema("plan"), document), IsEmpty());
  EXPECT_EQ(document["io_strategy"], "none");

  uint64_t needed = 0;
  for (const auto& [name, bytes] : document["ledger"].items()) needed += bytes.get<uint64_t>();
  // The neurons are 22 MiB; what a program takes differs by some MiB from run to run.
  const std::string memory = std::to_string((needed >> 20) - 9) + "M";
  const ProgramResult part = Plan({"--memory", memory, "-o", PlanPath()});
  ASSERT_EQ(part.exit_code, 0) << part.err;
  EXPECT_THAT(part.err, IsEmpty());  // learned before
  EXPECT_THAT(part.out, HasSubstr("tok/s"));

  const ProgramResult run =
      RunHearth({"run", Model(), "--plan", PlanPath(), "-p", "", "-n", "4", "--verbose"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("plan " + PlanPath()));
  const auto obeyed = nlohmann::json::parse(std::ifstream(PlanPath()));
  EXPECT_THAT(run.err, HasSubstr("reads: " + obeyed["io_strategy"].get<std::string>()));
  const bool pins = obeyed["stream"]["pinned_neurons"] > 0;
  EXPECT_THAT(run.err, HasSubstr(pins ? "of neurons pinned" : "of neurons cached"));

  for (const char* said : {"--memory", "--threads", "--mode"}) {
    const std::string value = std::string(said) == "--mode" ? "dense" : "2";
    EXPECT_EQ(RunHearth({"run", Model(), "--plan", PlanPath(), said, value}).exit_code, 2) << said;
  }
}

TEST_F(ModelPlanCommandTest, UsageAndImpossibleWishes) {
  EXPECT_EQ(Plan({"--cores", "0,x"}).exit_code, 2);
  EXPECT_EQ(Plan({"--cores", "4000"}).exit_code, 2);
  EXPECT_EQ(Plan({"--cores", "1-0"}).exit_code, 2);
  EXPECT_EQ(Plan({"--min-speed", "0"}).exit_code, 2);
  EXPECT_EQ(RunHearth({"plan", Model(), "--min-speed", "5", "--device-memory", "1G",
                       "--device-bandwidth", "1000", "--link-bandwidth", "10"})
                .exit_code,
            2);
  std::ofstream(folder_->Path("bad.json")) << "{\"model_hash\": 3}";
  const ProgramResult bad =
      RunHearth({"run", Model(), "--plan", folder_->Path("bad.json"), "-p", "x"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr("model_hash"));
  const ProgramResult foreign = Plan({"--hw", folder_->Path("bad.json")});
  EXPECT_EQ(foreign.exit_code, 1);
}

}  // namespace
}  // namespace hearth
