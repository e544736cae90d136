#include "prepare/quantize/quantize.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "engine/load/model.h"
#include "kernels/dequantize.h"
#include "kernels/search/search_encode.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class QuantizeTest : public testing::Test {
 protected:
  QuantizeTest() { MakeModel(In(), ShapeText(256, 512, kDenseShape), DType::kF32); }

  std::string In() const { return folder_.Path("in.gguf"); }
  std::string Out() const { return folder_.Path("out.gguf"); }

  QuantizeResult Quantize(const std::string& recipe, QuantizeOptions options = {},
                          int threads = 2) {
    options.rules.recipe = FindRecipe(recipe);
    WorkerTeam team(threads);
    budget_ = std::make_unique<Budget>();
    return QuantizeModel(GgufFile::Open(In()), options, Out(), team, *budget_, {});
  }
  static std::vector<float> Floats(const std::string& path, const std::string& name) {
    const GgufFile file = GgufFile::Open(path);
    const GgufTensor& tensor = file.GetTensor(name);
    const std::vector<std::byte> bytes = ReadAll(file, tensor);
    std::vector<float> out(tensor.num_weights());
    kernels::Dequantize(tensor.dtype, bytes.data(), static_cast<int64_t>(out.size()), out.data());
    return out;
  }
  // Writes a number into the bytes of a tensor of In.
  void Overwrite(const std::string& name, uint64_t index, float value) {
    const uint64_t offset = GgufFile::Open(In()).GetTensor(name).offset;
    std::fstream file(In(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset + index * sizeof(float)));
    file.write(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  TestFolder folder_{"hearth_quantize"};
  std::unique_ptr<Budget> budget_;
};

double RelativeError(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(double{x[i]} - double{y[i]}, 2);
    all += std::pow(double{x[i]}, 2);
  }
  return std::sqrt(error / all);
}

TEST_F(QuantizeTest, EveryRecipeMakesAFileThatLoads) {
  for (const std::string& recipe : RecipeNames()) {
    if (FindRecipe(recipe).experts_only) continue;
    const QuantizeResult result = Quantize(recipe);
    const GgufFile file = GgufFile::Open(Out());
    EXPECT_NO_THROW(PlanLoad(file)) << recipe;
    EXPECT_EQ(file.metadata().GetUint("general.file_type"), FindRecipe(recipe).file_type);
    EXPECT_EQ(result.file_bytes, std::filesystem::file_size(Out()));
    EXPECT_LT(result.written_bytes, result.source_bytes) << recipe;
    EXPECT_EQ(Floats(Out(), "blk.0.attn_norm.weight"), Floats(In(), "blk.0.attn_norm.weight"));
    EXPECT_LT(
        RelativeError(Floats(In(), "blk.1.ffn_up.weight"), Floats(Out(), "blk.1.ffn_up.weight")),
        0.3)
        << recipe;
  }
}

TEST_F(QuantizeTest, TensorsAreWhatTheQuantizerMakesOfThem) {
  Quantize("q4_k_s");
  const std::vector<float> in = Floats(In(), "blk.0.ffn_down.weight");
  std::vector<std::byte> expected(RowBytes(DType::kQ4_K, in.size()));
  for (size_t row = 0; row < 256; ++row) {
    kernels::EncodeBySearch(DType::kQ4_K, in.data() + row * 512, 512, nullptr,
                            expected.data() + row * RowBytes(DType::kQ4_K, 512));
  }
  const GgufFile file = GgufFile::Open(Out());
  EXPECT_EQ(ReadAll(file, file.GetTensor("blk.0.ffn_down.weight")), expected);
}

TEST_F(QuantizeTest, TheNumberOfThreadsChangesNothing) {
  Quantize("q3_k_m", {}, 1);
  const std::string alone = folder_.Bytes("out.gguf");
  Quantize("q3_k_m", {}, 3);
  EXPECT_EQ(folder_.Bytes("out.gguf"), alone);
  EXPECT_LT(budget_->peak_bytes(), uint64_t{16} << 20);
  EXPECT_GT(budget_->peak_bytes(), 0u);
}

TEST_F(QuantizeTest, ExpertsAreQuantizedWithTheirOwnImportance) {
  MakeModel(In(), ShapeText(256, 512, kExpertShape), DType::kF32);
  // The second expert's columns matter unevenly.
  std::vector<InputSums> sums(1);
  sums[0] = {{"blk.0.ffn_up_exps.weight"}, 256, std::vector<double>(768, 1.0), {1, 1, 0}};
  for (size_t i = 256; i < 512; ++i) sums[0].squares[i] = i % 7 == 0 ? 100 : 0.01;
  WriteImportance(folder_.Path("i.gguf"), sums, {"text", 1, 2});
  const ImportanceMatrix importance = ImportanceMatrix::Load(folder_.Path("i.gguf"));
  Quantize("mxfp4");
  const std::vector<float> plain = Floats(Out(), "blk.0.ffn_up_exps.weight");
  QuantizeOptions options;
  options.importance = &importance;
  const QuantizeResult result = Quantize("mxfp4", options);
  const std::vector<float> weighted = Floats(Out(), "blk.0.ffn_up_exps.weight");
  const auto expert = [](const std::vector<float>& all, size_t i) {
    const auto begin = all.begin() + static_cast<int64_t>(i * 256 * 512);
    return std::vector<float>(begin, begin + 256 * 512);
  };
  EXPECT_EQ(expert(plain, 0), expert(weighted, 0));
  EXPECT_NE(expert(plain, 1), expert(weighted, 1));
  EXPECT_EQ(expert(plain, 2), expert(weighted, 2)) << "an expert that no token reached";
  EXPECT_GT(result.without_importance, 0u);
}

TEST_F(QuantizeTest, WeightsThatAreNoNumbersAreRefusedByName) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Overwrite("blk.1.attn_k.weight", 1000, bad);
    EXPECT_THAT([&] { Quantize("q4_0"); },
                ThrowsMessage<Error>(HasSubstr("blk.1.attn_k.weight holds weights that are no")));
    EXPECT_THAT(folder_.Files(), ElementsAre("in.gguf"));
  }
  Overwrite("blk.1.attn_k.weight", 1000, 70000.0f);
  EXPECT_THAT([&] { Quantize("f16"); }, ThrowsMessage<Error>(HasSubstr("within the range of F16")));
  EXPECT_NO_THROW(Quantize("q8_0"));
}

TEST_F(QuantizeTest, WhatIsQuantizedNeedsToBeAskedFor) {
  Quantize("q8_0");
  std::filesystem::rename(Out(), In());
  EXPECT_THAT([&] { Quantize("q4_0"); }, ThrowsMessage<Error>(HasSubstr("--requantize")));
  EXPECT_THAT(folder_.Files(), ElementsAre("in.gguf"));
  // What keeps its type keeps its bytes, and is not quantized again.
  EXPECT_EQ(Quantize("q8_0").requantized, 0u);
  EXPECT_EQ(folder_.Bytes("out.gguf").size(), folder_.Bytes("in.gguf").size());
  QuantizeOptions options;
  options.requantize = true;
  EXPECT_GT(Quantize("q4_0", options).requantized, 10u);
}

TEST_F(QuantizeTest, AnImportanceMatrixOfOtherShapesIsRefused) {
  std::vector<InputSums> sums(1);
  sums[0] = {{"blk.0.ffn_up.weight"}, 128, std::vector<double>(128, 1.0), {1}};
  WriteImportance(folder_.Path("i.gguf"), sums, {"text", 1, 2});
  const ImportanceMatrix importance = ImportanceMatrix::Load(folder_.Path("i.gguf"));
  QuantizeOptions options;
  options.importance = &importance;
  EXPECT_THAT(
      [&] { Quantize("q4_0", options); },
      ThrowsMessage<Error>(HasSubstr("has 256 columns in 1 matrices: expected 256, found 128")));
}

TEST_F(QuantizeTest, OddRowsFallBackAndAreCounted) {
  std::filesystem::copy_file(SourcePath("tests/goldens/llama.gguf"), In(),
                             std::filesystem::copy_options::overwrite_existing);
  const QuantizeResult result = Quantize("q4_k_m");
  EXPECT_NO_THROW(PlanLoad(GgufFile::Open(Out())));
  uint64_t tensors = 0;
  for (const auto& [types, count] : result.fallbacks) tensors += count;
  EXPECT_GT(tensors, 5u);
}

}  // namespace
}  // namespace hearth
