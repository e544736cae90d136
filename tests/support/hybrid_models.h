// The embedded model, packed, with a part of its neurons on the device of tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/test_device.h"
#include "base/test_data.h"
#include "device_request.h"
#include "engine/engine.h"
#include "pass/test_passes.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {

inline constexpr int64_t kNeurons = 1024;  // of an FFN of the embedded model
inline constexpr int64_t kLayers = 5;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;

inline std::string PathOf(const char* name) { return ::testing::TempDir() + name; }
inline std::string PlainPath() { return SourcePath("models/hearth-stories-5m.gguf"); }

// The device of tests, with room for `neurons` of every FFN.
inline DeviceRequest RequestOf(std::optional<int64_t> neurons, uint64_t memory_bytes = 256 * kMiB) {
  DeviceRequest request = TestDeviceRequest(memory_bytes);
  request.neurons = neurons;
  return request;
}

// A predictor that names every third neuron, whatever the input.
inline PredictorSet PredictorsOfEveryThird(const ModelSpec& spec) {
  PredictorSet set;
  for (const LayerSpec& layer : spec.layers) {
    const auto neurons = static_cast<size_t>(layer.ffn.intermediate_size);
    MadePredictor made = {.rank = 32,
                          .down = std::vector<float>(32 * static_cast<size_t>(spec.hidden_size)),
                          .up = std::vector<float>(neurons * 32),
                          .bias = std::vector<float>(neurons, -1)};
    for (size_t i = 1; i < neurons; i += 3) made.bias[i] = 1;
    set.ffns.push_back(QuantizePredictor(made, set.dtype));
  }
  return set;
}

inline std::unique_ptr<Engine> Load(const std::string& path, FfnMode mode,
                                    std::optional<DeviceRequest> device, int threads = 2) {
  EngineOptions options = {.threads = threads, .context = 512, .mode = mode};
  if (device) options.device = *device;
  return Engine::Load(path, options);
}

inline std::vector<TokenId> Text(Engine& engine, size_t tokens) {
  std::vector<TokenId> text = engine.model().tokenizer().Encode(
      ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 8 * tokens));
  text.resize(tokens);
  return text;
}

// Logits after every token of the text, in passes of `chunk` tokens.
inline std::vector<float> Logits(Engine& engine, size_t tokens, size_t chunk,
                                 PassObserver* observer = nullptr) {
  const std::vector<TokenId> text = Text(engine, tokens);
  KvSequence kv(engine.kv_pool());
  std::vector<float> all;
  for (size_t begin = 0; begin < text.size(); begin += chunk) {
    const size_t count = std::min(chunk, text.size() - begin);
    const BatchSequence sequence{&kv, std::span(text).subspan(begin, count)};
    engine.pass().Run(ShapeOf(sequence), engine.selector(), observer);
    for (size_t i = 0; i < count; ++i) {
      const FloatView logits = engine.pass().Logits(static_cast<int64_t>(i), 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
    }
  }
  return all;
}

inline double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  float error = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error = std::max(error, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return static_cast<double>(error / largest);
}

class HybridModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const GgufFile source = GgufFile::Open(PlainPath());
    const PredictorSet third = PredictorsOfEveryThird(ReadModelSpec(source));
    PackModel(source, {.predictors = &third, .quant = DType::kF16, .threads = 2}, Floats());
    PackModel(source, {.threads = 2}, Default());
  }
  static void TearDownTestSuite() {
    std::filesystem::remove(Floats());
    std::filesystem::remove(Default());
  }
  void SetUp() override { HEARTH_NEED_DEVICE(); }

  // F16 rows, which the processor multiplies with activations of floats, as the device does.
  static std::string Floats() { return PathOf("hybrid_floats.gguf"); }
  static std::string Default() { return PathOf("hybrid_default.gguf"); }
};

}  // namespace hearth
