// hearth devices from outside. Speeds are never asserted, only that they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/test_folder.h"
#include "json_schema.h"
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

}  // namespace
}  // namespace hearth
