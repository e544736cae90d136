// What a load leaves in memory is what the file holds: rows that come back out of the tiles of a
// loaded model against the file's own, experts and odd numbers of rows included.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "engine/engine.h"
#include "ops/elementwise.h"
#include "ops/repack.h"
#include "program.h"

namespace hearth {
namespace {

class LoadTest : public ::testing::TestWithParam<const char*> {
 protected:
  LoadTest()
      : path_(::testing::TempDir() + "hearth_load_test_" + GetParam() + ".gguf"),
        shape_(path_ + ".json") {
    // 301 rows of the output matrix: 18 tiles and a part of one.
    std::ofstream(shape_) << R"({"arch": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "vocab_size": 301,
        "context_length": 64, "num_experts": 3, "num_experts_per_token": 2})";
    const ProgramResult made =
        RunHearth({"synth", "--shape", shape_, "-o", path_, "--quant", GetParam()});
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  ~LoadTest() override {
    std::remove(path_.c_str());
    std::remove(shape_.c_str());
  }

  void CheckMatrix(Engine& engine, const GgufFile& file, const std::string& name,
                   const WeightView& matrix) {
    const GgufTensor* stored = file.FindTensorOrNull(name);
    ASSERT_NE(stored, nullptr) << name;
    const size_t row_bytes = RowBytes(stored->dtype, static_cast<size_t>(matrix.cols));
    std::vector<std::byte> bytes(row_bytes);
    std::vector<float> expected(static_cast<size_t>(matrix.cols)), actual(expected.size());
    for (int64_t expert = 0; expert < matrix.experts; ++expert) {
      for (int32_t row = 0; row < matrix.rows; ++row) {
        const auto index = static_cast<uint64_t>(expert * matrix.rows + row);
        file.ReadTensor(*stored, index * row_bytes, bytes);
        ToFloat(stored->dtype, bytes, expected);
        LookUpRows(engine.compute(), matrix.Expert(expert), {&row, 1},
                   {actual.data(), 1, matrix.cols, matrix.cols});
        ASSERT_EQ(actual, expected) << name << " expert " << expert << " row " << row;
      }
    }
  }

  std::string path_;
  std::string shape_;
};

TEST_P(LoadTest, RowsComeBackAsTheFileHasThem) {
  for (const int threads : {1, 3}) {
    const auto engine = Engine::Load(path_, {.threads = threads});
    const GgufFile file = GgufFile::Open(path_);
    const ModelWeights& weights = engine->model().weights();
    CheckMatrix(*engine, file, "token_embd.weight", weights.token_embedding);
    CheckMatrix(*engine, file, "output.weight", weights.output);
    const LayerWeights& layer = weights.layers[1];
    EXPECT_EQ(layer.ffn_gate.is_tiled, TileLayout::IsTiled(layer.ffn_gate.dtype));
    CheckMatrix(*engine, file, "blk.1.attn_k.weight", layer.attn_k);
    CheckMatrix(*engine, file, "blk.1.ffn_gate_exps.weight", layer.ffn_gate);
    CheckMatrix(*engine, file, "blk.1.ffn_down_exps.weight", layer.ffn_down);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LoadTest, ::testing::Values("q4_0", "q4_1", "q8_0", "f16"),
                         [](const auto& quant) { return quant.param; });

}  // namespace
}  // namespace hearth
