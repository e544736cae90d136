// A packed model whose hottest neurons are on a device: what that changes of its logits, where the
// neurons lie, who computes them, and what is refused (P1 §5.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/test_device.h"
#include "accel/test_faulty_device.h"
#include "base/error.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/session/token_scores.h"
#include "hybrid_models.h"
#include "measure/evaluate.h"
#include "measure/topic_walk.h"
#include "pass/test_passes.h"
#include "prepare/pack/test_pack_models.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::SizeIs;
using ::testing::Throws;

// 0, 10, 50 and 100%, and numbers that are no multiple of anything.
constexpr int64_t kPlaced[] = {0, 1, 102, 512, 1021, kNeurons};

TEST_F(HybridModelTest, LogitsAreTheProcessorsWithinRounding) {
  constexpr size_t kTokens = 20;
  for (const FfnMode mode : {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted}) {
    for (const size_t chunk : {size_t{1}, size_t{5}, kTokens}) {
      const std::vector<float> expected = Logits(*Load(Floats(), mode, {}), kTokens, chunk);
      for (const int64_t placed : kPlaced) {
        SCOPED_TRACE(::testing::Message()
                     << FfnModeName(mode) << ", " << placed << " neurons, passes of " << chunk);
        const auto engine = Load(Floats(), mode, RequestOf(placed));
        const std::vector<float> logits = Logits(*engine, kTokens, chunk);
        if (placed == 0) {
          EXPECT_EQ(engine->device().part, nullptr);
          EXPECT_EQ(logits, expected);
        } else {
          EXPECT_LT(RelativeError(logits, expected), 1e-3);
        }
      }
    }
  }
}

TEST_F(HybridModelTest, EachNeuronIsComputedWhereItLies) {
  constexpr int64_t kTokens = 12;
  const auto all_here = Load(Default(), FfnMode::kGated, {});
  const uint64_t all_bytes = all_here->budget().Ledger().at("weights");
  for (const int64_t placed : kPlaced) {
    if (placed == 0) continue;
    const auto engine = Load(Default(), FfnMode::kGated, RequestOf(placed));
    ASSERT_NE(engine->device().part, nullptr);
    const DevicePart& device = *engine->device().part;
    EXPECT_THAT(device.layer_neurons(), AllOf(SizeIs(kLayers), Each(placed)));
    EXPECT_EQ(device.neurons_of_ffn(), kNeurons);
    // Rows of Q8_0 with 256 columns: 256 codes and 8 scales of two bytes, three of them.
    const uint64_t neuron_bytes = 3 * (256 + 16 + 16);
    const std::map<std::string, uint64_t> ledger = device.device().memory().Ledger();
    EXPECT_EQ(ledger.at("neurons"), neuron_bytes * static_cast<uint64_t>(kLayers * placed));
    EXPECT_EQ(ledger.at("neurons") + ledger.at("scratch"), device.device().memory().used_bytes());
    // What is there is not here too.
    const uint64_t here = engine->budget().Ledger().at("weights");
    EXPECT_NEAR(static_cast<double>(all_bytes - here),
                3.0 * 320 * kLayers * static_cast<double>(placed), 8192 + 4096);
    const std::map<std::string, uint64_t> host = engine->budget().Ledger();
    EXPECT_EQ(host.at("activations") + host.at("logits"),
              engine->planned_ledger().at("activations"));
    Logits(*engine, kTokens, 1);
    EXPECT_EQ(device.ffns()->neurons_computed(), kTokens * kLayers * placed);
    EXPECT_EQ(engine->pass().ffn_counts().gate, kTokens * kLayers * (kNeurons - placed));
  }
}

TEST_F(HybridModelTest, ListsAreCutWhereTheDeviceEnds) {
  constexpr int64_t kTokens = 9;
  const auto engine = Load(Floats(), FfnMode::kPredicted, RequestOf(512));
  Logits(*engine, kTokens, 3);
  // Every third from 1 on: 171 of the first 512, 170 of the others.
  EXPECT_EQ(engine->device().part->ffns()->neurons_computed(), kTokens * kLayers * 171);
  EXPECT_EQ(engine->pass().ffn_counts().gate, kTokens * kLayers * 170);
}

TEST_F(HybridModelTest, OnePlacementHasTheSameBitsEveryTime) {
  constexpr size_t kTokens = 24;
  for (const FfnMode mode : {FfnMode::kGated, FfnMode::kPredicted}) {
    for (const size_t chunk : {size_t{1}, kTokens}) {
      const auto one = Load(Floats(), mode, RequestOf(300), 1);
      const std::vector<float> expected = Logits(*one, kTokens, chunk);
      EXPECT_EQ(Logits(*one, kTokens, chunk), expected);
      for (const int threads : {2, 3, 4}) {
        const auto engine = Load(Floats(), mode, RequestOf(300), threads);
        EXPECT_EQ(Logits(*engine, kTokens, chunk), expected) << threads << " threads";
      }
      // Nor does it matter how a text is cut into passes, where rows are floats.
      EXPECT_EQ(Logits(*one, kTokens, 7), expected) << "passes of " << chunk;
    }
  }
}

// Of the bundles that `hearth pack` makes by itself. The device's activations are floats, the
// processor's 8 bits.
TEST_F(HybridModelTest, ThePerplexityIsTheProcessors) {
  constexpr size_t kTokens = 512;
  const auto processor = Load(Default(), FfnMode::kGated, {});
  const std::vector<TokenId> text = Text(*processor, kTokens);
  struct Scored {
    double perplexity = 0;
    std::vector<TokenId> likeliest;
  };
  const auto score = [&](Engine& engine) {
    Scored scored;
    double nll = 0;
    ForAllLogits(engine.pass(), engine.kv_pool(), text, engine.selector(), nullptr,
                 [&](size_t position, std::span<const float> logits) {
                   scored.likeliest.push_back(LikeliestToken(logits));
                   if (position + 1 < kTokens)
                     nll += NegativeLogLikelihood(logits, text[position + 1]);
                 });
    scored.perplexity = std::exp(nll / (kTokens - 1));
    return scored;
  };
  const Scored expected = score(*processor);
  // Nothing: all neurons, and attention.
  for (const std::optional<int64_t> placed :
       {std::optional<int64_t>(102), std::optional<int64_t>(512), std::optional(kNeurons),
        std::optional<int64_t>()}) {
    SCOPED_TRACE(placed.value_or(-1));
    const Scored scored = score(*Load(Default(), FfnMode::kGated, RequestOf(placed)));
    EXPECT_NEAR(scored.perplexity, expected.perplexity, 0.003 * expected.perplexity);
    size_t same = 0;
    for (size_t i = 0; i < scored.likeliest.size(); ++i) {
      same += scored.likeliest[i] == expected.likeliest[i] ? 1 : 0;
    }
    EXPECT_GE(static_cast<double>(same), 0.98 * static_cast<double>(scored.likeliest.size()));
  }
}

// Without a number of neurons, attention goes to the device with its keys and values, then
// predictors, then neurons.
TEST_F(HybridModelTest, WhatEveryTokenReadsGoesThereFirst) {
  constexpr size_t kTokens = 20;
  for (const FfnMode mode : {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted}) {
    for (const size_t chunk : {size_t{1}, size_t{5}, kTokens}) {
      SCOPED_TRACE(::testing::Message() << FfnModeName(mode) << ", passes of " << chunk);
      const std::vector<float> expected = Logits(*Load(Floats(), mode, {}), kTokens, chunk);
      const auto engine = Load(Floats(), mode, RequestOf(std::nullopt));
      const DevicePart& part = *engine->device().part;
      EXPECT_THAT(part.layer_neurons(), Each(kNeurons));
      EXPECT_EQ(part.placement().kv_tokens, 512);
      const bool predicts = mode == FfnMode::kPredicted;
      for (const PlacedLayer& layer : part.placement().layers) {
        EXPECT_TRUE(layer.attention);
        EXPECT_EQ(layer.predictor, predicts);
      }
      const std::vector<float> logits = Logits(*engine, kTokens, chunk);
      // The processor multiplies attention's Q8_0 with 8-bit activations.
      EXPECT_LT(RelativeError(logits, expected), 3e-2);
      EXPECT_EQ(part.attention()->tokens_attended(), kTokens * kLayers);
      ASSERT_EQ(part.predictors() != nullptr, predicts);
      if (predicts) {
        EXPECT_EQ(part.predictors()->tokens_asked(), kTokens * kLayers);
        // Every third neuron from 1 on is listed, wherever somebody asks.
        EXPECT_EQ(part.ffns()->neurons_computed(), kTokens * kLayers * 341);
      }
      EXPECT_GT(part.ffns()->neurons_computed(), 0);
      EXPECT_EQ(Logits(*Load(Floats(), mode, RequestOf(std::nullopt), 1), kTokens, chunk), logits);
    }
  }
  // Less memory has fewer neurons.
  const auto all = Load(Floats(), FfnMode::kGated, RequestOf(std::nullopt));
  const uint64_t used = all->device().part->device().memory().used_bytes();
  const auto less = Load(Floats(), FfnMode::kGated, RequestOf(std::nullopt, used - 2 * kMiB));
  const DevicePart& part = *less->device().part;
  for (const PlacedLayer& layer : part.placement().layers) EXPECT_TRUE(layer.attention);
  EXPECT_THAT(part.layer_neurons(),
              Each(::testing::AllOf(::testing::Gt(0), ::testing::Lt(kNeurons))));
  EXPECT_LE(part.device().memory().used_bytes(), used - 2 * kMiB);
}

// Tokens of several sequences in a pass have the bits that each has alone.
TEST_F(HybridModelTest, CompanyChangesNothing) {
  const std::pair<FfnMode, std::optional<int64_t>> cases[] = {
      {FfnMode::kGated, 400}, {FfnMode::kPredicted, 400}, {FfnMode::kPredicted, std::nullopt}};
  for (const auto& [mode, placed] : cases) {
    EngineOptions options = {.threads = 2, .context = 64, .kv_sequences = 3, .mode = mode};
    options.device = RequestOf(placed);
    const auto engine = Engine::Load(Floats(), options);
    const std::vector<TokenId> text = Text(*engine, 30);
    const auto decode = [&](bool together) {
      std::vector<KvSequence> kv;
      std::vector<std::vector<float>> logits(3);
      for (size_t i = 0; i < 3; ++i) kv.emplace_back(engine->kv_pool());
      for (size_t token = 0; token < 6; ++token) {
        std::vector<BatchSequence> batch;
        for (size_t i = 0; i < 3; ++i) {
          batch.push_back({&kv[i], std::span(text).subspan(10 * i + token, 1)});
        }
        const size_t step = together ? 3 : 1;
        for (size_t i = 0; i < 3; i += step) {
          engine->pass().Run({PassKind::kDecode, std::span(batch).subspan(i, step)},
                             engine->selector());
          for (size_t j = 0; j < step; ++j) {
            const FloatView row = engine->pass().Logits(static_cast<int64_t>(j), 1);
            logits[i + j].insert(logits[i + j].end(), row.data, row.data + row.cols);
          }
        }
      }
      return logits;
    };
    EXPECT_EQ(decode(true), decode(false)) << FfnModeName(mode);
  }
}

// What bench and eval say of neurons is about all of them, wherever they are.
TEST_F(HybridModelTest, ObserversSeeBothSides) {
  constexpr size_t kTokens = 16;
  for (const FfnMode mode : {FfnMode::kGated, FfnMode::kPredicted}) {
    for (const size_t chunk : {size_t{1}, kTokens}) {
      const auto measure = [&](std::optional<int64_t> placed) {
        const auto engine =
            Load(Floats(), mode, placed ? std::optional(RequestOf(*placed)) : std::nullopt);
        QualityMeter meter(engine->model().spec());
        const std::vector<float> watched = Logits(*engine, kTokens, chunk, &meter);
        EXPECT_EQ(watched, Logits(*engine, kTokens, chunk)) << "watching changes it";
        return meter.Result();
      };
      const Quality expected = measure({});
      for (const int64_t placed : {int64_t{333}, kNeurons}) {
        const Quality quality = measure(placed);
        EXPECT_NEAR(*quality.active, *expected.active, 1e-3) << placed;
        EXPECT_NEAR(*quality.gate, *expected.gate, 1e-3) << placed;
        EXPECT_NEAR(quality.computed, expected.computed, 1e-3) << placed;
        ASSERT_EQ(quality.recall.has_value(), mode == FfnMode::kPredicted);
        if (mode == FfnMode::kGated) continue;
        EXPECT_NEAR(*quality.listed, *expected.listed, 1e-9) << placed;
        EXPECT_NEAR(*quality.recall, *expected.recall, 1e-2) << placed;
      }
    }
  }
}

TEST_F(HybridModelTest, AsManyNeuronsAsFitByOneRule) {
  // All of them, with their scratch.
  const auto all = Load(Default(), FfnMode::kGated, RequestOf({}));
  EXPECT_THAT(all->device().part->layer_neurons(), Each(kNeurons));
  const uint64_t some_bytes = all->device().part->device().memory().used_bytes() / 2;
  const auto some = Load(Default(), FfnMode::kGated, RequestOf({}, some_bytes));
  const int64_t placed = some->device().part->layer_neurons()[0];
  EXPECT_THAT(some->device().part->layer_neurons(), Each(placed));
  EXPECT_GT(placed, 0);
  EXPECT_LT(placed, kNeurons);
  // There is no room for one more of each FFN, with what it needs to be computed in.
  const uint64_t used = some->device().part->device().memory().used_bytes();
  EXPECT_LE(used, some_bytes);
  EXPECT_GT(used + kLayers * 3 * (256 + 16 + 16) + 1024, some_bytes);
  // More than fit are refused, with what they would take.
  const auto neurons_alone = Load(Default(), FfnMode::kGated, RequestOf(500));
  const uint64_t enough = neurons_alone->device().part->device().memory().used_bytes();
  EXPECT_EQ(Load(Default(), FfnMode::kGated, RequestOf(500, enough))->device().why_none, "");
  EXPECT_THAT([&] { Load(Default(), FfnMode::kGated, RequestOf(500, enough - 1)); },
              Throws<Error>(AllOf(Property(&Error::code, ErrorCode::kOutOfBudget),
                                  Property(&Error::field, "device_memory"),
                                  Property(&Error::what, HasSubstr("expected at least")))));
}

TEST_F(HybridModelTest, WhatCannotBeIsRefusedByName) {
  const auto refusal = [](ErrorCode code, const char* words) {
    return Throws<Error>(
        AllOf(Property(&Error::code, code), Property(&Error::what, HasSubstr(words))));
  };
  EXPECT_THAT([] { Load(Default(), FfnMode::kGated, RequestOf({}, 1000)); },
              refusal(ErrorCode::kOutOfBudget, "1 neuron of each of 5 FFNs"));
  EXPECT_THAT([] { Load(Default(), FfnMode::kGated, RequestOf(kNeurons + 1)); },
              refusal(ErrorCode::kInvalidArgument, "at most 1024"));
  EXPECT_THAT([] { Load(Default(), FfnMode::kGated, RequestOf({}, uint64_t{1} << 50)); },
              refusal(ErrorCode::kOutOfBudget, "device_memory: the memory of"));
  EXPECT_THAT([] { Load(PlainPath(), FfnMode::kDense, RequestOf(5)); },
              refusal(ErrorCode::kInvalidArgument, "not packed"));
  DeviceRequest missing = RequestOf({});
  missing.choice.index = 1000;
  EXPECT_THAT([&] { Load(Default(), FfnMode::kGated, missing); },
              refusal(ErrorCode::kNotFound, "there is no device 1000"));
}

// PoCL's device is a processor, which auto never chooses.
TEST_F(HybridModelTest, AutoRunsWithoutADeviceAndSaysWhy) {
  DeviceRequest request = RequestOf({});
  request.choice = {accel::DeviceChoice::Kind::kAuto};
  request.may_do_without = true;
  if (accel::ChooseDevice(request.choice, accel::ListDevices())) {
    GTEST_SKIP() << "there is a device that auto chooses";
  }
  const auto engine = Load(Default(), FfnMode::kGated, request);
  EXPECT_EQ(engine->device().part, nullptr);
  EXPECT_THAT(engine->device().why_none, HasSubstr("there is none but the processor"));
  EXPECT_EQ(Logits(*engine, 8, 1), Logits(*Load(Default(), FfnMode::kGated, {}), 8, 1));
}

// The device of tests, failing as `faults` says.
DeviceRequest FaultyRequest(accel::testing::DeviceFaults& faults) {
  DeviceRequest request = RequestOf(512);
  request.open = [&faults](size_t index, const accel::DeviceOptions& options) {
    return std::make_unique<accel::testing::FaultyDevice>(accel::OpenDevice(index, options),
                                                          faults);
  };
  return request;
}

TEST_F(HybridModelTest, ADeviceThatFailsAtLoadIsNamedOrDoneWithout) {
  const std::vector<float> processor = Logits(*Load(Default(), FfnMode::kGated, {}), 6, 1);
  const struct {
    accel::testing::DeviceFaults faults;
    ErrorCode code;
    const char* words;
  } cases[] = {{{.buffers_left = 0}, ErrorCode::kOutOfBudget, "has no memory left"},
               {{.buffers_left = 11}, ErrorCode::kOutOfBudget, "has no memory left"},
               {{.builds = false}, ErrorCode::kUnsupported, "cannot build the program neurons"},
               {{.finishes_left = 0}, ErrorCode::kIo, "the device is lost"},
               {{.finishes_left = 3}, ErrorCode::kIo, "the device is lost"}};  // while it is filled
  for (const auto& each : cases) {
    accel::testing::DeviceFaults faults = each.faults;
    DeviceRequest request = FaultyRequest(faults);
    EXPECT_THAT([&] { Load(Default(), FfnMode::kGated, request); },
                Throws<Error>(AllOf(Property(&Error::code, each.code),
                                    Property(&Error::what, HasSubstr(each.words)))));
    faults = each.faults;
    request.may_do_without = true;
    const auto engine = Load(Default(), FfnMode::kGated, request);
    EXPECT_EQ(engine->device().part, nullptr);
    EXPECT_THAT(engine->device().why_none, HasSubstr(each.words));
    EXPECT_EQ(Logits(*engine, 6, 1), processor);
  }
}

TEST_F(HybridModelTest, ALostDeviceEndsThePass) {
  for (const FfnMode mode : {FfnMode::kGated, FfnMode::kPredicted}) {
    accel::testing::DeviceFaults faults;
    const auto engine = Load(Floats(), mode, FaultyRequest(faults));
    const std::vector<float> expected = Logits(*engine, 6, 1);
    faults.marks_left = 7;  // in the second token
    EXPECT_THAT([&] { Logits(*engine, 6, 1); },
                Throws<Error>(AllOf(Property(&Error::code, ErrorCode::kIo),
                                    Property(&Error::what, HasSubstr("the device is lost")))));
    // All pages are free again, and a device that is back goes on.
    EXPECT_EQ(engine->kv_pool().used_bytes(), 0u);
    faults.marks_left = 1000;
    EXPECT_EQ(Logits(*engine, 6, 1), expected);
  }
}

// Both sides of every FFN, and one merge of each.
TEST_F(HybridModelTest, ATraceShowsBothSidesAndOneMerge) {
  constexpr int64_t kTokens = 4;
  DeviceRequest request = RequestOf(512);
  request.is_traced = true;
  const auto engine = Load(Default(), FfnMode::kGated, request);
  const std::vector<float> traced = Logits(*engine, kTokens, 1);
  EXPECT_EQ(traced, Logits(*Load(Default(), FfnMode::kGated, RequestOf(512)), kTokens, 1));
  const accel::DeviceTrace* const trace = engine->device().part->trace();
  ASSERT_NE(trace, nullptr);
  std::map<std::string, int64_t> counts;
  std::map<std::string, double> begins;  // of the FFN at hand
  for (const accel::TraceSpan& span : trace->spans()) {
    ++counts[span.what];
    EXPECT_LE(span.begin_seconds, span.end_seconds) << span.what;
    EXPECT_EQ(span.tokens, 1);
    const bool is_device = span.side == accel::TraceSide::kDevice;
    EXPECT_EQ(is_device, span.what != "FFN" && span.what != "wait" && span.what != "merge");
    begins[span.what] = span.begin_seconds;
    if (span.what != "merge") continue;
    EXPECT_GE(span.begin_seconds, begins["FFN"]);
    EXPECT_EQ(span.ffn, (counts["merge"] - 1) % kLayers);
  }
  for (const char* what : {"FFN", "wait", "merge", "neuron_gates", "neuron_factors", "neuron_down",
                           "merge_slices", "upload", "download"}) {
    EXPECT_EQ(counts[what], kTokens * kLayers) << what;
  }
}

// A model that does not fit: what is not on the device is streamed.
TEST(HybridStreamedTest, StreamingChangesNoBit) {
  HEARTH_NEED_DEVICE();
  const std::string path = PathOf("hybrid_streamed.gguf");
  SynthesizeSparseModel(path);
  const auto logits = [](Engine& engine) {
    const Model& model = engine.model();
    const std::vector<TokenId> text =
        TopicWalk(*TopicMap::FromMetadata(model.metadata(), model.spec().vocab_size)).Take(13);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < text.size();) {
      const size_t count = begin == 0 ? 9 : 1;
      const BatchSequence sequence{&kv, std::span(text).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence),
                        begin == 0 ? engine.prefill_selector() : engine.selector());
      const FloatView last = engine.pass().Logits(static_cast<int64_t>(count) - 1, 1);
      all.insert(all.end(), last.data, last.data + last.cols);
      begin += count;
    }
    return all;
  };
  // Neurons alone; attention too.
  const std::pair<FfnMode, std::optional<int64_t>> cases[] = {{FfnMode::kPredicted, 1500},
                                                              {FfnMode::kGated, 1500},
                                                              {FfnMode::kDense, 1500},
                                                              {FfnMode::kPredicted, std::nullopt}};
  for (const auto& [mode, placed] : cases) {
    SCOPED_TRACE(::testing::Message() << FfnModeName(mode) << " " << placed.value_or(-1));
    EngineOptions options = {
        .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = mode};
    options.device = placed ? RequestOf(placed) : RequestOf(placed, 24 * kMiB);
    // A streamed model gets another placement than one in memory.
    if (!placed) options.memory_bytes = SmallestLimit(path, options) + 6 * kMiB;
    const auto less_streamed = Engine::Load(path, options);
    EXPECT_EQ(less_streamed->streamed() != nullptr, !placed);
    const std::vector<float> expected = logits(*less_streamed);
    options.memory_bytes = SmallestLimit(path, options) + 5 * kMiB;
    for (const int threads : {1, 3}) {
      options.threads = threads;
      options.streaming.pipeline.lookahead = Lookahead::kOn;
      const auto engine = Engine::Load(path, options);
      ASSERT_NE(engine->streamed(), nullptr);
      const DevicePart& part = *engine->device().part;
      EXPECT_EQ(engine->streamed()->store().source().neurons, 6144 - part.layer_neurons()[0]);
      EXPECT_EQ(part.predictors(), nullptr) << "here they are asked ahead of reads";
      EXPECT_EQ(part.attention() != nullptr, !placed);
      EXPECT_EQ(logits(*engine), expected) << threads;
      EXPECT_GT(engine->stream_counts().bytes_read, 0u);
      if (mode == FfnMode::kPredicted) {
        EXPECT_GT(engine->stream_counts().misses, 0u);
      }
    }
    // Without the device the smallest budget is larger or the same, and the logits nearly so.
    options.device = {};
    options.memory_bytes.reset();
    const std::vector<float> processor = logits(*Engine::Load(path, options));
    EXPECT_LT(RelativeError(expected, processor), 5e-2);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hearth
