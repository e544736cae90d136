// Models that are not packed, with matrices on a device: every family has the logits of Hugging
// Face transformers wherever they lie, and they lie and are computed where they were placed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
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
#include "engine/load/placed_layers.h"
#include "engine/session/token_scores.h"
#include "golden_case.h"
#include "import/open_model.h"
#include "measure/evaluate.h"
#include "pass/test_passes.h"
#include "prepare/synth/synth.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Sums of floats in another order.
constexpr double kTolerance = 2e-5;

DeviceRequest RequestOf(const MatrixCounts& counts, uint64_t memory_bytes = 64 * kMiB) {
  DeviceRequest request = TestDeviceRequest(memory_bytes);
  request.matrices = counts;
  return request;
}

std::unique_ptr<Engine> Load(const std::string& path, const std::optional<DeviceRequest>& device,
                             int threads = 2, std::optional<uint64_t> memory = {}) {
  // The program's own bytes, as they are, change from load to load.
  EngineOptions options = {.memory_bytes = memory,
                           .program_bytes = 8 * kMiB,
                           .threads = threads,
                           .context = 64,
                           .kv_codec = KvCodec::kF32};
  if (device) options.device = *device;
  return Engine::Load(path, options);
}

// Logits after every token, in passes of `chunk` of them; one token is decoded.
std::vector<float> Logits(Engine& engine, std::span<const TokenId> text, size_t chunk,
                          PassObserver* observer = nullptr) {
  KvSequence kv(engine.kv_pool());
  std::vector<float> all;
  for (size_t begin = 0; begin < text.size(); begin += chunk) {
    const size_t count = std::min(chunk, text.size() - begin);
    const BatchSequence sequence{&kv, text.subspan(begin, count)};
    engine.pass().Run({chunk == 1 ? PassKind::kDecode : PassKind::kPrefill, {&sequence, 1}},
                      engine.selector(), observer);
    for (size_t i = 0; i < count; ++i) {
      const FloatView logits = engine.pass().Logits(static_cast<int64_t>(i), 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
    }
  }
  return all;
}

int64_t ExpertsOf(const ModelSpec& spec) {
  int64_t most = 0;
  for (const LayerSpec& layer : spec.layers) most = std::max(most, layer.ffn.num_experts);
  return most;
}

// None, a tenth, a half and all of the layers and of each layer's experts, and whatever fits.
std::vector<MatrixCounts> PlacementsOf(const ModelSpec& spec) {
  const auto layers = std::ssize(spec.layers);
  const int64_t experts = ExpertsOf(spec);
  const auto part = [](int64_t all, int64_t percent) { return (all * percent + 99) / 100; };
  std::vector<MatrixCounts> placements = {{}};
  for (const int64_t percent : {10, 50, 100}) {
    placements.push_back({.layers = part(layers, percent), .experts = part(experts, percent)});
  }
  if (experts > 0) placements.push_back({.experts = part(experts, 50)});
  return placements;
}

bool PlacesAttention(const MatrixPlacement& placement) {
  return std::any_of(placement.layers.begin(), placement.layers.end(),
                     [](const PlacedLayer& layer) { return layer.attention; });
}

class DeviceFamiliesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEARTH_NEED_DEVICE(); }
};

TEST_P(DeviceFamiliesTest, HaveTheLogitsOfTheProcessor) {
  const GoldenCase golden = LoadGolden(GetParam());
  const auto here = Load(golden.model_path, std::nullopt);
  const std::vector<float> expected = Logits(*here, golden.prompt, 1);
  const ModelSpec& spec = here->model().spec();
  for (const MatrixCounts& counts : PlacementsOf(spec)) {
    const auto engine = Load(golden.model_path, RequestOf(counts));
    const DevicePart& part = *engine->device().part;
    for (const size_t chunk : {size_t{1}, golden.prompt.size()}) {
      SCOPED_TRACE(::testing::Message()
                   << part.PlacementText() << ", passes of " << chunk << " tokens");
      const int64_t before = part.matrices()->products_computed();
      EXPECT_LT(RelativeError(Logits(*engine, golden.prompt, chunk), expected), kTolerance);
      EXPECT_GT(part.matrices()->products_computed(), before);
    }
    // Whose attention is there has its keys and values there.
    const bool attends = part.attention() != nullptr;
    EXPECT_EQ(attends, PlacesAttention(part.placement())) << part.PlacementText();
    EXPECT_EQ(attends && part.attention()->tokens_attended() > 0, attends);
  }
}

// Attention's matrices are there, and the processor attends.
TEST_P(DeviceFamiliesTest, HaveThemWhereTheProcessorAttends) {
  const GoldenCase golden = LoadGolden(GetParam());
  const std::vector<float> expected =
      Logits(*Load(golden.model_path, std::nullopt), golden.prompt, golden.prompt.size());
  DeviceRequest request = RequestOf({.layers = 1});
  request.kv_tokens = 0;
  const auto engine = Load(golden.model_path, request);
  EXPECT_EQ(engine->device().part->attention(), nullptr);
  EXPECT_LT(RelativeError(Logits(*engine, golden.prompt, golden.prompt.size()), expected),
            kTolerance);
}

// What does not lie there comes there for a prompt, from nothing on the device to nearly all.
TEST_P(DeviceFamiliesTest, HaveThemWhereMatricesAreUploaded) {
  const GoldenCase golden = LoadGolden(GetParam());
  const auto here = Load(golden.model_path, std::nullopt);
  const std::vector<float> expected = Logits(*here, golden.prompt, 1);
  const int64_t experts = ExpertsOf(here->model().spec());
  for (const MatrixCounts& counts :
       {MatrixCounts{.layers = 0, .experts = 0},
        MatrixCounts{.layers = 1, .experts = std::min<int64_t>(experts, 1)}}) {
    DeviceRequest request = RequestOf(counts);
    request.upload_tokens = 8;
    const auto engine = Load(golden.model_path, request);
    const DevicePart& part = *engine->device().part;
    SCOPED_TRACE(part.PlacementText());
    const std::vector<float> logits = Logits(*engine, golden.prompt, golden.prompt.size());
    EXPECT_LT(RelativeError(logits, expected), kTolerance);
    EXPECT_EQ(Logits(*engine, golden.prompt, golden.prompt.size()), logits);
    EXPECT_GT(engine->device().part->uploads()->bytes_uploaded(), 0);
    const uint64_t before = engine->device().part->uploads()->bytes_uploaded();
    EXPECT_LT(RelativeError(Logits(*engine, golden.prompt, 1), expected), kTolerance);
    EXPECT_EQ(engine->device().part->uploads()->bytes_uploaded(), before)
        << "decoding uploads nothing";
    const std::map<std::string, uint64_t> ledger = part.device().memory().Ledger();
    EXPECT_GT(ledger.at("uploads"), 0);
    EXPECT_EQ(engine->budget().Ledger().at("upload buffers"),
              engine->planned_ledger().at("upload buffers"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceFamiliesTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& of_case) {
                           std::string name = of_case.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

class DeviceMatricesTest : public ::testing::Test {
 protected:
  void SetUp() override { HEARTH_NEED_DEVICE(); }
  // A mixture with an FFN beside its experts, and one with biases.
  static constexpr const char* kMixtures[] = {"qwen2moe", "gpt-oss"};
};

TEST_F(DeviceMatricesTest, LieWhereTheyWerePlaced) {
  for (const char* name : kMixtures) {
    SCOPED_TRACE(name);
    const GoldenCase golden = LoadGolden(name);
    const auto here = Load(golden.model_path, std::nullopt);
    const ModelSpec& spec = here->model().spec();
    const uint64_t all_bytes = here->budget().Ledger().at("weights");
    const int64_t experts = ExpertsOf(spec);
    for (const MatrixCounts& counts :
         {MatrixCounts{.experts = 1}, MatrixCounts{.layers = 1, .experts = experts},
          MatrixCounts{.layers = std::ssize(spec.layers)}}) {
      const auto engine = Load(golden.model_path, RequestOf(counts));
      const DevicePart& part = *engine->device().part;
      for (size_t l = 0; l < spec.layers.size(); ++l) {
        const PlacedLayer& layer = part.placement().layers[l];
        EXPECT_EQ(layer.attention, static_cast<int64_t>(l) < counts.layers.value_or(0));
        EXPECT_EQ(std::ssize(layer.experts), counts.experts.value_or(0));
      }
      const std::map<std::string, uint64_t> ledger = part.device().memory().Ledger();
      uint64_t sum = 0;
      for (const auto& [ledger_name, bytes] : ledger) sum += bytes;
      EXPECT_EQ(sum, part.device().memory().used_bytes());
      EXPECT_EQ(ledger.contains("kv"), counts.layers.has_value());
      const uint64_t here_bytes = engine->budget().Ledger().at("weights");
      // F32 matrices, which the processor holds as the file does; biases are on both sides.
      EXPECT_LT(here_bytes, all_bytes);
      EXPECT_NEAR(static_cast<double>(all_bytes - here_bytes),
                  static_cast<double>(ledger.at("matrices")),
                  0.1 * static_cast<double>(ledger.at("matrices")) + 4096);
      const std::map<std::string, uint64_t> host = engine->budget().Ledger();
      EXPECT_EQ(host.at("activations") + host.at("logits"),
                engine->planned_ledger().at("activations"));
    }
  }
}

TEST_F(DeviceMatricesTest, OnePlacementHasTheSameBitsEveryTime) {
  for (const char* name : kMixtures) {
    const GoldenCase golden = LoadGolden(name);
    const MatrixCounts counts = {.layers = 1, .experts = 2};
    const auto one = Load(golden.model_path, RequestOf(counts), 1);
    for (const size_t chunk : {size_t{1}, golden.prompt.size()}) {
      const std::vector<float> expected = Logits(*one, golden.prompt, chunk);
      EXPECT_EQ(Logits(*one, golden.prompt, chunk), expected);
      for (const int threads : {2, 3, 4}) {
        const auto engine = Load(golden.model_path, RequestOf(counts), threads);
        EXPECT_EQ(Logits(*engine, golden.prompt, chunk), expected) << threads << " threads";
      }
    }
    // Nor does it matter how a prompt is cut into passes.
    const std::vector<float> whole = Logits(*one, golden.prompt, golden.prompt.size());
    EXPECT_EQ(Logits(*one, golden.prompt, 9), whole) << name;
  }
}

// Sees what FFNs compute, in the order of experts.
class FfnRecorder : public PassObserver {
 public:
  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView,
                  FloatView input) override {
    Record(layer, expert, 'i', tokens, input);
  }
  void OnFfnGateUp(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView gate,
                   FloatView up) override {
    Record(layer, expert, 'g', tokens, gate);
    Record(layer, expert, 'u', tokens, up);
  }
  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                       FloatView activation) override {
    Record(layer, expert, 'a', tokens, activation);
  }
  void OnMatrixInput(int64_t layer, MatrixInput which, FloatView input) override {
    const std::vector<int64_t> rows(static_cast<size_t>(input.rows));
    Record(layer, -1, static_cast<char>('0' + static_cast<int>(which)), rows, input);
  }
  const auto& seen() const { return seen_; }

 private:
  void Record(int64_t layer, int64_t expert, char what, std::span<const int64_t> tokens,
              FloatView values) {
    std::vector<float>& numbers = seen_[{layer, expert, what}];
    for (int64_t r = 0; r < std::ssize(tokens); ++r) {
      numbers.insert(numbers.end(), values.row(r), values.row(r) + values.cols);
    }
  }

  std::map<std::tuple<int64_t, int64_t, char>, std::vector<float>> seen_;
};

TEST_F(DeviceMatricesTest, ObserversSeeWhatTheDeviceComputes) {
  for (const char* name : {"qwen2moe", "gpt-oss", "opt", "llama-relu"}) {
    const GoldenCase golden = LoadGolden(name);
    FfnRecorder here, there;
    Logits(*Load(golden.model_path, std::nullopt), golden.prompt, golden.prompt.size(), &here);
    const auto engine = Load(golden.model_path, RequestOf({}));
    Logits(*engine, golden.prompt, golden.prompt.size(), &there);
    ASSERT_EQ(there.seen().size(), here.seen().size()) << name;
    for (const auto& [what, expected] : here.seen()) {
      ASSERT_TRUE(there.seen().contains(what));
      EXPECT_LT(RelativeError(there.seen().at(what), expected), 1e-4)
          << name << ", layer " << std::get<0>(what) << ", expert " << std::get<1>(what) << ", "
          << std::get<2>(what);
    }
  }
}

// Norms with a bias, after blocks, of keys, and none before; attention beside the FFN; a scaled
// residual stream; an FFN of two matrices. Looking on changes no bits, nor does a trace.
TEST_F(DeviceMatricesTest, WholeLayersHandTheirStatesOnThere) {
  for (const char* name : {"llama", "opt", "gemma3", "olmo2", "falcon-two-norms", "granite"}) {
    SCOPED_TRACE(name);
    const GoldenCase golden = LoadGolden(name);
    const auto here = Load(golden.model_path, std::nullopt);
    const LoadPlan plan = PlanLoad(OpenModel(golden.model_path, {}));
    const auto layers = std::ssize(plan.spec.layers);
    for (const int64_t whole : {int64_t{1}, layers}) {
      const DeviceRequest request = RequestOf({.layers = whole});
      const auto engine = Load(golden.model_path, request);
      const DevicePart& part = *engine->device().part;
      ASSERT_NE(part.whole_layers(), nullptr);
      ASSERT_TRUE(IsWhole(plan.spec, part.placement(), static_cast<size_t>(whole - 1)));
      EXPECT_EQ(part.device().memory().Ledger().at("layers"),
                accel::DeviceLayers::ScratchBytes(part.whole_layers()->shape()));
      EXPECT_EQ(
          engine->budget().Ledger().at("activations") + engine->budget().Ledger().at("logits"),
          engine->planned_ledger().at("activations"));
      const std::vector<float> logits = Logits(*engine, golden.prompt, golden.prompt.size());
      EXPECT_LT(RelativeError(logits, Logits(*here, golden.prompt, golden.prompt.size())),
                kTolerance);
      EXPECT_EQ(part.whole_layers()->tokens_computed(), whole * std::ssize(golden.prompt));
      FfnRecorder recorder;
      EXPECT_EQ(Logits(*engine, golden.prompt, golden.prompt.size(), &recorder), logits);
      DeviceRequest traced = request;
      traced.is_traced = true;
      EXPECT_EQ(Logits(*Load(golden.model_path, traced), golden.prompt, golden.prompt.size()),
                logits);
    }
  }
}

// Of quantized matrices, which the processor multiplies with activations of 8 bits.
TEST_F(DeviceMatricesTest, ThePerplexityIsTheProcessors) {
  constexpr size_t kTokens = 512;
  struct Scored {
    double perplexity = 0;
    std::vector<TokenId> likeliest;
  };
  const auto score = [&](const std::optional<DeviceRequest>& device) {
    EngineOptions options = {.threads = 2, .context = 512};
    if (device) options.device = *device;
    const auto engine = Engine::Load(SourcePath("models/hearth-stories-5m.gguf"), options);
    std::vector<TokenId> text = engine->model().tokenizer().Encode(
        ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 8 * kTokens));
    text.resize(kTokens);
    Scored scored;
    double nll = 0;
    ForAllLogits(engine->pass(), engine->kv_pool(), text, engine->selector(), nullptr,
                 [&](size_t position, std::span<const float> logits) {
                   scored.likeliest.push_back(LikeliestToken(logits));
                   if (position + 1 < kTokens) {
                     nll += NegativeLogLikelihood(logits, text[position + 1]);
                   }
                 });
    scored.perplexity = std::exp(nll / (kTokens - 1));
    return scored;
  };
  const Scored expected = score(std::nullopt);
  for (const MatrixCounts& counts :
       {MatrixCounts{.layers = 1}, MatrixCounts{.layers = 3}, MatrixCounts{}}) {
    const Scored scored = score(RequestOf(counts));
    EXPECT_NEAR(scored.perplexity / expected.perplexity, 1, 0.003);
    size_t same = 0;
    for (size_t i = 0; i < kTokens; ++i) same += scored.likeliest[i] == expected.likeliest[i];
    EXPECT_GE(same, kTokens * 98 / 100);
  }
}

TEST_F(DeviceMatricesTest, WhatCannotBeIsRefusedInASentence) {
  const GoldenCase golden = LoadGolden("qwen2moe");
  const auto refuses = [&](const DeviceRequest& request, ErrorCode code, const char* words) {
    EXPECT_THAT([&] { Load(golden.model_path, request); },
                Throws<Error>(::testing::AllOf(Property(&Error::code, code),
                                               Property(&Error::what, HasSubstr(words)))));
  };
  refuses(RequestOf({.layers = 99}), ErrorCode::kInvalidArgument, "layers on the device");
  refuses(RequestOf({.experts = 99}), ErrorCode::kInvalidArgument, "experts of every layer");
  refuses(RequestOf({.layers = 1, .experts = 2}, 4096), ErrorCode::kOutOfBudget, "at least 1M");
  refuses(RequestOf({}, 4096), ErrorCode::kOutOfBudget, "one matrix and scratch");
  DeviceRequest neurons = RequestOf({});
  neurons.neurons = 5;
  refuses(neurons, ErrorCode::kInvalidArgument, "not packed");
  DeviceRequest planned = RequestOf({});
  DeviceRequest uploads = RequestOf({}, 4096);
  uploads.upload_tokens = 8;
  refuses(uploads, ErrorCode::kOutOfBudget, "at least 1M");
  planned.planned = PlannedDevice{.memory_bytes = kMiB, .layer_neurons = {1, 2}};
  refuses(planned, ErrorCode::kInvalidArgument, "it places neurons");
}

TEST_F(DeviceMatricesTest, ALostDeviceEndsThePassAndNoMore) {
  accel::testing::DeviceFaults faults;
  DeviceRequest request = RequestOf({.layers = 1, .experts = 2});
  request.open = [&](size_t index, const accel::DeviceOptions& options) {
    return std::make_unique<accel::testing::FaultyDevice>(accel::OpenDevice(index, options),
                                                          faults);
  };
  const GoldenCase golden = LoadGolden("qwen2moe");
  const auto engine = Load(golden.model_path, request);
  const std::vector<float> expected = Logits(*engine, golden.prompt, 1);
  for (const int marks : {0, 1, 2, 5}) {
    faults.marks_left = marks;
    EXPECT_THAT([&] { Logits(*engine, golden.prompt, 1); },
                Throws<Error>(Property(&Error::code, ErrorCode::kIo)));
    faults.marks_left = 1 << 30;
    EXPECT_EQ(Logits(*engine, golden.prompt, 1), expected);
  }
}

TEST_F(DeviceMatricesTest, AnUploadThatFailsEndsThePassAndNoMore) {
  accel::testing::DeviceFaults faults;
  DeviceRequest request = RequestOf({.layers = 0, .experts = 1});
  request.upload_tokens = 8;
  request.open = [&](size_t index, const accel::DeviceOptions& options) {
    return std::make_unique<accel::testing::FaultyDevice>(accel::OpenDevice(index, options),
                                                          faults);
  };
  const GoldenCase golden = LoadGolden("qwen2moe");
  const auto engine = Load(golden.model_path, request);
  const size_t all = golden.prompt.size();
  const std::vector<float> expected = Logits(*engine, golden.prompt, all);
  for (const int finishes : {0, 1, 5}) {
    faults.finishes_left = finishes;
    EXPECT_THAT([&] { Logits(*engine, golden.prompt, all); },
                Throws<Error>(Property(&Error::code, ErrorCode::kIo)));
    faults.finishes_left = 1 << 30;
    EXPECT_EQ(Logits(*engine, golden.prompt, all), expected);
  }
}

// A mixture whose other experts are read from its file, and a dense model whose other layers are.
TEST_F(DeviceMatricesTest, TheRestIsStreamed) {
  for (const int64_t experts : {0, 8}) {
    const std::string path = ::testing::TempDir() + "device_streamed.gguf";
    const std::string mixture = R"(, "arch": "qwen3moe", "num_experts": 8,
                                     "num_experts_per_token": 2, "intermediate_size": 1024)";
    const ModelShape shape = ParseShape(
        R"({"hidden_size": 256, "num_layers": 10, "num_heads": 4,
            "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600)" +
            (experts > 0 ? mixture : R"(, "intermediate_size": 4096)") + "}",
        "streamed");
    SynthesizeModel(shape, {.quant = DType::kQ4_0, .threads = 2}, path);
    const MatrixCounts counts =
        experts > 0 ? MatrixCounts{.layers = 2, .experts = 3} : MatrixCounts{.layers = 2};
    const auto resident = Load(path, RequestOf(counts));
    std::vector<TokenId> text(24);
    std::iota(text.begin(), text.end(), 10);
    const uint64_t needed = resident->budget().used_bytes();
    const uint64_t weights = resident->budget().Ledger().at("weights");
    const auto streamed = Load(path, RequestOf(counts), 2, needed - weights / 3);
    ASSERT_NE(streamed->streamed_matrices(), nullptr);
    for (const size_t chunk : {size_t{1}, text.size()}) {
      EXPECT_EQ(Logits(*streamed, text, chunk), Logits(*resident, text, chunk))
          << experts << " experts, passes of " << chunk;
    }
    EXPECT_GT(streamed->streamed_matrices()->counts().bytes_read, 0);
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace hearth
