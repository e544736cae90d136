// Keys and values on a device beside those of the host: whatever happens to contexts, the device
// attends over what it would if it had them all and always, and as the processor does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "accel/test_device.h"
#include "accel/test_faulty_device.h"
#include "base/error.h"
#include "base/test_data.h"
#include "device_request.h"
#include "engine/engine.h"
#include "engine/load/placed_matrices.h"
#include "golden_case.h"
#include "import/open_model.h"
#include "prepare/synth/synth.h"
#include "test_contexts.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int64_t kContext = 640;
constexpr int64_t kContexts = 3;
constexpr int64_t kBatch = 48;

constexpr const char* kDense = R"({"hidden_size": 64, "intermediate_size": 128, "num_layers": 6,
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 600})";
// Three layers of four have a window.
constexpr const char* kWindows = R"({"arch": "smallthinker", "hidden_size": 64,
    "intermediate_size": 32, "num_layers": 8, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16,
    "vocab_size": 600, "num_experts": 4, "num_experts_per_token": 2, "sliding_window": 50})";

class DeviceKvTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    HEARTH_NEED_DEVICE();
    const char* const shape = GetParam();
    path_ = ::testing::TempDir() + "device_kv_" + std::to_string(shape == kDense) + ".gguf";
    SynthesizeModel(ParseShape(shape, "device_kv"), {.quant = DType::kF16, .threads = 2}, path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static EngineOptions Options(std::optional<int64_t> kv_tokens) {
    EngineOptions options = {.program_bytes = 8 * kMiB,
                             .threads = 2,
                             .context = kContext,
                             .kv_sequences = kContexts,
                             .batch_tokens = kBatch};
    options.device = TestDeviceRequest(64 * kMiB);
    options.device.kv_tokens = kv_tokens;
    return options;
  }
  static int64_t Attended(const Engine& engine) {
    return engine.device().part->attention()->tokens_attended();
  }
  static void RunSteps(Engine& expected, Engine& found, int steps) {
    ContextPair contexts(expected, found, {.contexts = size_t{kContexts}, .most_tokens = kBatch});
    for (size_t i = 0; i < size_t{kContexts}; ++i) {
      contexts.Extend(i, kBatch);
      contexts.Extend(i, kBatch);
    }
    for (int step = 0; step < steps; ++step) {
      contexts.Step();
      ASSERT_FALSE(HasFailure()) << "step " << step;
    }
  }

  std::string path_;
};

// Contexts grow, fork, are cut, cancelled and restored. One device has pages for all that are in
// use and no more: those of contexts that are gone leave their slots.
TEST_P(DeviceKvTest, FewPagesHaveTheBitsOfMany) {
  const auto many = Engine::Load(path_, Options(64 * kContext));
  const auto few = Engine::Load(path_, Options(kContexts * kContext));
  RunSteps(*many, *few, 150);
  EXPECT_EQ(Attended(*few), Attended(*many));
  EXPECT_GT(Attended(*few), 0);
}

TEST_P(DeviceKvTest, PagesOnFlashAreCopiedToo) {
  const auto resident = Engine::Load(path_, Options(kContexts * kContext));
  EngineOptions options = Options(kContexts * kContext);
  const KvPlan plan{.tokens = kContexts * kContext, .slots = 23};
  options.kv_memory_bytes = plan.memory_bytes(resident->kv_pool().layout());
  options.kv_folder = ::testing::TempDir();
  const auto spilled = Engine::Load(path_, options);
  ASSERT_NE(spilled->kv_pool().flash(), nullptr);
  RunSteps(*resident, *spilled, 100);
  EXPECT_GT(spilled->kv_pool().flash()->counts().written_bytes, 0u);
}

// By itself the device keeps those of all sessions; what it is told, where it is told.
TEST_P(DeviceKvTest, AttendsAsTheProcessorDoes) {
  std::vector<TokenId> text(150);
  std::iota(text.begin(), text.end(), 7);
  const auto run = [&](Engine& engine) {
    Contexts contexts(engine, 1);
    std::vector<float> logits;
    for (size_t at = 0; at < text.size();) {
      const size_t count = at < 120 ? 40 : 1;
      const std::vector<float> some =
          contexts.Extend(0, std::span<const TokenId>(text).subspan(at, count));
      logits.insert(logits.end(), some.begin(), some.end());
      at += count;
    }
    return logits;
  };
  EngineOptions alone = Options({});
  alone.device = {};
  const std::vector<float> expected = run(*Engine::Load(path_, alone));
  const int64_t layers = Engine::Load(path_, alone)->model().spec().num_layers;
  const auto by_itself = Engine::Load(path_, Options({}));
  EXPECT_EQ(by_itself->device().part->placement().kv_tokens, kContexts * kContext);
  EXPECT_LT(RelativeError(run(*by_itself), expected), 1e-3);
  EXPECT_EQ(Attended(*by_itself), layers * std::ssize(text));
  EXPECT_EQ(by_itself->budget().Ledger().at("kv staging"),
            by_itself->planned_ledger().at("kv staging"));
  // One page: from the second on the processor attends, over what both wrote.
  const auto one_page = Engine::Load(path_, Options(1));
  EXPECT_LT(RelativeError(run(*one_page), expected), 1e-3);
  EXPECT_EQ(Attended(*one_page), layers * 40);
  // A short context after that is the device's again.
  EXPECT_LT(RelativeError(run(*one_page), expected), 1e-3);
  EXPECT_EQ(Attended(*one_page), layers * 80);
  const auto none = Engine::Load(path_, Options(0));
  EXPECT_LT(RelativeError(run(*none), expected), 1e-3);
  EXPECT_EQ(none->device().part->attention(), nullptr);
}

// The processor waits for the device once for attention and once for the FFN of a layer, or once
// for all layers that are there as a whole: of these it marks where keys and values are there.
TEST_P(DeviceKvTest, LayersAreWaitedForTwiceOrOnceTogether) {
  for (const int64_t kv_tokens : {int64_t{0}, kContext}) {
    accel::testing::DeviceFaults faults;
    EngineOptions options = Options(kv_tokens);
    options.device.open = [&](size_t index, const accel::DeviceOptions& how) {
      return std::make_unique<accel::testing::FaultyDevice>(accel::OpenDevice(index, how), faults);
    };
    const auto engine = Engine::Load(path_, options);
    Contexts contexts(*engine, 1);
    const std::vector<TokenId> text(20, 5);
    contexts.Extend(0, text);
    const int before = faults.marks_left;
    contexts.Extend(0, {text.data(), 1});
    const auto layers = static_cast<int>(engine->model().spec().num_layers);
    const int of_output = engine->device().part->placement().output ? 1 : 0;
    const bool is_whole = engine->device().part->whole_layers() != nullptr;
    EXPECT_EQ(is_whole, kv_tokens > 0 && GetParam() == kDense);
    const int of_layers = is_whole ? layers + 1 : layers * (kv_tokens > 0 ? 2 : 3);
    EXPECT_EQ(before - faults.marks_left, of_layers + of_output);
  }
}

// A pass that the device fails in leaves no page that is taken for a copy.
TEST_P(DeviceKvTest, ALostDeviceEndsThePassAndNoMore) {
  accel::testing::DeviceFaults faults;
  EngineOptions options = Options(kContexts * kContext);
  options.device.open = [&](size_t index, const accel::DeviceOptions& how) {
    return std::make_unique<accel::testing::FaultyDevice>(accel::OpenDevice(index, how), faults);
  };
  const auto engine = Engine::Load(path_, options);
  const auto whole = Engine::Load(path_, Options(kContexts * kContext));
  Contexts found(*engine, 1), expected(*whole, 1);
  const std::vector<TokenId> text = {5, 9, 17, 300, 44, 12, 8, 99, 150, 23};
  ASSERT_EQ(found.Extend(0, text), expected.Extend(0, text));
  for (const int marks : {0, 1, 3}) {
    faults.marks_left = marks;
    EXPECT_THAT([&] { found.Extend(0, text); },
                Throws<Error>(Property(&Error::code, ErrorCode::kIo)));
    faults.marks_left = 1 << 30;
    ASSERT_EQ(found.Extend(0, text), expected.Extend(0, text)) << marks;
  }
  // Copying a page of a restored context fails.
  found.Restore(0);
  expected.Restore(0);
  faults.finishes_left = 2;
  EXPECT_THAT([&] { found.Extend(0, text); },
              Throws<Error>(Property(&Error::code, ErrorCode::kIo)));
  faults.finishes_left = 1 << 30;
  EXPECT_EQ(found.Extend(0, text), expected.Extend(0, text));
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceKvTest, ::testing::Values(kDense, kWindows),
                         [](const auto& shape) {
                           return std::string(shape.param == kDense ? "Dense" : "Windows");
                         });

TEST_P(DeviceKvTest, WhatCannotBeIsRefusedInASentence) {
  EngineOptions codec = Options(64);
  codec.kv_codec = KvCodec::kK8V8;
  EXPECT_THAT([&] { Engine::Load(path_, codec); },
              Throws<Error>(Property(&Error::what, HasSubstr("and not in k8v8"))));
  codec.device.kv_tokens.reset();  // then the processor attends
  EXPECT_EQ(Engine::Load(path_, codec)->device().part->placement().kv_tokens, 0);
  EngineOptions large = Options(int64_t{1} << 20);
  EXPECT_THAT([&] { Engine::Load(path_, large); },
              Throws<Error>(Property(&Error::what, HasSubstr("fewer tokens take less"))));
}

// Of two layers only attention is on the device. Terms of adapters belong between what it would
// compute at once, so that the processor attends in their passes.
TEST(DeviceKvAdapters, ThePassesOfAdaptersAreTheProcessors) {
  HEARTH_NEED_DEVICE();
  const GoldenCase golden = LoadGolden("llama");
  EngineOptions options = {.threads = 2, .context = 128, .kv_codec = KvCodec::kF32};
  options.adapters.push_back({SourcePath("tests/goldens/adapters/llama-a"), 1});
  const auto here = Engine::Load(golden.model_path, options);
  const GgufFile file = OpenModel(golden.model_path, {});
  const LoadPlan plan = PlanLoad(file);
  PlannedDevice planned = {.memory_bytes = 64 * kMiB};
  planned.matrices.layers.resize(plan.spec.layers.size(), {.attention = true});
  planned.matrices.kv_tokens = 128;
  planned.ledger = PlacedMatrices(plan, planned.matrices, PassesFor(options, file, plan)).Ledger();
  options.device = TestDeviceRequest(planned.memory_bytes);
  options.device.planned = planned;
  const auto there = Engine::Load(golden.model_path, options);
  const auto& part = *there->device().part;
  EXPECT_EQ(part.device().memory().Ledger(), planned.ledger);
  const AdapterMix none;
  const auto run = [&](Engine& engine) {
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    const std::span<const TokenId> text(golden.prompt);
    // With adapters, without them over what these wrote, and with them again.
    for (const auto& [begin, count, mix] :
         {std::tuple{size_t{0}, size_t{6}, static_cast<const AdapterMix*>(nullptr)},
          std::tuple{size_t{6}, size_t{1}, &none}, std::tuple{size_t{7}, size_t{1}, &none},
          std::tuple{size_t{8}, size_t{1}, static_cast<const AdapterMix*>(nullptr)}}) {
      const BatchSequence sequence{&kv, text.subspan(begin, count), mix};
      engine.pass().Run({count == 1 ? PassKind::kDecode : PassKind::kPrefill, {&sequence, 1}},
                        engine.selector());
      const FloatView logits = engine.pass().Logits(static_cast<int64_t>(count) - 1, 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
    }
    return all;
  };
  EXPECT_LT(RelativeError(run(*there), run(*here)), 2e-5);
  EXPECT_EQ(part.attention()->tokens_attended(), 2 * std::ssize(plan.spec.layers));
}

}  // namespace
}  // namespace hearth
