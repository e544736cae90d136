// Each layer's predictor gets the rank that its gates need: little where they are few directions,
// much where they are many.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/predict/layer_predictors.h"
#include "prepare/predict/predictor_maker.h"

namespace hearth {
namespace {

constexpr int64_t kHidden = 256, kNeurons = 512;
constexpr size_t kEasyLayer = 1;

// Rows of few directions: products of random matrices.
std::vector<float> GatesOfRank(int64_t rank) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> directions(static_cast<size_t>(rank * kHidden));
  for (float& d : directions) d = normal(random) / 16;
  std::vector<float> gates(static_cast<size_t>(kNeurons * kHidden));
  for (size_t n = 0; n < static_cast<size_t>(kNeurons); ++n) {
    for (size_t r = 0; r < static_cast<size_t>(rank); ++r) {
      const float share = normal(random);
      for (size_t c = 0; c < static_cast<size_t>(kHidden); ++c) {
        gates[n * static_cast<size_t>(kHidden) + c] +=
            share * directions[r * static_cast<size_t>(kHidden) + c];
      }
    }
  }
  return gates;
}

// The model at `from` with other gates in one layer.
void ReplaceGates(const std::string& from, const std::string& to, const std::vector<float>& gates) {
  const GgufFile file = GgufFile::Open(from);
  std::vector<GgufTensorDecl> decls;
  for (const GgufTensor& tensor : file.tensors()) {
    decls.push_back(
        {tensor.name, tensor.dtype,
         std::vector<uint64_t>(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims)});
  }
  const std::string name = "blk." + std::to_string(kEasyLayer) + ".ffn_gate.weight";
  GgufWriter writer(to, file.metadata(), decls);
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    file.ReadTensor(tensor, 0, bytes);
    if (tensor.name == name) {
      ASSERT_EQ(bytes.size(), gates.size() * sizeof(float));
      std::memcpy(bytes.data(), gates.data(), bytes.size());
    }
    writer.Append(bytes);
  }
  writer.Finish();
}

TEST(RankSearchTest, EasyGatesGetASmallerRankThanHardOnes) {
  const TestFolder folder("rank_search");
  MakeModel(folder.Path("hard"),
            R"({"arch": "llama", "hidden_size": 256, "intermediate_size": 512, "num_layers": 3,
                "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000,
                "activation": "relu"})",
            DType::kF32);
  ReplaceGates(folder.Path("hard"), folder.Path("mixed"), GatesOfRank(6));
  std::mt19937 random(3);
  std::vector<TokenId> text(1500);
  for (TokenId& token : text) token = 3 + static_cast<TokenId>(random() % 1990);
  PredictorOptions options;
  options.method = PredictorMethod::kTrainingFree;
  options.dtype = DType::kQ8_0;
  options.input = PredictorInput::kFfnInput;
  options.max_bytes_share = 0.5;

  const auto engine = Engine::Load(folder.Path("mixed"), {.threads = 2});
  const MadePredictors made = MakePredictors(*engine, text, options);
  ASSERT_EQ(made.reports.size(), 3u);
  const PredictorReport& easy = made.reports[kEasyLayer];
  EXPECT_EQ(easy.rank, kRankUnit) << "the smallest";
  EXPECT_LE(easy.figures.listed_ratio(), options.max_listed_ratio);
  for (const size_t hard : {0, 2}) {
    EXPECT_GT(made.reports[hard].rank, easy.rank) << "layer " << hard;
    EXPECT_LT(made.reports[hard].rank, kHidden) << "the largest";
    EXPECT_EQ(made.set.ffns[hard].rank, made.reports[hard].rank);
  }
  EXPECT_EQ(made.set.ffns[kEasyLayer].rank, kRankUnit);
  EXPECT_LT(easy.bytes, made.reports[0].bytes);
}

}  // namespace
}  // namespace hearth
