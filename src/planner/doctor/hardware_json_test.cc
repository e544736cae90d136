#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "planner/doctor/hardware.h"
#include "planner/doctor/test_hardware.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const json& SampleDocument() {
  static const json document = HardwareJson(testing::SampleHardware());
  return document;
}

// What is said about the sample after `edit`; empty where nothing is.
std::string ComplaintAbout(const std::function<void(json&)>& edit) {
  json document = SampleDocument();
  edit(document);
  try {
    HardwareFromJson(document, "hw.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), StartsWith("hw.json: "));
    return error.what();
  }
  return "";
}

TEST(HardwareJsonTest, WhatIsWrittenIsRead) {
  const HardwareProfile sample = testing::SampleHardware();
  const json document = SampleDocument();
  const HardwareProfile read = HardwareFromJson(document, "hw.json");
  EXPECT_EQ(json(HardwareJson(read)), document);
  EXPECT_EQ(read.MachineHash(), sample.MachineHash());
  EXPECT_EQ(read.threads[1].section_seconds.max, sample.threads[1].section_seconds.max);
  EXPECT_FALSE(read.cores[1].is_big);
  EXPECT_EQ(read.storage.reads.size(), sample.storage.reads.size());
  EXPECT_EQ(read.storage.reads.back().cpu, 1);
  EXPECT_EQ(read.storage.reads.front().cpu, -1);
  EXPECT_EQ(read.mlock_limit_bytes, sample.mlock_limit_bytes);
  EXPECT_EQ(read.warnings, sample.warnings);
}

TEST(HardwareJsonTest, NoLimitIsNull) {
  HardwareProfile sample = testing::SampleHardware();
  sample.mlock_limit_bytes.reset();
  const json document = HardwareJson(sample);
  EXPECT_TRUE(document["mlock_limit_bytes"].is_null());
  EXPECT_FALSE(HardwareFromJson(document, "hw.json").mlock_limit_bytes.has_value());
}

// Every field, wherever it is, has to be there and to have its type.
void ForEachField(const json& object, const json::json_pointer& place,
                  const std::function<void(const json::json_pointer&)>& fn) {
  if (object.is_object()) {
    for (const auto& [key, value] : object.items()) {
      fn(place / key);
      ForEachField(value, place / key, fn);
    }
  } else if (object.is_array() && !object.empty()) {
    ForEachField(object.back(), place / (object.size() - 1), fn);
  }
}

TEST(HardwareJsonTest, MissingAndMistypedFieldsAreRefused) {
  int fields = 0;
  ForEachField(SampleDocument(), json::json_pointer(), [&](const json::json_pointer& place) {
    ++fields;
    EXPECT_THAT(ComplaintAbout([&](json& d) { d[place.parent_pointer()].erase(place.back()); }),
                HasSubstr("is missing"))
        << place;
    json wrong = json::object();
    if (SampleDocument()[place].is_object()) wrong = json::array();
    EXPECT_NE(ComplaintAbout([&](json& d) { d[place] = wrong; }), "") << place;
    EXPECT_THAT(ComplaintAbout([&](json& d) { d[place.parent_pointer()]["what"] = 1; }),
                AllOf(HasSubstr("unknown key"), HasSubstr("what")))
        << place;
  });
  EXPECT_GT(fields, 80);
}

TEST(HardwareJsonTest, AbsurdNumbersAreRefused) {
  ForEachField(SampleDocument(), json::json_pointer(), [&](const json::json_pointer& place) {
    if (!SampleDocument()[place].is_number()) return;
    for (const json& absurd : {json(-1), json(-1e300), json(1e300), json(nullptr), json("7")}) {
      if (absurd.is_null() && place.back() == "mlock_limit_bytes") continue;
      if (absurd.is_null() && (place.back() == "cpu" || place.back() == "range_bytes")) continue;
      EXPECT_NE(ComplaintAbout([&](json& d) { d[place] = absurd; }), "") << place << absurd;
    }
  });
}

TEST(HardwareJsonTest, ContradictionsAreRefused) {
  EXPECT_THAT(ComplaintAbout([](json& d) { d["version"] = 1; }), HasSubstr("version"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["cpu_model"] = "another"; }), HasSubstr("machine"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["cores"][1]["cpu"] = 0; }),
              HasSubstr("each core once"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["threads"][1]["threads"] = 1; }),
              HasSubstr("ascending"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["cores"] = json::array(); }), HasSubstr("cores"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["threads"] = json::array(); }), HasSubstr("threads"));
  EXPECT_THAT(ComplaintAbout([](json& d) {
                for (json& read : d["storage"]["reads"]) read["cpu"] = 0;
              }),
              HasSubstr("whole file"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["cores"][0]["int8_macs_per_s"]["min"] = 1e17; }),
              AllOf(HasSubstr("cores[0].int8_macs_per_s"), HasSubstr("min <= median <= max")));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["threads"][0]["read_bytes_per_s"]["min"] = 0; }),
              HasSubstr("threads[0].read_bytes_per_s.min"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["threads"][0]["range_share"]["max"] = 1.01; }),
              HasSubstr("threads[0].range_share.max"));
  EXPECT_THAT(ComplaintAbout([](json& d) { d["isa"] = std::string(5000, 'x'); }), HasSubstr("isa"));
  EXPECT_NE(ComplaintAbout([](json& d) { d = json::array(); }), "");
}

class HardwareFileTest : public ::testing::Test {
 protected:
  ~HardwareFileTest() override { std::filesystem::remove(path_); }
  std::string ReadText(const std::string& text) {
    std::ofstream(path_) << text;
    try {
      ReadHardware(path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  const std::string path_ =
      (std::filesystem::path(::testing::TempDir()) / ("hw" + std::to_string(getpid()))).string();
};

TEST_F(HardwareFileTest, FilesAreReadOrRefused) {
  EXPECT_EQ(ReadText(SampleDocument().dump()), "");
  EXPECT_THAT(ReadText(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(ReadText("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ReadText("7"), HasSubstr("an object"));
  EXPECT_THAT(ReadText(std::string(1 << 20, '[')), HasSubstr("nested too deeply"));
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  EXPECT_THAT(ReadText("{\"version\": " + deep + "}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(ReadText(R"({"version": 6, "version": 6})"), HasSubstr("'version' is there twice"));
  EXPECT_THAT(ReadText(std::string((16 << 20) + 1, ' ')), HasSubstr("size of a hardware profile"));
  EXPECT_THROW(ReadHardware("/nowhere/hw.json"), Error);
}

}  // namespace
}  // namespace hearth
