// Packed files with planted predictors: how good the predictors are when the model runs, and that
// the rest is the plain file's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "format/packed_file.h"
#include "measure/quality.h"
#include "measure/topic_walk.h"
#include "prepare/pack/bundle_encoder.h"
#include "prepare/profile/sparsity_meter.h"
#include "prepare/synth/synth.h"
#include "prepare/synth/test_planted_shape.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPredictedTokens = 512;

class PlantedPredictorTest : public ::testing::Test {
 protected:
  PlantedPredictorTest()
      : folder_(fs::temp_directory_path() /
                ("hearth_planted_predictor_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~PlantedPredictorTest() override { fs::remove_all(folder_); }

  std::string Make(const ModelShape& shape, const SynthOptions& options) {
    const std::string path = folder_ / (options.packed ? "packed.gguf" : "plain.gguf");
    SynthesizeModel(shape, options, path);
    return path;
  }
  static std::unique_ptr<Engine> Load(const std::string& path, FfnMode mode) {
    return Engine::Load(path, {.memory_bytes = uint64_t{4} << 30,
                               .threads = 2,
                               .context = kPredictedTokens,
                               .mode = mode});
  }
  static Quality Measure(Engine& engine) {
    const auto map =
        TopicMap::FromMetadata(engine.model().metadata(), engine.model().spec().vocab_size);
    const std::vector<TokenId> tokens = TopicWalk(*map).Take(kPredictedTokens);
    QualityMeter meter(engine.model().spec());
    KvSequence kv(engine.kv_pool());
    for (size_t begin = 0; begin < tokens.size(); begin += 256) {
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, 256)};
      engine.pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine.selector(), &meter);
    }
    return meter.Result();
  }

  fs::path folder_;
};

TEST_F(PlantedPredictorTest, FindWhatMattersAndErrLikeThoseOfRealModels) {
  for (const char* activation :
       {R"("activation": "relu")", R"("activation": "fatrelu", "threshold": 0.01)",
        R"("activation": "drelu")"}) {
    for (const Locality locality : {Locality::kMedium, Locality::kLow}) {
      SCOPED_TRACE(std::string(activation) + " " + LocalityName(locality));
      const std::string path =
          Make(SmallShape(activation),
               {.threads = 2, .planted = {{.locality = locality}}, .packed = true});
      const Quality quality = Measure(*Load(path, FfnMode::kPredicted));
      EXPECT_NEAR(*quality.active, 0.1, 0.01);
      EXPECT_GE(*quality.recall, 0.98);
      EXPECT_LE(*quality.recall, 0.998);
      EXPECT_GE(*quality.precision, 0.7);
      EXPECT_LE(*quality.precision, 0.8);
    }
  }
}

std::vector<std::byte> BytesOf(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = file.GetTensor(name);
  std::vector<std::byte> bytes(tensor.bytes);
  file.ReadTensor(tensor, 0, bytes);
  return bytes;
}

std::vector<int32_t> OrderIn(const GgufFile& file, int64_t layer) {
  const std::vector<std::byte> bytes = BytesOf(file, BundleOrderName(layer));
  std::vector<int32_t> order(bytes.size() / sizeof(int32_t));
  std::memcpy(order.data(), bytes.data(), bytes.size());
  return order;
}

// Every row of gate and up of the plain file, in the order that the packed file states.
void ExpectSameRows(const GgufFile& plain, const GgufFile& packed, int64_t layer, int64_t hidden,
                    int64_t neurons, DType quant, const std::string& suffix) {
  const std::string blk = "blk." + std::to_string(layer);
  const GgufTensor& tensor = packed.GetTensor(BundleTensorName(layer));
  const BundleLayout layout = ReadBundleLayout(packed.metadata(), hidden, tensor.ne[0]);
  const std::vector<std::byte> bundles = BytesOf(packed, tensor.name);
  const std::vector<int32_t> order = OrderIn(packed, layer);
  const size_t row_bytes = RowBytes(quant, static_cast<size_t>(hidden));
  std::vector<std::byte> row(row_bytes);
  for (const auto& [role, name] :
       {std::pair{BundleRole::kGate, ".ffn_gate"}, std::pair{BundleRole::kUp, ".ffn_up"}}) {
    const std::vector<std::byte> rows = BytesOf(plain, blk + name + suffix + ".weight");
    for (size_t slot = 0; slot < order.size(); ++slot) {
      const std::span bundle = std::span(bundles).subspan(slot * layout.stride, layout.stride);
      ASSERT_TRUE(BundleIsIntact(layout, bundle));
      ReadBundleRow(layout.Part(role), hidden, bundle, row.data());
      const size_t expert = slot / static_cast<size_t>(neurons);
      const size_t from = expert * static_cast<size_t>(neurons) + static_cast<size_t>(order[slot]);
      ASSERT_EQ(std::memcmp(row.data(), rows.data() + from * row_bytes, row_bytes), 0)
          << layout.RoleName(role) << " " << slot;
    }
  }
}

// Bytes are compared, so that any size will do.
TEST_F(PlantedPredictorTest, TheRestIsThePlainFile) {
  for (const std::string more :
       {R"("activation": "drelu")",
        R"("activation": "drelu", "num_experts": 3, "num_experts_per_token": 2)"}) {
    for (const DType quant : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
      SCOPED_TRACE(more + " " + NameOf(quant));
      const ModelShape shape = ParseShape(
          R"({"hidden_size": 96, "intermediate_size": 160, "num_layers": 2, "num_heads": 3,
              "vocab_size": 500, )" +
              more + "}",
          "smaller");
      const GgufFile plain = GgufFile::Open(Make(shape, {.quant = quant, .seed = 4}));
      const GgufFile packed =
          GgufFile::Open(Make(shape, {.quant = quant, .seed = 4, .packed = true}));
      EXPECT_NO_THROW(CheckPackedFile(packed));
      for (const GgufTensor& tensor : plain.tensors()) {
        if (tensor.name.find("ffn_gate.") != std::string::npos ||
            tensor.name.find("_exps.") != std::string::npos ||
            tensor.name.find("ffn_up.") != std::string::npos ||
            tensor.name.find("ffn_down.") != std::string::npos) {
          continue;
        }
        EXPECT_EQ(BytesOf(plain, tensor.name), BytesOf(packed, tensor.name)) << tensor.name;
      }
      ExpectSameRows(plain, packed, 1, shape.hidden_size, shape.intermediate_size, quant,
                     shape.num_experts > 0 ? "_exps" : "");
    }
  }
}

TEST_F(PlantedPredictorTest, NeuronsAreSortedByHowOftenTheyFire) {
  const auto engine =
      Load(Make(SmallShape(R"("activation": "relu")"), {.packed = true}), FfnMode::kGated);
  const auto map = TopicMap::FromMetadata(engine->model().metadata(), 4000);
  class Counter : public PassObserver {
   public:
    void OnFfnNeurons(const NeuronObservation& observed) override {
      for (const int32_t neuron : observed.active) quarters[neuron / 256] += 1;
    }
    double quarters[4] = {};
  } counter;
  KvSequence kv(engine->kv_pool());
  const std::vector<TokenId> tokens = TopicWalk(*map).Take(256);
  const BatchSequence sequence{&kv, tokens};
  engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->selector(), &counter);
  for (int i = 1; i < 4; ++i) EXPECT_GT(counter.quarters[i - 1], 1.3 * counter.quarters[i]);
}

TEST_F(PlantedPredictorTest, ModesAgree) {
  const std::string path = Make(SmallShape(R"("activation": "drelu")"), {.packed = true});
  for (const FfnMode mode : {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted}) {
    const auto engine = Load(path, mode);
    const auto map = TopicMap::FromMetadata(engine->model().metadata(), 4000);
    const SparsityReport report = MeasureSparsity(*engine, TopicWalk(*map).Take(256));
    EXPECT_NEAR(report.active, 0.1, 0.015) << FfnModeName(mode);
    EXPECT_NEAR(report.gate, 0.2, 0.03) << FfnModeName(mode);
  }
}

TEST_F(PlantedPredictorTest, ShapesWithoutZerosArePackedWithoutPredictors) {
  const std::string path = Make(SmallShape(R"("activation": "silu")"), {.packed = true});
  const GgufFile file = GgufFile::Open(path);
  EXPECT_NO_THROW(CheckPackedFile(file));
  EXPECT_EQ(file.FindTensorOrNull("blk.0.predictor.up"), nullptr);
  EXPECT_EQ(file.FindTensorOrNull(BundleRateName(0)), nullptr);
  const auto engine = Load(path, FfnMode::kDense);
  KvSequence kv(engine->kv_pool());
  const TokenId tokens[] = {300, 400};
  const BatchSequence sequence{&kv, tokens};
  engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->selector());
  EXPECT_TRUE(std::isfinite(engine->pass().Logits(0, 1).row(0)[0]));
}

TEST_F(PlantedPredictorTest, SameBytesForEveryThreadCount) {
  const ModelShape shape = SmallShape(R"("activation": "relu")");
  const auto bytes = [&](int threads) {
    return ReadWholeFile(Make(shape, {.threads = threads, .packed = true}));
  };
  const std::string one = bytes(1);
  EXPECT_EQ(one, bytes(2));
  EXPECT_EQ(one, bytes(5));
}

TEST_F(PlantedPredictorTest, RefusesTypesThatBundlesDoNotStore) {
  for (const DType quant : {DType::kF32, DType::kBF16}) {
    EXPECT_THROW(Make(SmallShape(R"("activation": "relu")"), {.quant = quant, .packed = true}),
                 Error);
    EXPECT_TRUE(fs::is_empty(folder_));
  }
}

}  // namespace
}  // namespace hearth
