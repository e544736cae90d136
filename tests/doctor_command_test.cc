// hearth doctor from outside. Speeds are never asserted, only that they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder of the test's own, with the cache in it.
class DoctorCommandTest : public ::testing::Test {
 protected:
  DoctorCommandTest() {
    fs::create_directories(folder_ / "disk");
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  ~DoctorCommandTest() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
  }

  ProgramResult Doctor(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"doctor"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }
  std::string In(const char* name) const { return (folder_ / name).string(); }

  const fs::path folder_ = fs::path(::testing::TempDir()) / ("doctor" + std::to_string(getpid()));
};

TEST_F(DoctorCommandTest, TheDocumentIsWhatItsSchemaSays) {
  const ProgramResult result = Doctor(
      {"--quick", "--dir", In("disk"), "--json", "-o", In("hw.json"), "--plot", In("reads.svg")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("hardware"), document), IsEmpty());
  EXPECT_EQ(document["storage"]["directory"], fs::canonical(folder_ / "disk").string());
  EXPECT_TRUE(fs::is_empty(folder_ / "disk")) << "the scratch file is gone";
  EXPECT_EQ(ReadWholeFile(In("hw.json")), result.out);
  EXPECT_EQ(ReadWholeFile(In("cache/hearth/hardware.json")), result.out);
  EXPECT_THAT(ReadWholeFile(In("reads.svg")), HasSubstr("<polyline"));
}

TEST_F(DoctorCommandTest, TheSchemaRefusesOtherDocuments) {
  const nlohmann::json schema = Schema("hardware");
  EXPECT_GT(SchemaComplaints(schema, nlohmann::json::object()).size(), 10u);
}

TEST_F(DoctorCommandTest, TheTableNamesWhatWasMeasured) {
  const ProgramResult result = Doctor({"--quick", "--dir", In("disk")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"processor", "(e_p)", "lockable", "accelerators", "int8 G", "memory reads", "neurons, dots",
        "prompts", "us/read", "512 B", "7 KiB", "1 MiB"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST_F(DoctorCommandTest, AFileCanBeReadInstead) {
  std::ofstream(In("model")) << std::string(9 << 20, 'x');
  const ProgramResult result = Doctor({"--quick", "--file", In("model"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json storage = nlohmann::json::parse(result.out)["storage"];
  EXPECT_EQ(storage["file_bytes"], 9 << 20);
  EXPECT_EQ(storage["directory"], fs::canonical(In("model")).string());
  std::ofstream(In("small")) << std::string(1 << 20, 'x');
  ExpectRefused(Doctor({"--quick", "--file", In("small")}), 1, "size of a file to read from");
}

TEST_F(DoctorCommandTest, WithoutACacheFolderTheResultIsStillPrinted) {
  setenv("XDG_CACHE_HOME", "/dev/null/nowhere", 1);
  const ProgramResult result = Doctor({"--quick", "--dir", In("disk"), "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("is not saved for other commands"));
  EXPECT_FALSE(nlohmann::json::parse(result.out, nullptr, false).is_discarded());
}

TEST_F(DoctorCommandTest, WhatCannotWorkIsRefused) {
  ExpectRefused(Doctor({"--dir", "/nowhere"}), 1, "there is no such folder");
  ExpectRefused(Doctor({"--file", "/nowhere/model.gguf"}), 1, "cannot open");
  ExpectRefused(Doctor({"--dir", In("disk"), "--file", "x"}), 2, "--file");
  ExpectRefused(Doctor({"--dir", ""}), 2, "--dir");
  ExpectRefused(Doctor({"-o", "/nowhere/hw.json"}), 1, "/nowhere/hw.json");
  ExpectRefused(Doctor({"--plot", In("disk")}), 1, "a regular file");
  ExpectRefused(Doctor({"MODEL"}), 2, "MODEL");
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

TEST_F(DoctorCommandTest, HelpListsIt) {
  EXPECT_THAT(RunHearth({"help"}).out, HasSubstr("doctor"));
  const std::string help = RunHearth({"help", "doctor"}).out;
  for (const char* part :
       {"--dir DIR", "--file FILE", "--quick", "-o,--output HW", "hardware.json"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
}

}  // namespace
}  // namespace hearth
