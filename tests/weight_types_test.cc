// Whole models whose matrices are of one weight type agree with the same models in F32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load/model.h"
#include "format/gguf_writer.h"
#include "kernels/dequantize.h"
#include "kernels/test_weights.h"
#include "prepare/synth/synth.h"

namespace hearth {
namespace {

// Types whose minimums kernels::testing::PutScale would make zeros are left out: their codes alone
// are all positive.
std::vector<DType> Types() {
  std::vector<DType> types;
  for (const TileFormat& format : kTileFormats) {
    if (!format.has_minimums) types.push_back(format.dtype);
  }
  return types;
}

class WeightTypesTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kTokens = 40;

  WeightTypesTest()
      : folder_(::testing::TempDir() + "hearth_weight_types_" + NameOf(GetParam()) + "_") {
    ModelShape shape;
    shape.name = "tiny";
    shape.hidden_size = 256;
    shape.intermediate_size = 512;
    shape.num_layers = 2;
    shape.num_heads = 4;
    shape.num_kv_heads = 2;
    shape.head_dim = 64;
    shape.vocab_size = 301;
    shape.context_length = 64;
    SynthesizeModel(shape, {.quant = DType::kF32}, Path("f32"));
    WriteBoth(GgufFile::Open(Path("f32")));
  }
  ~WeightTypesTest() override {
    for (const char* name : {"f32", "typed", "floats"}) std::remove(Path(name).c_str());
  }

  std::string Path(const std::string& name) const { return folder_ + name + ".gguf"; }

  // The file with random weights of the type for all matrices, and one with their values.
  void WriteBoth(const GgufFile& file) {
    const DType dtype = GetParam();
    std::vector<GgufTensorDecl> typed, floats;
    for (const GgufTensor& tensor : file.tensors()) {
      floats.push_back({tensor.name, DType::kF32, Shape(tensor)});
      typed.push_back(floats.back());
      if (IsMatrix(tensor)) typed.back().dtype = dtype;
    }
    GgufWriter of_type(Path("typed"), file.metadata(), typed);
    GgufWriter of_floats(Path("floats"), file.metadata(), floats);
    std::mt19937 random(4);
    for (const GgufTensor& tensor : file.tensors()) {
      std::vector<std::byte> values(tensor.bytes);
      file.ReadTensor(tensor, 0, values);
      if (IsMatrix(tensor)) {
        const size_t n = values.size() / sizeof(float);
        const auto blocks = kernels::testing::RandomWeights(dtype, n, random, 0.06f);
        kernels::Dequantize(dtype, blocks.data(), static_cast<int64_t>(n),
                            reinterpret_cast<float*>(values.data()));
        of_type.Append(blocks);
        file_bytes_ += blocks.size();
      } else {
        of_type.Append(values);
      }
      of_floats.Append(values);
    }
    of_type.Finish();
    of_floats.Finish();
  }
  static bool IsMatrix(const GgufTensor& tensor) { return Shape(tensor).size() == 2; }
  static std::vector<uint64_t> Shape(const GgufTensor& tensor) {
    return {tensor.ne.begin(), tensor.ne.begin() + (tensor.ne[1] > 1 ? 2 : 1)};
  }

  // The logits of all tokens of a prompt, then of one token after it.
  static std::vector<float> Logits(const std::string& path, const EngineOptions& options) {
    const auto engine = Engine::Load(path, options);
    std::vector<TokenId> prompt;
    for (int32_t i = 0; i < kTokens; ++i) prompt.push_back(3 + (i * 37) % 290);
    std::vector<float> result;
    DenseSelector dense;
    KvSequence kv(engine->kv_pool());
    const auto run = [&](PassKind kind, std::span<const TokenId> tokens) {
      const BatchSequence sequence{&kv, tokens};
      engine->pass().Run({kind, {&sequence, 1}}, dense);
      const FloatView logits = engine->pass().Logits(static_cast<int64_t>(tokens.size()) - 1, 1);
      result.insert(result.end(), logits.row(0), logits.row(0) + logits.cols);
    };
    run(PassKind::kPrefill, prompt);
    run(PassKind::kDecode, std::vector<TokenId>{7});
    return result;
  }

  std::string folder_;
  size_t file_bytes_ = 0;  // of all matrices
};

TEST_P(WeightTypesTest, AModelAgreesWithItsValues) {
  EngineOptions options;
  options.kv_codec = KvCodec::kF32;
  const std::vector<float> expected = Logits(Path("floats"), options);
  const std::vector<float> actual = Logits(Path("typed"), options);
  ASSERT_EQ(actual.size(), expected.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double{actual[i]} - double{expected[i]}, 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  // Activations of 8 bits are off by half a percent or so in each of 14 products in a row.
  EXPECT_LE(std::sqrt(error / norm), 0.03);
  EXPECT_GT(norm, 0);
}

TEST_P(WeightTypesTest, MemoryTakesTheBytesOfTheFile) {
  const LoadPlan plan = PlanLoad(GgufFile::Open(Path("typed")));
  size_t bytes = 0;
  for (const ResidentTensor& tensor : plan.tensors) {
    if (tensor.decl.rows > 1) bytes += tensor.bytes;
  }
  // 301 rows of the output matrix are 304 in tiles, and tiles of 256 columns end with part of a
  // line.
  EXPECT_LE(static_cast<double>(bytes), 1.045 * static_cast<double>(file_bytes_));
}

INSTANTIATE_TEST_SUITE_P(Types, WeightTypesTest, ::testing::ValuesIn(Types()),
                         [](const auto& type) { return NameOf(type.param); });

}  // namespace
}  // namespace hearth
