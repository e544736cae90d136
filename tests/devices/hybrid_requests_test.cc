// Requests together of a model whose hottest neurons are on a device: a batch of 32, and a device
// that is lost while they are computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "accel/test_device.h"
#include "accel/test_faulty_device.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/session/session.h"
#include "engine/session/test_batches.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class HybridRequestsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const GgufFile source = GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf"));
    PackModel(source, {.quant = DType::kF16, .threads = 2}, Model());
  }
  static void TearDownTestSuite() { std::filesystem::remove(Model()); }
  void SetUp() override { HEARTH_NEED_DEVICE(); }

  static std::string Model() { return ::testing::TempDir() + "hybrid_requests.gguf"; }

  // A third of the neurons on the device of tests, which fails as `faults` says.
  static std::unique_ptr<Engine> LoadWith(accel::testing::DeviceFaults& faults, int64_t sequences) {
    EngineOptions options = {
        .threads = 2, .context = 64, .kv_sequences = sequences, .mode = FfnMode::kGated};
    options.device.choice = {accel::DeviceChoice::Kind::kIndex, accel::testing::TestDeviceIndex()};
    options.device.memory_bytes = uint64_t{64} << 20;
    options.device.neurons = 340;
    options.device.programs_folder = accel::testing::TestProgramsFolder();
    options.device.open = [&faults](size_t index, const accel::DeviceOptions& asked) {
      return std::make_unique<accel::testing::FaultyDevice>(accel::OpenDevice(index, asked),
                                                            faults);
    };
    return Engine::Load(Model(), options);
  }
};

TEST_F(HybridRequestsTest, ThirtyTwoTogetherAreAsEachAlone) {
  constexpr size_t kRequests = 33;  // one more than a launch takes
  accel::testing::DeviceFaults none;
  const auto engine = LoadWith(none, kRequests);
  std::mt19937 random(3);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> expected;
  for (size_t i = 0; i < kRequests; ++i) {
    // Prompts of packed models have the same bits in company from eight tokens on.
    prompts.push_back(RandomTokens(random, 8 + static_cast<int64_t>(i % 9)));
    expected.push_back(Session(*engine).Generate(prompts[i], Sampled(i, 5)).text);
  }
  std::vector<Told> told(kRequests);
  BatchScheduler scheduler(*engine, {.most_running = kRequests});
  for (size_t i = 0; i < kRequests; ++i) {
    scheduler.Add(MakeRequest(prompts[i], Sampled(i, 5), told[i]));
  }
  RunAll(scheduler);
  for (size_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(told[i].outcome && !told[i].outcome->error) << i;
    EXPECT_EQ(told[i].text, expected[i]) << i;
  }
  EXPECT_GT(scheduler.counts().decode_tokens, 8 * scheduler.counts().decode_passes)
      << "they were computed together";
}

TEST_F(HybridRequestsTest, ALostDeviceEndsItsRequestsAndNothingElse) {
  accel::testing::DeviceFaults faults;
  const auto engine = LoadWith(faults, 4);
  std::mt19937 random(5);
  const std::vector<TokenId> prompt = RandomTokens(random, 12);
  const std::string expected = Session(*engine).Generate(prompt, Sampled(1, 6)).text;
  BatchScheduler scheduler(*engine, {});
  std::vector<Told> lost(3);
  for (Told& told : lost) scheduler.Add(MakeRequest(prompt, Sampled(1, 6), told));
  scheduler.Step();  // the prompts
  faults.marks_left = 7;
  RunAll(scheduler);
  for (const Told& told : lost) {
    ASSERT_TRUE(told.outcome && told.outcome->error);
    EXPECT_EQ(told.outcome->error->code(), ErrorCode::kIo);
    EXPECT_THAT(told.outcome->error->what(), HasSubstr("the device is lost"));
  }
  EXPECT_THAT(scheduler.fault(), HasSubstr("the device is lost"));
  // So do those that come while it is away, and those that come after are answered.
  Told away;
  scheduler.Add(MakeRequest(prompt, Sampled(1, 6), away));
  RunAll(scheduler);
  ASSERT_TRUE(away.outcome && away.outcome->error);
  faults.marks_left = 1 << 30;
  Told back;
  scheduler.Add(MakeRequest(prompt, Sampled(1, 6), back));
  RunAll(scheduler);
  ASSERT_TRUE(back.outcome && !back.outcome->error);
  EXPECT_EQ(back.text, expected);
  EXPECT_EQ(scheduler.fault(), "");
}

}  // namespace
}  // namespace hearth
