// The public library's options of devices, in C++ and C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "accel/test_device.h"
#include "base/test_data.h"
#include "hearth/hearth.h"
#include "hearth/hearth.hpp"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class DeviceApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    PackModel(GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf")),
              {.quant = DType::kF16, .threads = 2}, Path());
  }
  static void TearDownTestSuite() { std::filesystem::remove(Path()); }
  void SetUp() override { HEARTH_NEED_DEVICE(); }

  static std::string Path() { return ::testing::TempDir() + "device_api.gguf"; }
  static api::LoadOptions Options() {
    api::LoadOptions options;
    options.threads = 2;
    options.context = 128;
    options.device = std::to_string(accel::testing::TestDeviceIndex());
    options.device_memory_bytes = uint64_t{64} << 20;
    return options;
  }
  static uint64_t WeightsOf(const api::Model& model) { return model.stats().ledger.at("weights"); }
  static std::string Refusal(const api::LoadOptions& options) {
    try {
      api::Model::Load(Path(), options);
    } catch (const api::Error& error) {
      return error.field() + ": " + error.what();
    }
    return "";
  }
};

TEST_F(DeviceApiTest, NeuronsLieWhereTheOptionsSay) {
  api::LoadOptions options = Options();
  options.device = "none";
  options.device_memory_bytes = 0;
  api::Model alone = api::Model::Load(Path(), options);
  options = Options();
  options.device_neurons = 512;
  api::Model half = api::Model::Load(Path(), options);
  // Half of five FFNs of 1,024 neurons, three rows of 512 bytes each.
  EXPECT_NEAR(static_cast<double>(WeightsOf(alone) - WeightsOf(half)), 5.0 * 512 * 3 * 512, 16384);
  options.device_neurons = 0;
  EXPECT_LT(WeightsOf(api::Model::Load(Path(), options)), WeightsOf(half)) << "all that fit";
  api::GenerateRequest request;
  request.prompt = alone.Tokenize("Once upon a time", true, false);
  request.max_tokens = 8;
  request.sampling.temperature = 0;
  EXPECT_EQ(half.Generate(request).text, alone.Generate(request).text);
}

TEST_F(DeviceApiTest, WhatMakesNoSenseIsRefusedByField) {
  api::LoadOptions options = Options();
  options.device = "gpu";
  EXPECT_THAT(Refusal(options), HasSubstr("device: "));
  options.device = "none";
  EXPECT_THAT(Refusal(options), HasSubstr("have no effect"));
  options = Options();
  options.device_neurons = 5000;
  EXPECT_THAT(Refusal(options), HasSubstr("device_neurons"));
  options.device_neurons = 0;
  options.device_memory_bytes = 1000;
  EXPECT_THAT(Refusal(options), HasSubstr("device_memory"));
}

// PoCL's device is a processor, which auto never chooses.
TEST_F(DeviceApiTest, AutoSaysWhyItFoundNone) {
  if (accel::ChooseDevice({accel::DeviceChoice::Kind::kAuto}, accel::ListDevices())) {
    GTEST_SKIP() << "there is a device that auto chooses";
  }
  api::LoadOptions options = Options();
  options.device = "auto";
  std::vector<std::string> warnings;
  options.on_warning = [&](const std::string& sentence) { warnings.push_back(sentence); };
  api::Model::Load(Path(), options);
  ASSERT_FALSE(warnings.empty());
  EXPECT_THAT(warnings.front(), HasSubstr("the processor computes alone"));
}

TEST_F(DeviceApiTest, CHasTheSameOptions) {
  hearth_options options;
  hearth_options_init(&options);
  options.threads = 2;
  options.context = 128;
  const std::string device = std::to_string(accel::testing::TestDeviceIndex());
  hearth_load_more more = {};
  more.struct_size = sizeof(more);
  more.device = device.c_str();
  more.device_memory_bytes = uint64_t{64} << 20;
  more.device_neurons = 512;
  hearth_model* model = nullptr;
  hearth_error error;
  ASSERT_EQ(hearth_load_with(Path().c_str(), &options, &more, &model, &error), HEARTH_OK)
      << error.message;
  hearth_free(model);
  more.device_neurons = 5000;
  EXPECT_EQ(hearth_load_with(Path().c_str(), &options, &more, &model, &error),
            HEARTH_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("at most 1024"));
}

}  // namespace
}  // namespace hearth
