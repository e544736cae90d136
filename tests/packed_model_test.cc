// A packed model in its three modes: what computing fewer neurons may and may not change
// (docs/architecture.md, invariants 2 and 3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "measure/evaluate.h"
#include "pass/test_passes.h"
#include "prepare/pack/pack.h"

namespace hearth {
namespace {

using testing::HasSubstr;

// Predictors of rank 32 whose logit is the bias, whatever the input.
PredictorSet PredictorsThatSay(float bias, const ModelSpec& spec) {
  PredictorSet set;
  for (const LayerSpec& layer : spec.layers) {
    const auto neurons = static_cast<size_t>(layer.ffn.intermediate_size);
    const MadePredictor made = {
        .rank = 32,
        .down = std::vector<float>(32 * static_cast<size_t>(spec.hidden_size)),
        .up = std::vector<float>(neurons * 32),
        .bias = std::vector<float>(neurons, bias)};
    set.ffns.push_back(QuantizePredictor(made, set.dtype));
  }
  return set;
}

// The embedded model, packed once for each kind of predictors.
class PackedModelTest : public testing::Test {
 protected:
  static std::string PlainPath() { return SourcePath("models/hearth-stories-5m.gguf"); }
  static std::string PathOf(const char* name) { return testing::TempDir() + name; }

  static void SetUpTestSuite() {
    const GgufFile source = GgufFile::Open(PlainPath());
    const ModelSpec spec = ReadModelSpec(source);
    PackModel(source, {.threads = 2}, PathOf("packed_none.gguf"));
    PackModel(source, {.quant = DType::kF16, .threads = 2}, PathOf("packed_f16.gguf"));
    const PredictorSet all = PredictorsThatSay(1, spec), nobody = PredictorsThatSay(-1, spec);
    PackModel(source, {.predictors = &all, .threads = 2}, PathOf("packed_all.gguf"));
    PackModel(source, {.predictors = &nobody, .threads = 2}, PathOf("packed_nobody.gguf"));
  }
  static void TearDownTestSuite() {
    for (const char* name :
         {"packed_none.gguf", "packed_f16.gguf", "packed_all.gguf", "packed_nobody.gguf"}) {
      std::filesystem::remove(PathOf(name));
    }
  }

  static std::unique_ptr<Engine> Load(const char* name, std::optional<FfnMode> mode,
                                      int threads = 2, const char* isa = "auto") {
    return Engine::Load(PathOf(name), {.threads = threads, .isa = isa, .mode = mode});
  }

  static std::vector<TokenId> Text(Engine& engine) {
    std::vector<TokenId> tokens = engine.model().tokenizer().Encode(
        ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 300));
    tokens.resize(48);
    return tokens;
  }

  // Logits after every token of the text, in passes of `chunk` tokens.
  static std::vector<float> Logits(Engine& engine, ActivationSelector& selector, size_t chunk,
                                   PassObserver* observer = nullptr) {
    const std::vector<TokenId> tokens = Text(engine);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t count = std::min(chunk, tokens.size() - begin);
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence), selector, observer);
      for (size_t i = 0; i < count; ++i) {
        const FloatView logits = engine.pass().Logits(static_cast<int64_t>(i), 1);
        all.insert(all.end(), logits.data, logits.data + logits.cols);
      }
    }
    return all;
  }
  static std::vector<float> Logits(Engine& engine) { return Logits(engine, engine.selector(), 1); }

  static double RelativeError(const std::vector<float>& actual,
                              const std::vector<float>& expected) {
    float error = 0, largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error = std::max(error, std::abs(actual[i] - expected[i]));
      largest = std::max(largest, std::abs(expected[i]));
    }
    return static_cast<double>(error / largest);
  }
};

// Both kinds of rows: row groups and floats.
constexpr const char* kBothFiles[] = {"packed_none.gguf", "packed_f16.gguf"};

TEST_F(PackedModelTest, GatedIsDenseBitForBitOnEveryIsaAndNumberOfThreads) {
  const std::vector<std::string> isas = UsableIsaNames();
  for (const char* file : kBothFiles) {
    for (const std::string& isa : isas) {
      const auto dense_engine = Load(file, FfnMode::kDense, 1, isa.c_str());
      const std::vector<float> dense = Logits(*dense_engine);
      EXPECT_EQ(dense_engine->pass().ffn_counts().up, dense_engine->pass().ffn_counts().gate);
      // How work is cut among threads does not depend on the instruction set: all numbers with one.
      const auto numbers = isa == isas.back() ? std::vector<int>{1, 2, 3} : std::vector<int>{3};
      for (const int threads : numbers) {
        const auto engine = Load(file, FfnMode::kGated, threads, isa.c_str());
        EXPECT_EQ(Logits(*engine), dense) << file << " " << isa << " " << threads;
        const SparseFfnCounts counts = engine->pass().ffn_counts();
        EXPECT_LT(counts.up, counts.gate / 4) << "it computed more than what fires";
        EXPECT_LT(counts.active, counts.up);
      }
    }
  }
}

// More tokens than from which a prompt's are computed together.
TEST_F(PackedModelTest, VerifyingHasTheBitsOfDecoding) {
  constexpr size_t kGuessed = 13;
  for (const char* file : kBothFiles) {
    for (const FfnMode mode : {FfnMode::kDense, FfnMode::kGated}) {
      const auto engine = Load(file, mode);
      const std::vector<TokenId> tokens = Text(*engine);
      const std::vector<float> decoded = Logits(*engine);
      KvSequence kv(engine->kv_pool());
      const BatchSequence some{&kv, std::span(tokens).first(kGuessed)};
      engine->pass().Run({PassKind::kVerify, {&some, 1}}, engine->selector());
      std::vector<float> verified;
      for (size_t i = 0; i < kGuessed; ++i) {
        const FloatView logits = engine->pass().Logits(static_cast<int64_t>(i), 1);
        verified.insert(verified.end(), logits.data, logits.data + logits.cols);
      }
      EXPECT_TRUE(std::equal(verified.begin(), verified.end(), decoded.begin()))
          << file << " " << FfnModeName(mode);
    }
  }
}

TEST_F(PackedModelTest, PromptsHaveTheSameBitsInDenseAndWatched) {
  const auto gated = Load("packed_none.gguf", FfnMode::kGated);
  const auto dense = Load("packed_none.gguf", FfnMode::kDense, 1);
  PassObserver nobody;
  for (const size_t chunk : {1, 7, 20, 48}) {
    const std::vector<float> expected = Logits(*gated, gated->selector(), chunk);
    EXPECT_EQ(Logits(*dense, dense->selector(), chunk), expected) << chunk;
    EXPECT_EQ(Logits(*gated, gated->selector(), chunk, &nobody), expected) << chunk;
  }
  const SparseFfnCounts counts = dense->pass().ffn_counts();
  EXPECT_EQ(counts.active, counts.gate) << "dense computes everything";
}

// Keeps who was active, for an oracle.
class ActiveRecorder : public PassObserver {
 public:
  explicit ActiveRecorder(OracleSelector& oracle) : oracle_(oracle) {}
  void OnFfnNeurons(const NeuronObservation& observed) override {
    oracle_.At(observed.layer, observed.expert, observed.token)
        .assign(observed.active.begin(), observed.active.end());
  }

 private:
  OracleSelector& oracle_;
};

TEST_F(PackedModelTest, PredictedWithAnOracleIsGatedBitForBit) {
  for (const char* file : kBothFiles) {
    const auto engine = Load(file, FfnMode::kGated);
    const std::vector<TokenId> tokens = Text(*engine);
    const ModelSpec& spec = engine->model().spec();
    OracleSelector oracle(spec.num_layers, 1, std::ssize(tokens));
    ActiveRecorder recorder(oracle);
    const std::vector<float> gated = Logits(*engine, engine->selector(), tokens.size(), &recorder);
    QualityMeter meter(spec);
    EXPECT_EQ(Logits(*engine, oracle, tokens.size(), &meter), gated) << file;
    EXPECT_EQ(meter.Result().recall, 1.0);
    EXPECT_EQ(meter.Result().precision, 1.0);
  }
}

TEST_F(PackedModelTest, PromptsAgreeWithOneTokenAtATime) {
  const auto engine = Load("packed_none.gguf", FfnMode::kGated);
  const std::vector<float> expected = Logits(*engine);
  for (const size_t chunk : {5, 8, 48}) {
    const double error = RelativeError(Logits(*engine, engine->selector(), chunk), expected);
    // Gates are added up in another order; what that rounds differently, activations of 8 bits and
    // keys of 16 make larger.
    EXPECT_LT(error, 5e-3) << chunk;
    RecordProperty("error", std::to_string(error));
  }
}

// Nothing of a token is quantized where rows are floats, and gates have one order of addition.
TEST_F(PackedModelTest, PromptsOfFloatRowsAreTheBitsOfOneTokenAtATime) {
  for (const std::string& isa : UsableIsaNames()) {
    const auto engine = Load("packed_f16.gguf", FfnMode::kGated, 2, isa.c_str());
    const std::vector<float> expected = Logits(*engine);
    for (const size_t chunk : {5, 8, 48}) {
      EXPECT_EQ(Logits(*engine, engine->selector(), chunk), expected) << isa << " " << chunk;
    }
  }
}

// The model is stored in F16, so that its packed rows are the weights of the plain file. These are
// added up along other dimensions, and what that rounds differently is all that differs.
TEST_F(PackedModelTest, FloatRowsAreTheModel) {
  const auto plain = Engine::Load(PlainPath(), {.threads = 2});
  const auto packed = Load("packed_f16.gguf", FfnMode::kDense);
  EXPECT_LT(RelativeError(Logits(*packed), Logits(*plain)), 1e-3);
}

TEST_F(PackedModelTest, PredictorsDecideWhatIsComputed) {
  const auto gated = Load("packed_none.gguf", FfnMode::kGated);
  const std::vector<float> exact = Logits(*gated);
  // Everything is listed, so nothing is lost.
  const auto all = Load("packed_all.gguf", std::nullopt);
  EXPECT_EQ(all->mode(), FfnMode::kPredicted) << "what a file with predictors is for";
  EXPECT_EQ(Logits(*all), exact);
  // Nothing is: the FFNs add nothing, and not one row is read.
  const auto nobody = Load("packed_nobody.gguf", FfnMode::kPredicted);
  EXPECT_GT(RelativeError(Logits(*nobody), exact), 0.1);
  EXPECT_EQ(nobody->pass().ffn_counts().gate, 0);
  // But prompts are exact.
  EXPECT_EQ(Logits(*nobody, nobody->prefill_selector(), 1), exact);
}

TEST_F(PackedModelTest, PredictorsTakeMemoryWhereTheyAreAsked) {
  const auto weights = [](const char* name, FfnMode mode) {
    const auto engine = Load(name, mode);
    EXPECT_EQ(engine->model().predictors() != nullptr, mode == FfnMode::kPredicted);
    return engine->budget().Ledger().at("weights");
  };
  const uint64_t without = weights("packed_none.gguf", FfnMode::kGated);
  EXPECT_EQ(weights("packed_all.gguf", FfnMode::kGated), without);
  EXPECT_EQ(weights("packed_all.gguf", FfnMode::kDense), without);
  EXPECT_GT(weights("packed_all.gguf", FfnMode::kPredicted), without + 5 * 32 * 1024);
}

TEST_F(PackedModelTest, ModesThatAFileCannotRunInSayWhatIsMissing) {
  const auto refused = [](const std::string& path, FfnMode mode, const char* says) {
    try {
      Engine::Load(path, {.mode = mode});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  refused(PlainPath(), FfnMode::kGated, "hearth pack");
  refused(PlainPath(), FfnMode::kPredicted, "hearth pack");
  refused(PathOf("packed_none.gguf"), FfnMode::kPredicted, "needs predictors");
  EXPECT_EQ(Engine::Load(PlainPath(), {})->mode(), FfnMode::kDense);
  EXPECT_EQ(Load("packed_none.gguf", std::nullopt)->mode(), FfnMode::kGated);
}

TEST_F(PackedModelTest, AutoIsWhatTheFileRecords) {
  const GgufFile source = GgufFile::Open(PlainPath());
  const std::string path = PathOf("packed_mode.gguf");
  PackModel(source, {.mode = FfnMode::kDense, .threads = 2}, path);
  EXPECT_EQ(Engine::Load(path, {})->mode(), FfnMode::kDense);
  EXPECT_EQ(Engine::Load(path, {.mode = FfnMode::kGated})->mode(), FfnMode::kGated);
  // Chosen by one who looks at the file before it has its name.
  std::filesystem::remove(path);
  PackOptions options;
  options.threads = 2;
  options.choose_mode = [&](const std::string& unnamed) {
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(Engine::Load(unnamed, {})->mode(), FfnMode::kGated) << "the sparsest, until it says";
    return FfnMode::kDense;
  };
  PackModel(source, options, path);
  EXPECT_EQ(Engine::Load(path, {})->mode(), FfnMode::kDense);
  options.choose_mode = nullptr;
  options.mode = FfnMode::kPredicted;
  EXPECT_THROW(PackModel(source, options, path), Error) << "there are no predictors";
  std::filesystem::remove(path);
}

TEST_F(PackedModelTest, QualityIsMeasuredAgainstDense) {
  const auto engine = Load("packed_all.gguf", FfnMode::kPredicted);
  const EvalResult result = EvaluateText(*engine, Text(*engine));
  EXPECT_EQ(result.quality.recall, 1.0);
  EXPECT_EQ(result.quality.listed, 1.0);
  EXPECT_EQ(result.quality.top1_agreement, 1.0);
  EXPECT_NEAR(*result.quality.precision, *result.quality.active, 1e-12);
  EXPECT_LT(*result.quality.active, 0.2);
  EXPECT_DOUBLE_EQ(result.quality.computed, *result.quality.active);
}

TEST_F(PackedModelTest, ADamagedBundleIsNamed) {
  const std::string path = PathOf("packed_damaged.gguf");
  std::string bytes = ReadWholeFile(PathOf("packed_none.gguf"));
  bytes[bytes.size() - 1000] = static_cast<char>(bytes[bytes.size() - 1000] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    Engine::Load(path, {});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("blk.4.ffn_bundle is damaged"));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hearth
