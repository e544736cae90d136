#include "prepare/synth/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "import/test_same_spec.h"
#include "kernels/dequantize.h"
#include "model/registry.h"
#include "model/weights.h"
#include "prepare/synth/synth_plan.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr DType kQuants[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                             DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

// Rows are whole blocks; the embedding alone is three of the pipeline's chunks in F32.
constexpr char kTestSizes[] =
    R"("hidden_size": 128, "intermediate_size": 192, "num_layers": 2, "num_heads": 4,
       "num_kv_heads": 2, "head_dim": 64, "vocab_size": 6000)";

std::vector<ModelShape> TinyShapes() {
  const std::pair<const char*, const char*> kinds[] = {
      {"llama", R"("arch": "llama")"},
      {"tied", R"("arch": "llama", "tied_embeddings": true, "sliding_window": 32)"},
      {"relu", R"("activation": "relu")"},
      {"fatrelu", R"("activation": "fatrelu", "threshold": 0.01)"},
      {"drelu", R"("activation": "drelu")"},
      {"mixtral", R"("arch": "mixtral", "num_experts": 3, "num_experts_per_token": 2)"},
      {"one-expert", R"("arch": "mixtral", "num_experts": 1, "num_experts_per_token": 1)"},
      {"qwen2", R"("arch": "qwen2", "norm_epsilon": 1e-6)"},
      {"qwen3", R"("arch": "qwen3", "tied_embeddings": true)"},
      {"qwen3moe", R"("arch": "qwen3moe", "num_experts": 4, "num_experts_per_token": 2)"},
      {"smallthinker", R"("arch": "smallthinker", "num_experts": 4, "num_experts_per_token": 2)"},
      {"smallthinker-windows", R"("arch": "smallthinker", "num_experts": 4, "sliding_window": 32,
                                  "num_experts_per_token": 2, "activation": "silu")"},
  };
  std::vector<ModelShape> shapes;
  for (const auto& [name, more] : kinds) {
    shapes.push_back(ParseShape("{" + std::string(kTestSizes) + ", " + more + "}", name));
  }
  return shapes;
}

// A folder of its own for each test, removed with everything in it.
class SynthTest : public ::testing::Test {
 protected:
  SynthTest() : folder_(fs::temp_directory_path() / ("hearth_synth_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~SynthTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path());
    return names;
  }
  std::string Bytes(const std::string& name) const { return ReadWholeFile(Path(name)); }

  fs::path folder_;
};

std::vector<float> ReadWeights(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  file.ReadTensor(tensor, 0, bytes);
  std::vector<float> out(tensor.num_weights());
  kernels::Dequantize(tensor.dtype, bytes.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

// Mean and spread of each tensor within five standard errors of what the plan says.
void CheckStatistics(const GgufFile& file, const SynthTensor& planned) {
  const GgufTensor& tensor = file.GetTensor(planned.decl.name);
  const std::vector<float> weights = ReadWeights(file, tensor);
  const auto n = static_cast<double>(weights.size());
  double mean = 0, square = 0;
  for (const float w : weights) mean += w / n;
  for (const float w : weights) square += (w - mean) * (w - mean) / n;
  const auto& [expected_mean, expected_std] = planned.random.distribution;
  // Block scales vary, so that quantized weights of a block are not quite independent.
  const double relative_error = 5 * std::sqrt((tensor.dtype == DType::kF32 ? 1.0 : 4.0) / n);
  EXPECT_NEAR(mean, expected_mean, relative_error * expected_std) << tensor.name;
  EXPECT_NEAR(std::sqrt(square), expected_std, (relative_error + 0.003) * expected_std)
      << tensor.name;
}

TEST_F(SynthTest, EveryArchitectureAndTypeReadsBack) {
  for (const ModelShape& shape : TinyShapes()) {
    for (const DType quant : kQuants) {
      SCOPED_TRACE(shape.name + " " + NameOf(quant));
      const SynthResult result = SynthesizeModel(shape, {.quant = quant, .threads = 2}, Path("m"));
      const GgufFile file = GgufFile::Open(Path("m"));
      EXPECT_EQ(result.file_bytes, fs::file_size(Path("m")));
      EXPECT_EQ(result.num_tensors, file.tensors().size());
      const ModelSpec spec = ReadModelSpec(file);
      ExpectSameSpec(spec, SpecOf(shape));
      EXPECT_EQ(spec.name, shape.name);
      ModelWeights weights;
      const std::vector<WeightDecl> decls = DeclareWeights(spec, weights);
      EXPECT_EQ(decls.size(), file.tensors().size());
      for (const WeightDecl& decl : decls) {
        const bool is_float = decl.is_vector || decl.name.find("ffn_gate_inp") != std::string::npos;
        EXPECT_EQ(MatchTensor(file, decl).dtype, is_float ? DType::kF32 : quant) << decl.name;
      }
      const auto tokenizer = Tokenizer::FromGguf(file.metadata());
      EXPECT_EQ(tokenizer->vocab_size(), static_cast<size_t>(shape.vocab_size));
    }
  }
}

TEST_F(SynthTest, WeightsAreSpreadAsPlanned) {
  for (const ModelShape& shape : TinyShapes()) {
    for (const DType quant : kQuants) {
      SCOPED_TRACE(shape.name + " " + NameOf(quant));
      SynthesizeModel(shape, {.quant = quant, .seed = 11}, Path("m"));
      const GgufFile file = GgufFile::Open(Path("m"));
      std::optional<PlantedModel> planted;
      if (CanPlant(shape)) planted.emplace(shape, PlantedOptions(), quant, 11);
      for (const SynthTensor& tensor :
           PlanSynth(shape, quant, 11, planted ? &*planted : nullptr).tensors) {
        // What is planted is measured by running the model (planted_model_test.cc).
        if (tensor.source == WeightSource::kRandom) CheckStatistics(file, tensor);
      }
    }
  }
}

TEST_F(SynthTest, GeneralKeys) {
  const ModelShape shape = TinyShapes()[3];  // fatrelu
  SynthesizeModel(shape, {.quant = DType::kQ8_0, .seed = 9}, Path("m"));
  const GgufFile file = GgufFile::Open(Path("m"));
  const GgufMetadata& keys = file.metadata();
  EXPECT_EQ(keys.GetString("general.name"), "fatrelu");
  EXPECT_EQ(keys.GetUint("general.file_type"), 7u);
  EXPECT_EQ(keys.GetUint("general.quantization_version"), 2u);
  EXPECT_EQ(keys.GetUint("hearth.synth.seed"), 9u);
  EXPECT_EQ(keys.GetString("hearth.ffn_activation"), "fatrelu");
  EXPECT_EQ(keys.GetFloat("hearth.ffn_threshold"), static_cast<double>(0.01f));
  SynthesizeModel(TinyShapes()[0], {.quant = DType::kF32}, Path("f"));
  const GgufFile plain = GgufFile::Open(Path("f"));
  EXPECT_FALSE(plain.metadata().Has("hearth.ffn_activation"));
  EXPECT_FALSE(plain.metadata().Has("general.quantization_version"));
}

TEST_F(SynthTest, SameBytesForEveryThreadCountOthersForEverySeed) {
  const std::vector<ModelShape> shapes = TinyShapes();
  for (const ModelShape& shape : {shapes[4], shapes[5]}) {  // drelu, mixtral
    for (const DType quant : {DType::kF32, DType::kQ4_0}) {
      SynthesizeModel(shape, {.quant = quant, .seed = 1, .threads = 1}, Path("one"));
      const std::string expected = Bytes("one");
      for (const int threads : {2, 3, 7}) {
        SynthesizeModel(shape, {.quant = quant, .seed = 1, .threads = threads}, Path("many"));
        EXPECT_EQ(expected, Bytes("many")) << threads;
      }
      SynthesizeModel(shape, {.quant = quant, .seed = 2, .threads = 1}, Path("other"));
      EXPECT_NE(expected.substr(expected.size() / 2), Bytes("other").substr(expected.size() / 2));
    }
  }
}

TEST_F(SynthTest, ReportsProgressOnTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  uint64_t last = 0, total = 0;
  const SynthResult result =
      SynthesizeModel(TinyShapes()[0], {.quant = DType::kF32, .threads = 2}, Path("m"),
                      [&](uint64_t done_bytes, uint64_t total_bytes) {
                        EXPECT_EQ(std::this_thread::get_id(), caller);
                        EXPECT_GE(done_bytes, last);
                        last = done_bytes;
                        total = total_bytes;
                      });
  EXPECT_EQ(last, result.file_bytes);
  EXPECT_EQ(total, result.file_bytes);
}

TEST_F(SynthTest, CancellingLeavesNothingBehind) {
  for (const int threads : {1, 3}) {
    const auto cancel = [](uint64_t, uint64_t) {
      throw Error(ErrorCode::kCancelled, "synth", "stopped");
    };
    EXPECT_THROW(SynthesizeModel(TinyShapes()[0], {.threads = threads}, Path("m"), cancel), Error);
    EXPECT_THAT(Files(), IsEmpty());
  }
}

class SynthErrorTest : public SynthTest {
 protected:
  // The message with which synthesis fails; nothing may be left in the folder.
  std::string Fails(const ModelShape& shape, DType quant, const std::string& path) {
    try {
      SynthesizeModel(shape, {.quant = quant}, path);
      ADD_FAILURE() << "was made";
    } catch (const Error& error) {
      EXPECT_THAT(Files(), IsEmpty());
      return error.what();
    }
    return "";
  }
};

TEST_F(SynthErrorTest, Paths) {
  const ModelShape shape = TinyShapes()[0];
  EXPECT_THAT(Fails(shape, DType::kQ4_0, ""), HasSubstr("-o"));
  EXPECT_THAT(Fails(shape, DType::kQ4_0, Path("no/such/folder/m.gguf")),
              HasSubstr("cannot create"));
  EXPECT_THAT(Fails(shape, DType::kQ4_0, folder_), HasSubstr(folder_.string()));
}

TEST_F(SynthErrorTest, MoreThanTheDiskHolds) {
  ModelShape shape = FindShape("llama2-70b");
  shape.num_layers = 4000;
  EXPECT_THAT(Fails(shape, DType::kF32, Path("m")),
              AllOf(HasSubstr("free disk space"), HasSubstr("GiB")));
  // And far more than any size can count.
  shape.hidden_size = shape.intermediate_size = 1 << 20;
  shape.num_experts = 1 << 16;
  shape.num_experts_per_token = 1;
  EXPECT_THAT(Fails(shape, DType::kF32, Path("m")), HasSubstr("2^62"));
}

TEST_F(SynthErrorTest, Types) {
  EXPECT_THAT(Fails(TinyShapes()[0], DType::kQ4_K, Path("m")), HasSubstr("found Q4_K"));
  EXPECT_THAT(Fails(TinyShapes()[0], DType::kI8, Path("m")), HasSubstr("found I8"));
}

TEST_F(SynthErrorTest, RowsThatBlocksDoNotDivide) {
  ModelShape shape = TinyShapes()[0];
  shape.hidden_size = 40;
  EXPECT_THAT(Fails(shape, DType::kQ4_0, Path("m")),
              AllOf(HasSubstr("token_embd.weight"), HasSubstr("a multiple of 32 for Q4_0"),
                    HasSubstr("found 40")));
  shape = TinyShapes()[0];
  shape.intermediate_size = 100;
  EXPECT_THAT(Fails(shape, DType::kQ8_0, Path("m")), HasSubstr("blk.0.ffn_down.weight"));
  shape.hidden_size = 40;
  EXPECT_NO_THROW(SynthesizeModel(shape, {.quant = DType::kF16}, Path("m")));
}

TEST_F(SynthErrorTest, ShapesMadeByHandAreChecked) {
  ModelShape shape = TinyShapes()[0];
  shape.num_kv_heads = 3;
  EXPECT_THAT(Fails(shape, DType::kQ4_0, Path("m")), HasSubstr("num_kv_heads"));
  shape = TinyShapes()[0];
  shape.vocab_size = 259;
  EXPECT_THAT(Fails(shape, DType::kQ4_0, Path("m")), HasSubstr("vocab_size: expected 260"));
}

}  // namespace
}  // namespace hearth
