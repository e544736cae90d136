// `hearth serve --device`: many clients at once, and a device that is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/test_data.h"
#include "base/test_folder.h"
#include "json_schema.h"
#include "program.h"
#include "server_process.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kClients = 32;

class ServeDeviceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("serve_device");
    const ProgramResult packed = RunHearth(
        {"pack", SourcePath("models/hearth-stories-5m.gguf"), "--quant", "f16", "-o", Model()});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
    has_device_ = !json::parse(RunHearth({"devices", "--limits", "--json"}).out)["devices"].empty();
  }
  static void TearDownTestSuite() { delete folder_; }
  void SetUp() override {
    if (has_device_) return;
    if (std::getenv("CI") != nullptr) FAIL() << "no device in CI";
    GTEST_SKIP() << "there is no device: install pocl-opencl-icd";
  }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::vector<std::string> Options(std::vector<std::string> device) {
    std::vector<std::string> options = {
        "--parallel", std::to_string(kClients), "--ctx", "64", "--threads", "2"};
    options.insert(options.end(), device.begin(), device.end());
    return options;
  }
  static json Prompt(int i) {
    std::vector<int> tokens(8 + static_cast<size_t>(i) % 5);
    for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = 40 + i + 11 * static_cast<int>(t);
    return {{"prompt", tokens},
            {"max_tokens", 6},
            {"temperature", 0},
            {"logit_bias", {{"0", -100}, {"1", -100}, {"2", -100}}}};
  }
  static std::string TextOf(const ServerProcess& server, int i) {
    const json answer = server.Connect().Post("/v1/completions", Prompt(i)).Json();
    return answer.value("choices", json::array({{{"text", answer.dump()}}}))[0]["text"];
  }

  inline static TestFolder* folder_ = nullptr;
  inline static bool has_device_ = false;
};

TEST_F(ServeDeviceTest, ManyClientsGetWhatEachGetsAlone) {
  const ServerProcess server(
      Model(), Options({"--device", "0", "--device-memory", "64M", "--device-neurons", "340"}));
  std::vector<std::string> alone, together(kClients);
  for (int i = 0; i < kClients; ++i) alone.push_back(TextOf(server, i));
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] { together[static_cast<size_t>(i)] = TextOf(server, i); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
  EXPECT_LT(server.Metric("hearth_decode_passes_total"), 0.6 * 5 * 2 * kClients)
      << "they were computed together";
}

TEST_F(ServeDeviceTest, WithoutDriversAutoServesAndANumberIsRefused) {
  TestFolder none("serve_no_drivers");
  const std::string before = std::getenv("OCL_ICD_VENDORS") ? std::getenv("OCL_ICD_VENDORS") : "";
  setenv("OCL_ICD_VENDORS", none.Path("").c_str(), 1);
  {
    const ServerProcess server(Model(), Options({"--device", "auto"}));
    EXPECT_THAT(server.notices(), HasSubstr("the processor computes alone"));
    EXPECT_FALSE(TextOf(server, 1).empty());
  }
  ExpectRefused(RunHearth({"serve", Model(), "--port", "0", "--device", "0"}), 1,
                "there is no device: no OpenCL driver");
  if (before.empty()) {
    unsetenv("OCL_ICD_VENDORS");
  } else {
    setenv("OCL_ICD_VENDORS", before.c_str(), 1);
  }
}

}  // namespace
}  // namespace hearth
