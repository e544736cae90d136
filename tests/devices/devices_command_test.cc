// hearth devices from outside. Speeds are never asserted, only that they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/test_data.h"
#include "base/test_folder.h"
#include "json_schema.h"
#include "planner/doctor/test_hardware.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// An environment variable for as long as a test needs it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

nlohmann::json DevicesDocument(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"devices", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramResult result = RunHearth(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("devices"), document), IsEmpty());
  return document;
}

bool HasDevice() { return !DevicesDocument({"--limits"})["devices"].empty(); }

#define HEARTH_NEED_A_DEVICE()                                       \
  do {                                                               \
    if (!HasDevice()) {                                              \
      if (std::getenv("CI") != nullptr) FAIL() << "no device in CI"; \
      GTEST_SKIP() << "there is no device: install pocl-opencl-icd"; \
    }                                                                \
  } while (false)

TEST(DevicesCommandTest, TheDocumentIsWhatItsSchemaSays) {
  HEARTH_NEED_A_DEVICE();
  const nlohmann::json devices = DevicesDocument({"--device", "0"})["devices"];
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0]["index"], 0);
  EXPECT_GT(devices[0]["memory_bytes"], 0);
  for (const auto& [name, spread] : devices[0]["rates"].items()) {
    EXPECT_GT(spread["min"], 0) << name;
  }
  EXPECT_TRUE(DevicesDocument({"--limits"})["devices"][0]["rates"].is_null());
}

TEST(DevicesCommandTest, TheTableNamesWhatThereIs) {
  HEARTH_NEED_A_DEVICE();
  const ProgramResult result = RunHearth({"devices", "--limits"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"0: ", "driver", "in one buffer", "compute units"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  ExpectRefused(RunHearth({"devices", "--device", "1000"}), 1, "there is no device 1000");
  ExpectRefused(RunHearth({"devices", "--device", "gpu"}), 1, "auto, none or the number");
  EXPECT_THAT(RunHearth({"devices", "--limits", "--device", "0"}).out, StartsWith("0: "));
  const ProgramResult none = RunHearth({"devices", "--device", "none"});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("This choice means no device"));
}

TEST(DevicesCommandTest, AMachineWithoutDriversHasNone) {
  TestFolder folder("hearth-no-drivers");
  const ScopedVariable drivers("OCL_ICD_VENDORS", folder.Path(""));
  const nlohmann::json document = DevicesDocument({});
  EXPECT_TRUE(document["devices"].empty());
  EXPECT_THAT(document["why_none"].get<std::string>(), HasSubstr("no OpenCL driver"));
  const ProgramResult result = RunHearth({"devices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("There is no device: no OpenCL driver"));
  ExpectRefused(RunHearth({"devices", "--device", "0"}), 1, "there is no device: no OpenCL driver");
}

TEST(DevicesCommandTest, AMachineWithoutTheLibraryHasNone) {
  TestFolder folder("hearth-no-opencl");
  // The search for a library ends at the first file of its name. A program that was linked with it
  // would not start.
  for (const char* name : {"libOpenCL.so.1", "libOpenCL.so"}) {
    std::ofstream(folder.Path(name)) << "no library";
  }
  const ScopedVariable libraries("LD_LIBRARY_PATH", folder.Path(""));
  const nlohmann::json document = DevicesDocument({});
  EXPECT_TRUE(document["devices"].empty());
  EXPECT_THAT(document["why_none"].get<std::string>(), HasSubstr("libOpenCL.so.1"));
  EXPECT_THAT(document["why_none"].get<std::string>(), HasSubstr("ocl-icd-libopencl1"));
  EXPECT_EQ(RunHearth({"--version"}).exit_code, 0);
  ExpectRefused(RunHearth({"devices", "--device", "0"}), 1, "there is no device: libOpenCL.so.1");
}

// A packed model whose hottest neurons are on the first device, from the command line.
class HybridCommandTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const ProgramResult packed =
        RunHearth({"pack", SourcePath("models/hearth-stories-5m.gguf"), "-o", Packed()});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  static void TearDownTestSuite() { std::filesystem::remove(Packed()); }
  void SetUp() override { HEARTH_NEED_A_DEVICE(); }

  static std::string Packed() { return ::testing::TempDir() + "hybrid_command.gguf"; }
  static ProgramResult Run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", Packed(), "Once upon a time", "--raw",
                                          "-n",  "4",      "--temp",           "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }
};

TEST_F(HybridCommandTest, ReportsSayWhatIsOnTheDevice) {
  const ProgramResult alone = Run({});
  const ProgramResult run =
      Run({"--device", "0", "--device-memory", "64M", "--device-neurons", "300", "--verbose"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, alone.out);
  EXPECT_THAT(run.err, HasSubstr("the hottest 300 of 1024 neurons of each FFN"));
  EXPECT_THAT(run.err, HasSubstr("of 64.0 MiB"));
  const ProgramResult bench =
      RunHearth({"bench", Packed(), "--prefill", "9", "--decode", "3", "--reps", "1", "--device",
                 "0", "--device-memory", "64M", "--device-neurons", "300", "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const nlohmann::json document = nlohmann::json::parse(bench.out);
  EXPECT_THAT(SchemaComplaints(Schema("bench"), document), IsEmpty());
  const nlohmann::json& device = document["memory"]["device"];
  EXPECT_EQ(device["index"], 0);
  EXPECT_EQ(device["budget_bytes"], 64 << 20);
  EXPECT_EQ(device["layer_neurons"], nlohmann::json({300, 300, 300, 300, 300}));
  // Three rows of 256 columns in Q8_0: 288 bytes each.
  EXPECT_EQ(device["ledger"]["neurons"], 3 * 288 * 300 * 5);
  const auto computed = [&](const char* side) { return device["computed"][side].get<int64_t>(); };
  EXPECT_GT(computed("device"), 0);
  EXPECT_EQ(computed("device") % 300, 0);
  const ProgramResult json = Run({"--json"});
  const nlohmann::json without = nlohmann::json::parse(json.out);
  EXPECT_THAT(SchemaComplaints(Schema("run"), without), IsEmpty());
  EXPECT_TRUE(without["memory"]["device"].is_null());
}

TEST_F(HybridCommandTest, TheTraceIsChromes) {
  TestFolder folder("hearth-trace");
  const std::string path = folder.Path("trace.json");
  const ProgramResult run = Run({"--device", "0", "--device-memory", "64M", "--device-neurons",
                                 "300", "--trace-device", path});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json events = nlohmann::json::parse(ReadWholeFile(path))["traceEvents"];
  std::map<std::string, int> counts;
  for (const nlohmann::json& event : events) {
    ++counts[event["name"].get<std::string>()];
    if (event["ph"] == "M") continue;
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
  }
  EXPECT_EQ(counts["thread_name"], 2);
  EXPECT_GT(counts["merge"], 0);
  EXPECT_EQ(counts["merge"], counts["FFN"]);
  EXPECT_EQ(counts["merge"], counts["neuron_gates"]);
}

TEST_F(HybridCommandTest, WhatCannotBeIsOneSentence) {
  ExpectRefused(Run({"--device", "1000"}), 1, "there is no device 1000");
  ExpectRefused(Run({"--device", "gpu"}), 2, "--device: no such choice");
  ExpectRefused(Run({"--device", "0", "--device-memory", "1K"}), 1, "--device-memory: 1 neuron");
  ExpectRefused(Run({"--device-memory", "1G"}), 2, "has no effect without --device");
  ExpectRefused(Run({"--trace-device", "x.json"}), 2, "has no effect without --device");
  ExpectRefused(Run({"--device", "none", "--device-neurons", "4"}), 2, "has no effect without");
  ExpectRefused(Run({"--device", "0", "--plan", "auto"}), 2, "--device has no effect with --plan");
  const auto refuse_plain = [](std::vector<std::string> more, int code, const char* words) {
    std::vector<std::string> arguments = {"run", SourcePath("models/hearth-stories-5m.gguf"),
                                          "Once", "--device-memory", "64M"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectRefused(RunHearth(arguments), code, words);
  };
  refuse_plain({"--device", "0", "--device-neurons", "4"}, 1, "not packed");
  refuse_plain({"--device", "0", "--device-layers", "9"}, 1, "at most 5");
  refuse_plain({"--device", "0", "--device-experts", "1"}, 1, "at most 0");
  refuse_plain({"--device", "none", "--device-layers", "1"}, 2, "has no effect without");
  refuse_plain({"--device", "none", "--device-kv", "64"}, 2, "has no effect without");
  refuse_plain({"--device", "0", "--device-kv", "-1"}, 2, "auto, never or at least 1 tokens");
  refuse_plain({"--device", "0", "--device-kv", "64", "--kv", "k8v8"}, 1, "and not in k8v8");
  ExpectRefused(Run({"--device", "0", "--device-memory", "64M", "--device-neurons", "5",
                     "--device-kv", "64"}),
                1, "the device has nothing else");
  ExpectRefused(Run({"--device", "0", "--device-memory", "64M", "--device-layers", "1"}), 1,
                "of a packed file a device takes neurons");
}

// A model that is not packed has matrices there.
TEST_F(HybridCommandTest, ReportsSayWhichMatricesAreOnTheDevice) {
  TestFolder folder("hearth-matrices");
  const std::string path = folder.Path("trace.json");
  const std::string plain = SourcePath("models/hearth-stories-5m.gguf");
  const ProgramResult run = RunHearth({"run", plain, "Once upon a time", "--raw", "-n", "4",
                                       "--temp", "0", "--device", "0", "--device-memory", "64M",
                                       "--device-layers", "2", "--trace-device", path, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json document = nlohmann::json::parse(run.out);
  EXPECT_THAT(SchemaComplaints(Schema("run"), document), IsEmpty());
  const nlohmann::json& device = document["memory"]["device"]["matrices"];
  EXPECT_EQ(device["layers"].size(), 5);
  EXPECT_EQ(device["layers"][1]["attention"], true);
  EXPECT_EQ(device["layers"][1]["experts"], nlohmann::json({0}));
  EXPECT_EQ(device["layers"][2]["experts"], nlohmann::json::array());
  EXPECT_EQ(device["output"], false);
  EXPECT_GT(device["products"], 0);
  EXPECT_EQ(device["kv_tokens"], 512);
  EXPECT_GT(device["attended"], 0);
  EXPECT_EQ(device["stayed"], device["attended"]) << "the two layers are there as a whole";
  EXPECT_GT(device.at("stayed"), 0);
  // Where the processor attends, each FFN is merged once.
  const ProgramResult without =
      RunHearth({"run", plain, "Once", "--raw", "-n", "2", "--device", "0", "--device-memory",
                 "64M", "--device-kv", "never", "--trace-device", path, "--json"});
  int merges = 0, sums = 0;
  const nlohmann::json trace = nlohmann::json::parse(ReadWholeFile(path));
  for (const nlohmann::json& event : trace["traceEvents"]) {
    merges += event["name"] == "merge" ? 1 : 0;
    sums += event["name"] == "scatter_add_rows" ? 1 : 0;
  }
  EXPECT_GT(merges, 0);
  EXPECT_EQ(merges, sums) << "one merge per FFN";
  const nlohmann::json there = nlohmann::json::parse(without.out)["memory"]["device"]["matrices"];
  EXPECT_EQ(there["kv_tokens"], 0);
  EXPECT_EQ(there["attended"], 0);
  EXPECT_EQ(there["stayed"], 0);
  const ProgramResult all = RunHearth({"run", plain, "Once", "--raw", "-n", "2", "--device", "0",
                                       "--device-memory", "64M", "--verbose"});
  EXPECT_THAT(all.err,
              HasSubstr("of 5 layers 5 attention blocks, keys and values of 512 tokens, 5 FFNs "
                        "or experts"));
}

// From as many tokens of a prompt on as the saved profile of the machine says, or the user.
TEST_F(HybridCommandTest, PromptsAreUploadedForFromTheMeasuredLengthOn) {
  TestFolder cache("hearth-uploads");
  std::filesystem::create_directories(cache.Path("hearth"));
  const ScopedVariable folder("XDG_CACHE_HOME", cache.Path(""));
  HardwareProfile hardware = testing::SampleHardware();
  const nlohmann::json list =
      nlohmann::json::parse(RunHearth({"devices", "--limits", "--json"}).out);
  hardware.devices[0].info.name = list["devices"][0]["name"];
  for (IoSpeed& read : hardware.storage.reads) {
    read.bytes_per_s = testing::SpreadAround(4 * read.bytes_per_s.median);
  }
  // Eight reads of 1 MiB at once: 0.8 GB/s; 0.56 bytes of a weight take 0.7 ns, and 64 tokens on
  // the processor more than 0.1 ns each; 4 do not.
  hardware.devices[0].batches = {{4, 1e10, 1e12}, {16, 1e10, 1e12}, {64, 1e10, 1e12}};
  const auto save = [&] {
    std::ofstream(cache.Path("hearth/hardware.json")) << HardwareJson(hardware).dump();
  };
  const auto matrices = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "run",
        SourcePath("models/hearth-stories-5m.gguf"),
        "Once upon a time there was a fox and a lantern, and the fox could not find the lantern.",
        "--raw",
        "-n",
        "2",
        "--temp",
        "0",
        "--device",
        "0",
        "--device-memory",
        "64M",
        "--device-layers",
        "0",
        "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult run = RunHearth(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const nlohmann::json document = nlohmann::json::parse(run.out);
    EXPECT_THAT(SchemaComplaints(Schema("run"), document), IsEmpty());
    return std::pair(document["memory"]["device"]["matrices"], run.err);
  };
  save();
  const nlohmann::json measured = matrices({}).first;
  EXPECT_EQ(measured["upload_tokens"], 16);
  EXPECT_GT(measured["uploaded_bytes"], 0);
  const nlohmann::json longer = matrices({"--device-prompts", "200"}).first;
  EXPECT_EQ(longer["upload_tokens"], 200);
  EXPECT_EQ(longer["uploaded_bytes"], 0);
  EXPECT_EQ(matrices({"--device-prompts", "8"}).first["upload_tokens"], 8);
  // Nothing is there and nothing comes: the device has nothing to do.
  const auto refuse = [](const char* tokens, int code, const char* words) {
    ExpectRefused(
        RunHearth({"run", SourcePath("models/hearth-stories-5m.gguf"), "Once", "--device", "0",
                   "--device-memory", "64M", "--device-layers", "0", "--device-prompts", tokens}),
        code, words);
  };
  refuse("never", 1, "it has no matrices that a device takes");
  refuse("4", 2, "at least 8 tokens");
  refuse("some", 2, "expected auto, never");
  ExpectRefused(Run({"--device", "0", "--device-memory", "64M", "--device-prompts", "16"}), 2,
                "no effect on a packed file");
  ExpectRefused(Run({"--device-prompts", "16"}), 2, "has no effect without --device");
  hardware.devices[0].batches.back().device_macs_per_s = 1;
  save();
  const ProgramResult never =
      RunHearth({"run", SourcePath("models/hearth-stories-5m.gguf"), "Once", "--raw", "-n", "1",
                 "--device", "0", "--device-memory", "64M", "--device-prompts", "auto"});
  EXPECT_THAT(never.err, HasSubstr("the processor is faster at any length"));
  // A profile that nobody can read is no reason not to run.
  std::ofstream(cache.Path("hearth/hardware.json")) << "{}";
  const ProgramResult damaged =
      RunHearth({"run", SourcePath("models/hearth-stories-5m.gguf"), "Once", "--raw", "-n", "1",
                 "--device", "0", "--device-memory", "64M"});
  EXPECT_EQ(damaged.exit_code, 0) << damaged.err;
}

TEST_F(HybridCommandTest, AutoRunsWithoutADevice) {
  const ProgramResult alone = Run({});
  TestFolder folder("hearth-no-drivers");
  const ScopedVariable drivers("OCL_ICD_VENDORS", folder.Path(""));
  const ProgramResult run = Run({"--device", "auto"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, alone.out);
  EXPECT_THAT(run.err, HasSubstr("the processor computes alone: device: there is none"));
  ExpectRefused(Run({"--device", "0"}), 1, "there is no device: no OpenCL driver");
}

}  // namespace
}  // namespace hearth
