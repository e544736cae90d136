// Families whose FFNs are not those of Llama, packed: what their bundles hold gives the logits of
// the plain file, in every mode, in memory and streamed (docs/architecture.md, invariants 2
// and 3).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/test_device.h"
#include "base/error.h"
#include "device_request.h"
#include "engine/engine.h"
#include "golden_case.h"
#include "import/open_model.h"
#include "model/given_activation.h"
#include "pass/test_passes.h"
#include "prepare/pack/pack.h"
#include "prepare/pack/verify.h"

namespace hearth {
namespace {

struct Family {
  const char* golden;
  const char* activation;  // what the file is given; null: what it says
  BundleKind bundles;
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.golden; }

// Falcon was published with GELU; P1 §8.1 runs a version of it with ReLU.
constexpr Family kFamilies[] = {{"opt", nullptr, {.is_gated = false, .has_bias = true}},
                                {"falcon", "relu", {.is_gated = false}},
                                {"falcon-two-norms", "relu", {.is_gated = false}},
                                {"phi3", "relu", {}},
                                {"llama-relu", nullptr, {}},
                                {"smallthinker", nullptr, {}},
                                {"smallthinker-softmax", nullptr, {}}};

// Records what is active, for the oracle.
class ActiveRecorder : public PassObserver {
 public:
  explicit ActiveRecorder(OracleSelector& oracle) : oracle_(oracle) {}
  void OnFfnNeurons(const NeuronObservation& observed) override {
    oracle_.At(observed.layer, observed.expert, observed.token)
        .assign(observed.active.begin(), observed.active.end());
    fired_ += observed.all.up;
    neurons_ += observed.all.gate;
  }
  double share() const { return static_cast<double>(fired_) / static_cast<double>(neurons_); }

 private:
  OracleSelector& oracle_;
  int64_t fired_ = 0;
  int64_t neurons_ = 0;
};

class PackedFamiliesTest : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    golden_ = LoadGolden(GetParam().golden);
    path_ = testing::TempDir() + "packed_family_" + GetParam().golden + ".gguf";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  GgufFile Source() const {
    std::optional<GivenActivation> given;
    if (GetParam().activation != nullptr) given = ParseActivation(GetParam().activation);
    return OpenModel(golden_.model_path, given);
  }
  void Pack(DType quant) { PackModel(Source(), {.quant = quant, .threads = 2}, path_); }

  static EngineOptions Options(FfnMode mode) {
    return {.threads = 2, .context = 64, .kv_codec = KvCodec::kF32, .mode = mode};
  }
  // A few of each FFN's neurons in memory, some pinned where there are many.
  EngineOptions Streamed(FfnMode mode, bool holds_gates) const {
    const int64_t neurons = MainFfn(ReadModelSpec(GgufFile::Open(path_))).intermediate_size;
    EngineOptions options = Options(mode);
    options.neurons = StreamPlan{.holds_gates = holds_gates,
                                 .pinned_neurons = neurons > 64 ? 64 : 0,
                                 .cache_slots = 24,
                                 .range_neurons = 64,
                                 .range_buffers = 2};
    return options;
  }

  // Logits after every token, of the prompt too.
  std::vector<float> Logits(Engine& engine, ActivationSelector& selector, size_t chunk,
                            PassObserver* observer = nullptr) const {
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < golden_.prompt.size(); begin += chunk) {
      const size_t count = std::min(chunk, golden_.prompt.size() - begin);
      const BatchSequence sequence{&kv, std::span(golden_.prompt).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence), selector, observer);
      for (size_t i = 0; i < count; ++i) {
        const FloatView logits = engine.pass().Logits(static_cast<int64_t>(i), 1);
        all.insert(all.end(), logits.data, logits.data + logits.cols);
      }
    }
    return all;
  }
  std::vector<float> Logits(const EngineOptions& options, size_t chunk) const {
    const auto engine = Engine::Load(path_, options);
    return Logits(*engine, engine->selector(), chunk);
  }

  GoldenCase golden_;
  std::string path_;
};

// Weights in halves: what is left of the error is theirs.
TEST_P(PackedFamiliesTest, HasTheLogitsOfThePlainFile) {
  Pack(DType::kF16);
  const GgufFile packed = GgufFile::Open(path_);
  const auto stride = packed.GetTensor(BundleTensorName(0)).ne[0];
  const ModelSpec spec = ReadModelSpec(packed);
  EXPECT_EQ(ReadBundleLayout(packed.metadata(), spec.hidden_size, stride).kind(),
            GetParam().bundles);
  const GivenActivation relu{FfnActivation::kRelu, {}};
  EngineOptions plain = Options(FfnMode::kDense);
  if (GetParam().activation != nullptr) plain.activation = relu;
  const auto engine = Engine::Load(golden_.model_path, plain);
  const std::vector<float> expected = Logits(*engine, engine->selector(), 1);
  const double error = RelativeError(Logits(Options(FfnMode::kDense), 1), expected);
  EXPECT_LT(error, 3e-3);
  EXPECT_GT(error, 0) << "the packed file was not used";
}

TEST_P(PackedFamiliesTest, EveryModeHasTheSameBits) {
  for (const DType quant : {DType::kF16, DType::kQ4_0}) {
    Pack(quant);
    for (const size_t chunk : {size_t{1}, golden_.prompt.size()}) {
      const auto engine = Engine::Load(path_, Options(FfnMode::kDense));
      const ModelSpec& spec = engine->model().spec();
      OracleSelector oracle(spec.num_layers, std::max<int64_t>(1, MainFfn(spec).num_experts),
                            static_cast<int64_t>(golden_.prompt.size()));
      ActiveRecorder recorder(oracle);
      const std::vector<float> dense = Logits(*engine, engine->selector(), chunk);
      EXPECT_EQ(Logits(Options(FfnMode::kGated), chunk), dense) << NameOf(quant) << " " << chunk;
      if (chunk == 1) continue;  // the recorder numbers the tokens of a pass
      EXPECT_EQ(Logits(*engine, engine->selector(), chunk, &recorder), dense);
      EXPECT_LT(recorder.share(), 0.8) << "a ReLU model must leave neurons out";
      EXPECT_EQ(Logits(*engine, oracle, chunk), dense) << NameOf(quant);
    }
  }
}

TEST_P(PackedFamiliesTest, StreamedHasTheBitsOfMemory) {
  for (const DType quant : {DType::kF16, DType::kQ4_0}) {
    Pack(quant);
    for (const size_t chunk : {size_t{1}, golden_.prompt.size()}) {
      const std::vector<float> expected = Logits(Options(FfnMode::kGated), chunk);
      for (const bool holds_gates : {false, true}) {
        const auto engine = Engine::Load(path_, Streamed(FfnMode::kGated, holds_gates));
        EXPECT_EQ(Logits(*engine, engine->selector(), chunk), expected)
            << NameOf(quant) << " " << chunk << " " << holds_gates;
        EXPECT_GT(engine->stream_counts().bytes_read, 0u);
      }
      EXPECT_EQ(Logits(Streamed(FfnMode::kDense, false), chunk), expected);
    }
  }
}

TEST_P(PackedFamiliesTest, EveryByteIsChecked) {
  Pack(DType::kQ8_0);
  const GgufFile file = GgufFile::Open(path_);
  EXPECT_NO_THROW(VerifyPackedFile(file, 1, {}));
  const GgufTensor& bundles = file.GetTensor(BundleTensorName(1));
  const BundleLayout layout =
      ReadBundleLayout(file.metadata(), ReadModelSpec(file).hidden_size, bundles.ne[0]);
  for (const BundlePart& part : layout.parts) {
    std::fstream altered(path_, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(bundles.offset + part.offset + part.bytes - 1);
    altered.seekg(at);
    const auto byte = static_cast<char>(altered.get());
    altered.seekp(at);
    altered.put(static_cast<char>(byte ^ 1));
    altered.flush();
    EXPECT_THROW(VerifyPackedFile(GgufFile::Open(path_), 1, {}), Error)
        << layout.RoleName(part.role);
    EXPECT_THROW(Engine::Load(path_, Options(FfnMode::kGated)), Error);
    altered.seekp(at);
    altered.put(byte);
  }
}

// Two matrices with biases or without, and gated ones: a device adds what the processor would.
TEST_P(PackedFamiliesTest, APartOnADeviceChangesOnlyRounding) {
  HEARTH_NEED_DEVICE();
  Pack(DType::kF16);
  const FfnSpec ffn = MainFfn(ReadModelSpec(GgufFile::Open(path_)));
  EngineOptions options = Options(FfnMode::kGated);
  const std::vector<float> expected = Logits(options, 1);
  options.device = TestDeviceRequest(uint64_t{256} << 20);
  for (const int64_t neurons : {int64_t{5}, ffn.intermediate_size / 2, ffn.intermediate_size}) {
    options.device.neurons = neurons;
    for (const size_t chunk : {size_t{1}, golden_.prompt.size()}) {
      const std::vector<float> logits = Logits(options, chunk);
      ASSERT_EQ(logits.size(), expected.size());
      float error = 0, largest = 0;
      for (size_t i = 0; i < logits.size(); ++i) {
        error = std::max(error, std::abs(logits[i] - expected[i]));
        largest = std::max(largest, std::abs(expected[i]));
      }
      EXPECT_LT(error, 1e-3f * largest) << neurons << " neurons, passes of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedFamiliesTest, testing::ValuesIn(kFamilies),
                         [](const auto& tested) {
                           std::string name = tested.param.golden;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// GELU lets no neuron out, so that a packed GPT-2 is dense; its bundles are streamed all the same.
TEST(PackedGeluTest, IsDense) {
  const GoldenCase golden = LoadGolden("gpt2");
  const std::string path = testing::TempDir() + "packed_gpt2.gguf";
  PackModel(GgufFile::Open(golden.model_path), {.quant = DType::kF16, .threads = 2}, path);
  const auto engine = Engine::Load(path, {.threads = 2, .context = 64});
  EXPECT_EQ(engine->mode(), FfnMode::kDense);
  EXPECT_THROW(Engine::Load(path, {.mode = FfnMode::kGated}), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hearth
